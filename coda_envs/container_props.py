"""Containers as data: boxes, bowls, lids and a small cabinet with one drawer.

All are made of boxes and cylinders around a hollow, since a hull would close the opening.
"""

from __future__ import annotations

import math

from coda_envs.props import (
    WALL,
    Body,
    Entity,
    Geom,
    Joint,
    Prop,
    Quat,
    Vector,
    box_inertia,
    cylinder_inertia,
    turn,
)

#: Thickness of a container's floor (m).
FLOOR = 0.008
#: How far a bowl's walls lean outwards (rad), and how many there are.
SLANT = 0.25
BOWL_WALLS = 8
#: A lid: thickness of its slab, how far that reaches beyond the box, radius of its knob (m).
SLAB = 0.008
OVERHANG = 0.002
KNOB_RADIUS = 0.009
#: A drawer: share of its inner length (two half widths) that it slides out; height of its underside
#: over the table, mass (kg), and how strongly its runners damp it (N s/m).
SLIDE = 0.9
LIFTED = 0.004
DRAWER_MASS = 0.4
DRAWER_DAMPING = 4.0
#: The cabinet around it: thickness of its boards, and play between them and the drawer (m).
BOARD = 0.008
PLAY = 0.003
#: How far the cabinet reaches beyond the drawer on either side (m).
SHELL = PLAY + BOARD
#: The handle: a post this far in front of the drawer, its radius, its lower end and the least
#: height of its upper end over the table (m). It stands higher than the cabinet, whose top the
#: hand has to clear.
STANDOFF = 0.034
POST_RADIUS = 0.008
POST_FOOT = 0.022
POST_TOP = 0.085


def _walls(half: tuple[float, float], z: tuple[float, float], color: str) -> list[Geom]:
    """Four upright walls; ``half``: outer half extents, ``z``: lower and upper edge (m)."""
    middle, tall = (z[0] + z[1]) / 2, (z[1] - z[0]) / 2
    thick = WALL / 2
    along = [
        Geom("box", (half[0], thick, tall), color, (0.0, side * (half[1] - thick), middle))
        for side in (1, -1)
    ]
    # Between the other two, so that no two surfaces lie in one plane.
    across = [
        Geom(
            "box",
            (thick, half[1] - WALL, tall),
            color,
            (side * (half[0] - thick), 0.0, middle),
        )
        for side in (1, -1)
    ]
    return along + across


def box(
    role: str,
    inner: tuple[float, float],
    rim: float,
    xy: tuple[float, float],
    yaw: float,
    color: str,
) -> Prop:
    """An open box fixed to the table.

    ``inner``: half extents of its inside, ``rim``: height of its walls over its floor (m); ``yaw``
    in radians.
    """
    half = (inner[0] + WALL, inner[1] + WALL)
    half_z = (FLOOR + rim) / 2
    floor = Geom("box", (*half, FLOOR / 2), color, (0.0, 0.0, FLOOR / 2 - half_z))
    walls = _walls(half, (FLOOR - half_z, half_z), color)
    body = Body(role, (floor, *walls), (*xy, half_z), turn(yaw))
    entity = Entity(
        role, "box", color, (*half, half_z), free=False,
        inner=inner[0], inner_y=inner[1], surface_z=FLOOR, depth=rim,
    )  # fmt: skip
    return Prop(body, (entity,))


def bowl_radius(inner: float, rim: float) -> float:
    """Outer radius (m) of a bowl's upper edge, from the middle to the middle of a wall."""
    thick = WALL / 2
    reach, tall = _bowl_wall(inner, rim)
    return reach + thick * math.cos(SLANT) + tall * math.sin(SLANT)


def _bowl_wall(inner: float, rim: float) -> tuple[float, float]:
    """How far a wall's middle is from the bowl's, and half its length along its slope (m)."""
    high = FLOOR + rim
    sine, cosine = math.sin(SLANT), math.cos(SLANT)
    # Its inner face meets the edge of the floor.
    along = (FLOOR - high / 2 - WALL / 2 * sine) / cosine
    reach = inner + WALL / 2 * cosine - along * sine
    return reach, (high - WALL * sine) / (2 * cosine)


def bowl(
    role: str, inner: float, rim: float, xy: tuple[float, float], yaw: float, color: str
) -> Prop:
    """A bowl with walls that lean outwards, fixed to the table.

    ``inner``: radius of its floor from the middle to a wall, ``rim``: height of its walls over its
    floor (m); ``yaw`` in radians. What leans over the table beside it does not count as its inside.
    """
    half_z = (FLOOR + rim) / 2
    thick = WALL / 2
    (reach, tall), outer = _bowl_wall(inner, rim), bowl_radius(inner, rim)
    wide = math.tan(math.pi / BOWL_WALLS) * outer
    geoms = [Geom("cylinder", (inner + thick, FLOOR / 2, 0.0), color, (0, 0, FLOOR / 2 - half_z))]
    for index in range(BOWL_WALLS):
        angle = 2 * math.pi * index / BOWL_WALLS
        pos = (reach * math.cos(angle), reach * math.sin(angle), 0.0)
        geoms.append(Geom("box", (thick, wide, tall), color, pos, _leaning(angle, SLANT)))
    body = Body(role, tuple(geoms), (*xy, half_z), turn(yaw))
    entity = Entity(
        role, "bowl", color, (outer, outer, half_z), free=False,
        inner=inner, surface_z=FLOOR, depth=rim,
    )  # fmt: skip
    return Prop(body, (entity,))


def lid(
    role: str,
    half: tuple[float, float],
    knob: float,
    at: Vector,
    yaw: float,
    *,
    mass: float,
    color: str,
    knob_color: str,
) -> Prop:
    """A free slab with a round knob to grasp.

    ``half``: half extents of the slab, ``knob``: height of the knob, ``at``: middle of the slab's
    underside (m); ``yaw`` in radians.
    """
    half_z = (SLAB + knob) / 2
    slab: Vector = (*half, SLAB / 2)
    low, high = SLAB / 2 - half_z, half_z - knob / 2
    geoms = (
        Geom("box", slab, color, (0.0, 0.0, low), friction=0.6),
        Geom("cylinder", (KNOB_RADIUS, knob / 2, 0.0), knob_color, (0.0, 0.0, high)),
    )
    # The knob weighs little.
    body = Body(
        role, geoms, (at[0], at[1], at[2] + half_z), turn(yaw), Joint("free"),
        mass=mass, inertia=box_inertia(mass, slab), com=(0.0, 0.0, low),
    )  # fmt: skip
    entity = Entity(role, "lid", color, (*half, half_z), free=True)
    return Prop(body, (entity,))


def travel(inner: float) -> float:
    """How far (m) a drawer slides out; ``inner``: half width of its inside (m)."""
    return 2 * SLIDE * inner


def cabinet_height(rim: float) -> float:
    """Height (m) of a cabinet whose drawer has walls of height ``rim`` (m)."""
    return LIFTED + FLOOR + rim + PLAY + BOARD


def drawer(
    role: str,
    handle: str,
    inner: float,
    rim: float,
    xy: tuple[float, float],
    yaw: float,
    *,
    opening: float,
    stiffness: float,
    color: str,
    handle_color: str,
) -> Prop:
    """A cabinet fixed to the table with one drawer, and a post as its handle.

    ``xy``: where the drawer's middle is when it is open; it slides towards that from behind, which
    is along its own x axis. ``inner``: half width of its square inside, ``rim``: height of its
    walls over its floor (m); ``opening``: share of its travel that it starts with; ``stiffness``:
    friction of its runners (N). ``handle``: the role of the handle, whose body hangs on the
    drawer's.
    """
    half = inner + WALL
    way = travel(inner)
    high = cabinet_height(rim)
    # The drawer's own frame: its middle, halfway up its side walls.
    low, top = LIFTED, LIFTED + FLOOR + rim
    half_z, middle = (top - low) / 2, (top + low) / 2
    floor = Geom("box", (half, half, FLOOR / 2), color, (0.0, 0.0, FLOOR / 2 - half_z))
    sides_and_back = _walls((half, half), (FLOOR - half_z, half_z), color)[:3]
    front = Geom(
        "box", (WALL / 2, half + SHELL, (high - low) / 2), color,
        (WALL / 2 - half, 0.0, (high + low) / 2 - middle),
    )  # fmt: skip
    geoms = (floor, *sides_and_back, front)
    box_half: Vector = (half, half, half_z)
    slide = Joint(
        "slide", (-1.0, 0.0, 0.0), travel=way, start=opening * way,
        damping=DRAWER_DAMPING, friction=stiffness,
    )  # fmt: skip
    grip, grip_entity = _handle(handle, role, high, (-half - STANDOFF, middle), way, handle_color)
    moving = Body(
        role, geoms, (0.0, 0.0, middle), joint=slide, mass=DRAWER_MASS,
        inertia=box_inertia(DRAWER_MASS, box_half), children=(grip,),
    )  # fmt: skip
    entity = Entity(
        role, "drawer", color, box_half, free=False, inner=inner, inner_y=inner,
        surface_z=LIFTED + FLOOR, depth=rim, joint=role, travel=way,
    )  # fmt: skip
    closed = (xy[0] + way * math.cos(yaw), xy[1] + way * math.sin(yaw), 0.0)
    cabinet = Body(
        f"{role}/cabinet", _cabinet(half, high, color), closed, turn(yaw), children=(moving,)
    )
    return Prop(cabinet, (entity, grip_entity))


def _handle(
    role: str, joint: str, high: float, at: tuple[float, float], way: float, color: str
) -> tuple[Body, Entity]:
    """The post on a cabinet of height ``high``; ``at``: its x, and the height of the frame (m)."""
    top = max(POST_TOP, high + 0.005)
    half_z, middle = (top - POST_FOOT) / 2, (top + POST_FOOT) / 2
    geoms = (
        Geom("cylinder", (POST_RADIUS, half_z, 0.0), color),
        # What it hangs on.
        Geom(
            "box", (STANDOFF / 2, 0.005, 0.004), color, (STANDOFF / 2, 0.0, 0.006 - half_z)
        ),
    )  # fmt: skip
    mass = 0.02
    body = Body(
        role, geoms, (at[0], 0.0, middle - at[1]), mass=mass,
        inertia=cylinder_inertia(mass, POST_RADIUS, half_z),
    )  # fmt: skip
    # The hand has to stand across the drawer's way, or it meets the front.
    entity = Entity(
        role, "post", color, (POST_RADIUS, POST_RADIUS, half_z), free=False,
        yaw_period=math.pi, joint=joint, travel=way,
    )  # fmt: skip
    return body, entity


def _cabinet(half: float, high: float, color: str) -> tuple[Geom, ...]:
    """Top, sides and back around a closed drawer of half width ``half`` (m)."""
    board = BOARD / 2
    # Its front edge is where the back of the drawer's front comes to rest.
    front, back = WALL - half + PLAY, half + SHELL
    long, middle = (back - front) / 2, (back + front) / 2
    top = Geom("box", (long, half + SHELL, board), color, (middle, 0.0, high - board))
    tall = (high - BOARD) / 2
    sides = [
        Geom("box", (long, board, tall), color, (middle, side * (half + PLAY + board), tall))
        for side in (1, -1)
    ]
    rear = Geom("box", (board, half + PLAY, tall), color, (back - board, 0.0, tall))
    return (top, *sides, rear)


def _leaning(angle: float, slant: float) -> Quat:
    """Quaternion of a wall that stands at ``angle`` (rad) around the middle and leans outwards."""
    about, lean = angle / 2, slant / 2
    return (
        math.cos(about) * math.cos(lean),
        -math.sin(about) * math.sin(lean),
        math.cos(about) * math.sin(lean),
        math.sin(about) * math.cos(lean),
    )
