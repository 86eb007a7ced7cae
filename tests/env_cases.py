"""Environments, scenes and states that the tests of the environment suite build on."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import coda_envs  # noqa: F401  (registers the ids, and chooses the renderer before MuJoCo does)
from coda_envs.env import ManipulationEnv
from coda_envs.factor import Value
from coda_envs.family import get_family
from coda_envs.scene import Scene

FAMILY = get_family("pick-place")
ENV_ID = FAMILY.env_id

#: A cube, a plate to its left, one distractor: values of every factor that exists.
VALUES: dict[str, Value] = {
    "task.receptacle": "plate",
    "task.distractors": 1,
    "task.reference": "color_shape",
    "spatial.target.x": 0.0,
    "spatial.target.y": -0.1,
    "spatial.target.yaw": 0.0,
    "spatial.receptacle.x": 0.02,
    "spatial.receptacle.y": 0.12,
    "spatial.distractor_1.x": 0.1,
    "spatial.distractor_1.y": -0.22,
    "spatial.distractor_1.yaw": 0.3,
    "attributes.target.shape": "cube",
    "attributes.target.size": 0.02,
    "attributes.target.mass": 0.1,
    "attributes.target.friction": 1.0,
    "attributes.target.color": "red",
    "attributes.receptacle.size": 0.08,
    "attributes.receptacle.color": "white",
    "attributes.distractor_1.shape": "cube",
    "attributes.distractor_1.size": 0.02,
    "attributes.distractor_1.color": "blue",
}
TRAY: dict[str, Value] = {"task.receptacle": "tray", "attributes.receptacle.rim": 0.05}


def scene(**changes: Value) -> Scene:
    """The scene above with some values changed (``spatial__target__x=0.1``)."""
    return FAMILY.scene(VALUES | {k.replace("__", "."): v for k, v in changes.items()})


def tray_scene(**changes: Value) -> Scene:
    """The scene above with a tray whose walls are 5 cm high."""
    return scene(**({k.replace(".", "__"): v for k, v in TRAY.items()} | changes))


def make(at: Scene | None = None, **options: Any) -> ManipulationEnv:
    """An environment of this scene, reset with seed 0."""
    env = ManipulationEnv(scene=at or scene(), **options)
    env.reset(seed=0)
    return env


def solved(env: ManipulationEnv) -> bool:
    """What the verifier says of the current state."""
    return bool(env.family.success(env.scene, env.features))


def place(
    env: ManipulationEnv,
    role: str,
    position: tuple[float, float, float],
    quat: tuple[float, ...] = (1.0, 0.0, 0.0, 0.0),
    velocity: tuple[float, ...] = (0.0,) * 6,
) -> dict[str, np.ndarray]:
    """Put a free object somewhere (m; w, x, y, z; m/s and rad/s); the observation there."""
    joint = env.data.joint(role)
    joint.qpos[:] = (*position, *quat)
    joint.qvel[:] = velocity
    return env.set_state(env.get_state())


def rest(env: ManipulationEnv, seconds: float = 2.0) -> None:
    """Let time pass with the arm held where it is."""
    hold = np.array([0, 0, 0, 0, 0, 0, -1.0])
    for _ in range(round(seconds * env.control_hz)):
        env.step(hold)


def column(env: ManipulationEnv, name: str) -> float:
    """One state feature by name."""
    return float(env.features[env.family.schema.index(name)])


def tilted(angle: float, axis: tuple[float, float, float]) -> tuple[float, ...]:
    """The quaternion (w, x, y, z) of a turn by ``angle`` about a unit ``axis``."""
    return (math.cos(angle / 2), *(math.sin(angle / 2) * a for a in axis))


def same(a: Any, b: Any) -> bool:
    """Equal in every byte: arrays, and dicts of them."""
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    if isinstance(a, np.ndarray):
        return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    return type(a) is type(b) and a == b


def playback(env: ManipulationEnv, seed: int, steps: int = 25) -> Iterator[object]:
    """Everything an episode with this seed and fixed random actions gives."""
    rng = np.random.default_rng(seed)
    yield env.reset(seed=seed)
    yield env.scene.id
    for _ in range(steps):
        yield env.step(rng.uniform(-1, 1, 7))
        yield env.features
        yield env.get_state()["physics"]


def digest(results: object) -> str:
    """A hash over all bytes of nested results."""
    sha = hashlib.sha256()

    def add(value: object) -> None:
        if isinstance(value, dict):
            for key in sorted(value):
                sha.update(key.encode())
                add(value[key])
        elif isinstance(value, np.ndarray):
            sha.update(f"{value.dtype}{value.shape}".encode() + value.tobytes())
        elif isinstance(value, tuple | list):
            for part in value:
                add(part)
        else:
            sha.update(repr(value).encode())

    add(results)
    return sha.hexdigest()


def drive(env: ManipulationEnv, until: Callable[[ManipulationEnv], bool]) -> None:
    """The family's expert acts until the condition holds."""
    expert = env.family.expert()
    for _ in range(env.max_steps):
        if until(env):
            return
        env.step(expert.act(env))
    raise AssertionError("the expert never got there")
