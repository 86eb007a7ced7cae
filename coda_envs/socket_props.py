"""Pegs and the sockets they go into."""

from __future__ import annotations

import math

from coda_envs.props import Body, Entity, Geom, Joint, Prop, box_inertia, cylinder_inertia, turn

#: Half the width of a peg's shaft, and its length (m): more than any hole is deep, so that the grip
#: stays above the socket.
SHAFT = 0.014
SHAFT_LENGTH = 0.06
#: Thickness of a socket's floor (m).
FLOOR = 0.006


def peg(
    role: str,
    grip: tuple[float, float, float],
    xy: tuple[float, float],
    yaw: float,
    *,
    round_: bool,
    mass: float,
    friction: float,
    color: str,
) -> Prop:
    """A free peg that stands on its shaft, a grip on top; both are round or square.

    ``grip``: half extents of the grip (m), which the shaft carries in its middle.
    """
    kind = "cylinder" if round_ else "box"
    shaft = (SHAFT, SHAFT, SHAFT_LENGTH / 2)
    half_z = SHAFT_LENGTH / 2 + grip[2]
    low, high = shaft[2] - half_z, half_z - grip[2]
    geoms = tuple(
        Geom(
            kind,  # type: ignore[arg-type]
            (half[0], half[2], 0.0) if round_ else half,
            color,
            (0.0, 0.0, z),
            friction=friction,
        )
        for half, z in ((shaft, low), (grip, high))
    )
    # Of one material: each part weighs its share of the volume.
    volumes = [x * y * z for x, y, z in (shaft, grip)]
    masses = [mass * volume / sum(volumes) for volume in volumes]
    com = (masses[0] * low + masses[1] * high) / mass
    across = [masses[0] * (low - com) ** 2 + masses[1] * (high - com) ** 2] * 2 + [0.0]
    parts = [
        cylinder_inertia(m, half[0], half[2]) if round_ else box_inertia(m, half)
        for m, half in zip(masses, (shaft, grip), strict=True)
    ]
    x, y, z = (one + two + way for one, two, way in zip(*parts, across, strict=True))
    body = Body(
        role, geoms, (*xy, half_z), turn(yaw), Joint("free"),
        mass=mass, inertia=(x, y, z), com=(0.0, 0.0, com),
    )  # fmt: skip
    period = 0.0 if round_ else (math.pi / 2 if grip[0] == grip[1] else math.pi)
    half = (max(SHAFT, grip[0]), max(SHAFT, grip[1]), half_z)
    return Prop(body, (Entity(role, "peg", color, half, free=True, yaw_period=period),))


def socket(
    role: str,
    half: float,
    clearance: float,
    depth: float,
    xy: tuple[float, float],
    yaw: float,
    color: str,
) -> Prop:
    """A square block fixed to the table with a square hole for a peg's shaft.

    ``half``: half the block's width (m); ``clearance``: between shaft and wall on each side when
    the peg is in the middle (m); ``depth``: of the hole (m).
    """
    hole = SHAFT + clearance
    half_z = (FLOOR + depth) / 2
    # The floor is dark, so that the hole is seen.
    geoms = [Geom("box", (hole, hole, FLOOR / 2), "black", (0.0, 0.0, FLOOR / 2 - half_z))]
    middle, wall = (half + hole) / 2, (half - hole) / 2
    for sign in (1, -1):
        geoms.append(Geom("box", (wall, half, half_z), color, (sign * middle, 0.0, 0.0)))
        geoms.append(Geom("box", (hole, wall, half_z), color, (0.0, sign * middle, 0.0)))
    body = Body(role, tuple(geoms), (*xy, half_z), turn(yaw))
    entity = Entity(
        role, "socket", color, (half, half, half_z), free=False, yaw_period=math.pi / 2,
        inner=hole, inner_y=hole, surface_z=FLOOR, depth=depth,
    )  # fmt: skip
    return Prop(body, (entity,))
