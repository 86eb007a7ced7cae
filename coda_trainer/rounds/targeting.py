"""Targeting: whether the scenes made for a mode are neither always solved nor never."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from scipy.stats import beta

from coda_envs.scene import Scene
from coda_trainer.learning.exploration import ExplorationNoise
from coda_trainer.learning.rollout import Job
from coda_trainer.rounds.context import RoundContext

#: Success rates between which a scene teaches, and a wider band that is reported too.
BAND, WIDE_BAND = (0.2, 0.8), (0.1, 0.9)
#: What it explores with while its success in a scene is measured.
NOISE = ExplorationNoise()


def measure_targeting(context: RoundContext, source: str, scenes: Sequence[Scene]) -> None:
    """Run the policy as it stands in the first ``probes.band_scenes`` of ``scenes``,
    ``probes.band_rollouts`` times in each under fresh seeds, and log the share in the band.

    It acts with :data:`NOISE`: alone it does the same in a scene every time, and what a scene
    teaches depends on whether exploring succeeds sometimes. The episodes are metered as probes and
    go nowhere else. Without rollouts nothing is measured.
    """
    settings = context.config.probes
    if not settings.band_rollouts:
        return
    rng = context.rng(f"targeting {source}")
    tried = scenes[: settings.band_scenes]
    jobs = [
        Job(scene, int(rng.integers(2**31)), "targeting")
        for scene in tried
        for _ in range(settings.band_rollouts)
    ]
    episodes = context.pool.run(context.actor("targeting", noise=NOISE), jobs)
    context.count_steps("probes", sum(e.length for e in episodes))
    won = np.array([e.success for e in episodes]).reshape(len(tried), settings.band_rollouts)
    successes = won.sum(1)
    context.log(
        "targeting",
        source=source,
        scenes=len(tried),
        rollouts=settings.band_rollouts,
        successes=successes.tolist(),
        in_band=in_band(successes, settings.band_rollouts, BAND),
        in_wide_band=in_band(successes, settings.band_rollouts, WIDE_BAND),
    )


def in_band(successes: np.ndarray, rollouts: int, band: tuple[float, float]) -> Mapping[str, float]:
    """Share of scenes whose success rate lies in ``band``: ``observed``, by the rate of the
    ``rollouts``, and ``posterior``, the mean probability under Beta(k + 1, n − k + 1)."""
    rates = successes / rollouts
    low, high = band
    inside = beta.cdf(high, successes + 1, rollouts - successes + 1) - beta.cdf(
        low, successes + 1, rollouts - successes + 1
    )
    return {
        "observed": float(np.mean((rates >= low) & (rates <= high))),
        "posterior": float(np.mean(inside)),
    }
