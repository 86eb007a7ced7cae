"""Room: what a container takes up, and where there is room in it, beside it and around a target.

Plain numbers, so that a scene's layout and the expert, which knows states only, judge alike.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from coda_envs.arena import TABLE, TABLE_X
from coda_envs.container_props import POST_RADIUS, SHELL, STANDOFF
from coda_envs.layout import CLEARANCE, Footprint
from coda_envs.robot import BASE
from coda_envs.skills import FLOOR

#: Free room around a thing for the opened fingers (m), from its edge to a wall.
FINGER_ROOM = 0.045
#: Room of a finger that lets go of something: its thickness, half its width, and how far it opens
#: (m).
FINGER = 0.014
PAD = 0.010
LET_GO = 0.007
#: The hand above the fingers is a bar: half its length and thickness with some air (m), and its
#: height over the point between the fingertips (m).
PALM_LENGTH = 0.106
PALM_HALF = 0.024
PALM_HEIGHT = 0.044
#: Air between the hand and a wall that it comes down beside (m).
PALM_AIR = 0.004
#: The farthest that the hand turns about the vertical (rad).
WRIST = 1.75
#: Where a lid may be put: spacing of the places (m), farthest from the arm's base (m).
GRID = 0.04
REACH = 0.78


class Spot(NamedTuple):
    """A place inside: in the container's frame (m), and how much room to spare it has (m)."""

    x: float
    y: float
    spare: float


@dataclass(frozen=True)
class Container:
    """A container: where its hollow is now, and how large it is outside and inside.

    ``x, y, yaw``: its middle in the table frame (m, rad); ``half``: outer half extents; ``inner``:
    half extents inside, the second 0 where it is round; ``top``: height of what stands highest (m).
    ``travel`` and ``slid``: how far its drawer can and does slide out, against its own x axis (m);
    0 and 0 where it is none.
    """

    x: float
    y: float
    yaw: float
    half: tuple[float, float]
    inner: tuple[float, float]
    top: float
    travel: float = 0.0
    slid: float = 0.0

    def own(self, x: float, y: float) -> tuple[float, float]:
        """A point of the table in the container's frame (m)."""
        x, y = x - self.x, y - self.y
        sine, cosine = math.sin(self.yaw), math.cos(self.yaw)
        return cosine * x + sine * y, cosine * y - sine * x

    def on_table(self, x: float, y: float) -> tuple[float, float]:
        """A point of the container's frame on the table (m)."""
        sine, cosine = math.sin(self.yaw), math.cos(self.yaw)
        return self.x + cosine * x - sine * y, self.y + sine * x + cosine * y

    @property
    def extent(self) -> tuple[float, float, float]:
        """What it takes up in its own frame: least x, largest x, half width (m), wherever its
        drawer stands, with cabinet and handle."""
        if not self.travel:
            return -self.half[0], self.half[0], self.half[1]
        front = -self.half[0] - STANDOFF - POST_RADIUS - (self.travel - self.slid)
        return front, self.half[0] + SHELL + self.slid, self.half[1] + SHELL

    @property
    def corners(self) -> list[tuple[float, float]]:
        """The corners of that on the table (m)."""
        low, high, side = self.extent
        return [self.on_table(x, y) for x in (low, high) for y in (-side, side)]

    def gap(self, x: float, y: float) -> float:
        """Distance (m) of a point of the table from it, 0 within."""
        x, y = self.own(x, y)
        low, high, side = self.extent
        return math.hypot(max(low - x, x - high, 0.0), max(abs(y) - side, 0.0))

    def spot(self, half: tuple[float, float], fillers: Sequence[Footprint]) -> Spot:
        """The roomiest place inside for a thing of these half extents (m) in the fingers, which are
        to its left and right in the container's frame.

        ``fillers``: what lies inside, on the table. A negative ``spare`` says that it does not fit.
        """
        low, high = -self.inner[0], self.inner[0]
        need_x, need_y = max(half[0], PAD), half[1] + FINGER + LET_GO
        if self.travel:
            # The rest is in the cabinet still, and the hand must stay clear of that.
            high = low + self.slid
            need_x = max(need_x, PALM_HALF)
        middle, reach = (low + high) / 2, (high - low) / 2
        side = self.inner[1] or self.inner[0]
        along, across = _ALONG * reach, _ACROSS * side
        if self.inner[1]:
            spare = np.minimum(reach - abs(along) - need_x, side - abs(across) - need_y)
        else:
            thing = np.hypot(abs(along) + half[0], abs(across) + half[1])
            fingers = np.hypot(abs(along) + PAD, abs(across) + need_y)
            spare = side - np.maximum(thing, fingers)
        for filler in fillers:
            x, y = self.own(filler.x, filler.y)
            beside_x = np.maximum(abs(along + middle - x) - need_x, 0.0)
            beside_y = np.maximum(abs(across - y) - need_y, 0.0)
            spare = np.minimum(spare, np.hypot(beside_x, beside_y) - filler.radius)
        # Of places that are as good as each other to a micrometre, the first.
        best = int(np.argmax(np.round(spare, 6)))
        return Spot(middle + float(along[best]), float(across[best]), float(spare[best]))


#: Places tried, as shares of the way from the middle to the walls; the middle first.
_SHARES = (0.0, *(side * k / 8 for k in range(1, 7) for side in (1, -1)))
_ALONG, _ACROSS = (np.ravel(grid) for grid in np.meshgrid(_SHARES, _SHARES, indexing="ij"))


def grasp_height(half_z: float) -> float:
    """Height of the point between the fingertips in a grasp of a thing on the table (m).

    ``half_z``: half its height. As :meth:`coda_envs.skills.Hand.grasp` has it.
    """
    return max(FLOOR, half_z + min(0.0, half_z - 0.02))


def grasp_yaws(yaw: float, period: float) -> list[float]:
    """Turns of the hand (rad) in which the fingers fit a thing at ``yaw`` that looks the same after
    ``period`` (0: after any turn); what is nearest to the hand's home comes first."""
    if period == 0.0:
        return [0.0, math.pi / 4, -math.pi / 4, math.pi / 2, -math.pi / 2]
    first = (yaw + period / 2) % period - period / 2
    turns = [first + k * period for k in (-2, -1, 0, 1, 2)]
    return sorted((t for t in turns if abs(t) <= WRIST), key=abs)


def palm_clear(container: Container, x: float, y: float, yaw: float, height: float) -> bool:
    """Whether the hand at ``yaw``, its fingertips at a point ``height`` over the table (m), does
    not come down on the container."""
    if container.top < height + PALM_HEIGHT:
        return True
    steps = 10
    for step in range(-steps, steps + 1):
        along = PALM_LENGTH * step / steps
        gap = container.gap(x - along * math.sin(yaw), y + along * math.cos(yaw))
        if gap < PALM_HALF + PALM_AIR:
            return False
    return True


def place_for_lid(
    half: tuple[float, float], container: Container, others: Sequence[Footprint]
) -> tuple[float, float] | None:
    """The place on the table nearest to the container where its lid can lie, or None.

    ``half``: the lid's half extents (m); ``others``: what else stands on the table.
    """
    radius = math.hypot(*half)
    found: tuple[float, tuple[float, float]] | None = None
    steps = range(-10, 11)
    for x in (GRID * i for i in steps):
        for y in (GRID * i for i in steps):
            room = radius + CLEARANCE
            off = abs(x - TABLE_X) + room > TABLE[0] or abs(y) + room > TABLE[1]
            if off or math.hypot(x - BASE[0], y) > REACH or x < -0.16:
                continue
            if container.gap(x, y) < room:
                continue
            if any(math.hypot(x - o.x, y - o.y) < o.radius + radius + FINGER_ROOM for o in others):
                continue
            away = math.hypot(x - container.x, y - container.y)
            if found is None or away < found[0]:
                found = away, (x, y)
    return found[1] if found else None


def wall_place(
    inner: tuple[float, float], bearing: float, half: float, radius: float
) -> tuple[float, float]:
    """Where a filler stands by the wall in direction ``bearing`` (rad), in the container's frame.

    ``half`` and ``radius``: its half width, and that of the circle around it (m).
    """
    gap = 0.003
    if not inner[1]:
        reach = inner[0] - radius - gap
        return reach * math.cos(bearing), reach * math.sin(bearing)
    far = (inner[0] - half - gap, inner[1] - half - gap)
    # To where the ray meets the walls.
    sine, cosine = math.sin(bearing), math.cos(bearing)
    reach = min(far[0] / max(abs(cosine), 1e-9), far[1] / max(abs(sine), 1e-9))
    return reach * cosine, reach * sine
