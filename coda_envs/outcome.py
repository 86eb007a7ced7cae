"""What ends an episode besides success: declared failures, read from the state features."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from coda_envs.arena import TABLE, TABLE_X, Compiled
from coda_envs.features import OBJECT, FeatureSchema

#: What an episode's ``failure`` says of physics that has diverged.
DIVERGED = "physics diverged"
#: A thing lower than this has left the table (m).
_LOWEST = -0.02

#: A role that the task moves, and where its position begins among the features.
Mover = tuple[str, int]


def movers(compiled: Compiled, schema: FeatureSchema) -> tuple[Mover, ...]:
    """The things of a scene whose loss ends its episode: those of its goal that are free."""
    free = {entity.role for entity in compiled.entities if entity.free}
    x = OBJECT.index("x")
    roles = (role for role in compiled.scene.task.goal.roles if role in free)
    return tuple((role, schema.role_offset(role) + x) for role in roles)


def lost(features: np.ndarray, things: Sequence[Mover]) -> str:
    """The failure that features ``[F]`` show: which thing is off the table, empty if none is."""
    for role, first in things:
        x, y, z = features[first : first + 3].tolist()
        if z < _LOWEST or abs(x - TABLE_X) > TABLE[0] or abs(y) > TABLE[1]:
            return f"{role} off the table"
    return ""
