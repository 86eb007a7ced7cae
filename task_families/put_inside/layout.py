"""Layout: whether a scene's target fits its container, and the hand everywhere it has to go."""

from __future__ import annotations

import math
from collections.abc import Mapping

from coda_envs.arena import TABLE, TABLE_X
from coda_envs.factor import Value
from coda_envs.layout import CLEARANCE, Footprint
from coda_envs.robot import BASE
from task_families.put_inside.room import (
    FINGER_ROOM,
    Container,
    grasp_height,
    grasp_yaws,
    palm_clear,
    place_for_lid,
)
from task_families.put_inside.things import (
    container,
    fillers,
    footprint,
    half_extents,
    lid_half,
    yaw_period,
)

#: Least room to spare beside the target and the fingers that let go of it (m).
SPARE = 0.003
#: The target stays this far below the rim (m).
BELOW_RIM = 0.002
#: Farthest that a handle or a drawer may be from the arm's base (m).
REACH = 0.76


def too_tall(values: Mapping[str, Value]) -> str | None:
    """Why the target stands out of the container, as the end of a sentence, or None."""
    tall = 2 * half_extents(values, "target")[2]
    rim = float(values["attributes.receptacle.rim"])
    if tall > rim - BELOW_RIM:
        return f"has a target that stands out of the container ({tall:.3f} m > {rim:.3f} m)"
    return None


def overfull(values: Mapping[str, Value]) -> str | None:
    """Why the target does not fit beside what lies in the container, likewise."""
    at, half = container(values), half_extents(values, "target")
    if at.spot(half[:2], fillers(values, at)).spare < SPARE:
        return "has no room in the container for the target and the fingers that hold it"
    return None


def crowding(values: Mapping[str, Value]) -> str | None:
    """Why something is in something else's way on the table, likewise."""
    at, target = container(values), footprint(values, "target")
    room = TABLE[0] - CLEARANCE, TABLE[1] - CLEARANCE
    if any(abs(x - TABLE_X) > room[0] or abs(y) > room[1] for x, y in at.corners):
        return "has a container that reaches over the table's edge"
    if at.gap(target.x, target.y) < target.radius + FINGER_ROOM:
        return "has target too near receptacle"
    shape = str(values["attributes.target.shape"])
    height = grasp_height(half_extents(values, "target")[2])
    yaws = grasp_yaws(float(values["spatial.target.yaw"]), yaw_period(shape))
    if not any(palm_clear(at, target.x, target.y, yaw, height) for yaw in yaws):
        return "has receptacle in the hand's way to target"
    others = [target]
    if values["task.distractors"]:
        one = footprint(values, "distractor_1")
        others.append(one)
        if at.gap(one.x, one.y) < one.radius + CLEARANCE:
            return "has distractor_1 too near receptacle"
        if math.hypot(one.x - target.x, one.y - target.y) < (
            one.radius + target.radius + FINGER_ROOM
        ):
            return "has distractor_1 too near target"
    return _way_in(values, at, others)


def _way_in(values: Mapping[str, Value], at: Container, others: list[Footprint]) -> str | None:
    """Why the container cannot be opened, or None."""
    if values["task.container"] == "lidded" and place_for_lid(lid_half(at), at, others) is None:
        return "has no place where the lid could be put"
    if values["task.container"] == "drawer":
        shut = container(values, 0.0)
        if math.hypot(shut.x - BASE[0], shut.y) > REACH:
            return "has a drawer out of reach"
    return None
