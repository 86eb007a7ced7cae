"""What a user passes to ``step``: its shape, and the errors that its numbers can be."""

from __future__ import annotations

from typing import Any

import numpy as np


def as_actions(actions: Any, shape: tuple[int, ...]) -> np.ndarray:
    """The action or actions as float64. Raises ``ValueError`` for another shape.

    Their numbers are checked and bounded where they act, see :mod:`coda_envs.kernels.control`.
    """
    values = np.asarray(actions, dtype=np.float64)
    if values.shape != shape:
        raise ValueError(f"the action has the shape {values.shape}; allowed: {shape}")
    return values


def not_finite(values: np.ndarray, index: int) -> ValueError:
    """The error of an action whose number ``index`` is not finite."""
    return ValueError(f"action[{index}] is {values[index]}; allowed: finite numbers in [-1, 1]")
