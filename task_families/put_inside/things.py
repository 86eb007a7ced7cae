"""Things: from a scene's values to plain numbers of what lies where, and to props."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from coda_envs import container_props as made
from coda_envs.container_props import FLOOR, LIFTED, OVERHANG
from coda_envs.factor import Value
from coda_envs.layout import Footprint
from coda_envs.props import WALL, Prop, free_object
from task_families.put_inside.room import Container, wall_place

#: Half extents of each shape along x, y and z, as multiples of half its width at the grasp. A bar
#: only fits between the fingers one way; ``disc`` and ``post`` are in ``ood-far`` scenes alone.
PROPORTIONS = {
    "cube": (1.0, 1.0, 1.0),
    "bar": (1.7, 1.0, 1.0),
    "cylinder": (1.0, 1.0, 1.1),
    "disc": (1.0, 1.0, 0.75),
    "post": (1.0, 1.0, 1.4),
}
FILLER = "cube"
#: Mass of a filler and of a distractor (kg).
FILLER_MASS = 0.05
DISTRACTOR_MASS = 0.1
_KNOBS = {"white": "black", "gray": "black", "black": "white", "brown": "white"}


def half_extents(values: Mapping[str, Value], role: str) -> tuple[float, float, float]:
    """Half extents (m) of a free thing."""
    if role.startswith("filler"):
        size, shape = float(values["attributes.filler_1.size"]), FILLER
    else:
        size = float(values[f"attributes.{role}.size"])
        shape = str(values[f"attributes.{role}.shape"])
    x, y, z = PROPORTIONS[shape]
    return (x * size, y * size, z * size)


def is_round(shape: str) -> bool:
    """Whether a thing of this shape is round about the vertical."""
    return shape in ("cylinder", "disc")


def yaw_period(shape: str) -> float:
    """Turn (rad) after which a free thing looks the same to the fingers, 0 where any does."""
    if is_round(shape):
        return 0.0
    return math.pi if shape == "bar" else math.pi / 2


def footprint(values: Mapping[str, Value], role: str) -> Footprint:
    """The circle that the target or the distractor takes up on the table."""
    half = half_extents(values, role)
    shape = str(values[f"attributes.{role}.shape"])
    radius = half[0] if is_round(shape) else math.hypot(half[0], half[1])
    x, y = float(values[f"spatial.{role}.x"]), float(values[f"spatial.{role}.y"])
    return Footprint(role, x, y, radius)


def surface(values: Mapping[str, Value]) -> float:
    """Height (m) of the container's floor."""
    return FLOOR + (LIFTED if values["task.container"] == "drawer" else 0.0)


def container(values: Mapping[str, Value], opening: float = 1.0) -> Container:
    """The container with its drawer, if it has one, ``opening`` of its travel out."""
    kind, size = values["task.container"], float(values["attributes.receptacle.size"])
    rim = float(values["attributes.receptacle.rim"])
    x, y, yaw = (float(values[f"spatial.receptacle.{n}"]) for n in ("x", "y", "yaw"))
    top, inner, travel = surface(values) + rim, (size, size), 0.0
    outer = (size + WALL, size + WALL)
    if kind == "box":
        inner = (size * float(values["attributes.receptacle.ratio"]), size)
        outer = (inner[0] + WALL, size + WALL)
    elif kind == "bowl":
        inner = (size, 0.0)
        outer = (made.bowl_radius(size, rim),) * 2
    elif kind == "drawer":
        travel = made.travel(size)
        top = made.cabinet_height(rim)
    back = (1.0 - opening) * travel
    x, y = x + back * math.cos(yaw), y + back * math.sin(yaw)
    return Container(x, y, yaw, outer, inner, top, travel, opening * travel)


def fillers(values: Mapping[str, Value], at: Container) -> list[Footprint]:
    """The circles that the fillers take up in the container."""
    placed = []
    for i in range(int(values["task.fillers"])):
        half = half_extents(values, f"filler_{i + 1}")[0]
        bearing = float(values["spatial.filler_1.bearing"]) + i * math.pi / 2
        radius = math.hypot(half, half)
        own = wall_place(at.inner, bearing, half, radius)
        placed.append(Footprint(f"filler_{i + 1}", *at.on_table(*own), radius))
    return placed


def start_opening(values: Mapping[str, Value]) -> float:
    """Share of its travel that the drawer is open at the start, 1 where there is none."""
    return float(values.get("spatial.cover.opening", 1.0))


def props(values: Mapping[str, Any]) -> list[Prop]:
    """Every thing of the scene."""
    at = container(values, start_opening(values))
    things = [_free(values, "target", values["attributes.target.mass"]), *_container(values, at)]
    for filler in fillers(values, at):
        things.append(
            free_object(
                filler.role, FILLER, half_extents(values, filler.role), (filler.x, filler.y),
                at.yaw, mass=FILLER_MASS, friction=1.0, color=values["attributes.filler_1.color"],
                z=surface(values), part_of="receptacle",
            )
        )  # fmt: skip
    if values["task.distractors"]:
        things.append(_free(values, "distractor_1", DISTRACTOR_MASS))
    return things


def _free(values: Mapping[str, Any], role: str, mass: float) -> Prop:
    """The target, or the distractor, which has no friction or turn of its own to edit."""
    xy = (values[f"spatial.{role}.x"], values[f"spatial.{role}.y"])
    return free_object(
        role, values[f"attributes.{role}.shape"], half_extents(values, role), xy,
        values.get(f"spatial.{role}.yaw", 0.0), mass=mass,
        friction=values.get(f"attributes.{role}.friction", 1.0),
        color=values[f"attributes.{role}.color"],
    )  # fmt: skip


def _container(values: Mapping[str, Any], at: Container) -> list[Prop]:
    """The container, and its lid where it has one."""
    kind, rim = values["task.container"], values["attributes.receptacle.rim"]
    color = values["attributes.receptacle.color"]
    xy = (values["spatial.receptacle.x"], values["spatial.receptacle.y"])
    if kind == "bowl":
        return [made.bowl("receptacle", at.inner[0], rim, xy, at.yaw, color)]
    if kind == "drawer":
        return [
            made.drawer(
                "receptacle", "cover", at.inner[0], rim, xy, at.yaw,
                opening=start_opening(values), stiffness=values["attributes.cover.stiffness"],
                color=color, handle_color=_KNOBS[color],
            )
        ]  # fmt: skip
    box = made.box("receptacle", at.inner, rim, xy, at.yaw, color)
    if kind == "box":
        return [box]
    half = lid_half(at)
    cover = made.lid(
        "cover", half, values["attributes.cover.knob"], (*xy, FLOOR + rim), at.yaw,
        mass=values["attributes.cover.mass"], color=color, knob_color=_KNOBS[color],
    )  # fmt: skip
    return [box, cover]


def lid_half(at: Container) -> tuple[float, float]:
    """Half extents (m) of the lid of a box."""
    return (at.half[0] + OVERHANG, at.half[1] + OVERHANG)
