"""Hindsight subgoals: what a failed episode did right, up to where it got a subgoal done.

A mode's diagnosis names the stage where episodes fail. An episode that gets that stage done, and
fails later, has shown what the mode lacks. Its steps until then are imitated in the round's
distillation beside the successes, with less weight. Rewards, potentials and the critic's targets
stay as they are: the shaping theorem is not touched, and what the critic calls good is not either.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from coda_envs.text2potential.evaluate import Potential
from coda_trainer.episode import Episode

#: Weight of the last step before the subgoal was done, beside 1 for every step of a success.
WEIGHT = 0.5


@dataclass(frozen=True)
class Part:
    """A failed ``episode`` cut where a subgoal was first done; ``weight [T]`` of its T steps."""

    episode: Episode
    weight: np.ndarray


def subgoal_parts(
    episodes: Sequence[Episode],
    potential: Potential,
    subgoals: Sequence[str],
    discount: float,
) -> list[Part]:
    """What the failed ones among ``episodes`` show of getting the subgoals (stage names) done.

    Of several subgoals the latest that an episode got done counts. n steps before that, the weight
    is ``WEIGHT`` · ``discount``ⁿ (γ per environment step). An episode that began past a subgoal
    shows nothing of it.
    """
    parts = []
    stages = sorted(potential.stage_names.index(name) for name in subgoals)
    for episode in episodes:
        if episode.success:
            continue
        at = potential.stage(episode.features)
        for stage in reversed(stages):
            done = np.flatnonzero(at > stage)
            if done.size and done[0] > 0:
                before = np.arange(done[0])[::-1]
                parts.append(Part(cut(episode, int(done[0])), WEIGHT * discount**before))
                break
    return parts


def cut(episode: Episode, steps: int) -> Episode:
    """The first ``steps`` steps of an episode, which were not its last."""
    return replace(
        episode,
        observations={key: rows[: steps + 1] for key, rows in episode.observations.items()},
        actions=episode.actions[:steps],
        features=episode.features[: steps + 1],
        rewards=episode.rewards[:steps],
        starts=episode.starts[episode.starts < steps],
        terminated=False,
        truncated=True,
        states=None,
    )
