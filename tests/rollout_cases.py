"""Jobs, and the comparison of episodes, for the tests of rollouts."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from coda_envs.family import get_family
from coda_envs.scene import Scene
from coda_trainer.backbone import TrainableBackbone
from coda_trainer.discovery import make_backbone
from coda_trainer.episode import Episode
from coda_trainer.learning.actor import ActorSpec
from coda_trainer.learning.behaviour_cloning import chunk_arrays, train_backbone
from coda_trainer.learning.exploration import ExplorationNoise
from coda_trainer.learning.jobs import EnvSpec, Job
from coda_trainer.learning.rollout import RolloutPool

ENV = EnvSpec()


def scenes(count: int, seed: int = 0, family: str = "pick-place") -> list[Scene]:
    rng = np.random.default_rng(seed)
    return [get_family(family).sample(rng, "generator") for _ in range(count)]


def jobs(count: int, seed: int = 0, family: str = "pick-place") -> list[Job]:
    drawn = scenes(count, seed, family)
    return [Job(s, 100 * seed + i, f"kind {i % 3}") for i, s in enumerate(drawn)]


def trained_flow(folder: Path) -> ActorSpec:
    """The built-in policy after a few updates on pick-place, with exploration noise."""
    with RolloutPool(ENV) as pool:
        episodes = pool.demonstrate(0.1, jobs(3, seed=9))
    backbone = make_backbone("flow_chunk", seed=0)
    assert isinstance(backbone, TrainableBackbone)
    chunks = chunk_arrays(episodes, backbone.spec.horizon)
    rng = np.random.default_rng(0)
    train_backbone(backbone, chunks, updates=5, batch_size=16, rng=rng)
    backbone.save(folder)
    return ActorSpec("flow_chunk", folder=folder, noise=ExplorationNoise())


def same(one: list[Episode], other: list[Episode]) -> None:
    """Both hold the same episodes, to the last byte."""
    assert len(one) == len(other)
    for a, b in zip(one, other, strict=True):
        assert (a.scene.id, a.seed, a.source) == (b.scene.id, b.seed, b.source)
        for name in ("actions", "features", "rewards", "starts"):
            assert getattr(a, name).tobytes() == getattr(b, name).tobytes(), name
            assert getattr(a, name).dtype == getattr(b, name).dtype, name
        assert a.observations.keys() == b.observations.keys()
        for key in a.observations:
            assert a.observations[key].tobytes() == b.observations[key].tobytes(), key
        outcome = ("terminated", "truncated", "success", "failure", "began")
        assert all(getattr(a, n) == getattr(b, n) for n in outcome)
        assert (a.states is None) == (b.states is None)
        if a.states is not None and b.states is not None:
            assert a.states.physics.tobytes() == b.states.physics.tobytes()
            assert a.states.control.tobytes() == b.states.control.tobytes()
