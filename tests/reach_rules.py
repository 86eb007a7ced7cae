"""What the tests of the update rules share: the reaching task as their rollouts see it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from reach_task import EXECUTE, BiasedBase, rollouts

from coda_trainer.episode import Episode
from coda_trainer.learning.exploration import Noise
from coda_trainer.learning.jobs import episode_rng
from coda_trainer.learning.reader import backbone_reader
from coda_trainer.learning.replay import Replay

READER = backbone_reader(BiasedBase(), EXECUTE, seed=0)


def play(act, seeds: Sequence[int], noise: Noise | None = None) -> list[Episode]:
    """An episode a seed, its noise drawn from its own stream, as in the loop's rollouts."""
    rngs = [episode_rng(seed) for seed in seeds]
    return rollouts(act, seeds, None if noise is None else lambda chunk, _: noise(chunk, rngs))


def success(act) -> float:
    return float(np.mean([e.success for e in rollouts(act, range(10_000, 10_200))]))


def replay_with(*blocks: Sequence[Episode], reader=READER) -> Replay:
    """Some expert episodes, and the blocks as rollouts."""
    straight = BiasedBase(bias=np.zeros(2, dtype=np.float32))
    expert = rollouts(
        lambda obs: straight.sample(obs)[:, 0], range(900, 920), source="demonstration"
    )
    replay = Replay(reader, EXECUTE)
    replay.add(expert, demonstrations=True)
    for block in blocks:
        replay.add(block)
    return replay
