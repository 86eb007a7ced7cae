"""Props: what a scene's things are made of, as plain data that a model can be made from.

A family describes its things as bodies of primitive shapes, each with an :class:`Entity` that says
what sensing needs to know. Nothing here touches MuJoCo: :mod:`coda_envs.arena` compiles the data.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

Vector = tuple[float, float, float]
Quat = tuple[float, float, float, float]

#: Thickness of a tray's or a container's walls (m).
WALL = 0.010

COLORS: dict[str, Vector] = {
    "red": (0.85, 0.15, 0.14),
    "green": (0.20, 0.62, 0.25),
    "blue": (0.16, 0.35, 0.80),
    "yellow": (0.93, 0.79, 0.18),
    "purple": (0.52, 0.25, 0.66),
    "orange": (0.94, 0.50, 0.13),
    "white": (0.93, 0.93, 0.90),
    "gray": (0.52, 0.54, 0.56),
    "black": (0.16, 0.16, 0.18),
    "pink": (0.95, 0.60, 0.72),
    "brown": (0.45, 0.29, 0.17),
    "cyan": (0.25, 0.76, 0.80),
}
#: Kinds of things that the object table tells apart.
SHAPES = (
    *("cube", "bar", "cylinder", "disc", "post"),
    *("plate", "tray", "box", "bowl", "lid"),
    *("drawer", "door", "peg", "socket"),
)

#: Sliding friction of fixed things: MuJoCo takes the larger of a pair's two values, so these stay
#: low and the object's own value decides.
LOW_FRICTION = 0.3


@dataclass(frozen=True)
class Geom:
    """A primitive shape of a body, in the body's frame.

    ``size``: half extents of a box; radius and half height of a cylinder (m, third number 0);
    radius of a sphere. ``collides``: False for what is only to be seen.
    """

    kind: Literal["box", "cylinder", "sphere"]
    size: Vector
    color: str
    pos: Vector = (0.0, 0.0, 0.0)
    quat: Quat = (1.0, 0.0, 0.0, 0.0)
    friction: float = LOW_FRICTION
    collides: bool = True


@dataclass(frozen=True)
class Joint:
    """How a body moves in its parent: freely, along or about an axis.

    ``travel``: from 0 to this (m or rad); ``start``: the position an episode begins with;
    ``damping`` (N s/m or N m s/rad) and ``friction`` (N or N m) resist the movement.
    """

    kind: Literal["free", "slide", "hinge"]
    axis: Vector = (0.0, 0.0, 1.0)
    travel: float = 0.0
    start: float = 0.0
    damping: float = 0.0
    friction: float = 0.0


@dataclass(frozen=True)
class Body:
    """A rigid body: shapes, joint and children.

    ``pos`` and ``quat`` place it in its parent, the table frame for the outermost (m; w, x, y, z).
    A body that moves states its ``mass`` (kg), centre of mass ``com`` (m) and the diagonal of its
    ``inertia`` about that point (kg m²); one that cannot move needs none. A joint is named like its
    body and goes through the body's origin.
    """

    name: str
    geoms: tuple[Geom, ...]
    pos: Vector
    quat: Quat = (1.0, 0.0, 0.0, 0.0)
    joint: Joint | None = None
    mass: float = 1.0
    inertia: Vector = (1.0, 1.0, 1.0)
    com: Vector = (0.0, 0.0, 0.0)
    children: tuple[Body, ...] = ()

    def walk(self) -> Iterator[Body]:
        """This body and all below it, parents first."""
        yield self
        for child in self.children:
            yield from child.walk()


@dataclass(frozen=True)
class Entity:
    """What sensing needs to know of one thing: its looks, and its constant feature columns.

    Its body is the one named like the ``role``. ``joint``: name of the joint that moves it, if it
    is not free; ``lever``: distance (m) of its handle from a hinge's axis, 0 for a slide.
    ``part_of``: a touch of this thing counts as one of that role too (what fills a box carries like
    the box). The other fields are described in :mod:`coda_envs.features`.
    """

    role: str
    shape: str
    color: str
    half: Vector
    free: bool
    yaw_period: float = 0.0
    inner: float = 0.0
    inner_y: float = 0.0
    surface_z: float = 0.0
    depth: float = 0.0
    joint: str = ""
    travel: float = 0.0
    lever: float = 0.0
    to_shut: bool = False
    part_of: str = ""


@dataclass(frozen=True)
class Prop:
    """A body with all below it, and the entities among them."""

    body: Body
    entities: tuple[Entity, ...]


def turn(yaw: float) -> Quat:
    """Quaternion (w, x, y, z) of a turn about the vertical (rad)."""
    return (math.cos(yaw / 2), 0.0, 0.0, math.sin(yaw / 2))


def box_inertia(mass: float, half: Vector) -> Vector:
    """Inertia (kg m²) of a solid box about its middle; ``half``: half extents (m)."""
    x, y, z = (h * h for h in half)
    third = mass / 3.0
    return (third * (y + z), third * (x + z), third * (x + y))


def cylinder_inertia(mass: float, radius: float, half_z: float) -> Vector:
    """Inertia (kg m²) of a solid upright cylinder about its middle (m)."""
    across = mass * (3.0 * radius * radius + 4.0 * half_z * half_z) / 12.0
    return (across, across, mass * radius * radius / 2.0)


def free_object(
    role: str,
    shape: str,
    half: Vector,
    xy: tuple[float, float],
    yaw: float,
    *,
    mass: float,
    friction: float,
    color: str,
    z: float = 0.0,
    part_of: str = "",
) -> Prop:
    """A free object whose underside is at height ``z`` (m): round or a box, by its shape.

    ``half``: half extents (m); ``yaw``: turn about the vertical (rad); ``friction``: sliding.
    """
    round_ = shape in ("cylinder", "disc")
    geom = Geom(
        "cylinder" if round_ else "box",
        (half[0], half[2], 0.0) if round_ else half,
        color,
        friction=friction,
    )
    inertia = cylinder_inertia(mass, half[0], half[2]) if round_ else box_inertia(mass, half)
    body = Body(
        role, (geom,), (*xy, z + half[2]), turn(yaw), Joint("free"), mass=mass, inertia=inertia
    )
    square = half[0] == half[1]
    period = 0.0 if round_ else (math.pi / 2 if square else math.pi)
    entity = Entity(role, shape, color, half, free=True, yaw_period=period, part_of=part_of)
    return Prop(body, (entity,))


def plate(role: str, radius: float, xy: tuple[float, float], color: str) -> Prop:
    """A flat disc fixed to the table, 1 cm high; ``radius`` in metres."""
    half_z = 0.005
    body = Body(role, (Geom("cylinder", (radius, half_z, 0.0), color),), (*xy, half_z))
    entity = Entity(
        role, "plate", color, (radius, radius, half_z), free=False,
        inner=radius, surface_z=2 * half_z,
    )  # fmt: skip
    return Prop(body, (entity,))


def tray(role: str, half: float, rim: float, xy: tuple[float, float], color: str) -> Prop:
    """A square tray fixed to the table; ``half``: its half width, ``rim``: its walls' height."""
    floor, wall = 0.004, WALL / 2
    half_z = (2 * floor + rim) / 2
    geoms = [Geom("box", (half, half, floor), color, (0.0, 0.0, floor - half_z))]
    for x, y in ((1, 0), (-1, 0), (0, 1), (0, -1)):
        size = (wall if x else half, wall if y else half, half_z)
        geoms.append(Geom("box", size, color, (x * (half - wall), y * (half - wall), 0.0)))
    body = Body(role, tuple(geoms), (*xy, half_z))
    entity = Entity(
        role, "tray", color, (half, half, half_z), free=False,
        inner=half - WALL, inner_y=half - WALL, surface_z=2 * floor, depth=rim,
    )  # fmt: skip
    return Prop(body, (entity,))
