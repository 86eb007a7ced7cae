"""Evaluation: success on a suite, the backbone alone, with n and a 95% interval."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from coda_envs.errors import RunError
from coda_envs.family import TaskFamily, get_family
from coda_envs.scene import Scene
from coda_envs.scene_source import load_suite
from coda_trainer.config_file import load_run_config
from coda_trainer.episode import Episode
from coda_trainer.learning.actor import ActorSpec
from coda_trainer.learning.rollout import EnvSpec, Job, Progress, RolloutPool
from coda_trainer.statistics import Z95, wilson

#: Seeds of evaluation episodes start here: no training seed reaches so far.
SEEDS = 2**31


@dataclass(frozen=True)
class SuiteResult:
    """Outcomes on a suite, in the suite's order."""

    suite: str
    outcomes: tuple[bool, ...]

    @property
    def n(self) -> int:
        """Episodes run."""
        return len(self.outcomes)

    @property
    def successes(self) -> int:
        """Episodes that ended in success."""
        return sum(self.outcomes)

    @property
    def rate(self) -> float | None:
        """Success rate; None where nothing was run."""
        return self.successes / self.n if self.n else None

    def to_dict(self) -> dict[str, Any]:
        """n, successes, rate, Wilson 95% interval, and every outcome."""
        return {
            "suite": self.suite,
            "n": self.n,
            "successes": self.successes,
            "rate": self.rate,
            "interval95": wilson(self.successes, self.n),
            "outcomes": [int(o) for o in self.outcomes],
        }


def paired_gain(
    before: Sequence[bool | int], after: Sequence[bool | int]
) -> tuple[float, float, float]:
    """Mean paired difference of success with a 95% interval: (mean, low, high).

    ``before`` and ``after`` hold the same episodes in the same order. The interval is Wald's after
    half a pair is added to each of the four outcomes (Agresti & Min 2005), so that it keeps a
    width where no episode changed. Raises ``ValueError`` for outcomes that cannot be paired.
    """
    n = len(before)
    if not n == len(after) > 0:
        raise ValueError(f"{n} outcomes before and {len(after)} after cannot be paired")
    gained = sum(bool(a) and not b for b, a in zip(before, after, strict=True))
    lost = sum(bool(b) and not a for b, a in zip(before, after, strict=True))
    total, up, down = n + 2, gained + 0.5, lost + 0.5
    middle = (up - down) / total
    half = Z95 * math.sqrt(up + down - (up - down) ** 2 / total) / total
    return (gained - lost) / n, max(middle - half, -1.0), min(middle + half, 1.0)


def suite_jobs(family: TaskFamily, suite: str, episodes: int) -> list[Job]:
    """The jobs of a suite: scene i with seed i, starting over where the suite has fewer scenes."""
    return scene_jobs(load_suite(family, suite), suite, episodes)


def scene_jobs(scenes: Sequence[Scene], source: str, episodes: int) -> list[Job]:
    """``episodes`` evaluation jobs over ``scenes``, in order."""
    return [Job(scenes[i % len(scenes)], SEEDS + i, f"suite:{source}") for i in range(episodes)]


def evaluate(
    pool: RolloutPool,
    actor: ActorSpec,
    jobs: Sequence[Job],
    suite: str,
    progress: Progress | None = None,
) -> tuple[SuiteResult, list[Episode]]:
    """Run the jobs and count; the episodes come back for pictures, never for training."""
    episodes = pool.run(actor, jobs, progress)
    return SuiteResult(suite, tuple(e.success for e in episodes)), episodes


def evaluate_run(run: Path, *, suite: str, episodes: int) -> dict[str, Any]:
    """Evaluate the newest policy of a run folder on a suite.

    Raises :class:`RunError` where the folder is no run or has no complete checkpoint.
    """
    # Imported here: torch takes seconds, and the run folder's module is needed here alone.
    import torch

    from coda_trainer.rounds.run_folder import RunFolder

    # As in training, so that the figures are the same.
    torch.set_num_threads(1)
    config = load_run_config(run)
    family = get_family(config.family)
    round, checkpoint, problems = RunFolder(run).last_checkpoint()
    for problem in problems:
        print(f"{problem}; it is left out", file=sys.stderr)
    folder = checkpoint / "backbone"
    if not folder.is_dir():
        raise RunError(f"{checkpoint} holds no backbone.", remedy="evaluate another run")
    actor = ActorSpec(config.backbone.name, config.backbone.options, config.seed, folder)
    with RolloutPool(EnvSpec(config.family, config.control_hz), config.workers) as pool:
        result, _ = evaluate(pool, actor, suite_jobs(family, suite, episodes), suite)
    data = result.to_dict()
    del data["outcomes"]
    return {"run": str(run), "round": round, **data}
