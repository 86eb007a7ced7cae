"""JSON that every reader accepts: no NaN, no infinity, no types of our own."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np


def plain(data: Any) -> Any:
    """``data`` as plain JSON types.

    NaN and infinities become null: in this project they mean "not measured", and strict JSON has
    no word for them. Raises :class:`TypeError` on a type that has no plain form.
    """
    if data is None or isinstance(data, (bool, str)):
        return data
    if isinstance(data, (int, np.integer)):
        return int(data)
    if isinstance(data, (float, np.floating)):
        return float(data) if math.isfinite(data) else None
    if isinstance(data, np.bool_):
        return bool(data)
    if isinstance(data, np.ndarray):
        return plain(data.tolist())
    if isinstance(data, Path):
        return str(data)
    if isinstance(data, Mapping):
        return {str(key): plain(value) for key, value in data.items()}
    if isinstance(data, Sequence) and not isinstance(data, bytes):
        return [plain(value) for value in data]
    raise TypeError(f"{type(data).__name__} has no plain JSON form")


def dumps(data: Any, *, indent: int | None = None) -> str:
    """``data`` as one strict JSON document; see :func:`plain`."""
    return json.dumps(plain(data), indent=indent, allow_nan=False)
