"""What stands on the table: how large each thing is, what it is called, and what it is made of."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from coda_envs.factor import Value
from coda_envs.language import Referent
from coda_envs.layout import Footprint
from coda_envs.props import Prop, free_object
from coda_envs.scene import Scene
from coda_envs.socket_props import SHAFT, peg, socket

#: Half the hand's width and thickness, and free room around it (m).
HAND_WIDTH, HAND_THICKNESS, HAND_ROOM = 0.10, 0.02, 0.012
#: How far (m) the middle of what lies on a block must stay from the block's edge.
EDGE = 0.006
#: A socket is this much wider (m) than a base block of the same size, on each side.
SOCKET_MARGIN = 0.02


def shape(role: str, values: Mapping[str, Value]) -> str:
    """Shape of a block, or of a peg's grip: only the target's varies."""
    return str(values.get(f"attributes.{role}.shape", "cube"))


def half_extents(role: str, values: Mapping[str, Value]) -> tuple[float, float, float]:
    """Half extents (m) of a block, a peg's grip, or a socket (whose height is its own)."""
    size = float(values[f"attributes.{role}.size"])
    height = float(values.get(f"attributes.{role}.height", size))
    if values["task.kind"] == "insert":
        if role == "receptacle":
            return (size + SOCKET_MARGIN, size + SOCKET_MARGIN, height)
        size = max(size, SHAFT)
    return (2.0 * size if shape(role, values) == "bar" else size, size, height)


def footprint(role: str, values: Mapping[str, Value]) -> Footprint:
    """The circle that a thing takes up on the table, however it is turned."""
    x, y, _ = half_extents(role, values)
    radius = x if shape(role, values) == "cylinder" else math.hypot(x, y)
    at = f"spatial.{role}"
    return Footprint(role, float(values[f"{at}.x"]), float(values[f"{at}.y"]), radius)


def room_beside(x: float, y: float, yaw: float) -> float:
    """How far (m) the hand that grasps a block reaches towards a tower, in the better of the two
    ways to grasp it.

    ``x``, ``y``: from the block to the tower (m); ``yaw``: the block's turn (rad).
    """
    angle = math.atan2(y, x) - yaw
    along = min(abs(math.cos(angle)), abs(math.sin(angle)))
    return HAND_ROOM + HAND_WIDTH * along + HAND_THICKNESS * math.sqrt(1.0 - along * along)


def referent(role: str, values: Mapping[str, Value]) -> Referent:
    """The thing as language can speak of it."""
    noun = shape(role, values)
    # Its height is a factor of its own, so that a "cube" is rarely as high as it is wide.
    noun, free = "block" if noun == "cube" else noun, True
    if values["task.kind"] == "insert":
        free = role != "receptacle"
        noun = "peg" if free else "socket"
    at = footprint(role, values)
    size, color = values[f"attributes.{role}.size"], values[f"attributes.{role}.color"]
    return Referent(role, str(color), noun, float(size), at.x, at.y, 0.0, free)


def prop(role: str, scene: Scene) -> Prop:
    """The thing itself: a block, a peg or a socket."""
    values = scene.values
    # Checked against factors.yaml when the scene was made: each value has its factor's type.
    pose: Mapping[str, Any] = scene.spatial[role]
    looks: Mapping[str, Any] = scene.attributes[role]
    half, xy, yaw = half_extents(role, values), (pose["x"], pose["y"]), pose.get("yaw", 0.0)
    # Only the target has a mass and a friction to edit.
    matter = {"mass": looks.get("mass", 0.12), "friction": looks.get("friction", 0.6)}
    kind, color = shape(role, values), looks["color"]
    if values["task.kind"] == "insert":
        if role == "receptacle":
            return socket(role, half[0], looks["clearance"], looks["depth"], xy, yaw, color)
        return peg(role, half, xy, yaw, round_=kind == "cylinder", color=color, **matter)
    block = free_object(role, kind, half, xy, yaw, color=color, **matter)
    # Where something may lie on it, and how high its top is in the finished tower.
    below = half_extents("receptacle", values)[2] if role == "target" else 0.0
    entity = replace(
        block.entities[0], inner=min(half[:2]) - EDGE, surface_z=2.0 * (below + half[2])
    )
    return replace(block, entities=(entity,))
