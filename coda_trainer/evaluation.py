"""Evaluation: success on a suite, the backbone alone, with n and a 95% interval."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from coda_envs.errors import RunError
from coda_envs.family import TaskFamily, get_family
from coda_envs.scene import Scene
from coda_envs.scene_source import load_suite
from coda_trainer.backbone import TrainableBackbone
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
    """Mean paired difference of success and its normal 95% interval: (mean, low, high).

    ``before`` and ``after`` hold the same episodes in the same order.
    """
    change = np.asarray(after, dtype=float) - np.asarray(before, dtype=float)
    mean = float(change.mean())
    half = Z95 * float(change.std(ddof=1)) / np.sqrt(len(change)) if len(change) > 1 else 1.0
    return mean, mean - half, mean + half


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
    # Imported here: the run folder's module is not needed by those who only want the figures.
    from coda_trainer.rounds.run_folder import RunFolder

    config = load_run_config(run)
    family = get_family(config.family)
    round, checkpoint, _ = RunFolder(run).last_checkpoint()
    folder = checkpoint / "backbone"
    if not folder.is_dir():
        raise RunError(f"{checkpoint} holds no backbone.", remedy="evaluate another run")
    actor = ActorSpec(config.backbone.name, config.backbone.options, config.seed, folder)
    with RolloutPool(EnvSpec(config.family, config.control_hz), config.workers) as pool:
        result, _ = evaluate(pool, actor, suite_jobs(family, suite, episodes), suite)
    data = result.to_dict()
    del data["outcomes"]
    return {"run": str(run), "round": round, **data}


def trainable(backbone: object, name: str) -> TrainableBackbone:
    """``backbone`` as one that can be trained. Raises :class:`RunError` where it cannot."""
    if not isinstance(backbone, TrainableBackbone):
        raise RunError(
            f"backbone {name!r} cannot be trained: it lacks update, save or load.",
            remedy="choose a trainable backbone",
        )
    return backbone
