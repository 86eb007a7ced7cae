"""Reading a run folder: the figures that benchmarks combine."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from coda_trainer.benchmarks.cells import Cell
from coda_trainer.benchmarks.critics import agreement_file
from coda_trainer.benchmarks.running import seconds
from coda_trainer.config import ALL, RunConfig
from coda_trainer.rounds.run_folder import RunFolder
from coda_trainer.statistics import wilson


@dataclass(frozen=True)
class Success:
    """Outcomes on a suite after a round, in the suite's order (families one after the other)."""

    outcomes: tuple[int, ...]

    @property
    def rate(self) -> float:
        """Share of successes."""
        return sum(self.outcomes) / len(self.outcomes)

    def to_dict(self) -> dict[str, Any]:
        """n, successes, rate and Wilson interval."""
        n, successes = len(self.outcomes), sum(self.outcomes)
        return {
            "n": n,
            "successes": successes,
            "rate": self.rate,
            "interval95": wilson(successes, n),
        }


@dataclass(frozen=True)
class RunFigures:
    """What a finished run measured.

    ``curves[suite]``: success of the backbone alone after rounds 0, 1, …, over all families of the
    run; ``choice[suite]``: with the critic at test time, after the last round, where that was
    measured. ``updates``: critic updates of a family until each round's end; ``steps``: simulated
    control steps by what they were spent on; ``agreement``: see :mod:`critics`, None where it was
    not asked for. ``seconds``: see :func:`running.seconds`. ``modes``: of every difficulty mode
    that was trained on, its ``progress`` in the last round and its ``targeting`` in the first one
    that measured it (None where not measured).
    """

    cell: Cell
    commit: str
    curves: Mapping[str, list[Success]]
    choice: Mapping[str, Success]
    updates: list[int]
    steps: Mapping[str, int]
    agreement: Mapping[str, Any] | None
    seconds: float | None
    modes: Sequence[Mapping[str, Any]] = ()

    @property
    def rounds(self) -> int:
        """The last round."""
        return len(self.updates) - 1

    def to_dict(self) -> dict[str, Any]:
        """Plain data: the run's figures, with every curve."""
        return {
            "arm": self.cell.arm,
            "group": self.cell.group,
            "seed": self.cell.config.seed,
            "folder": self.cell.folder,
            "commit": self.commit,
            "seconds": self.seconds,
            "updates": self.updates,
            "steps": dict(self.steps),
            "suites": {name: [s.to_dict() for s in curve] for name, curve in self.curves.items()},
            "critic_at_test_time": {name: s.to_dict() for name, s in self.choice.items()},
            "agreement": self.agreement,
            "modes": [dict(mode) for mode in self.modes],
        }


def read_run(cell: Cell, folder: Path) -> RunFigures:
    """The figures of a cell's complete run. Raises :class:`RunError` where it is none."""
    run = RunFolder(folder)
    last, checkpoint, _ = run.last_checkpoint()
    records = run.metrics()
    config = cell.config
    family = config.families[0] if len(config.families) == 1 else ALL
    curves: dict[str, list[Success]] = {
        suite: [
            Success(tuple(r["outcomes"]))
            for r in records
            if (r["event"], r["family"], r.get("suite")) == ("evaluation", family, suite)
        ]
        for suite in config.evaluation.suites
    }
    choice: dict[str, list[int]] = {}
    for record in records:
        if record["event"] == "critic at test time" and record["round"] == last:
            choice.setdefault(record["suite"], []).extend(record["outcomes"])
    agreement = None
    if cell.agreement is not None:
        text = agreement_file(folder, cell.agreement).read_text(encoding="utf-8")
        agreement = json.loads(text)
    return RunFigures(
        cell=cell,
        commit=str(run.manifest()["commit"]),
        curves=curves,
        choice={suite: Success(tuple(outcomes)) for suite, outcomes in choice.items()},
        updates=_updates(config, last),
        steps=_steps(checkpoint),
        agreement=agreement,
        seconds=seconds(folder),
        modes=_modes(records),
    )


def _modes(records: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """What was measured of every mode, in the order in which they were first measured."""
    found: dict[str, dict[str, Any]] = {}
    for record in records:
        if record["event"] == "targeting":
            mode = found.setdefault(record["source"], {"progress": None, "targeting": None})
            if mode["targeting"] is None:
                mode["targeting"] = record["in_band"]["posterior"]
        if record["event"] == "progress":
            mode = found.setdefault(record["mode"], {"progress": None, "targeting": None})
            mode["progress"] = record["learning_progress"]
    return [{"mode": name, **measured} for name, measured in found.items()]


def _updates(config: RunConfig, last: int) -> list[int]:
    """Critic updates of one family until the end of each round."""
    blocks = -(-config.collect.episodes // config.collect.episodes_per_block)
    round = config.learner.warm_up_updates + blocks * config.learner.updates_per_block
    return [n * round for n in range(last + 1)]


def _steps(checkpoint: Path) -> dict[str, int]:
    """Simulated control steps by purpose, over all families."""
    described = json.loads((checkpoint / "state.json").read_text(encoding="utf-8"))
    steps: dict[str, int] = {}
    for family in described["families"].values():
        for purpose, count in family["meter"].items():
            steps[purpose] = steps.get(purpose, 0) + int(count)
    return steps
