"""Evaluation: success on a suite, the backbone alone, with n and a 95% interval."""

from __future__ import annotations

import math
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from coda_envs.engine.proposals import generate
from coda_envs.errors import SceneError
from coda_envs.family import TaskFamily, get_family
from coda_envs.interactions import THIRDS, Interaction, load_interactions, sample_interaction
from coda_envs.scene import Scene
from coda_envs.scene_source import load_suite
from coda_trainer.config import ALL
from coda_trainer.config_file import load_run_config
from coda_trainer.episode import Episode
from coda_trainer.learning.actor import ActorSpec
from coda_trainer.learning.rollout import Job, Progress, RolloutPool
from coda_trainer.policy_source import run_policy
from coda_trainer.statistics import Z95, wilson

#: Seeds of evaluation episodes start here: no training seed reaches so far.
SEEDS = 2**31
#: The suite that is drawn and not stored: fresh scenes of the whole generator range.
WIDE_SUITE = "wide"
#: Likewise drawn: fresh scenes of the family's declared interactions, see :func:`hard_cells`.
HARD_SUITE = "hard"


@dataclass(frozen=True)
class SuiteResult:
    """Outcomes on a family's suite, in the suite's order; ``all`` families one after the other."""

    family: str
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
        """Family, suite, n, successes, rate, Wilson 95% interval, and every outcome."""
        return {
            "family": self.family,
            "suite": self.suite,
            "n": self.n,
            "successes": self.successes,
            "rate": self.rate,
            "interval95": wilson(self.successes, self.n),
            "outcomes": [int(o) for o in self.outcomes],
        }


def pooled(results: Sequence[SuiteResult]) -> SuiteResult:
    """Success on the same suite of several families together: their successes summed."""
    (suite,) = {result.suite for result in results}
    return SuiteResult(ALL, suite, tuple(o for result in results for o in result.outcomes))


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
    return scene_jobs(suite_scenes(family, suite, episodes), suite, episodes)


def suite_scenes(family: TaskFamily, suite: str, count: int) -> Sequence[Scene]:
    """A frozen suite, whatever its size, or ``count`` scenes of ``wide`` or ``hard``.

    Those are drawn from the whole generator range, or from the cells of :func:`hard_cells` in turn,
    and validated; they are the same in every run, and none is ever trained on. Raises
    :class:`SceneError` for an unknown name.
    """
    if suite == WIDE_SUITE:
        return _wide_scenes(family.name, count)
    if suite == HARD_SUITE:
        return _hard_scenes(family.name, count)
    return load_suite(family, suite)


def hard_cells(family: TaskFamily) -> list[tuple[Interaction, int]]:
    """The declared interactions in their middle and hardest third: scene i of ``hard`` is of the
    i-th of these, starting over. Raises :class:`SceneError` where the family declares none."""
    declared = load_interactions(family)
    if not declared:
        raise SceneError(
            f"{family.name!r} declares no interactions: it has no suite 'hard'.",
            remedy="declare some in its interactions.yaml, or choose another suite",
        )
    return [(interaction, part) for part in range(1, THIRDS) for interaction in declared]


@lru_cache(maxsize=32)
def _wide_scenes(family: str, count: int) -> tuple[Scene, ...]:
    rng = np.random.default_rng((SEEDS, zlib.crc32(family.encode())))
    return generate(get_family(family), count, rng, source=WIDE_SUITE).scenes


@lru_cache(maxsize=32)
def _hard_scenes(family: str, count: int) -> tuple[Scene, ...]:
    of, rng = get_family(family), np.random.default_rng((SEEDS, zlib.crc32(family.encode()), 1))
    cells = hard_cells(of)
    scenes: list[Scene] = []
    for index in range(count):
        interaction, part = cells[index % len(cells)]
        base = partial(sample_interaction, of, interaction, region="generator", part=part)
        found = generate(of, 1, rng, source=HARD_SUITE, base=base).scenes
        if not found:
            raise SceneError(f"no valid scene of {interaction.name!r} in third {part + 1} found.")
        scenes += found
    return tuple(scenes)


def scene_jobs(scenes: Sequence[Scene], source: str, episodes: int) -> list[Job]:
    """``episodes`` evaluation jobs over ``scenes``, in order."""
    return [Job(scenes[i % len(scenes)], SEEDS + i, f"suite:{source}") for i in range(episodes)]


def evaluate(
    pool: RolloutPool,
    actor: ActorSpec,
    jobs: Sequence[Job],
    family: str,
    suite: str,
    progress: Progress | None = None,
) -> tuple[SuiteResult, list[Episode]]:
    """Run the jobs and count; the episodes come back for pictures, never for training."""
    episodes = pool.run(actor, jobs, progress)
    return SuiteResult(family, suite, tuple(e.success for e in episodes)), episodes


def evaluate_run(
    run: Path, *, suite: str, episodes: int, family: str | None = None
) -> dict[str, Any]:
    """Evaluate the newest policy of a run folder on a suite of each of its families.

    ``family``: that one alone, which may be one that the run was not trained on. The figures at
    the top are those of all families together; ``families`` has each one's. Raises
    :class:`RunError` where the folder is no run or has no complete checkpoint.
    """
    # Imported here: torch takes seconds.
    import torch

    # As in training, so that the figures are the same.
    torch.set_num_threads(1)
    config = load_run_config(run)
    families = [get_family(name) for name in (config.families if family is None else [family])]
    tests = [(f.name, suite_jobs(f, suite, episodes)) for f in families]
    source = run_policy(run)
    with RolloutPool(source.env, config.workers) as pool:
        results = [evaluate(pool, source.actor, jobs, name, suite)[0] for name, jobs in tests]
    together = results[0] if len(results) == 1 else pooled(results)
    return {
        "run": str(run),
        "round": source.round,
        **_figures(together),
        "families": [_figures(result) for result in results],
    }


def _figures(result: SuiteResult) -> dict[str, Any]:
    return {name: value for name, value in result.to_dict().items() if name != "outcomes"}
