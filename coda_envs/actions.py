"""What a user passes to ``step``, checked and brought into the form in which it acts."""

from __future__ import annotations

import math
from typing import Any

import numpy as np


def checked_action(action: Any) -> np.ndarray:
    """The action ``[7]`` float64 within [-1, 1], each number one that float32 can hold.

    Raises ``ValueError`` for another shape and for numbers that are not finite.
    """
    values = np.asarray(action, dtype=np.float64)
    if values.shape != (7,):
        raise ValueError(f"the action has the shape {values.shape}; allowed: (7,)")
    finite = [math.isfinite(value) for value in values.tolist()]
    if not all(finite):
        index = finite.index(False)
        raise ValueError(f"action[{index}] is {values[index]}; allowed: finite numbers in [-1, 1]")
    bounded = [max(-1.0, min(value, 1.0)) for value in values.tolist()]
    # Rounded to float32 like the action space, so that what is stored is what acted.
    return np.array(bounded, dtype=np.float32).astype(np.float64)
