"""The state features that predicates, potentials, the chunk critic and diagnosis all read.

One float64 vector a step, named columns. Positions are metres in the table frame, angles radians,
speeds m/s and rad/s, flags 0 or 1. A role that the scene lacks has zeros and ``present`` 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from coda_envs.errors import ProgramError, suggest

#: Columns of the gripper. ``x, y, z`` is the point between the fingertips; ``tilt`` the cosine
#: between its approach axis and straight down; ``yaw`` its turn about the vertical, 0 at home;
#: ``opening`` the gap between the pads in metres; ``command`` the last action (-1 open, 1 close).
GRIPPER = ("x", "y", "z", "yaw", "tilt", "opening", "command", "speed")

#: Columns of a role. ``upright``: cosine between the object's own and the world's z axis;
#: ``half_x, half_y, half_z``: half extents in its own frame; ``yaw_period``: turn after which it
#: looks the same to a gripper (0: any turn); ``left``, ``right``: touched by that finger pad;
#: ``supported``: touches the receptacle; ``table``: touches the table; ``inner``: radius in which
#: something counts as placed on it; ``surface_z``: height of the surface that carries it;
#: ``inner_y``: half width of its inside along its own y axis, ``inner`` then being the one along x
#: (0: round, or nothing goes inside); ``depth``: height of its rim above that surface;
#: ``on_target``: touches the target; ``opening``: share of its joint's travel, 0 shut to 1 open;
#: ``travel``: the whole travel (m or rad; 0: no joint); ``to_shut``: the task asks to shut it, not
#: to open it. Of a part on a joint, ``x, y, z`` and the half extents are those of its handle.
OBJECT = (
    "present",
    "x",
    "y",
    "z",
    "yaw",
    "upright",
    "speed",
    "spin",
    "half_x",
    "half_y",
    "half_z",
    "yaw_period",
    "left",
    "right",
    "supported",
    "table",
    "inner",
    "surface_z",
    "inner_y",
    "depth",
    "on_target",
    "opening",
    "travel",
    "to_shut",
)


@dataclass(frozen=True)
class FeatureSchema:
    """Names and positions of the feature columns of a family's scenes."""

    roles: tuple[str, ...]

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Column names: ``gripper.x`` … then ``target.present`` … for each role in order."""
        own = tuple(f"gripper.{n}" for n in GRIPPER)
        return own + tuple(f"{role}.{n}" for role in self.roles for n in OBJECT)

    @cached_property
    def _index(self) -> dict[str, int]:
        return {name: i for i, name in enumerate(self.names)}

    @cached_property
    def starts(self) -> dict[str, int]:
        """First column of each role."""
        return {role: len(GRIPPER) + i * len(OBJECT) for i, role in enumerate(self.roles)}

    @property
    def size(self) -> int:
        """Number of columns."""
        return len(self.names)

    def index(self, name: str) -> int:
        """Column of ``name``, e.g. ``target.z``. Raises :class:`ProgramError` with a suggestion."""
        try:
            return self._index[name]
        except KeyError:
            raise ProgramError(
                f"unknown state feature {name!r}.", allowed=suggest(name, self.names)
            ) from None

    def indices(self, names: Sequence[str]) -> np.ndarray:
        """Columns of several names, for fancy indexing."""
        return np.array([self.index(n) for n in names], dtype=np.intp)

    def role_offset(self, role: str) -> int:
        """First column of a role. Raises :class:`ProgramError` where the family lacks it."""
        try:
            return self.starts[role]
        except KeyError:
            raise ProgramError(
                f"unknown role {role!r}.",
                allowed=suggest(role, self.roles),
                remedy="use a role of the family",
            ) from None
