"""What all programs share: frozen pydantic data with a content hash, never executed as text."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, ValidationError

from coda_envs.errors import ProgramError, short

#: Most levels of mappings and lists within one another.
MAX_DEPTH = 64


class ProgramData(BaseModel):
    """Frozen, closed data: unknown keys, NaN and infinity are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    def to_dict(self) -> dict[str, Any]:
        """Plain data, ready for JSON or YAML."""
        return self.model_dump(mode="json")

    def canonical_json(self) -> str:
        """JSON with sorted keys and no spaces."""
        return json.dumps(self.to_dict(), sort_keys=True, separators=(",", ":"), allow_nan=False)

    @property
    def hash(self) -> str:
        """First 16 hex digits of the sha256 of the canonical JSON: the program's version."""
        return hashlib.sha256(self.canonical_json().encode()).hexdigest()[:16]

    @classmethod
    def parse(cls, data: Any, source: str = "program") -> Self:
        """Checked data from outside. Raises :class:`ProgramError` with entry, value and reason."""
        if not isinstance(data, Mapping):
            raise ProgramError(f"{source} holds {type(data).__name__}, not a mapping.")
        if _deeper_than(MAX_DEPTH, data):
            # Seen before the validation, which would stop in the middle of Python's own stack.
            raise ProgramError(
                f"{source} is nested too deeply.", allowed=f"at most {MAX_DEPTH} levels"
            )
        try:
            return cls.model_validate(data)
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(str(p) for p in first["loc"])
            value = short(first.get("input"))
            raise ProgramError(
                f"{source}: {where or cls.__name__} is {value}: {first['msg']}."
            ) from error


def _deeper_than(levels: int, data: Any) -> bool:
    """Whether mappings and lists lie within one another more than ``levels`` deep."""
    layer = [data]
    for _ in range(levels + 1):
        # Once each: lists that hold one another many times over would be endless.
        inner: dict[int, Any] = {}
        for part in layer:
            if isinstance(part, Mapping):
                inner |= {id(value): value for value in part.values()}
            elif isinstance(part, (list, tuple)):
                inner |= {id(value): value for value in part}
        if not inner:
            return False
        layer = list(inner.values())
    return True
