"""Speed of the vector environment, against one environment and with a second thread; and of resets.

Run ``python benchmarks/vector.py``; it takes two to five minutes and writes
``results/benchmarks/vector.json``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
from mujoco.batch import Batch
from report import write

from coda_envs.arena import compile_scene
from coda_envs.env import ManipulationEnv
from coda_envs.family import BUILT_IN, get_family
from coda_envs.vector import ManipulationVectorEnv

SCENES = 64
#: Most steps of each episode that are played; experts need more for a success.
STEPS = 28
#: How often all of it is played.
PASSES = 8
RESETS = 100
#: Seed of the first scene; no other part of the project uses these.
SEED = 95_000


def main() -> None:
    """Measure, print the table, write the file."""
    figures: dict[str, Any] = {}
    for family in BUILT_IN:
        env_id = get_family(family).env_id
        figures[family] = found = measured(env_id) | resets(env_id)
        print(
            f"{family:13s} {found['topologies']:2d} topologies,"
            f" physics {found['physics_share'][1]:.2f},"
            f" {_shown(found['per_single'])} × one environment,"
            f" {_shown(found['per_sync'])} × as many side by side,"
            f" {_shown(found['second_thread'])} × with a second thread,"
            f" {found['steps_per_second']:.0f} steps/s,"
            f" reset {_shown(found['reset_ms'])} ms, compile {found['compile_ms']:.2f} ms"
        )
    print(write("vector", figures))


def _shown(quartiles: Sequence[float]) -> str:
    low, middle, high = quartiles
    return f"{middle:.2f} ({low:.2f}–{high:.2f})"


def measured(env_id: str) -> dict[str, Any]:
    """Quartiles over passes, all of which play the same episodes.

    In a pass the vector environments step in turn, and one environment plays some of the same
    episodes in between, so that whatever else the machine does hits all of them. One environment,
    as many as there are scenes (``SyncVectorEnv``) and one thread are compared by their seconds on
    the processor, one thread and two by the clock: on a busy machine a second thread finds no core.
    """
    one = gym.make(env_id, within="generator")
    actions = recorded(one)
    steps = len(actions)
    several = [
        gym.make_vec(env_id, SCENES, nthread=1, within="generator"),
        gym.make_vec(env_id, SCENES, nthread=2, within="generator"),
        gym.make_vec(env_id, SCENES, vectorization_mode="sync", within="generator"),
    ]
    names = ("physics_share", "per_single", "per_sync", "second_thread")
    found: dict[str, list[float]] = {name: [] for name in names}
    rates: list[float] = []
    topologies = 0
    for _ in range(PASSES):
        for envs in several:
            envs.reset(seed=SEED)
        alone, physics = 0.0, 0.0
        clock, processor = [0.0] * len(several), [0.0] * len(several)
        between = np.array_split(np.arange(SCENES), steps)
        for step in range(steps):
            for which, envs in enumerate(several):
                with _physics() as spent:
                    began, cpu = time.perf_counter(), time.thread_time()
                    obs, *_ = envs.step(actions[step])
                    clock[which] += time.perf_counter() - began
                    processor[which] += time.thread_time() - cpu
                    physics += sum(spent) if which == 0 else 0.0
            for scene in between[step]:
                alone += _played(one, int(scene), actions[:, scene])
        together = processor[0]
        first, _ = one.reset(seed=SEED)
        for action in actions[:, 0]:
            first, *_ = one.step(action)
        if any(not np.array_equal(obs[name][0], part) for name, part in first.items()):
            raise RuntimeError("the environments played different episodes: nothing was compared")
        found["physics_share"].append(physics / together)
        found["per_single"].append(alone / together)
        found["per_sync"].append(processor[2] / together)
        found["second_thread"].append(clock[0] / clock[1])
        rates.append(SCENES * steps / together)
        vector = several[0].unwrapped
        assert isinstance(vector, ManipulationVectorEnv)
        topologies = vector.topologies
    for envs in (one, *several):
        envs.close()
    return {
        **{name: np.quantile(values, (0.25, 0.5, 0.75)).tolist() for name, values in found.items()},
        "steps_per_second": float(np.median(rates)),
        "topologies": topologies,
        "scenes": SCENES,
        "steps": steps,
        "passes": PASSES,
    }


def resets(env_id: str) -> dict[str, Any]:
    """Milliseconds on the processor of a reset to a freshly drawn scene, quartiles, and of
    compiling a scene, median."""
    env = gym.make(env_id, within="generator")
    # Until the topologies are known.
    for seed in range(SEED, SEED + RESETS):
        env.reset(seed=seed)
    inner = env.unwrapped
    assert isinstance(inner, ManipulationEnv)
    new, compiled = [], []
    for seed in range(SEED + RESETS, SEED + 2 * RESETS):
        new.append(_milliseconds(partial(env.reset, seed=seed)))
        compiled.append(_milliseconds(partial(compile_scene, inner.scene)))
    env.close()
    return {
        "reset_ms": np.quantile(new, (0.25, 0.5, 0.75)).tolist(),
        "compile_ms": float(np.median(compiled)),
        "resets": RESETS,
    }


def _milliseconds(work: Callable[[], object]) -> float:
    began = time.thread_time()
    work()
    return 1000.0 * (time.thread_time() - began)


def recorded(env: gym.Env[Any, np.ndarray]) -> np.ndarray:
    """The experts' actions ``[steps, SCENES, 7]`` in the scenes of a vector environment.

    No episode ends within these steps.
    """
    inner = env.unwrapped
    assert isinstance(inner, ManipulationEnv)
    actions = np.zeros((STEPS, SCENES, 7), dtype=np.float32)
    steps = STEPS
    for scene in range(SCENES):
        env.reset(seed=SEED + scene)
        expert = inner.family.expert(scene)
        for step in range(steps):
            actions[step, scene] = expert.act(inner)
            _, _, terminated, truncated, _ = env.step(actions[step, scene])
            if terminated or truncated:
                steps = step
                break
    return actions[:steps]


def _played(env: gym.Env[Any, np.ndarray], scene: int, actions: np.ndarray) -> float:
    """Seconds on the processor that an episode's steps took."""
    env.reset(seed=SEED + scene)
    began = time.thread_time()
    for action in actions:
        env.step(action)
    return time.thread_time() - began


@contextmanager
def _physics() -> Iterator[list[float]]:
    """Note the seconds on the processor that each call of MuJoCo's batch takes."""
    spent: list[float] = []
    rollout = Batch.rollout

    def timed(batch: Batch, *arguments: Any, **named: Any) -> Any:
        began = time.thread_time()
        found = rollout(batch, *arguments, **named)
        spent.append(time.thread_time() - began)
        return found

    Batch.rollout = timed
    try:
        yield spent
    finally:
        Batch.rollout = rollout


if __name__ == "__main__":
    main()
