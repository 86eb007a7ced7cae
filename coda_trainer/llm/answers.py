"""Reading a model's answer as JSON: fences and talk around it are taken off, nothing is run."""

from __future__ import annotations

import json
import re
from typing import Any, NoReturn

from coda_envs.errors import ProgramError, short

#: Longest answer that is looked at, in characters.
MAX_CHARACTERS = 100_000

_FENCE = re.compile(r"```[A-Za-z0-9_-]*\s*\n(.*?)```", re.S)
_THOUGHT = "</think>"


def read_object(text: str) -> dict[str, Any]:
    """The JSON object in an answer.

    What stands before ``</think>``, a Markdown fence, and words before and after the object are
    left out. Raises :class:`ProgramError` where there is no object, where it is cut off, holds NaN
    or an infinity, or has a key twice.
    """
    if len(text) > MAX_CHARACTERS:
        raise ProgramError(
            f"the answer has {len(text)} characters.", allowed=f"at most {MAX_CHARACTERS}"
        )
    # A thinking model may write JSON while it thinks; what counts comes after.
    said = text.rpartition(_THOUGHT)[2].removeprefix("\ufeff").strip()
    if not said:
        raise ProgramError("the answer is empty.", allowed="one JSON object")
    fenced = _FENCE.search(said)
    if fenced:
        said = fenced.group(1).strip()
    start = said.find("{")
    if start < 0:
        raise ProgramError(f"the answer {short(said)} has no object.", allowed="one JSON object")
    try:
        found, _ = _DECODER.raw_decode(said, start)
    except (ValueError, RecursionError) as error:
        why = "nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise ProgramError(f"the answer is not JSON: {why}.", allowed="one JSON object") from error
    assert isinstance(found, dict)
    return found


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON number")


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key is given twice")
    return found


_DECODER = json.JSONDecoder(parse_constant=_no_constant, object_pairs_hook=_once)
