"""A benchmark: its cells, what they are expected to show, their figures, tables and pictures."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from typing import Any, Generic, TypeVar

from coda_envs.errors import ConfigError, RunError, suggest
from coda_trainer.benchmarks.cells import Cell, check_cells, chosen
from coda_trainer.benchmarks.preset import Preset, load_preset
from coda_trainer.benchmarks.reading import RunFigures, read_run
from coda_trainer.benchmarks.report import Report
from coda_trainer.benchmarks.running import LEFT_OUT, Task, run_cells
from coda_trainer.benchmarks.tables import Table, markdown
from coda_trainer.files import write_atomic
from coda_trainer.machine import code_commit, describe_machine
from coda_trainer.strict_json import dumps, plain

P = TypeVar("P", bound=Preset)

#: Every benchmark: its module and class.
BENCHES = {
    "table4": "coda_trainer.benchmarks.table4:Table4",
    "table5": "coda_trainer.benchmarks.table5:Table5",
    "table6": "coda_trainer.benchmarks.table6:Table6",
    "table7": "coda_trainer.benchmarks.table7:Table7",
    "figure4": "coda_trainer.benchmarks.figure4:Figure4",
    "pilot": "coda_trainer.benchmarks.pilot:Pilot",
    "tools": "coda_trainer.benchmarks.tools:ToolsBench",
}


class Bench(ABC, Generic[P]):
    """One file a benchmark; :data:`BENCHES` finds it by name."""

    name: str
    heading: str
    preset_type: type[P]

    @abstractmethod
    def cells(self, preset: P) -> list[Cell]:
        """Every run that it needs."""

    @abstractmethod
    def expected(self, preset: P) -> dict[str, Any]:
        """What is expected, and what the sizes can show: written down before the first run."""

    @abstractmethod
    def combine(self, preset: P, runs: Sequence[RunFigures]) -> dict[str, Any]:
        """The figures of the runs that are complete."""

    @abstractmethod
    def tables(self, preset: P, figures: Mapping[str, Any]) -> list[Table]:
        """The figures as tables, the paper's beside them where it has some."""

    @abstractmethod
    def draw(self, preset: P, figures: Mapping[str, Any], path: Path) -> None:
        """The figures as one picture."""


def make_bench(name: str) -> Bench[Any]:
    """The benchmark of that name. Raises :class:`ConfigError` for an unknown one."""
    if name not in BENCHES:
        raise ConfigError(f"unknown benchmark {name!r}.", allowed=suggest(name, BENCHES))
    module, _, kind = BENCHES[name].partition(":")
    made: Bench[Any] = getattr(import_module(module), kind)()
    return made


def run_bench(
    name: str,
    preset_name: str,
    *,
    runs: Path,
    out: Path,
    only: Sequence[str] = (),
    jobs: int = 1,
    say: Callable[[str], None],
) -> Report:
    """Run what is missing of a benchmark and write ``<name>-<preset>.json``, ``.md`` and ``.png``.

    ``runs``: where the run folders are; ``out``: where the result goes; ``only``: cells or arms to
    run now, what is complete of the others counts too. The statement of what is expected is written
    before the first run and kept. Raises :class:`ConfigError` before anything runs.
    """
    bench = make_bench(name)
    preset = load_preset(bench.preset_type, name, preset_name)
    cells = bench.cells(preset)
    check_cells(cells)
    wanted = chosen(cells, only)
    out.mkdir(parents=True, exist_ok=True)
    runs.mkdir(parents=True, exist_ok=True)
    stem = f"{name}-{Path(preset_name).stem}"
    result = out / f"{stem}.json"
    stated = _statement(preset, result)
    told: dict[str, Any] = {
        "bench": name,
        "preset": preset.model_dump(mode="json"),
        "expected": stated or _new_statement(bench, preset),
        "commit": code_commit(),
        "machine": describe_machine(),
        "seeds": list(preset.seeds),
    }
    if stated is None:
        _write(result, {**told, "cells": {}, "figures": None, "complete": False})
    problems = run_cells(wanted, runs, jobs, say)
    complete = [read_run(c, runs / c.folder) for c in cells if _complete(c, runs, problems)]
    figures = plain(bench.combine(preset, complete))
    done = {run.cell.name: run.to_dict() for run in complete}
    stopped = {name: problem for name, problem in problems.items() if problem}
    failed = {n: problem for n, problem in stopped.items() if not problem.startswith(LEFT_OUT)}
    left_out = len(stopped) - len(failed)
    told |= {
        "cells": {
            c.name: {"status": _status(c, done, stopped), "problem": stopped.get(c.name, "")}
            | done.get(c.name, {"arm": c.arm, "seed": c.config.seed})
            for c in cells
        },
        "configurations": {c.name: c.config.to_dict() for c in cells},
        "figures": figures,
        "complete": len(done) + left_out == len(cells),
    }
    _write(result, told)
    tables = bench.tables(preset, figures)
    picture, page = out / f"{stem}.png", out / f"{stem}.md"
    bench.draw(preset, figures, picture)
    write_atomic(page, markdown([*tables, _state(told)], bench.heading, [picture.name]))
    return Report(told, tables, (result, page, picture), failed)


def _statement(preset: Preset, result: Path) -> dict[str, Any] | None:
    """What an earlier call wrote down as expected of the same preset, or None."""
    if not result.is_file():
        return None
    try:
        before = json.loads(result.read_text(encoding="utf-8"))
        same = before["preset"] == preset.model_dump(mode="json")
        return dict(before["expected"]) if same else None
    except (ValueError, KeyError, TypeError) as error:
        raise RunError(
            f"{result} is not a benchmark's result: {error}.", remedy="move it out of the way"
        ) from error


def _new_statement(bench: Bench[P], preset: P) -> dict[str, Any]:
    now = datetime.now(UTC).isoformat(timespec="seconds")
    return {"written": now, "commit": code_commit(), **bench.expected(preset)}


def _complete(cell: Cell, runs: Path, problems: Mapping[str, str]) -> bool:
    """Whether a cell is; one that was not asked for now may have been brought to its end before."""
    if cell.name in problems:
        return not problems[cell.name]
    return Task(cell.name, runs / cell.folder, cell.config, None, cell.agreement).complete()


def _status(cell: Cell, done: Mapping[str, Any], stopped: Mapping[str, str]) -> str:
    if cell.name in stopped:
        return "left out" if stopped[cell.name].startswith(LEFT_OUT) else "failed"
    return "complete" if cell.name in done else "not run"


def _state(told: Mapping[str, Any]) -> Table:
    """Where the figures come from."""
    cells = told["cells"].values()
    names = ("complete", "failed", "left out", "not run")
    count = {s: sum(c["status"] == s for c in cells) for s in names}
    times = [c["seconds"] for c in cells if c.get("seconds") is not None]
    machine = told["machine"]
    commits = sorted({c["commit"] for c in cells if "commit" in c})
    return Table(
        "Runs",
        (*names, "seconds in all", "commits", "machine"),
        [
            (
                *map(str, count.values()),
                f"{sum(times):.0f}" if times else "not measured",
                ", ".join(commits) or "none",
                f"{machine['processor']}, {machine['cores']} cores",
            )
        ],
    )


def _write(path: Path, data: Mapping[str, Any]) -> None:
    write_atomic(path, dumps(data, indent=1) + "\n")
