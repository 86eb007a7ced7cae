"""What the tests of the loop share: a configuration that runs in seconds, and a quiet reporter."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

from rich.console import Console

from coda_trainer.config import RunConfig
from coda_trainer.report.progress import Reporter

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
        data[name] = {**data[name], **value} if isinstance(value, dict) else value
    return RunConfig.model_validate(data)


def quiet() -> Reporter:
    """A reporter that nobody hears."""
    return Reporter(Console(file=io.StringIO()))
