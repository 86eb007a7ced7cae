"""Question and Answer: what is sent to a model, and what comes back."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from coda_trainer.strict_json import dumps


@dataclass(frozen=True)
class Picture:
    """A PNG, and a digest of what it ``shows``: two machines may draw the same thing in other
    bytes, and an answer recorded on one must be found on the other."""

    png: bytes
    shows: str


@dataclass(frozen=True)
class Question:
    """One question: texts and pictures in order. ``schema``: a JSON schema of the answer, called
    ``name``."""

    system: str
    parts: tuple[str | Picture, ...]
    schema: Mapping[str, Any]
    name: str

    def key(self, **settings: Any) -> str:
        """Digest of everything that the answer may depend on: the question, the pictures by
        what they show, and the ``settings`` that it is asked with."""
        parts = [p if isinstance(p, str) else {"picture": p.shows} for p in self.parts]
        told = {
            "system": self.system,
            "parts": parts,
            "schema": dict(self.schema),
            "name": self.name,
            "settings": dict(sorted(settings.items())),
        }
        return hashlib.sha256(dumps(told).encode()).hexdigest()


@dataclass(frozen=True)
class Answer:
    """What the model said, and the tokens that it took; None where the server did not say.

    ``finish``: why it stopped (``stop``, ``length``, ``refusal`` …). ``recorded``: it comes from
    the recordings, and cost nothing now.
    """

    text: str
    finish: str
    tokens_in: int | None
    tokens_out: int | None
    recorded: bool = False


def closed_object(**properties: Any) -> dict[str, Any]:
    """JSON schema of an object with these properties, all of them and no others."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def data_block(tag: str, told: Mapping[str, Any]) -> str:
    """Data as JSON between ``<tag>`` and ``</tag>``. No name in it can end the block: ``<`` is
    written as JSON's escape."""
    data = dumps(told, indent=1).replace("<", "\\u003c")
    return f"<{tag}>\n{data}\n</{tag}>"


def answer_form(schema: Mapping[str, Any]) -> str:
    """The part of a question that says what its answer looks like."""
    return f"Form of the answer (JSON schema):\n{dumps(schema)}"
