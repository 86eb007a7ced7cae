"""Episode: the record of one rollout, the unit that replay, diagnosis and memory read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from coda_envs.scene import Scene


@dataclass(frozen=True)
class Episode:
    """One rollout of T environment steps.

    Shapes: ``observations[key] [T+1, ...]`` as the environment gave them (the last one is where
    the episode ended), ``actions [T, A]`` as executed (clipped, float32), ``features [T+1, F]``
    (float32 columns of the family's FeatureSchema), ``rewards [T]`` the sparse ones. ``starts``:
    the steps at which the policy looked again. ``seed`` seeds the environment and the policy.
    Nothing here depends on a wall clock.
    """

    scene: Scene
    seed: int
    observations: Mapping[str, np.ndarray]
    actions: np.ndarray
    features: np.ndarray
    rewards: np.ndarray
    starts: np.ndarray
    terminated: bool
    truncated: bool
    success: bool
    #: Why it was declared failed (``target off the table``), or empty.
    failure: str = ""
    #: What the episode was collected for: the mode's id, ``wide``, ``seed``, ``demonstration`` …
    source: str = ""

    @property
    def length(self) -> int:
        """T, the number of environment steps."""
        return len(self.actions)
