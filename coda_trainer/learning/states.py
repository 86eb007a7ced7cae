"""Reading the weights, optimiser and generator states of a checkpoint, executing nothing."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import torch

from coda_envs.errors import RunError

#: What torch raises for a file that is missing, damaged, not a checkpoint, or of another shape.
_BAD = (
    OSError,
    RuntimeError,
    ValueError,
    KeyError,
    TypeError,
    AttributeError,
    EOFError,
    pickle.UnpicklingError,
)


def load_states(path: Path, parts: dict[str, Any]) -> dict[str, Any]:
    """Give each part its state from a file of states: the whole file where its name is empty.

    Returns the file's content. Nothing in the file is executed. Raises :class:`RunError` that
    names the file where it is missing, damaged or of another shape.
    """
    try:
        content: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
        for name, part in parts.items():
            part.load_state_dict(content[name] if name else content)
    except _BAD as error:
        first = (str(error).splitlines() or [type(error).__name__])[0]
        raise RunError(
            f"{path} cannot be used: {first}.", remedy="use another checkpoint"
        ) from error
    return content
