"""Recordings: a folder of answers by the content of the question, for runs without a server."""

from __future__ import annotations

import json
from pathlib import Path

from coda_envs.errors import RunError
from coda_trainer.files import write_atomic
from coda_trainer.llm.question import Answer
from coda_trainer.strict_json import dumps


class Recordings:
    """One file an answer, named by the question's key, so that writers never meet and a kill leaves
    whole files only. A file holds no question, no header and no key of an account."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def find(self, key: str) -> Answer | None:
        """The recorded answer, or None. Raises :class:`RunError` for a file that is none."""
        path = self._path(key)
        if not path.is_file():
            return None
        try:
            data = json.loads(path.read_text(encoding="utf-8"))
            text, finish = str(data["text"]), str(data["finish"])
            given, taken = data["tokens_in"], data["tokens_out"]
            if not all(n is None or (isinstance(n, int) and n >= 0) for n in (given, taken)):
                raise ValueError(f"its numbers of tokens are {given!r} and {taken!r}")
        except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
            raise RunError(
                f"{path} is no recorded answer: {error}.", remedy="remove that file"
            ) from error
        return Answer(text, finish, given, taken, recorded=True)

    def add(self, key: str, answer: Answer) -> None:
        """Keep an answer; one that is there is replaced."""
        self.folder.mkdir(parents=True, exist_ok=True)
        data = {
            "text": answer.text,
            "finish": answer.finish,
            "tokens_in": answer.tokens_in,
            "tokens_out": answer.tokens_out,
        }
        write_atomic(self._path(key), dumps(data, indent=1) + "\n")

    def _path(self, key: str) -> Path:
        return self.folder / f"{key}.json"
