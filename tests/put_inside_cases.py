"""Scenes, environments and states of the put-inside family."""

from __future__ import annotations

import math
from typing import Any

from env_cases import column, place

from coda_envs.env import ManipulationEnv
from coda_envs.factor import Value
from coda_envs.family import get_family
from coda_envs.scene import Scene

FAMILY = get_family("put-inside")
CONTAINERS = ("box", "bowl", "lidded", "drawer")

#: A red cube, a container to its left, nothing else: values of every factor that exists.
VALUES: dict[str, Value] = {
    "task.fillers": 0,
    "task.distractors": 0,
    "task.reference": "color_shape",
    "spatial.target.x": 0.0,
    "spatial.target.y": -0.15,
    "spatial.target.yaw": 0.0,
    "spatial.receptacle.x": 0.02,
    "spatial.receptacle.y": 0.12,
    "spatial.receptacle.yaw": 0.2,
    "attributes.target.shape": "cube",
    "attributes.target.size": 0.018,
    "attributes.target.mass": 0.1,
    "attributes.target.friction": 1.0,
    "attributes.target.color": "red",
    "attributes.receptacle.size": 0.07,
    "attributes.receptacle.rim": 0.05,
    "attributes.receptacle.color": "gray",
}
OWN: dict[str, dict[str, Value]] = {
    "box": {"attributes.receptacle.ratio": 1.2},
    "bowl": {},
    "lidded": {"attributes.cover.knob": 0.045, "attributes.cover.mass": 0.1},
    "drawer": {"attributes.cover.stiffness": 1.0, "spatial.cover.opening": 0.3},
}
FILLERS: dict[str, Value] = {
    "spatial.filler_1.bearing": 2.5,
    "attributes.filler_1.size": 0.010,
    "attributes.filler_1.color": "blue",
}
DISTRACTOR: dict[str, Value] = {
    "task.distractors": 1,
    "spatial.distractor_1.x": -0.05,
    "spatial.distractor_1.y": -0.3,
    "attributes.distractor_1.shape": "cube",
    "attributes.distractor_1.size": 0.018,
    "attributes.distractor_1.color": "green",
}


def values(kind: str = "box", fillers: int = 0, **changes: Value) -> dict[str, Value]:
    """Values of a scene with this container (``spatial__target__x=0.1`` changes one)."""
    made = VALUES | {"task.container": kind, "task.fillers": fillers} | OWN[kind]
    made |= FILLERS if fillers else {}
    return made | {k.replace("__", "."): v for k, v in changes.items()}


def with_distractor(kind: str = "box", **changes: Value) -> dict[str, Value]:
    """The same with a green cube on the table."""
    return values(kind) | DISTRACTOR | {k.replace("__", "."): v for k, v in changes.items()}


def make(at: dict[str, Value] | Scene, **options: Any) -> ManipulationEnv:
    """An environment of this scene, reset with seed 0."""
    scene = at if isinstance(at, Scene) else FAMILY.scene(at)
    env = ManipulationEnv("put-inside", scene=scene, **options)
    env.reset(seed=0)
    return env


def uncover(env: ManipulationEnv) -> None:
    """Lay the lid aside or open the drawer, without the robot."""
    if env.scene.values["task.container"] == "lidded":
        place(env, "cover", (0.02, -0.35, column(env, "cover.half_z")))
    elif env.scene.values["task.container"] == "drawer":
        slide(env, 1.0)


def slide(env: ManipulationEnv, opening: float, speed: float = 0.0) -> None:
    """Put the drawer at a share of its travel, moving outwards at ``speed`` (m/s)."""
    env.data.joint("receptacle").qpos[:] = opening * column(env, "receptacle.travel")
    env.data.joint("receptacle").qvel[:] = speed
    env.set_state(env.get_state())


def in_container(env: ManipulationEnv, x: float, y: float, above: float) -> tuple[float, ...]:
    """A point in the container's frame, ``above`` its floor, in the table frame (m)."""
    yaw = column(env, "receptacle.yaw")
    return (
        column(env, "receptacle.x") + math.cos(yaw) * x - math.sin(yaw) * y,
        column(env, "receptacle.y") + math.sin(yaw) * x + math.cos(yaw) * y,
        column(env, "receptacle.surface_z") + above,
    )


def put(
    env: ManipulationEnv,
    role: str = "target",
    at: tuple[float, float] = (0.0, 0.0),
    above: float | None = None,
    **pose: Any,
) -> None:
    """Put a free thing into the container at ``at``, by default standing on its floor."""
    height = column(env, f"{role}.half_z") if above is None else above
    x, y, z = in_container(env, *at, height)
    place(env, role, (x, y, z), **pose)
