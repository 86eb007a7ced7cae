"""Cabinets: drawers and hinged doors in a carcass, each with a handle, as plain data.

A cabinet's frame: origin on the table below the middle of its front, x into the cabinet, y to the
robot's left, z up. A part is two bodies: the one that moves, named ``<role>/part``, and the handle
with the board that it is screwed to, named like the role, so that a finger on the board touches
the part. The handle's middle is the latter's origin.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from coda_envs.props import Body, Entity, Geom, Joint, Prop, Vector, box_inertia, turn

#: Depth of a carcass, thickness of its walls, of the boards in front of it and of a drawer's (m).
DEPTH = 0.14
SIDE = 0.010
BOARD = 0.012
THIN = 0.004
#: Gaps between a board and the carcass, and half of that between two boards (m).
GAP = 0.0015
SEAM = 0.002
#: A door's handle's middle stands this far out from its board (m): the palm clears the board.
STANDOFF = 0.035
#: A door's handle: this far from the door's free edge, and below its upper one (m). The handles of
#: two doors leave the opened fingers room; the palm stays over both doors.
EDGE = 0.036
DROP = 0.027
#: Kinds of handles that a part can have.
HANDLES = ("post", "knob", "bar", "fin")
_HANDLE_MASS = 0.03
_STALK = 0.0025


@dataclass(frozen=True)
class Handle:
    """A handle: kind, half its width between the fingers (m), colour.

    ``offset``: how far to the left of a drawer's middle it sits (m; a door's has its own place);
    ``standoff``: how far its middle stands out from the board (m).
    """

    kind: str
    size: float
    color: str
    offset: float = 0.0
    standoff: float = STANDOFF


@dataclass(frozen=True)
class Motion:
    """How a part moves, measured at its handle.

    ``travel``: way from shut to open (m, along the arc of a hinge); ``opening``: where it starts,
    as a share of that; ``friction`` (N) and ``damping`` (N s/m) resist; ``mass`` (kg).
    """

    travel: float
    opening: float
    friction: float
    damping: float
    mass: float


def handle_half(kind: str, size: float) -> Vector:
    """Half extents (m) of a handle without its stalks."""
    return {
        "post": (size, size, 0.019),
        "knob": (1.3 * size, 1.3 * size, 1.3 * size),
        "bar": (0.7 * size, size, 0.023),
        "fin": (0.016, size, 0.014),
    }[kind]


def _handle_geoms(handle: Handle) -> tuple[Geom, ...]:
    half, color = handle_half(handle.kind, handle.size), handle.color
    out = handle.standoff
    if handle.kind == "fin":
        # One plate from the board outwards.
        reach = (out + half[0]) / 2
        return (Geom("box", (reach, half[1], half[2]), color, (out - reach, 0.0, 0.0)),)
    if handle.kind == "post":
        grip = Geom("cylinder", (half[0], half[2], 0.0), color)
    elif handle.kind == "knob":
        grip = Geom("sphere", (half[0], 0.0, 0.0), color)
    else:
        grip = Geom("box", half, color)
    # Stalks are only to be seen: the fingers close on the grip in front of them.
    ends = (-1.0, 1.0) if handle.kind == "bar" else (0.0,)
    stalks = tuple(
        Geom("box", (out / 2, _STALK, _STALK), "gray",
             (out / 2, 0.0, end * (half[2] - 2 * _STALK)), collides=False)
        for end in ends
    )  # fmt: skip
    return (grip, *stalks)


def _handle_body(
    role: str, handle: Handle, at: Vector, board: Vector, middle: tuple[float, float], color: str
) -> Body:
    """Handle and board. ``at``: the handle's middle in the moving body; ``board``: half extents;
    ``middle``: the board's, left of and above the handle's (m)."""
    front = Geom("box", board, color, (handle.standoff + board[0], *middle))
    half = handle_half(handle.kind, handle.size)
    return Body(
        role, (*_handle_geoms(handle), front), at,
        mass=_HANDLE_MASS, inertia=box_inertia(_HANDLE_MASS, half),
    )  # fmt: skip


def _entity(
    role: str, shape: str, handle: Handle, travel: float, lever: float, to_shut: bool
) -> Entity:
    half = handle_half(handle.kind, handle.size)
    flat = handle.kind in ("bar", "fin")
    return Entity(
        role, shape, handle.color, half, free=False, yaw_period=math.pi if flat else 0.0,
        joint=f"{role}/part", travel=travel, lever=lever, to_shut=to_shut,
    )  # fmt: skip


@dataclass(frozen=True)
class Part:
    """A moving part of a cabinet and its entity."""

    body: Body
    entity: Entity


def drawer(
    role: str,
    handle: Handle,
    motion: Motion,
    *,
    z: float,
    half_width: float,
    half_height: float,
    color: str,
    to_shut: bool = False,
) -> Part:
    """A drawer whose front's middle is at height ``z`` (m), to fill the given half extents (m)."""
    wide, high = half_width - SEAM, half_height - SEAM
    handle_body = _handle_body(
        role, handle, (-(GAP + BOARD + handle.standoff), handle.offset, 0.0),
        (BOARD / 2, wide, high), (-handle.offset, 0.0), color,
    )  # fmt: skip
    # The box behind the front is only to be seen: nothing goes into it.
    deep, inside, low = 0.058, half_width - SIDE - 0.004, 0.6 * high
    rear = deep - THIN / 2
    box = tuple(
        Geom("box", size, "white", (deep + x, y, z_ - 0.3 * high), collides=False)
        for size, (x, y, z_) in (
            ((deep, inside, THIN / 2), (0.0, 0.0, -low)),
            ((deep, THIN / 2, low), (0.0, inside, 0.0)),
            ((deep, THIN / 2, low), (0.0, -inside, 0.0)),
            ((THIN / 2, inside, low), (rear, 0.0, 0.0)),
        )
    )
    joint = Joint(
        "slide", (-1.0, 0.0, 0.0), motion.travel, motion.opening * motion.travel,
        motion.damping, motion.friction,
    )  # fmt: skip
    body = Body(
        f"{role}/part", box, (0.0, 0.0, z), joint=joint, mass=motion.mass,
        inertia=box_inertia(motion.mass, (deep, wide, high)), com=(deep, 0.0, 0.0),
        children=(handle_body,),
    )  # fmt: skip
    return Part(body, _entity(role, "drawer", handle, motion.travel, 0.0, to_shut))


def door_arm(side: str, half_width: float) -> tuple[float, float]:
    """From a shut door's hinge to its handle's middle (m; x and y in the cabinet's frame).

    ``side``: the half of the cabinet that it closes, ``left`` or ``right``; its hinge is on the
    outer edge. ``half_width``: half the cabinet's width (m).
    """
    across = half_width - SEAM - EDGE
    return -(BOARD + STANDOFF), -across if side == "left" else across


def door(
    role: str,
    handle: Handle,
    motion: Motion,
    *,
    side: str,
    half_width: float,
    half_height: float,
    color: str,
    to_shut: bool = False,
) -> Part:
    """A door over one half of a cabinet of the given half extents (m); see :func:`door_arm`."""
    sign = 1.0 if side == "left" else -1.0
    half = (BOARD / 2, (half_width - SEAM) / 2, half_height - SEAM)
    arm = door_arm(side, half_width)
    lever = math.hypot(*arm)
    up = half_height - DROP
    board = -sign * half[1]
    handle_body = _handle_body(role, handle, (*arm, up), half, (board - arm[1], -up), color)
    joint = Joint(
        "hinge", (0.0, 0.0, -sign), motion.travel / lever, motion.opening * motion.travel / lever,
        motion.damping * lever * lever, motion.friction * lever,
    )  # fmt: skip
    body = Body(
        f"{role}/part", (), (-GAP, sign * half_width, half_height), joint=joint, mass=motion.mass,
        inertia=box_inertia(motion.mass, half), com=(-half[0], board, 0.0),
        children=(handle_body,),
    )  # fmt: skip
    return Part(body, _entity(role, "door", handle, motion.travel / lever, lever, to_shut))


def cabinet(
    role: str,
    parts: Sequence[Part],
    *,
    at: tuple[float, float],
    yaw: float,
    half_width: float,
    half_height: float,
    color: str,
    shelves: Sequence[float],
) -> Prop:
    """A carcass fixed to the table, its front's middle ``at`` (m), turned by ``yaw`` (rad).

    ``shelves``: heights (m) of the boards inside.
    """
    deep = DEPTH / 2
    walls = [
        Geom("box", (deep, half_width, SIDE / 2), color, (deep, 0.0, half_height - SIDE / 2)),
        Geom("box", (SIDE / 2, half_width, half_height), color, (DEPTH - SIDE / 2, 0.0, 0.0)),
    ]
    for sign in (1.0, -1.0):
        y = sign * (half_width - SIDE / 2)
        walls.append(Geom("box", (deep, SIDE / 2, half_height), color, (deep, y, 0.0)))
    for z in (SIDE / 2, *shelves):
        size = (deep - SIDE / 2, half_width - SIDE, SIDE / 4)
        walls.append(Geom("box", size, color, (deep, 0.0, z - half_height), collides=False))
    # The body's origin is at half its height, so that half extents say how far it reaches.
    lowered = tuple(
        replace(part.body, pos=(*part.body.pos[:2], part.body.pos[2] - half_height))
        for part in parts
    )
    body = Body(role, tuple(walls), (*at, half_height), turn(yaw), children=lowered)
    entity = Entity(role, "box", color, (deep, half_width, half_height), free=False)
    return Prop(body, (*(part.entity for part in parts), entity))
