"""Closed registry of predicates on state features: what verifiers, stage gates and events use.

Every predicate takes ``features [..., F]`` and role names and returns a boolean array ``[...]``.
It reads the current state only, so that a restored state gives the same answer.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from coda_envs.errors import ProgramError, suggest
from coda_envs.features import FeatureSchema
from coda_envs.view import View, cos, larger, sin, smaller, sqrt

#: The gripper counts as having reached an object within this distance of its middle (m).
REACH = 0.03
#: An object is lifted when its underside is this far above the table (m).
LIFT = 0.025
#: At rest: slower than this (m/s, rad/s).
REST_SPEED = 0.03
REST_SPIN = 0.5
#: Height over a receptacle's surface up to which an object is still *at* it (m).
AT_HEIGHT = 0.02
#: A joint counts as open from this share of its travel on, as shut up to that one.
OPEN = 0.8
SHUT = 0.1
#: Highest that a thing inside a receptacle may stand out over its rim (m).
RIM_GAP = 0.003
#: Fingers are closed around something where the gap between them is its width, or smaller or larger
#: by less than this (m): it may stand askew between them.
CLASP = (0.006, 0.012)
#: Flat: turned out of the level by less than this (rad), its middle no more than this off the
#: height it has on that face (m).
FLAT_TURN = 0.15
FLAT_GAP = 0.003

_ANSWERS = (np.array(False), np.array(True))
for _answer in _ANSWERS:
    _answer.flags.writeable = False


def near(view: View, role: str) -> np.ndarray:
    """The point between the fingertips is within ``REACH`` of the object."""
    gap = view.gripper_position() - view.position(role)
    # A tall object is reached anywhere along its height.
    over = np.maximum(np.abs(gap[..., 2]) - 0.5 * view.of(role, "half_z"), 0.0)
    close: np.ndarray = np.sqrt(gap[..., 0] ** 2 + gap[..., 1] ** 2 + over**2) < REACH
    return close


def grasped(view: View, role: str) -> np.ndarray:
    """Both finger pads touch the object."""
    return (view.of(role, "left") > 0.5) & (view.of(role, "right") > 0.5)


def lifted(view: View, role: str) -> np.ndarray:
    """Held, with its underside ``LIFT`` above the table.

    A pad can lose touch for an instant while the object is swung along, so up in the air one pad
    is enough for an object between the fingertips.
    """
    touched = (view.of(role, "left") > 0.5) | (view.of(role, "right") > 0.5)
    held = grasped(view, role) | (touched & near(view, role))
    up: np.ndarray = held & (view.of(role, "z") - view.of(role, "half_z") > LIFT)
    return up


def over(view: View, role: str, receptacle: str) -> np.ndarray:
    """Above or in the receptacle's inner radius, its middle above the surface."""
    inside = view.horizontal_gap(role, receptacle) < view.of(receptacle, "inner")
    return inside & (view.of(role, "z") > view.of(receptacle, "surface_z"))


def at(view: View, role: str, receptacle: str) -> np.ndarray:
    """Over the receptacle and no more than ``AT_HEIGHT`` above its surface."""
    low = _underside(view, role) < view.of(receptacle, "surface_z") + AT_HEIGHT
    return over(view, role, receptacle) & low


def released(view: View, role: str) -> np.ndarray:
    """No finger pad touches the object."""
    return (view.of(role, "left") < 0.5) & (view.of(role, "right") < 0.5)


def stable(view: View, role: str) -> np.ndarray:
    """At rest: slower than ``REST_SPEED`` and ``REST_SPIN``."""
    return (view.of(role, "speed") < REST_SPEED) & (view.of(role, "spin") < REST_SPIN)


def placed(view: View, role: str, receptacle: str) -> np.ndarray:
    """At the receptacle, flat on its surface, touching it, let go, and at rest: never in the air,
    in the hand, or leaning on a rim."""
    touching = view.of(role, "supported") > 0.5
    if view.one_state and not touching:
        # The answer after almost every step; what follows could not change it.
        return touching
    resting = touching & released(view, role) & stable(view, role)
    flat = _flat(view, role, view.of(receptacle, "surface_z"))
    done: np.ndarray = resting & at(view, role, receptacle) & flat
    return done


def opened(view: View, role: str) -> np.ndarray:
    """Its joint is ``OPEN`` or further, at rest, let go."""
    done: np.ndarray = (view.of(role, "opening") > OPEN) & released(view, role) & stable(view, role)
    return done


def shut(view: View, role: str) -> np.ndarray:
    """It has a joint, which is ``SHUT`` or less, at rest, let go."""
    jointed = view.of(role, "travel") > 0.0
    low = view.of(role, "opening") < SHUT
    done: np.ndarray = jointed & low & released(view, role) & stable(view, role)
    return done


def around(view: View, role: str) -> np.ndarray:
    """The hand, told to close, has its fingers around the object: near it, as far apart as it is
    wide.

    Not by touch: of two fingers that close on what cannot give way, a handle, now one touches and
    now the other.
    """
    gap = view.gripper("opening") - 2.0 * view.of(role, "half_y")
    fits = (gap > -CLASP[0]) & (gap < CLASP[1]) & (view.gripper("command") > 0.0)
    has: np.ndarray = near(view, role) & fits
    return has


def engaged(view: View, role: str) -> np.ndarray:
    """Of a part on a joint: the fingers are around its handle; where the task is to shut it, a
    closed hand that touches it near there will do."""
    shut = view.gripper("opening") < 2.0 * view.of(role, "half_y") + CLASP[1]
    fist = near(view, role) & (view.gripper("command") > 0.0) & shut
    touched = (view.of(role, "left") > 0.5) | (view.of(role, "right") > 0.5)
    has: np.ndarray = around(view, role) | ((view.of(role, "to_shut") > 0.5) & fist & touched)
    return has


def at_stop(view: View, role: str) -> np.ndarray:
    """Its joint is as far open or shut as the task asks, however it moves or is held."""
    jointed, to_shut = view.of(role, "travel") > 0.0, view.of(role, "to_shut")
    opening = view.of(role, "opening")
    far: np.ndarray = jointed & (
        ((to_shut < 0.5) & (opening > OPEN)) | ((to_shut > 0.5) & (opening < SHUT))
    )
    return far


def operated(view: View, role: str) -> np.ndarray:
    """Opened, or shut where the task asks for that: at rest, let go."""
    stopped = at_stop(view, role)
    if view.one_state and not stopped:
        return stopped
    done: np.ndarray = stopped & released(view, role) & stable(view, role)
    return done


def above(view: View, role: str, receptacle: str) -> np.ndarray:
    """The object's middle is between the receptacle's walls and above its floor, however high."""
    x = view.of(role, "x") - view.of(receptacle, "x")
    y = view.of(role, "y") - view.of(receptacle, "y")
    yaw = view.of(receptacle, "yaw")
    along, across = cos(yaw) * x + sin(yaw) * y, cos(yaw) * y - sin(yaw) * x
    inner, inner_y = view.of(receptacle, "inner"), view.of(receptacle, "inner_y")
    square = (abs(along) < inner) & (abs(across) < inner_y)
    # Without an own width across, the inside is round.
    round_ = (inner_y == 0.0) & (x * x + y * y < inner * inner)
    over_floor = view.of(role, "z") > view.of(receptacle, "surface_z")
    between: np.ndarray = (square | round_) & over_floor
    return between


def within(view: View, role: str, receptacle: str) -> np.ndarray:
    """The object is inside the receptacle: its middle between the walls, and no point of it more
    than ``RIM_GAP`` above the rim, so that nothing that leans on the rim or is heaped up counts."""
    above_floor = view.of(role, "z") - view.of(receptacle, "surface_z")
    # What lies on the floor reaches as far up from its middle as down, whichever side it lies on.
    reach = smaller(view.of(role, "z") - _underside(view, role), above_floor)
    low = above_floor + reach < view.of(receptacle, "depth") + RIM_GAP
    hollow = view.of(receptacle, "depth") > 0.0
    inside: np.ndarray = above(view, role, receptacle) & hollow & low
    return inside


def uncovered(view: View, receptacle: str, cover: str) -> np.ndarray:
    """Nothing bars the way into the receptacle: it has no cover, its lid lies beside it, or its
    drawer is ``OPEN``."""
    absent = view.of(cover, "present") < 0.5
    jointed = view.of(cover, "travel") > 0.0
    drawn = jointed & (view.of(cover, "opening") > OPEN)
    beside = view.horizontal_gap(cover, receptacle) > view.of(cover, "half_x") + view.of(
        receptacle, "inner"
    )
    down = view.of(cover, "z") - view.of(cover, "half_z") < AT_HEIGHT
    # A handle stays as far from its drawer wherever that stands.
    aside = beside & down & (view.of(cover, "travel") == 0.0)
    free: np.ndarray = absent | drawn | aside
    return free


def inside(view: View, role: str, receptacle: str) -> np.ndarray:
    """Within the receptacle, carried by it or by what lies in it, let go, and at rest."""
    touching = view.of(role, "supported") > 0.5
    if view.one_state and not touching:
        return touching
    resting = touching & released(view, role) & stable(view, role)
    done: np.ndarray = resting & within(view, role, receptacle)
    return done


def on_top(view: View, role: str, base: str) -> np.ndarray:
    """A face of the object lies on the base's upper side and touches it, its middle over the
    base's; held or not, moving or not. In a socket or on one is not on top.

    Touch is recorded of the target and of the receptacle: ``base`` is one of them.
    """
    touching = view.of(role, "on_target" if base == "target" else "supported") > 0.5
    if view.one_state and not touching:
        return touching
    # A base that has been tipped over lies on a long side.
    upright = abs(view.of(base, "upright"))
    side = smaller(view.of(base, "half_x"), view.of(base, "half_y"))
    top = view.of(base, "z") + upright * view.of(base, "half_z") + _lean(upright) * side
    middle = view.horizontal_gap(role, base) < view.of(base, "inner")
    solid = view.of(base, "depth") == 0.0
    carried: np.ndarray = touching & solid & middle & _flat(view, role, top)
    return carried


def stacked(view: View, role: str, base: str) -> np.ndarray:
    """On top of the base, let go, and at rest, and so is the base: on the table, or the target on
    the receptacle."""
    on = on_top(view, role, base)
    if view.one_state and not on:
        return on
    carried = (view.of(base, "table") > 0.5) | (view.of(base, "supported") > 0.5)
    done: np.ndarray = on & carried
    for each in (role, base):
        done = done & released(view, each) & stable(view, each)
    return done


def inserted(view: View, role: str, socket: str) -> np.ndarray:
    """Upright on the floor of the socket's hole, touching it, let go, and at rest."""
    touching = view.of(role, "supported") > 0.5
    if view.one_state and not touching:
        return touching
    above = view.of(role, "z") - view.of(role, "half_z") - view.of(socket, "surface_z")
    down = (view.of(role, "upright") > math.cos(FLAT_TURN)) & (abs(above) < FLAT_GAP)
    hole = (view.of(socket, "depth") > 0.0) & (
        view.horizontal_gap(role, socket) < view.of(socket, "inner")
    )
    done: np.ndarray = touching & down & hole & released(view, role) & stable(view, role)
    return done


def assembled(view: View, role: str, base: str, then: str) -> np.ndarray:
    """The object is stacked on the base or, where that is a socket, inserted into it; and ``then``,
    if the scene has it, is stacked on the object."""
    first: np.ndarray = stacked(view, role, base) | inserted(view, role, base)
    if view.one_state and not first:
        return first
    done: np.ndarray = first & ((view.of(then, "present") < 0.5) | stacked(view, then, role))
    return done


def _flat(view: View, role: str, surface: Any) -> np.ndarray:
    """A face of the object lies on the surface at this height: it stands, or lies on a side."""
    upright = abs(view.of(role, "upright"))
    height = view.of(role, "z") - surface
    standing = abs(height - view.of(role, "half_z")) < FLAT_GAP
    # Which side it lies on, only the height tells: one that leans on an edge is higher.
    lying = (abs(height - view.of(role, "half_x")) < FLAT_GAP) | (
        abs(height - view.of(role, "half_y")) < FLAT_GAP
    )
    tilt = math.sin(FLAT_TURN)
    flat: np.ndarray = ((upright > math.cos(FLAT_TURN)) & standing) | ((upright < tilt) & lying)
    return flat


def _underside(view: View, role: str) -> np.ndarray:
    """Height of the lowest point, for any tilt (bounded by the half extents)."""
    upright = abs(view.of(role, "upright"))
    side = larger(view.of(role, "half_x"), view.of(role, "half_y"))
    reach = upright * view.of(role, "half_z") + _lean(upright) * side
    underside: np.ndarray = view.of(role, "z") - reach
    return underside


def _lean(upright: Any) -> Any:
    """Sine of the tilt whose cosine is given; rounding can take the cosine past 1."""
    return sqrt(larger(1.0 - upright * upright, 0.0))


@dataclass(frozen=True)
class Predicate:
    """A registered predicate: its function and how many roles it takes."""

    name: str
    function: Callable[..., np.ndarray]
    arity: int


REGISTRY: dict[str, Predicate] = {
    name: Predicate(name, function, arity)
    for name, function, arity in (
        ("near", near, 1),
        ("grasped", grasped, 1),
        ("lifted", lifted, 1),
        ("over", over, 2),
        ("at", at, 2),
        ("released", released, 1),
        ("stable", stable, 1),
        ("placed", placed, 2),
        ("opened", opened, 1),
        ("shut", shut, 1),
        ("around", around, 1),
        ("engaged", engaged, 1),
        ("at_stop", at_stop, 1),
        ("operated", operated, 1),
        ("above", above, 2),
        ("within", within, 2),
        ("uncovered", uncovered, 2),
        ("inside", inside, 2),
        ("on_top", on_top, 2),
        ("stacked", stacked, 2),
        ("inserted", inserted, 2),
        ("assembled", assembled, 3),
    )
}


def evaluate(
    schema: FeatureSchema, features: np.ndarray, name: str, roles: tuple[str, ...]
) -> np.ndarray:
    """Value ``[...]`` of a named predicate on ``features [..., F]``.

    Raises :class:`ProgramError` on an unknown name, a wrong number of roles or an unknown role.
    """
    predicate = REGISTRY.get(name)
    if predicate is None:
        raise ProgramError(f"unknown predicate {name!r}.", allowed=suggest(name, REGISTRY))
    if len(roles) != predicate.arity:
        raise ProgramError(
            f"predicate {name!r} got the roles {roles!r}.", allowed=f"{predicate.arity} role(s)"
        )
    found = predicate.function(View(schema, features), *roles)
    # Of one state a Python bool, for which making an array would cost as much as the answer.
    return _ANSWERS[found] if isinstance(found, bool) else np.asarray(found)
