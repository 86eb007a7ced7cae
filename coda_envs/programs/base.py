"""What all programs share: frozen pydantic data with a content hash, never executed as text."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, ValidationError

from coda_envs.errors import ProgramError, short


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
        try:
            return cls.model_validate(data)
        except (ValidationError, RecursionError) as error:
            if isinstance(error, RecursionError):
                raise ProgramError(f"{source} is nested too deeply.") from error
            first = error.errors()[0]
            where = ".".join(str(p) for p in first["loc"])
            value = short(first.get("input"))
            raise ProgramError(
                f"{source}: {where or cls.__name__} is {value}: {first['msg']}."
            ) from error
