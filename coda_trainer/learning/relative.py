"""What the chunk critic reads besides the state features: where things stand to one another.

A small network has to learn differences of positions from positions, and to centimetres; given
the differences it learns values within a few hundred updates.
"""

from __future__ import annotations

import numpy as np

from coda_envs.features import FeatureSchema

#: Length (m) at which the fine view of an offset bends: the reach of a grasp.
FINE = 0.03


class RelativeFeatures:
    """``features [B, F]`` → ``[B, size]``: the features themselves, then for each role its offset
    from the gripper (m, and in the fine view), its turn against the gripper (cosine and sine of
    twice and four times the angle), and the first role's offset from each other one."""

    def __init__(self, schema: FeatureSchema) -> None:
        self._hand = schema.indices(["gripper.x", "gripper.y", "gripper.z"])
        self._hand_yaw = schema.index("gripper.yaw")
        self._positions = np.stack(
            [schema.indices([f"{role}.{axis}" for axis in "xyz"]) for role in schema.roles]
        )
        self._yaws = schema.indices([f"{role}.yaw" for role in schema.roles])
        self._present = schema.indices([f"{role}.present" for role in schema.roles])
        roles = len(schema.roles)
        self.size = schema.size + roles * (3 + 3 + 4) + (roles - 1) * 6

    def __call__(self, features: np.ndarray) -> np.ndarray:
        """Float32 ``[B, size]``; what belongs to a role that the scene lacks is zero."""
        count = len(features)
        present = features[:, self._present, None] > 0.5
        places = features[:, self._positions]
        offset = np.where(present, places - features[:, None, self._hand], 0.0)
        between = np.where(present[:, 1:], places[:, 1:] - places[:, :1], 0.0)
        angle = features[:, self._yaws] - features[:, self._hand_yaw, None]
        turns = np.stack([f(k * angle) for k in (2, 4) for f in (np.cos, np.sin)], axis=-1)
        parts = (
            features,
            offset.reshape(count, -1),
            np.tanh(offset / FINE).reshape(count, -1),
            np.where(present, turns, 0.0).reshape(count, -1),
            between.reshape(count, -1),
            np.tanh(between / FINE).reshape(count, -1),
        )
        return np.concatenate(parts, axis=1).astype(np.float32)
