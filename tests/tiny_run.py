"""What the tests of the loop share: a configuration that runs in seconds, and reading a run."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

from command_line import strict
from rich.console import Console

from coda_trainer.config import RunConfig
from coda_trainer.config_file import load_run_config
from coda_trainer.report.progress import Reporter
from coda_trainer.rounds.loop import train

WEAK = str(Path(__file__).with_name("weak_policy.py"))

#: As few episodes as let a difficulty mode be found, confirmed and measured.
TINY: dict[str, Any] = {
    "rounds": 1,
    "backbone": {"name": WEAK},
    "demonstrations": {"episodes": 8},
    "sft": {"updates": 40, "batch_size": 64},
    "collect": {
        "warm_up_episodes": 8,
        "episodes": 16,
        "episodes_per_block": 8,
        "scenes": 8,
        "scenes_per_mode": 4,
    },
    "learner": {"warm_up_updates": 10, "updates_per_block": 10, "batch_size": 32},
    "distil": {"episodes": 8, "updates": 80},
    "diagnosis": {"episodes": 40, "max_tested": 1},
    "control": {"max_per_arm": 8},
    "probes": {"per_mode": 4},
    "evaluation": {"suites": ["seed", "ood-dev"], "episodes": 4},
}


def tiny(**changes: Any) -> RunConfig:
    """The tiny configuration; a group of settings is merged, anything else replaced."""
    data: dict[str, Any] = dict(TINY)
    for name, value in changes.items():
        data[name] = {**data.get(name, {}), **value} if isinstance(value, dict) else value
    return RunConfig.model_validate(data)


def quiet() -> Reporter:
    """A reporter that nobody hears."""
    return Reporter(Console(file=io.StringIO()))


def results(run: Path) -> dict[str, Any]:
    """What the run measured, without what may differ between machines and checkouts."""
    found: dict[str, Any] = strict((run / "results.json").read_text())
    return {k: v for k, v in found.items() if k not in ("commit", "engine")}


def metrics(run: Path) -> list[dict[str, Any]]:
    return [strict(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def replayed(run: Path, family: str) -> dict[str, Any]:
    """What a family's replay holds after the run's last round, without the arrays."""
    last = sorted((run / "checkpoints").glob("round_*"))[-1]
    found: dict[str, Any] = strict(
        (last / "families" / family / "replay" / "replay.json").read_text()
    )
    return found


def contents(run: Path) -> dict[str, bytes]:
    """Every file of a run that a user looks at, by its path."""
    # A reader may leave SQLite's side files behind.
    passing = (".lock", "memory.sqlite-wal", "memory.sqlite-shm")
    files = (p for p in run.rglob("*") if p.is_file() and p.name not in passing)
    return {str(p.relative_to(run)): p.read_bytes() for p in files}


def events(run: Path) -> dict[str, list[tuple[int, float]]]:
    """The scalars that TensorBoard shows: (step, value) by tag."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    reader = EventAccumulator(str(run / "events"), size_guidance={"scalars": 0})
    reader.Reload()
    return {
        tag: [(e.step, e.value) for e in reader.Scalars(tag)] for tag in reader.Tags()["scalars"]
    }


def resume(run: Path) -> str:
    """Go on with a run; what it said."""
    said = io.StringIO()
    train(load_run_config(run), run, resume=True, reporter=Reporter(Console(file=said, width=200)))
    return said.getvalue()
