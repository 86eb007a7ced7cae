"""Where a cabinet's parts are, and whether the hand has room to work on the target."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from coda_envs.cabinet_props import BOARD, DROP, GAP, door_arm
from coda_envs.cabinet_props import STANDOFF as DOOR_STANDOFF
from coda_envs.factor import Value

#: Travel of a part that is not the target (m, at its handle).
OTHER_TRAVEL = 0.10
#: How far (m) a drawer under the target may stand open; one over it, below whose handle the hand
#: must pass; and a door, whose edge comes near the target's handle.
UNDER_ROOM, OVER_ROOM, DOOR_ROOM = 0.06, 0.022, 0.012
#: How far a top drawer's handle stands out (m), and how much further that of each one under it, to
#: let the hand by.
STANDOFF, STAGGER = 0.024, 0.014
#: The main camera's place, and boxes around palm, wrist and fingers of the arm at home: middle and
#: half extents (m). A handle behind them could not be seen.
EYE = (-0.40, -0.62, 0.66)
HAND = (
    ((-0.05, 0.0, 0.316), (0.03, 0.105, 0.035)),
    ((-0.05, 0.0, 0.42), (0.055, 0.055, 0.10)),
    ((-0.05, 0.047, 0.255), (0.018, 0.016, 0.036)),
    ((-0.05, -0.047, 0.255), (0.018, 0.016, 0.036)),
)
#: How far the middle of a closed part's front lies before the carcass (m).
FRONT = GAP + BOARD / 2

_DRAWERS = ("top", "middle", "bottom")
_DOORS = ("left", "right")


def half_size(values: Mapping[str, Value]) -> tuple[float, float]:
    """Half the cabinet's width and height (m)."""
    width, height = (float(values[f"attributes.cabinet.{n}"]) for n in ("width", "height"))
    return width / 2, height / 2


def places(values: Mapping[str, Value]) -> dict[str, str]:
    """The place of each part by its role, the target first.

    ``distractor_1`` is next to the target: over it, or under it where it is the top one.
    """
    if values["task.furniture"] == "doors":
        target = str(values["task.door"])
        return {"target": target, "distractor_1": _DOORS[1 - _DOORS.index(target)]}
    target, rows = str(values["task.drawer"]), _rows(values)
    at = rows.index(target)
    others = sorted(rows, key=lambda row: (abs(rows.index(row) - at), rows.index(row)))[1:]
    return {"target": target} | {f"distractor_{i}": row for i, row in enumerate(others, 1)}


def _rows(values: Mapping[str, Value]) -> tuple[str, ...]:
    """The drawers from top to bottom. Of two none is in the middle; :func:`problem` says so."""
    if int(values["task.drawers"]) == 3:
        return _DRAWERS
    return ("middle", "bottom") if values["task.drawer"] == "middle" else ("top", "bottom")


def middles(values: Mapping[str, Value]) -> dict[str, tuple[float, float, float]]:
    """Middle of each part's front, shut, in the table frame (m), by role."""
    half_width, half_height = half_size(values)
    found: dict[str, tuple[float, float, float]] = {}
    for role, place in places(values).items():
        if place in _DOORS:
            local = (-FRONT, half_width / 2 if place == "left" else -half_width / 2)
            z = half_height
        else:
            rows = _rows(values)
            local = (-FRONT, 0.0)
            z = 2 * half_height * (1.0 - (rows.index(place) + 0.5) / len(rows))
        found[role] = (*_on_table(values, *local), z)
    return found


def shelves(values: Mapping[str, Value]) -> list[float]:
    """Heights of the boards in the carcass (m)."""
    height = 2 * half_size(values)[1]
    count = int(values["task.drawers"]) if values["task.furniture"] == "drawers" else 2
    return [height * i / count for i in range(1, count)]


def standoff(values: Mapping[str, Value], role: str) -> float:
    """How far the handle of a part stands out from its board (m)."""
    place = places(values)[role]
    return DOOR_STANDOFF if place in _DOORS else STANDOFF + STAGGER * _rows(values).index(place)


def opening(values: Mapping[str, Value], role: str) -> float:
    """Opening of a part at the start, as a share of its travel."""
    ajar = float(values[f"spatial.{role}.ajar"])
    if role == "target":
        return 1.0 - ajar if values["task.verb"] == "close" else ajar
    if values["task.furniture"] == "doors":
        return ajar * DOOR_ROOM / OTHER_TRAVEL
    height = {role: z for role, (_, _, z) in middles(values).items()}
    over = height[role] > height["target"]
    return ajar * (OVER_ROOM if over else UNDER_ROOM) / OTHER_TRAVEL


def problem(values: Mapping[str, Value]) -> str | None:
    """Why a scene with these values cannot be laid out, as the end of a sentence, or None."""
    two = values["task.furniture"] == "drawers" and int(values["task.drawers"]) == 2
    if two and values["task.drawer"] == "middle":
        return "has two drawers, and none in the middle"
    if _behind_hand(handle(values, opening(values, "target"))):
        return "has its target behind the hand, seen from the main camera"
    return None


def _behind_hand(point: tuple[float, float, float]) -> bool:
    """Whether the hand, at home, is on the straight line from the main camera to a point (m)."""
    for middle, half in HAND:
        enter, leave = 0.0, 1.0
        for eye, end, at, reach in zip(EYE, point, middle, half, strict=True):
            # Shares of the line at which it enters and leaves this pair of the box's sides.
            one, two = ((at + side * reach - eye) / (end - eye) for side in (-1.0, 1.0))
            enter, leave = max(enter, min(one, two)), min(leave, max(one, two))
        if enter < leave:
            return True
    return False


def handle(values: Mapping[str, Value], share: float) -> tuple[float, float, float]:
    """Where the target's handle is in the table frame (m) at a share of its travel."""
    travel = share * float(values["attributes.target.travel"])
    half_width, half_height = half_size(values)
    if values["task.furniture"] == "drawers":
        out = GAP + BOARD + standoff(values, "target") + travel
        x, y = _on_table(values, -out, float(values["spatial.target.offset"]))
        return x, y, middles(values)["target"][2]
    side = str(values["task.door"])
    arm = door_arm(side, half_width)
    sign = 1.0 if side == "left" else -1.0
    x, y = _turned(*arm, -sign * travel / math.hypot(*arm))
    return *_on_table(values, x - GAP, y + sign * half_width), 2 * half_height - DROP


def _on_table(values: Mapping[str, Value], x: float, y: float) -> tuple[float, float]:
    """A point of the cabinet's frame in the table's (m)."""
    x, y = _turned(x, y, float(values["spatial.cabinet.yaw"]))
    return x + float(values["spatial.cabinet.x"]), y + float(values["spatial.cabinet.y"])


def _turned(x: float, y: float, angle: Any) -> tuple[float, float]:
    cos, sin = math.cos(angle), math.sin(angle)
    return cos * x - sin * y, sin * x + cos * y
