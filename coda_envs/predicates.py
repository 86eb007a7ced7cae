"""Closed registry of predicates on state features: what verifiers, stage gates and events use.

Every predicate takes ``features [..., F]`` and role names and returns a boolean array ``[...]``.
It reads the current state only, so that a restored state gives the same answer.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from coda_envs.errors import ProgramError, suggest
from coda_envs.features import GRIPPER, OBJECT, FeatureSchema

#: The gripper counts as having reached an object within this distance of its middle (m).
REACH = 0.03
#: An object is lifted when its underside is this far above the table (m).
LIFT = 0.025
#: At rest: slower than this (m/s, rad/s).
REST_SPEED = 0.03
REST_SPIN = 0.5
#: Height over a receptacle's surface up to which an object is still *at* it (m).
AT_HEIGHT = 0.02

_GRIPPER = {name: i for i, name in enumerate(GRIPPER)}
_OBJECT = {name: i for i, name in enumerate(OBJECT)}


class View:
    """Named access to the columns of ``features [..., F]``."""

    def __init__(self, schema: FeatureSchema, features: np.ndarray) -> None:
        self.schema = schema
        self.features = features

    def gripper(self, name: str) -> np.ndarray:
        """Column ``gripper.<name>``, shape ``[...]``."""
        return self.features[..., _GRIPPER[name]]

    def of(self, role: str, name: str) -> np.ndarray:
        """Column ``<role>.<name>``, shape ``[...]``."""
        return self.features[..., self.schema.role_offset(role) + _OBJECT[name]]

    def position(self, role: str) -> np.ndarray:
        """Positions ``[..., 3]`` of a role."""
        start = self.schema.role_offset(role) + _OBJECT["x"]
        return self.features[..., start : start + 3]

    def gripper_position(self) -> np.ndarray:
        """Positions ``[..., 3]`` of the point between the fingertips."""
        return self.features[..., :3]

    def horizontal_gap(self, role: str, other: str) -> np.ndarray:
        """Horizontal distance between two roles' middles (m)."""
        gap = self.position(role)[..., :2] - self.position(other)[..., :2]
        return np.hypot(gap[..., 0], gap[..., 1])


def near(view: View, role: str) -> np.ndarray:
    """The point between the fingertips is within ``REACH`` of the object."""
    gap = view.gripper_position() - view.position(role)
    # A tall object is reached anywhere along its height.
    over = np.maximum(np.abs(gap[..., 2]) - 0.5 * view.of(role, "half_z"), 0.0)
    return np.sqrt(gap[..., 0] ** 2 + gap[..., 1] ** 2 + over**2) < REACH


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
    return held & (view.of(role, "z") - view.of(role, "half_z") > LIFT)


def over(view: View, role: str, receptacle: str) -> np.ndarray:
    """Above or in the receptacle's inner radius, not below its surface."""
    inside = view.horizontal_gap(role, receptacle) < view.of(receptacle, "inner")
    underside = view.of(role, "z") - _reach_down(view, role)
    return inside & (underside > view.of(receptacle, "surface_z") - 0.01)


def at(view: View, role: str, receptacle: str) -> np.ndarray:
    """Over the receptacle and no more than ``AT_HEIGHT`` above its surface."""
    underside = view.of(role, "z") - _reach_down(view, role)
    return over(view, role, receptacle) & (underside < view.of(receptacle, "surface_z") + AT_HEIGHT)


def released(view: View, role: str) -> np.ndarray:
    """No finger pad touches the object."""
    return (view.of(role, "left") < 0.5) & (view.of(role, "right") < 0.5)


def stable(view: View, role: str) -> np.ndarray:
    """At rest: slower than ``REST_SPEED`` and ``REST_SPIN``."""
    return (view.of(role, "speed") < REST_SPEED) & (view.of(role, "spin") < REST_SPIN)


def placed(view: View, role: str, receptacle: str) -> np.ndarray:
    """At the receptacle, touching it, let go, and at rest; never in the air or in the hand."""
    return (
        at(view, role, receptacle)
        & (view.of(role, "supported") > 0.5)
        & released(view, role)
        & stable(view, role)
    )


def _reach_down(view: View, role: str) -> np.ndarray:
    """How far the object reaches below its middle, for any tilt (bounded by its half extents)."""
    upright = np.abs(view.of(role, "upright"))
    side = np.maximum(view.of(role, "half_x"), view.of(role, "half_y"))
    lean = np.sqrt(np.clip(1.0 - upright**2, 0.0, 1.0))
    return upright * view.of(role, "half_z") + lean * side


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
    return np.asarray(predicate.function(View(schema, features), *roles))
