"""Demonstrations: the expert's noised successes on scenes of the seed range."""

from __future__ import annotations

import numpy as np

from coda_envs.errors import LearningError
from coda_envs.family import TaskFamily
from coda_trainer.episode import Episode
from coda_trainer.learning.rollout import Job, Progress, RolloutPool

#: Batches of scenes before giving up on an expert that fails.
_TRIES = 4


def collect_demonstrations(
    pool: RolloutPool,
    family: TaskFamily,
    episodes: int,
    noise: float,
    rng: np.random.Generator,
    progress: Progress | None = None,
    *,
    pushes: float = 0.0,
) -> list[Episode]:
    """``episodes`` successful episodes of the expert; its failures are left out.

    ``noise``, ``pushes``: see :meth:`RolloutPool.demonstrate`. Raises :class:`LearningError` where
    the expert does not succeed often enough.
    """
    kept: list[Episode] = []
    for _ in range(_TRIES):
        missing = episodes - len(kept)
        jobs = [
            Job(family.sample(rng, "seed"), int(rng.integers(2**31)), "demonstration")
            for _ in range(missing)
        ]
        kept += [e for e in pool.demonstrate(noise, jobs, pushes=pushes) if e.success]
        if progress is not None:
            progress(len(kept))
        if len(kept) == episodes:
            return kept
    raise LearningError(
        f"the expert of {family.name!r} succeeded only {len(kept)} times in {_TRIES} rounds.",
        allowed=f"{episodes} successes",
        remedy="lower demonstrations.noise",
    )
