"""Speed of one environment of each family against its physics, and how well its expert does.

Run ``python benchmarks/envs.py``; it takes some minutes and writes
``results/benchmarks/envs.json``. ``--all`` then runs ``vector.py``, ``proposals.py`` and, where
they are installed, the peers of ``peers.py`` too, so that one run gives every figure of the
environments.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium as gym
import mujoco
import numpy as np
from report import write

from coda_envs.arena import compile_scene
from coda_envs.env import ManipulationEnv
from coda_envs.family import BUILT_IN, TaskFamily, get_family
from coda_envs.scene import Scene
from coda_trainer.statistics import wilson

#: Environment steps timed together, then as many of raw physics.
BLOCK = 10
#: Expert episodes whose steps are timed, at each control rate.
EPISODES = 50
SCENES = 40
PICTURES = 60
EXPERT_SCENES = {"generator": 300, "ood": 200}
#: Seeds of the generator scenes; no other part of the project uses them.
SEED = 90_000

#: Calls of ``mj_step``: the controls, and how many physics steps.
Calls = list[tuple[np.ndarray, int]]


#: What each figure is aimed at; less is better.
AIMS = {
    "step_20_hz": ("step ÷ its mj_step calls, 20 Hz", 1.3),
    "step_10_hz": ("step ÷ its mj_step calls, 10 Hz", 1.3),
    "reset_new_scene_ms": ("reset to a new scene of a known topology, ms", 2.0),
    "compile_ms": ("compile of a new topology, ms", 3.0),
    "render_64": ("picture of 64² pixels, ms", 4.0),
    "render_224": ("picture of 224² pixels, ms", 8.0),
}


def main() -> None:
    """Measure, print the tables, write the file."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--all", action="store_true", help="the other environment benchmarks too")
    everything = parser.parse_args().all
    figures: dict[str, Any] = {}
    for name in BUILT_IN:
        figures[name] = found = measured(get_family(name))
        print(f"{name}")
        for key, (words, aim) in AIMS.items():
            value = found[key]["ratio"] if isinstance(found[key], dict) else found[key]
            spread = ""
            if isinstance(found[key], dict):
                low, high = found[key]["quartiles"]
                spread = f" (quartiles {low:.2f}–{high:.2f})"
            verdict = "" if value <= aim else "  MISSED"
            print(f"  {words:46s} {value:5.2f}{spread}, aim ≤ {aim}{verdict}")
        print(f"  {'steps/s at 20 Hz':46s} {found['step_20_hz']['steps_per_second']:.0f}")
        for region, rate in found["expert"].items():
            low, high = rate["interval95"]
            print(f"  {'expert, ' + region:46s} {rate['rate']:.3f} [{low:.3f}, {high:.3f}],"
                  f" n = {rate['n']}, {rate['mean_length']:.0f} steps", flush=True)  # fmt: skip
    print(write("envs", figures), flush=True)
    if everything:
        for script in ("vector.py", "proposals.py", "peers.py"):
            subprocess.run([sys.executable, Path(__file__).with_name(script)], check=False)


def measured(family: TaskFamily) -> dict[str, Any]:
    """All figures of one family."""
    pictures = rendering(family)
    return {
        **{f"step_{hz}_hz": step_cost(family, hz) for hz in (20, 10)},
        **loading(family),
        **{f"render_{size}": milliseconds for size, milliseconds in pictures.items()},
        "expert": {region: expert(family, region) for region in EXPERT_SCENES},
    }


def make(family: TaskFamily, hz: int = 20) -> gym.Env[Any, np.ndarray]:
    """The environment as a user makes it, wrappers included, on generator scenes."""
    return gym.make(family.env_id, control_hz=hz, within="generator")


def plain(env: gym.Env[Any, np.ndarray]) -> ManipulationEnv:
    """The environment without Gymnasium's wrappers."""
    inner = env.unwrapped
    assert isinstance(inner, ManipulationEnv)
    return inner


def step_cost(family: TaskFamily, hz: int) -> dict[str, Any]:
    """Time of a step as a multiple of its ``mj_step`` calls alone.

    The same model goes through the same states twice: by the environment's steps, and by the very
    ``mj_step`` calls that these made. Both are timed in turns of ``BLOCK`` steps, so that whatever
    else the machine does hits both; the result is the median of the turns' ratios. Seconds are this
    thread's on the processor: those in which other processes had it count for neither.
    """
    env = make(family, hz)
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


def loading(family: TaskFamily) -> dict[str, float]:
    """Median milliseconds of processor time of compiling a scene, drawing one, and resets.

    The new scene is given; its topology has been met before. ``same`` goes back to the start of
    the scene that is loaded.
    """
    env = make(family)
    compiled = [
        _milliseconds(compile_scene, scene) for scene in _scenes(family, "generator", SCENES)
    ]
    # Every topology is met once before anything is timed.
    for seed in range(4 * SCENES):
        env.reset(seed=SEED + seed)
    new, same = [], []
    for scene in _scenes(family, "generator", SCENES):
        reset = partial(env.reset, seed=0, options={"scene": scene})
        new.append(_milliseconds(reset))
        same.append(_milliseconds(reset))
    env.close()
    rng = np.random.default_rng(SEED)
    drawn = [_milliseconds(family.sample, rng, "generator") for _ in range(SCENES)]
    return {
        "compile_ms": statistics.median(compiled),
        "reset_new_scene_ms": statistics.median(new),
        "reset_same_scene_ms": statistics.median(same),
        "draw_ms": statistics.median(drawn),
        "scenes": SCENES,
    }


def rendering(family: TaskFamily) -> dict[str, float]:
    """Median milliseconds of one camera's picture, by its size in pixels."""
    env = make(family)
    env.reset(seed=SEED)
    inner = plain(env)
    found = {}
    for size in (64, 128, 224):
        inner.picture("agentview", size, size)
        # By the wall clock: drawing software has threads of its own.
        draw = partial(inner.picture, "agentview", size, size)
        times = [_milliseconds(draw, clock=time.perf_counter) for _ in range(PICTURES)]
        found[str(size)] = statistics.median(times)
    env.close()
    return found


def expert(family: TaskFamily, region: str) -> dict[str, Any]:
    """Success and length of the expert's episodes on fresh scenes of a region at 20 Hz."""
    env = make(family)
    outcomes, lengths = [], []
    for i, scene in enumerate(_scenes(family, region, EXPERT_SCENES[region])):
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


def _scenes(family: TaskFamily, region: str, count: int) -> list[Scene]:
    rng = np.random.default_rng(SEED)
    return [family.sample(rng, "generator", region) for _ in range(count)]  # type: ignore[arg-type]


def _milliseconds(
    work: Callable[..., object], *arguments: Any, clock: Callable[[], float] = time.thread_time
) -> float:
    """Milliseconds of a call: by default this thread's on the processor."""
    began = clock()
    work(*arguments)
    return 1000.0 * (clock() - began)


if __name__ == "__main__":
    main()
