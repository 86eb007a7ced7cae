"""Scenes and states that the tests of the articulated family build on."""

from __future__ import annotations

import numpy as np
from env_cases import column

from coda_envs.env import ManipulationEnv
from coda_envs.factor import Value
from coda_envs.family import get_family
from coda_envs.scene import Scene

FAMILY = get_family("articulated")

#: Three drawers, the middle one to be opened: values of every factor that exists.
DRAWERS: dict[str, Value] = {
    "task.furniture": "drawers",
    "task.verb": "open",
    "task.reference": "place",
    "task.drawers": 3,
    "task.drawer": "middle",
    "spatial.cabinet.x": 0.13,
    "spatial.cabinet.y": -0.1,
    "spatial.cabinet.yaw": 0.1,
    "spatial.target.ajar": 0.1,
    "spatial.target.offset": 0.0,
    "spatial.distractor_1.ajar": 0.2,
    "spatial.distractor_2.ajar": 0.5,
    "attributes.target.handle": "post",
    "attributes.target.color": "red",
    "attributes.target.size": 0.011,
    "attributes.target.travel": 0.10,
    "attributes.target.friction": 1.0,
    "attributes.target.damping": 6.0,
    "attributes.target.mass": 0.5,
    "attributes.cabinet.width": 0.28,
    "attributes.cabinet.height": 0.18,
    "attributes.cabinet.color": "white",
    "attributes.distractor_1.handle": "knob",
    "attributes.distractor_1.color": "blue",
    "attributes.distractor_2.handle": "bar",
    "attributes.distractor_2.color": "red",
}
#: The same with two doors, of which the left is the target.
DOORS: dict[str, Value] = {
    path: value
    for path, value in DRAWERS.items()
    if path not in ("task.drawers", "task.drawer", "spatial.target.offset")
    and "distractor_2" not in path
} | {"task.furniture": "doors", "task.door": "left"}
KINDS = {"drawers": DRAWERS, "doors": DOORS}
VERBS = ("open", "close")


def scene(kind: str = "drawers", **changes: Value) -> Scene:
    """One of the scenes above with some values changed (``task__verb="close"``)."""
    return FAMILY.scene(KINDS[kind] | {k.replace("__", "."): v for k, v in changes.items()})


def make(at: Scene, **options: object) -> ManipulationEnv:
    env = ManipulationEnv("articulated", scene=at, **options)  # type: ignore[arg-type]
    env.reset(seed=0)
    return env


def put(env: ManipulationEnv, share: float, role: str = "target", speed: float = 0.0) -> None:
    """Set a part's joint (share of its travel), moving at ``speed`` (m/s or rad/s)."""
    joint = env.data.joint(f"{role}/part")
    joint.qpos[0] = share * column(env, f"{role}.travel")
    joint.qvel[0] = speed
    env.set_state(env.get_state())


def play(at: Scene, control_hz: int = 20) -> tuple[bool, np.ndarray]:
    """Whether the expert succeeds, and the features ``[T + 1, F]`` of its episode."""
    env = make(at, control_hz=control_hz)
    expert, rows, done = FAMILY.expert(), [env.features.copy()], False
    while not done:
        _, _, terminated, truncated, info = env.step(expert.act(env))
        rows.append(env.features.copy())
        done = terminated or truncated
    return bool(info["success"]), np.stack(rows)
