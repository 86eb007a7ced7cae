"""What the tests of the command line share: processes, and a parser that forgives nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[1]


class Answer(NamedTuple):
    """What a command line gave: exit code, standard output, standard error."""

    code: int
    out: str
    err: str


#: The fixture ``coda``: runs the words after ``coda``.
Coda = Callable[..., Answer]


def process(
    words: list[str], cwd: Path, env: Mapping[str, str] | None = None, **options: Any
) -> subprocess.Popen[str]:
    """Start one command line in a process of its own, as a user does."""
    return subprocess.Popen(
        [sys.executable, "-m", "coda_trainer.cli", *words],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(ROOT), **(env or {})},
        text=True,
        stderr=subprocess.PIPE,
        **{"stdout": subprocess.PIPE, **options},
    )


def strict(text: str) -> Any:
    """Parse one JSON document; NaN and Infinity are errors."""

    def refuse(word: str) -> None:
        raise AssertionError(f"{word} is not JSON")

    return json.loads(text, parse_constant=refuse)
