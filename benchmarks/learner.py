"""Speed of what a training round does: rollouts of a policy, its sampling, and all updates.

Run ``python benchmarks/learner.py``; it takes about a minute and writes
``results/benchmarks/learner.json``. One thread: set OMP_NUM_THREADS=1.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import mujoco
import numpy as np
import torch
from report import write

from coda_envs.family import get_family
from coda_envs.text2potential.evaluate import compile_potential
from coda_trainer.episode import Episode
from coda_trainer.learning.actor import ActorSpec
from coda_trainer.learning.behaviour_cloning import chunk_arrays, take_chunks, train_backbone
from coda_trainer.learning.demonstrations import collect_demonstrations
from coda_trainer.learning.exploration import ExplorationNoise
from coda_trainer.learning.learner import LearnerConfig, ResidualLearner
from coda_trainer.learning.reader import backbone_reader
from coda_trainer.learning.relative import RelativeFeatures
from coda_trainer.learning.replay import Replay
from coda_trainer.learning.residual import ResidualConfig
from coda_trainer.learning.rollout import SIDE_BY_SIDE, EnvSpec, Job, RolloutPool
from coda_trainer.policies.flow_chunk import FlowChunk

FAMILY = get_family("pick-place")
CONTROL_HZ = 10
DEMONSTRATIONS = 20
#: Enough for the policy to move about; it need not succeed to be timed.
UPDATES = 50
EPISODES = 128
SAMPLE_CALLS = 50
TIMED_UPDATES = 200
BACKBONE_BATCH = 256
SEED = 90_000


def main() -> None:
    """Measure, print the table, write the file."""
    torch.set_num_threads(1)
    rng = np.random.default_rng(SEED)
    backbone = FlowChunk(seed=0)
    figures: dict[str, Any] = {"control_hz": CONTROL_HZ}
    with RolloutPool(EnvSpec(FAMILY.name, CONTROL_HZ)) as pool:
        demonstrations = collect_demonstrations(pool, FAMILY, DEMONSTRATIONS, 0.1, rng)
        figures["backbone_updates_per_second"] = fine_tuning(backbone, demonstrations, rng)
        figures["sample_ms"] = sampling(backbone, demonstrations[0])
        found, episodes = rollouts(pool, backbone, rng)
    figures |= found
    figures["learner_updates_per_second"] = learning(backbone, demonstrations, episodes)
    for name, value in figures.items():
        print(f"{name:30s} {value:.3g}")
    print(write("learner", figures))


def fine_tuning(backbone: FlowChunk, episodes: list[Episode], rng: np.random.Generator) -> float:
    """Updates a second on batches of ``BACKBONE_BATCH``; leaves the backbone trained a little."""
    chunks = chunk_arrays(episodes, backbone.spec.horizon)
    train_backbone(backbone, chunks, updates=5, batch_size=BACKBONE_BATCH, rng=rng)
    began = time.perf_counter()
    train_backbone(backbone, chunks, updates=UPDATES, batch_size=BACKBONE_BATCH, rng=rng)
    return UPDATES / (time.perf_counter() - began)


def sampling(backbone: FlowChunk, episode: Episode) -> float:
    """Median milliseconds of a call that samples a chunk for each environment of a unit."""
    rows = np.arange(SIDE_BY_SIDE) % episode.length
    obs = take_chunks(chunk_arrays([episode], backbone.spec.horizon), rows).obs
    times = []
    for seed in range(SAMPLE_CALLS):
        began = time.perf_counter()
        backbone.sample(obs, seed=seed)
        times.append(time.perf_counter() - began)
    return 1000.0 * statistics.median(times)


def rollouts(
    pool: RolloutPool, backbone: FlowChunk, rng: np.random.Generator
) -> tuple[dict[str, float], list[Episode]]:
    """Episodes a second on generator scenes with one worker, and physics' share of the time."""
    jobs = [Job(FAMILY.sample(rng, "generator"), i, "wide") for i in range(EPISODES)]
    with tempfile.TemporaryDirectory() as folder:
        backbone.save(Path(folder))
        noise = ExplorationNoise(std=0.05)
        actor = ActorSpec("flow_chunk", folder=Path(folder), noise=noise)
        # The first ones build the environments.
        pool.run(actor, jobs[:SIDE_BY_SIDE])
        with _physics_seconds() as seconds:
            began = time.perf_counter()
            episodes = pool.run(actor, jobs)
            total = time.perf_counter() - began
    steps = sum(e.length for e in episodes)
    return {
        "episodes": len(episodes),
        "episodes_per_second": len(episodes) / total,
        "environment_steps_per_second": steps / total,
        "physics_share": sum(seconds) / total,
    }, episodes


@contextmanager
def _physics_seconds() -> Iterator[list[float]]:
    """The duration of every call of ``mj_step``."""
    seconds: list[float] = []
    mj_step = mujoco.mj_step

    def timed(model: mujoco.MjModel, data: mujoco.MjData, nstep: int) -> None:
        began = time.perf_counter()
        mj_step(model, data, nstep)
        seconds.append(time.perf_counter() - began)

    mujoco.mj_step = timed
    try:
        yield seconds
    finally:
        mujoco.mj_step = mj_step


def learning(backbone: FlowChunk, demonstrations: list[Episode], episodes: list[Episode]) -> float:
    """Critic updates a second at the learner's batch size, every second one with the actor's."""
    execute = backbone.spec.execute
    replay = Replay(backbone_reader(backbone, execute, SEED), execute)
    replay.add(demonstrations, demonstrations=True)
    replay.add(episodes)
    learner = ResidualLearner(
        LearnerConfig(residual=ResidualConfig(execute=execute)),
        features=FAMILY.schema.size,
        encoding=replay.stored("encoding").shape[1],
        potential=compile_potential(FAMILY.template, FAMILY.schema),
        seed=SEED,
        relative=RelativeFeatures(FAMILY.schema),
    )
    learner.warm_up(replay, 20)
    began = time.perf_counter()
    learner.train(replay, TIMED_UPDATES)
    return TIMED_UPDATES / (time.perf_counter() - began)


if __name__ == "__main__":
    main()
