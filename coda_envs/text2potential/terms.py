"""Closed registry of progress terms: what a potential can measure on the way to a stage's gate.

A term takes ``features [..., F]``, role names and a scale, and returns ``[...]`` in [0, 1], where
1 is best. It reads the current state only. A role that the scene lacks gives 0. The role name
``gripper`` stands for the point between the fingertips, ``table`` for the table's top.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from coda_envs import predicates
from coda_envs.errors import ProgramError, suggest
from coda_envs.features import FeatureSchema
from coda_envs.predicates import OPEN, REST_SPEED, REST_SPIN, SHUT
from coda_envs.programs.potential import Term
from coda_envs.view import View

GRIPPER = "gripper"
TABLE = "table"
#: What the state features record the touch of, in the order in which a pair is read.
TOUCHED = {GRIPPER: "left", TABLE: "table", "receptacle": "supported", "target": "on_target"}

#: ``stable`` is 1 at rest and falls to 0 at this many times the resting speed.
RESTLESS = 10.0


def _clip(value: np.ndarray) -> np.ndarray:
    return np.asarray(np.clip(value, 0.0, 1.0))


def distance(view: View, roles: tuple[str, ...], scale: float) -> np.ndarray:
    """1 − gap / scale. From the gripper: the distance in space to the nearest point of the
    middle half of the object's height, as the predicate ``near`` measures it. Between two objects:
    the horizontal gap of their middles, since height is a term of its own.
    """
    if GRIPPER not in roles:
        return _clip(1.0 - view.horizontal_gap(roles[0], roles[1]) / scale)
    role = roles[1] if roles[0] == GRIPPER else roles[0]
    gap = view.gripper_position() - view.position(role)
    vertical = np.maximum(np.abs(gap[..., 2]) - 0.5 * view.of(role, "half_z"), 0.0)
    length = np.sqrt(gap[..., 0] ** 2 + gap[..., 1] ** 2 + vertical**2)
    return _clip(1.0 - length / scale)


def height(view: View, roles: tuple[str, ...], scale: float) -> np.ndarray:
    """Underside of the first role above the table, or above the surface of a second role,
    divided by the scale.
    """
    above = view.of(roles[0], "z") - view.of(roles[0], "half_z")
    if len(roles) == 2:
        above = above - view.of(roles[1], "surface_z")
    return _clip(above / scale)


def alignment(view: View, roles: tuple[str, ...], scale: float | None) -> np.ndarray:
    """1 − (turn between gripper and object) / scale, the turn taken modulo the object's
    ``yaw_period``; by default the scale is half the period, so that the worst turn gives 0.
    An object that looks the same from everywhere gives 1.
    """
    period = view.of(roles[0], "yaw_period")
    round_ = period <= 0.0
    period = np.where(round_, 1.0, period)
    turn = np.mod(view.gripper("yaw") - view.of(roles[0], "yaw"), period)
    turn = np.minimum(turn, period - turn)
    share = turn / (0.5 * period if scale is None else scale)
    return np.where(round_, 1.0, _clip(1.0 - share))


def upright(view: View, roles: tuple[str, ...], scale: float) -> np.ndarray:
    """1 − (tilt of the object's own vertical axis) / scale."""
    tilt = np.arccos(np.clip(view.of(roles[0], "upright"), -1.0, 1.0))
    return _clip(1.0 - tilt / scale)


def contact(view: View, roles: tuple[str, ...], scale: None) -> np.ndarray:
    """Gripper: the share of the two finger pads that touch the object. Table, receptacle or target:
    1 where the object touches it.
    """
    other = next(name for name in TOUCHED if name in roles)
    role = roles[0] if roles[1] == other else roles[1]
    if other == GRIPPER:
        return _clip(0.5 * (view.of(role, "left") + view.of(role, "right")))
    return _clip(view.of(role, TOUCHED[other]))


def grasped(view: View, roles: tuple[str, ...], scale: None) -> np.ndarray:
    """1 where both finger pads touch the object."""
    return np.asarray(predicates.grasped(view, roles[0]), dtype=float)


def released(view: View, roles: tuple[str, ...], scale: None) -> np.ndarray:
    """1 where no finger pad touches the object."""
    return np.asarray(predicates.released(view, roles[0]), dtype=float)


def stable(view: View, roles: tuple[str, ...], scale: None) -> np.ndarray:
    """1 where the object is at rest, falling to 0 at ``RESTLESS`` times the resting speeds."""
    speed = view.of(roles[0], "speed") / REST_SPEED
    spin = view.of(roles[0], "spin") / REST_SPIN
    return _clip((RESTLESS - np.maximum(speed, spin)) / (RESTLESS - 1.0))


def inside_fraction(view: View, roles: tuple[str, ...], scale: None) -> np.ndarray:
    """Horizontal depth of the first role's middle inside the second's inner radius, as a share
    of that radius: 1 in the centre, 0 at the edge and beyond.
    """
    inner = view.of(roles[1], "inner")
    gap = view.horizontal_gap(roles[0], roles[1])
    return np.where(inner > 0.0, _clip(1.0 - gap / np.where(inner > 0.0, inner, 1.0)), 0.0)


def joint_fraction(view: View, roles: tuple[str, ...], scale: None) -> np.ndarray:
    """How far the role's joint is open: 0 shut, 1 from where it counts as open on; the other way
    round where the task asks to shut it.
    """
    opening = view.of(roles[0], "opening")
    shut = (1.0 - opening) / (1.0 - SHUT)
    return _clip(np.where(view.of(roles[0], "to_shut") > 0.5, shut, opening / OPEN))


def insertion_depth(view: View, roles: tuple[str, ...], scale: None) -> np.ndarray:
    """How far the first role's underside has gone down into the second, as a share of its depth:
    1 on its floor, 0 at its rim and beside it.
    """
    depth = view.of(roles[1], "depth")
    underside = view.of(roles[0], "z") - view.of(roles[0], "half_z")
    above = underside - view.of(roles[1], "surface_z")
    deep = np.asarray(depth) > 0.0
    share = _clip(1.0 - above / np.where(deep, depth, 1.0))
    x, y = (view.of(roles[0], axis) - view.of(roles[1], axis) for axis in ("x", "y"))
    reach = np.maximum(view.of(roles[1], "inner"), view.of(roles[1], "inner_y"))
    return np.where(deep & (np.sqrt(x * x + y * y) < reach), share, 0.0)


#: What a role of a term may be.
ROLE, ROLE_OR_GRIPPER = "a role", "a role or gripper"
ROLE_OR_TOUCHING = "a role, gripper or table"


@dataclass(frozen=True)
class TermSpec:
    """A registered term: its function, the roles it takes, and its scale.

    ``roles``: what each may be, in order; the last ``optional`` of them may be left out.
    ``default_scale`` (in ``unit``; None: half the object's yaw period) is used where a program
    gives none, and a scale given must lie in ``scales``. ``unit`` is empty where the term takes no
    scale.
    """

    function: Callable[..., np.ndarray]
    roles: tuple[str, ...]
    optional: int = 0
    unit: str = ""
    default_scale: float | None = None
    scales: tuple[float, float] = (0.0, 0.0)

    @property
    def arity(self) -> str:
        """How many roles, in words: ``1 or 2 roles (a role, a role)``."""
        most = len(self.roles)
        numbers = " or ".join(str(n) for n in range(most - self.optional, most + 1))
        return f"{numbers} role{'s' * (most > 1)} ({', '.join(self.roles)})"


#: Least and largest scales: below the least a term is a step that no approach can follow, above
#: the largest it hardly changes anywhere on the table. Lengths in metres, angles in radians.
LENGTHS = (0.01, 1.0)
HEIGHTS = (0.01, 0.5)
ANGLES = (0.05, math.pi)

REGISTRY: Mapping[str, TermSpec] = {
    "distance": TermSpec(distance, (ROLE_OR_GRIPPER, ROLE_OR_GRIPPER), 0, "m", 0.30, LENGTHS),
    "height": TermSpec(height, (ROLE, ROLE), 1, "m", 0.10, HEIGHTS),
    "alignment": TermSpec(alignment, (ROLE,), 0, "rad", None, ANGLES),
    "upright": TermSpec(upright, (ROLE,), 0, "rad", math.pi / 2, ANGLES),
    "contact": TermSpec(contact, (ROLE_OR_TOUCHING, ROLE_OR_TOUCHING)),
    "grasped": TermSpec(grasped, (ROLE,)),
    "released": TermSpec(released, (ROLE,)),
    "stable": TermSpec(stable, (ROLE,)),
    "inside_fraction": TermSpec(inside_fraction, (ROLE, ROLE)),
    "joint_fraction": TermSpec(joint_fraction, (ROLE,)),
    "insertion_depth": TermSpec(insertion_depth, (ROLE, ROLE)),
}


def resolve(term: Term, schema: FeatureSchema) -> Callable[[View], np.ndarray]:
    """The function View → ``[...]`` of one term, with names, roles and scale checked.

    Raises :class:`ProgramError` on a wrong number of roles, an unknown role, a pair of roles whose
    touch is not recorded, a scale on a term that takes none, or one outside its range.
    """
    spec = REGISTRY[term.term]
    if not len(spec.roles) - spec.optional <= len(term.roles) <= len(spec.roles):
        raise ProgramError(
            f"term {term.term!r} got {len(term.roles)} roles: {term.roles!r}.", allowed=spec.arity
        )
    _check_roles(term, schema)
    _check_scale(term, spec)
    scale = spec.default_scale if term.scale is None else term.scale
    function, roles = spec.function, term.roles
    owners = [r for r in roles if r in schema.roles]

    def evaluate(view: View) -> np.ndarray:
        value = function(view, roles, scale)
        for role in owners:
            value = value * (view.of(role, "present") > 0.5)
        return value

    return evaluate


def _check_scale(term: Term, spec: TermSpec) -> None:
    if term.scale is None:
        return
    low, high = spec.scales
    if not spec.unit:
        raise ProgramError(
            f"term {term.term!r} got the scale {term.scale:g}.",
            allowed="no scale",
            remedy="leave the scale out",
        )
    if not low <= term.scale <= high:
        raise ProgramError(
            f"term {term.term!r} got the scale {term.scale:g} {spec.unit}.",
            allowed=f"{low:g} to {high:g} {spec.unit}",
        )


def _check_roles(term: Term, schema: FeatureSchema) -> None:
    """Every role is the family's, or ``gripper`` or ``table`` where the term knows them."""
    extra = {"distance": (GRIPPER,), "contact": (GRIPPER, TABLE)}.get(term.term, ())
    for role in term.roles:
        if role not in schema.roles and role not in extra:
            raise ProgramError(
                f"term {term.term!r} names the role {role!r}.",
                allowed=suggest(role, (*schema.roles, *extra)),
                remedy="use a role of the family",
            )
    if len(set(term.roles)) != len(term.roles) or not set(term.roles) - set(extra):
        raise ProgramError(
            f"term {term.term!r} got the roles {term.roles!r}.",
            allowed="different roles, at least one of them an object",
        )
    if term.term == "contact" and not set(term.roles) & set(TOUCHED):
        raise ProgramError(
            f"term 'contact' got the roles {term.roles!r}, whose touch is not recorded.",
            allowed="an object with " + ", ".join(map(repr, TOUCHED)),
        )
