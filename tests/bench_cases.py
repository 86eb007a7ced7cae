"""What the tests of the benchmarks share: a preset that runs in seconds, and figures by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from tiny_run import TINY

from coda_trainer.benchmarks.cells import Cell
from coda_trainer.benchmarks.reading import RunFigures, Success
from coda_trainer.config import RunConfig

#: A run of the weak test policy, which succeeds often.
RUN: dict[str, Any] = {
    **TINY,
    "strategy": "uniform",
    "backbone": {**TINY["backbone"], "options": {"lessons": 1}},
    "evaluation": {"suites": ["seed", "wide", "ood-dev", "ood"], "episodes": 3},
}
AGREEMENT = {"episodes": 4, "updates": 20, "every": 10, "candidates": 3, "epsilon": 0.0}


def write_preset(path: Path, **changes: Any) -> Path:
    """A preset file of Table 4 with two signals and one seed."""
    data = {
        "seeds": [0],
        "signals": ["sparse", "text2potential"],
        "target": 0.2,
        "agreement": AGREEMENT,
        "run": RUN,
    }
    path.write_text(yaml.safe_dump({**data, **changes}))
    return path


def figures(
    arm: str,
    curves: Mapping[str, Sequence[Sequence[int]]],
    *,
    seed: int = 0,
    group: str = "",
    updates: Sequence[int] = (0, 100),
    agreement: Mapping[str, Any] | None = None,
    choice: Mapping[str, Sequence[int]] | None = None,
) -> RunFigures:
    """A run's figures with these outcomes by suite and round."""
    return RunFigures(
        cell=Cell(arm, RunConfig(seed=seed), group=group),
        commit="abc",
        curves={s: [Success(tuple(o)) for o in rounds] for s, rounds in curves.items()},
        choice={s: Success(tuple(o)) for s, o in (choice or {}).items()},
        updates=list(updates),
        steps={"training": 10 + seed, "control": 5},
        agreement=agreement,
        seconds=None,
    )
