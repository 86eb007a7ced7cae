"""A scene's things taken apart: their structure, and the numbers that a model holds of them.

Two scenes with one structure compile to models that differ in numbers alone, which is what lets
:mod:`coda_envs.topology` write one scene over another.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from typing import NamedTuple

import mujoco
import numpy as np

from coda_envs.props import COLORS, Body, Geom, Joint, Prop

GEOMS = {
    "box": int(mujoco.mjtGeom.mjGEOM_BOX),
    "cylinder": int(mujoco.mjtGeom.mjGEOM_CYLINDER),
    "sphere": int(mujoco.mjtGeom.mjGEOM_SPHERE),
}

# MuJoCo's compiler takes frames this near to each other for the same, and simulates them so.
_SAME_FRAME = 1e-6
# Below this it takes a number for zero.
_EPS = 1e-14
# A body that moves must be heavier than this (kg), or the compiler refuses it.
_LEAST_MASS = 1e-12


class Numbers(NamedTuple):
    """What differs between scenes of one structure, in the order of the model's bodies and geoms.

    ``bodies [b, 14]``: position (m), quaternion, centre of mass (m), mass (kg), inertia (kg m²);
    ``kinds [g]`` int32: geom types; ``geoms [g, 14]``: size (m), position (m), quaternion, sliding
    friction, colour; ``joints [j, 6]``: axis, travel (m or rad), damping, friction, of those that
    are not free; ``free [f, 7]``: position and quaternion of the bodies that are. Quaternions and
    axes have unit length.
    """

    bodies: np.ndarray
    kinds: np.ndarray
    geoms: np.ndarray
    joints: np.ndarray
    free: np.ndarray


def dissect(props: Sequence[Prop]) -> tuple[Hashable, Numbers | None]:
    """The structure of a scene's things, and their numbers.

    The numbers are None where they are not those of a body that can be simulated (a size of
    nothing, an inertia that no body has): what to say of it, or to do, MuJoCo's compiler knows.
    """
    parts = _Parts()
    for prop in props:
        parts.add(prop.body)
        for entity in prop.entities:
            parts.key.append((entity.role, entity.free, entity.joint, entity.part_of))
    numbers = Numbers(
        np.array(parts.bodies, dtype=float).reshape(-1, 14),
        np.array(parts.kinds, dtype=np.int32),
        np.array(parts.geoms, dtype=float).reshape(-1, 14),
        np.array(parts.joints, dtype=float).reshape(-1, 6),
        np.array(parts.free, dtype=float).reshape(-1, 7),
    )
    return tuple(parts.key), numbers if parts.sound and _finite(numbers) else None


def _finite(numbers: Numbers) -> bool:
    return all(bool(np.isfinite(part).all()) for part in numbers)


class _Parts:
    """The lists that taking things apart fills, in the order of the model's bodies."""

    def __init__(self) -> None:
        self.key: list[Hashable] = []
        self.bodies: list[tuple[float, ...]] = []
        self.kinds: list[int] = []
        self.geoms: list[tuple[float, ...]] = []
        self.joints: list[tuple[float, ...]] = []
        self.free: list[tuple[float, ...]] = []
        self.sound = True

    def add(self, body: Body) -> None:
        """A body and all below it, parents first."""
        quat = _unit(body.quat)
        x, y, z = body.inertia
        self.bodies.append((*body.pos, *quat, *body.com, body.mass, x, y, z))
        self.sound &= body.mass > _LEAST_MASS and _inertia(x, y, z) and quat != (0.0,) * 4
        self.key.append((body.name, len(body.children), _null(body.com)))
        if body.joint is not None:
            self._add_joint(body.joint, (*body.pos, *quat))
        for geom in body.geoms:
            self._add_geom(geom)
        for child in body.children:
            self.add(child)

    def _add_joint(self, joint: Joint, pose: tuple[float, ...]) -> None:
        if joint.kind == "free":
            self.key.append("free")
            self.free.append(pose)
            return
        axis = _unit(joint.axis)
        self.joints.append((*axis, joint.travel, joint.damping, joint.friction))
        # One without travel has no limits. A body that turns about one of its own axes is simpler.
        aligned = sum(abs(a) > _EPS for a in axis) == 1
        self.key.append((joint.kind, joint.travel > 0.0, aligned))
        self.sound &= joint.travel >= 0.0 and axis != (0.0,) * 3

    def _add_geom(self, geom: Geom) -> None:
        quat = _unit(geom.quat)
        self.kinds.append(GEOMS[geom.kind])
        self.geoms.append((*geom.size, *geom.pos, *quat, geom.friction, *COLORS[geom.color]))
        straight = _null(quat[1:]) and abs(abs(quat[0]) - 1.0) < _SAME_FRAME
        self.key.append((geom.collides, straight, straight and _null(geom.pos)))
        used = {"box": 3, "cylinder": 2, "sphere": 1}[geom.kind]
        self.sound &= min(geom.size[:used]) > 0.0 and quat != (0.0,) * 4


def _null(values: tuple[float, ...]) -> bool:
    """Whether the compiler takes a position, or a quaternion's last three numbers, for zero."""
    return all(abs(v) < _SAME_FRAME for v in values)


def _inertia(x: float, y: float, z: float) -> bool:
    """Whether a body can have these moments of inertia."""
    return min(x, y, z) > 0.0 and x + y >= z and x + z >= y and y + z >= x


def _unit(values: tuple[float, ...]) -> tuple[float, ...]:
    """``values`` brought to length 1 the way MuJoCo's compiler does it; zeros where it cannot."""
    square = 0.0
    for value in values:
        square += value * value
    if square < _EPS:
        return (0.0,) * len(values)
    length = math.sqrt(square)
    return values if abs(length - 1.0) <= _EPS else tuple(v / length for v in values)
