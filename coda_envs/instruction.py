"""Instructions as fixed-length observations, UTF-8 in zero-padded bytes, and back."""

from __future__ import annotations

import numpy as np

from coda_envs.errors import SceneError

#: Bytes kept for an instruction.
INSTRUCTION_BYTES = 128


def encode_instruction(text: str) -> np.ndarray:
    """UTF-8 bytes ``[128]`` uint8, zero-padded.

    Raises :class:`SceneError` for a text that is too long or has a zero character, which would be
    taken for padding.
    """
    data = text.encode("utf-8")
    if len(data) > INSTRUCTION_BYTES:
        raise SceneError(
            f"the instruction {text[:20]!r}... has {len(data)} bytes in UTF-8.",
            allowed=f"at most {INSTRUCTION_BYTES}",
            remedy="shorten it",
        )
    if "\0" in text:
        raise SceneError("the instruction has a zero character.", allowed="text")
    out = np.zeros(INSTRUCTION_BYTES, dtype=np.uint8)
    out[: len(data)] = np.frombuffer(data, dtype=np.uint8)
    return out


def decode_instruction(data: np.ndarray) -> str:
    """The text of an ``instruction`` observation."""
    return bytes(np.asarray(data, dtype=np.uint8)).rstrip(b"\0").decode("utf-8")
