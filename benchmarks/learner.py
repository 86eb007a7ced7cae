"""Speed of what a training round does: rollouts of a policy against raw physics, and all updates.

Rollouts: many side by side in the vector environment, as the pool plays them, against single
environments one by one; with one worker and with two; and how much of the time is physics.
Updates: the backbone's, and those of critic and actor beside Stable-Baselines3's TD3 and SAC with
networks of the same width, as many critics, and batches of the same size.

Run ``python benchmarks/learner.py`` on a quiet machine; it takes about five minutes and writes
``results/benchmarks/learner.json``. One thread: set OMP_NUM_THREADS=1.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from physics import physics_seconds, raw_seconds
from report import write
from sb3_updates import sb3_updates

from coda_envs.family import TaskFamily, get_family
from coda_envs.text2potential.evaluate import compile_potential
from coda_trainer.episode import Episode
from coda_trainer.learning.actor import Actor, ActorSpec
from coda_trainer.learning.behaviour_cloning import chunk_arrays, take_chunks, train_backbone
from coda_trainer.learning.demonstrations import collect_demonstrations
from coda_trainer.learning.exploration import ExplorationNoise
from coda_trainer.learning.learner import LearnerConfig, ResidualLearner
from coda_trainer.learning.reader import backbone_reader
from coda_trainer.learning.recording import SLOTS, Apart
from coda_trainer.learning.relative import RelativeFeatures
from coda_trainer.learning.replay import Replay
from coda_trainer.learning.residual import ResidualConfig
from coda_trainer.learning.rollout import EnvSpec, Job, RolloutPool
from coda_trainer.learning.units import play
from coda_trainer.policies.flow_chunk import FlowChunk

FAMILIES = ("pick-place", "put-inside")
ENV = EnvSpec(control_hz=10)
DEMONSTRATIONS = 20
#: Enough for the policy to move about; it need not succeed to be timed.
UPDATES = 50
EPISODES = 128
#: Single environments side by side, where the vector environment is not used.
APART = 16
#: Each figure of rollouts and updates is the median of so many passes, the kinds taking turns.
PASSES = 3
SAMPLE_CALLS = 50
TIMED_UPDATES = 200
BACKBONE_BATCH = 256
SEED = 90_000


def main() -> None:
    """Measure, print the figures, write the file."""
    torch.set_num_threads(1)
    figures: dict[str, Any] = {"control_hz": ENV.control_hz}
    for name in FAMILIES:
        family, rng, backbone = get_family(name), np.random.default_rng(SEED), FlowChunk(seed=0)
        with RolloutPool(ENV) as one, RolloutPool(ENV, workers=2) as two:
            demonstrations = collect_demonstrations(one, family, DEMONSTRATIONS, 0.1, rng)
            found: dict[str, Any] = {
                "backbone_updates_per_second": fine_tuning(backbone, demonstrations, rng),
                "sample_ms": sampling(backbone, demonstrations[0]),
            }
            figures[name] = found
            found["rollouts"], episodes = rollouts(family, backbone, one, two, rng)
            found["updates_per_second"] = updates(family, backbone, demonstrations, episodes)
        print(name)
        for key, value in (found | found["rollouts"] | found["updates_per_second"]).items():
            if not isinstance(value, dict):
                print(f"  {key:34s} {value:.3g}", flush=True)
    print(write("learner", figures))


def fine_tuning(backbone: FlowChunk, episodes: list[Episode], rng: np.random.Generator) -> float:
    """Updates a second on batches of ``BACKBONE_BATCH``; leaves the backbone trained a little."""
    chunks = chunk_arrays(episodes, backbone.spec.horizon)
    train_backbone(backbone, chunks, updates=5, batch_size=BACKBONE_BATCH, rng=rng)
    began = time.perf_counter()
    train_backbone(backbone, chunks, updates=UPDATES, batch_size=BACKBONE_BATCH, rng=rng)
    return UPDATES / (time.perf_counter() - began)


def sampling(backbone: FlowChunk, episode: Episode) -> float:
    """Median milliseconds of a call that samples a chunk for each of ``SLOTS`` environments."""
    rows = np.arange(SLOTS) % episode.length
    obs = take_chunks(chunk_arrays([episode], backbone.spec.horizon), rows).obs
    times = []
    for seed in range(SAMPLE_CALLS):
        began = time.perf_counter()
        backbone.sample(obs, seed=seed)
        times.append(time.perf_counter() - began)
    return 1000.0 * statistics.median(times)


def rollouts(
    family: TaskFamily,
    backbone: FlowChunk,
    one: RolloutPool,
    two: RolloutPool,
    rng: np.random.Generator,
) -> tuple[dict[str, float], list[Episode]]:
    """Rollouts on generator scenes, with exploration noise.

    ``physics_share``: of the processor's time that rollouts with one worker take, the share inside
    MuJoCo's steps. ``of_raw_physics``: the same against a loop of ``mj_step`` along the episodes,
    nothing else; it can be more than the share, since many simulations side by side step faster.
    """
    jobs = [Job(family.sample(rng, "generator"), i, "wide") for i in range(EPISODES)]
    noise = ExplorationNoise(std=0.05)
    seconds: dict[str, list[float]] = {name: [] for name in ("one", "two", "apart")}
    shares, of_raw = [], []
    with tempfile.TemporaryDirectory() as folder:
        backbone.save(Path(folder))
        spec = ActorSpec("flow_chunk", folder=Path(folder), noise=noise)
        actor, singles = Actor(spec), Apart(family.name, ENV, APART)
        # The first ones build the environments.
        for pool in (one, two):
            pool.run(spec, jobs)
        play(singles, actor, noise, jobs[:APART])
        for _ in range(PASSES):
            with physics_seconds() as physics:
                busy = time.thread_time()
                seconds["one"].append(_seconds(partial(one.run, spec, jobs)))
                busy = time.thread_time() - busy
            seconds["two"].append(_seconds(partial(two.run, spec, jobs)))
            seconds["apart"].append(_seconds(partial(play, singles, actor, noise, jobs)))
            episodes = one.run(spec, jobs)
            shares.append(sum(physics) / busy)
            of_raw.append(raw_seconds(family.name, ENV.control_hz, episodes) / busy)
    steps = sum(e.length for e in episodes)
    middle = {name: statistics.median(values) for name, values in seconds.items()}
    return {
        "episodes": EPISODES,
        "environment_steps": steps,
        "episodes_per_second": EPISODES / middle["one"],
        "environment_steps_per_second": steps / middle["one"],
        "episodes_per_second_two_workers": EPISODES / middle["two"],
        "episodes_per_second_single_environments": EPISODES / middle["apart"],
        "physics_share": statistics.median(shares),
        "of_raw_physics": statistics.median(of_raw),
    }, episodes


def _seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def updates(
    family: TaskFamily,
    backbone: FlowChunk,
    demonstrations: list[Episode],
    episodes: list[Episode],
) -> dict[str, float]:
    """Critic updates a second: of the learner (replay, shaping and targets included), alone and
    with one of the actor for every second; and of Stable-Baselines3's TD3 (the same share of the
    actor's) and SAC (one of the actor's for each), drawing from its own replay."""
    execute = backbone.spec.execute
    replay = Replay(backbone_reader(backbone, execute, SEED), execute)
    replay.add(demonstrations, demonstrations=True)
    replay.add(episodes)
    config = LearnerConfig(residual=ResidualConfig(execute=execute))
    learner = ResidualLearner(
        config,
        features=family.schema.size,
        encoding=replay.stored("encoding").shape[1],
        potential=compile_potential(family.template, family.schema),
        seed=SEED,
        relative=RelativeFeatures(family.schema),
    )
    # As many numbers as the critic reads and the actor shifts.
    inputs = learner.critic.normaliser.mean.numel()
    actions = execute * backbone.spec.action_dim
    kinds: dict[str, Callable[[int], object]] = {
        "critic": partial(learner.warm_up, replay),
        "critic_and_actor": partial(learner.train, replay),
        "sb3_td3": sb3_updates("td3", inputs, actions, config, SEED),
        "sb3_sac": sb3_updates("sac", inputs, actions, config, SEED),
    }
    seconds: dict[str, list[float]] = {name: [] for name in kinds}
    for train in kinds.values():
        train(10)
    for _ in range(PASSES):
        for name, train in kinds.items():
            seconds[name].append(_seconds(partial(train, TIMED_UPDATES)))
    return {name: TIMED_UPDATES / statistics.median(taken) for name, taken in seconds.items()}


if __name__ == "__main__":
    main()
