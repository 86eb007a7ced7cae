"""Scenes and states that the tests of the stack-insert family build on."""

from __future__ import annotations

from typing import Any

import numpy as np
from env_cases import column, solved

from coda_envs.env import ManipulationEnv
from coda_envs.factor import Value
from coda_envs.family import get_family
from coda_envs.scene import Scene

FAMILY = get_family("stack-insert")
KINDS = ("stack_two", "stack_three", "insert")

#: The base's or socket's middle (m, table frame).
BASE = (0.02, 0.12)

#: Values of every factor that scenes of all kinds have; one distractor.
COMMON: dict[str, Value] = {
    "task.distractors": 1,
    "task.reference": "color_shape",
    "spatial.target.x": 0.0,
    "spatial.target.y": -0.1,
    "spatial.target.yaw": 0.0,
    "spatial.receptacle.x": BASE[0],
    "spatial.receptacle.y": BASE[1],
    "spatial.receptacle.yaw": 0.0,
    "spatial.distractor_1.x": 0.12,
    "spatial.distractor_1.y": -0.25,
    "attributes.target.shape": "cube",
    "attributes.target.size": 0.02,
    "attributes.target.height": 0.022,
    "attributes.target.mass": 0.1,
    "attributes.target.friction": 1.0,
    "attributes.target.color": "red",
    "attributes.receptacle.size": 0.025,
    "attributes.receptacle.color": "blue",
    "attributes.distractor_1.size": 0.02,
    "attributes.distractor_1.color": "green",
}
#: Values that only scenes of one kind have.
OWN: dict[str, dict[str, Value]] = {
    "stack_two": {},
    "stack_three": {
        "spatial.second.x": -0.12,
        "spatial.second.y": 0.0,
        "spatial.second.yaw": 0.0,
        "attributes.second.size": 0.018,
        "attributes.second.color": "yellow",
    },
    "insert": {"attributes.receptacle.clearance": 0.005, "attributes.receptacle.depth": 0.03},
}


def scene(kind: str, **changes: Value) -> Scene:
    """A scene of that kind with some values changed (``spatial__target__x=0.1``)."""
    values = {"task.kind": kind, **COMMON, **OWN[kind]}
    return FAMILY.scene(values | {k.replace("__", "."): v for k, v in changes.items()})


def make(kind: str, changes: dict[str, Value] | None = None, **options: Any) -> ManipulationEnv:
    """An environment of such a scene, reset with seed 0."""
    env = ManipulationEnv("stack-insert", scene=scene(kind, **(changes or {})), **options)
    env.reset(seed=0)
    return env


def half(env: ManipulationEnv, role: str) -> float:
    """Half the height (m) of a thing that stands."""
    return column(env, f"{role}.half_z")


def top(env: ManipulationEnv, role: str = "receptacle") -> float:
    """Height (m) of a thing's upper side."""
    return column(env, f"{role}.z") + half(env, role)


def goal_height(env: ManipulationEnv) -> float:
    """Height (m) of the target's middle where the goal wants it, a hair's breadth pressed in."""
    hollow = column(env, "receptacle.depth") > 0.0
    surface = column(env, "receptacle.surface_z") if hollow else top(env)
    return surface + half(env, "target") - 0.0001


def play(env: ManipulationEnv, at: Scene, seed: int) -> tuple[bool, np.ndarray]:
    """Whether the expert succeeds, and the features ``[T+1, F]`` of its episode."""
    env.reset(seed=seed, options={"scene": at})
    expert, rows, over = FAMILY.expert(seed), [env.features.copy()], False
    while not over:
        _, _, terminated, truncated, info = env.step(expert.act(env))
        rows.append(env.features.copy())
        over = terminated or truncated
    assert info["success"] == solved(env)
    return bool(info["success"]), np.array(rows)
