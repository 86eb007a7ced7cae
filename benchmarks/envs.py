"""Speed of one environment, against the physics it runs on; and how well its expert does.

Run ``python benchmarks/envs.py``; it takes less than a minute and writes
``results/benchmarks/envs.json``.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import gymnasium as gym
import mujoco
import numpy as np
from report import write

from coda_envs.arena import compile_scene
from coda_envs.env import ManipulationEnv
from coda_envs.family import get_family
from coda_envs.scene import Scene
from coda_trainer.statistics import wilson

ENV_ID = "CoDA-PickPlace-v0"
#: Environment steps timed together, then as many of raw physics.
BLOCK = 10
#: Expert episodes whose steps are timed, at each control rate.
EPISODES = 50
SCENES = 40
PICTURES = 20
EXPERT_SCENES = 100
#: Seeds of the generator scenes; no other part of the project uses them.
SEED = 90_000

#: Calls of ``mj_step``: the controls, and how many physics steps.
Calls = list[tuple[np.ndarray, int]]


def main() -> None:
    """Measure, print the table, write the file."""
    figures: dict[str, Any] = {}
    for hz in (20, 10):
        figures[f"step_{hz}_hz"] = found = step_cost(hz)
        low, high = found["quartiles"]
        print(
            f"step at {hz} Hz     {found['ratio']:.2f} × raw physics"
            f" (quartiles {low:.2f}–{high:.2f}, n={found['n']}),"
            f" {found['steps_per_second']:.0f} steps/s"
        )
    figures |= loading()
    for name in ("compile_ms", "reset_new_scene_ms", "reset_same_scene_ms"):
        print(f"{name:18s} {figures[name]:.2f}  (n={SCENES})")
    figures["render_ms"] = rendering()
    for size, milliseconds in figures["render_ms"].items():
        print(f"render {size:3s} px      {milliseconds:.1f} ms  (n={PICTURES})")
    figures["expert_20_hz"] = found = expert()
    low, high = found["interval95"]
    print(
        f"expert at 20 Hz    {found['rate']:.2f} [{low:.2f}, {high:.2f}] (n={found['n']}),"
        f" {found['mean_length']:.1f} steps"
    )
    print(write("envs", figures))


def make(hz: int = 20) -> gym.Env[Any, np.ndarray]:
    """The environment as a user makes it, wrappers included, on generator scenes."""
    return gym.make(ENV_ID, control_hz=hz, within="generator")


def plain(env: gym.Env[Any, np.ndarray]) -> ManipulationEnv:
    """The environment without Gymnasium's wrappers."""
    inner = env.unwrapped
    assert isinstance(inner, ManipulationEnv)
    return inner


def step_cost(hz: int) -> dict[str, Any]:
    """Time of a step as a multiple of its ``mj_step`` calls alone.

    The same model goes through the same states twice: by the environment's steps, and by the very
    ``mj_step`` calls that these made. Both are timed in turns of ``BLOCK`` steps, so that whatever
    else the machine does hits both; the result is the median of the turns' ratios. Seconds are this
    thread's on the processor: those in which other processes had it count for neither.
    """
    env = make(hz)
    ratios: list[float] = []
    seconds: list[float] = []
    for seed in range(SEED, SEED + EPISODES):
        actions, start, calls = _recorded(env, seed)
        env.reset(seed=seed)
        inner = plain(env)
        data = mujoco.MjData(inner.model)
        mujoco.mj_setState(inner.model, data, start, mujoco.mjtState.mjSTATE_INTEGRATION.value)
        controls, per_step = data.ctrl, len(calls) // len(actions)
        for first in range(0, len(actions) - BLOCK + 1, BLOCK):
            began = time.thread_time()
            for action in actions[first : first + BLOCK]:
                env.step(action)
            between = time.thread_time()
            for control, steps in calls[first * per_step : (first + BLOCK) * per_step]:
                controls[:] = control
                mujoco.mj_step(inner.model, data, steps)
            ended = time.thread_time()
            ratios.append((between - began) / (ended - between))
            seconds.append((between - began) / BLOCK)
        if len(actions) % BLOCK == 0 and not np.array_equal(data.qpos, inner.data.qpos):
            raise RuntimeError("the raw physics left the environment's path: nothing was compared")
    env.close()
    return {
        "ratio": statistics.median(ratios),
        "quartiles": [float(q) for q in np.quantile(ratios, (0.25, 0.75))],
        "n": len(ratios),
        "steps_per_second": 1.0 / statistics.median(seconds),
    }


def _recorded(
    env: gym.Env[Any, np.ndarray], seed: int
) -> tuple[list[np.ndarray], np.ndarray, Calls]:
    """An expert episode: its actions, the physics it began with, and its ``mj_step`` calls."""
    env.reset(seed=seed)
    inner = plain(env)
    start = inner.get_state()["physics"]
    with _listening() as calls:
        actions, _ = _play(env, seed)
    return actions, start, calls


@contextmanager
def _listening() -> Iterator[Calls]:
    """Note every call of ``mj_step`` with the controls it was made with."""
    calls: Calls = []
    mj_step = mujoco.mj_step

    def noting(model: mujoco.MjModel, data: mujoco.MjData, nstep: int) -> None:
        calls.append((data.ctrl.copy(), nstep))
        mj_step(model, data, nstep)

    mujoco.mj_step = noting
    try:
        yield calls
    finally:
        mujoco.mj_step = mj_step


def _play(env: gym.Env[Any, np.ndarray], seed: int) -> tuple[list[np.ndarray], bool]:
    """Let the expert play the episode that has just been reset: its actions, and its success."""
    expert = plain(env).family.expert(seed)
    actions: list[np.ndarray] = []
    while True:
        actions.append(expert.act(plain(env)).astype(np.float32))
        _, _, terminated, truncated, info = env.step(actions[-1])
        if terminated or truncated:
            return actions, bool(info["success"])


def loading() -> dict[str, float]:
    """Median milliseconds of compiling a scene, and of a reset to a new and to the same one."""
    env = make()
    scenes = _scenes(SCENES)
    compiled = [_milliseconds(compile_scene, scene) for scene in scenes]
    new, same = [], []
    for scene in scenes:
        reset = partial(env.reset, seed=0, options={"scene": scene})
        new.append(_milliseconds(reset))
        same.append(_milliseconds(reset))
    env.close()
    return {
        "compile_ms": statistics.median(compiled),
        "reset_new_scene_ms": statistics.median(new),
        "reset_same_scene_ms": statistics.median(same),
        "scenes": SCENES,
    }


def rendering() -> dict[str, float]:
    """Median milliseconds of one camera's picture, by its size in pixels."""
    env = make()
    env.reset(seed=SEED)
    inner = plain(env)
    found = {}
    for size in (64, 128, 224):
        inner.picture("agentview", size, size)
        times = [_milliseconds(inner.picture, "agentview", size, size) for _ in range(PICTURES)]
        found[str(size)] = statistics.median(times)
    env.close()
    return found


def expert() -> dict[str, Any]:
    """Success and length of the expert's episodes on fresh generator scenes at 20 Hz."""
    env = make()
    outcomes, lengths = [], []
    for i, scene in enumerate(_scenes(EXPERT_SCENES)):
        env.reset(seed=SEED + i, options={"scene": scene})
        actions, success = _play(env, i)
        lengths.append(len(actions))
        outcomes.append(success)
    env.close()
    return {
        "rate": sum(outcomes) / len(outcomes),
        "n": len(outcomes),
        "interval95": wilson(sum(outcomes), len(outcomes)),
        "mean_length": statistics.fmean(lengths),
    }


def _scenes(count: int) -> list[Scene]:
    family = get_family("pick-place")
    rng = np.random.default_rng(SEED)
    return [family.sample(rng, "generator") for _ in range(count)]


def _milliseconds(work: Callable[..., object], *arguments: Any) -> float:
    began = time.perf_counter()
    work(*arguments)
    return 1000.0 * (time.perf_counter() - began)


if __name__ == "__main__":
    main()
