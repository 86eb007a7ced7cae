"""State features by name, and functions of the numbers or arrays that they give.

NumPy's functions of one number cost twenty times as much as Python's, so that of one state the
columns are Python's floats.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from coda_envs.features import GRIPPER, OBJECT, FeatureSchema

_GRIPPER = {name: i for i, name in enumerate(GRIPPER)}
_OBJECT = {name: i for i, name in enumerate(OBJECT)}
_FLOAT64 = np.dtype(np.float64)


class View:
    """Named access to the columns of ``features [..., F]``; one state ``[F]`` gives numbers."""

    def __init__(self, schema: FeatureSchema, features: np.ndarray) -> None:
        self.schema = schema
        self.features = features
        self._starts = schema.starts
        # The environment asks the verifier after every step. Python's floats calculate like
        # float64 arrays, bit for bit, at a fraction of what arrays of one number cost.
        self.one_state = features.ndim == 1 and features.dtype is _FLOAT64

    def gripper(self, name: str) -> np.ndarray:
        """Column ``gripper.<name>``, shape ``[...]``."""
        column: np.ndarray = self.features[..., _GRIPPER[name]]
        return column

    def of(self, role: str, name: str) -> np.ndarray:
        """Column ``<role>.<name>``, shape ``[...]``."""
        start = self._starts.get(role)
        index = (self.schema.role_offset(role) if start is None else start) + _OBJECT[name]
        column: np.ndarray
        column = self.features.item(index) if self.one_state else self.features[..., index]
        return column

    def position(self, role: str) -> np.ndarray:
        """Positions ``[..., 3]`` of a role."""
        start = self.schema.role_offset(role) + _OBJECT["x"]
        return self.features[..., start : start + 3]

    def gripper_position(self) -> np.ndarray:
        """Positions ``[..., 3]`` of the point between the fingertips."""
        return self.features[..., :3]

    def horizontal_gap(self, role: str, other: str) -> np.ndarray:
        """Horizontal distance between two roles' middles (m)."""
        x = self.of(role, "x") - self.of(other, "x")
        y = self.of(role, "y") - self.of(other, "y")
        gap: np.ndarray = sqrt(x * x + y * y)
        return gap


def sqrt(value: Any) -> Any:
    """Square root of a number or an array."""
    return math.sqrt(value) if isinstance(value, float) else np.sqrt(value)


def cos(value: Any) -> Any:
    """Cosine of a number or an array (rad)."""
    return math.cos(value) if isinstance(value, float) else np.cos(value)


def sin(value: Any) -> Any:
    """Sine of a number or an array (rad)."""
    return math.sin(value) if isinstance(value, float) else np.sin(value)


def larger(one: Any, two: Any) -> Any:
    """The larger of two numbers, or of each pair of two arrays."""
    return max(one, two) if isinstance(one, float) else np.maximum(one, two)


def smaller(one: Any, two: Any) -> Any:
    """The smaller of two numbers, or of each pair of two arrays."""
    return min(one, two) if isinstance(one, float) else np.minimum(one, two)
