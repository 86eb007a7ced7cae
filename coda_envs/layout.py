"""Layout: whether things that stand on the table leave one another the room they need."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass

#: Free room between any two things (m): a finger and its pad fit in.
CLEARANCE = 0.012
#: Free room around a thing that is to be grasped (m), for the opened fingers.
FINGER_ROOM = 0.04


@dataclass(frozen=True)
class Footprint:
    """The circle that a thing takes up on the table: middle and radius (m, table frame)."""

    role: str
    x: float
    y: float
    radius: float


def crowding(footprints: Sequence[Footprint], grasped: Collection[str] = ()) -> str | None:
    """The first two things that stand too near each other, as the end of a sentence, or None.

    ``grasped``: roles around which the opened fingers need room.
    """
    for i, one in enumerate(footprints):
        for other in footprints[:i]:
            room = FINGER_ROOM if {one.role, other.role} & set(grasped) else CLEARANCE
            gap = math.hypot(one.x - other.x, one.y - other.y)
            if gap < one.radius + other.radius + room:
                return f"has {one.role} too near {other.role}"
    return None
