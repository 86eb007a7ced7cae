"""Episode: the record of one rollout, the unit that replay, diagnosis and memory read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from coda_envs.errors import LearningError
from coda_envs.scene import Scene
from coda_envs.start_state import StartState


@dataclass(frozen=True)
class LookStates:
    """Where an episode was at each of its L looks: ``physics [L, S]`` and ``control [L, 15]``
    float64, the parts of :class:`coda_envs.start_state.StartState`."""

    physics: np.ndarray
    control: np.ndarray


@dataclass(frozen=True)
class Episode:
    """One rollout of T environment steps.

    Shapes: ``observations[key] [T+1, ...]`` as the environment gave them (the last one is where
    the episode ended), ``actions [T, A]`` as executed (clipped, float32), ``features [T+1, F]``
    (float32 columns of the family's FeatureSchema), ``rewards [T]`` the sparse ones. ``starts
    [L]``: the steps at which the policy looked again. ``seed`` seeds the environment and the
    policy. Nothing here depends on a wall clock.
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
    #: Control steps used before its first one: more than 0 where it started from a StartState.
    began: int = 0
    #: The stage of the potential that it entered where it started; empty: at the beginning.
    stage: str = ""
    #: Kept where the rollout was asked to; no replay stores them.
    states: LookStates | None = None

    @property
    def length(self) -> int:
        """T, the number of environment steps."""
        return len(self.actions)

    def start_state(self, look: int) -> StartState:
        """Where it was at look ``look``, for another episode to start from.

        Raises :class:`LearningError` where the rollout kept no states.
        """
        if self.states is None:
            raise LearningError(
                f"the episode with scene {self.scene.id[:12]} and seed {self.seed} has no states.",
                remedy="run it with keep_states=True",
            )
        steps = self.began + int(self.starts[look])
        states = self.states
        return StartState(self.scene.id, states.physics[look], states.control[look], steps)
