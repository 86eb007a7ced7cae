"""Recording: environments side by side that play jobs, and the episodes they leave.

:class:`Together` steps them in one vector environment, :class:`Apart` one by one, which is what
images need. The same actions give the same episodes in both, to the last byte.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from coda_envs.env import ManipulationEnv
from coda_envs.observations import WITH_IMAGES, Obs
from coda_envs.start_state import StartState
from coda_envs.vector import ManipulationVectorEnv
from coda_trainer.episode import Episode, LookStates
from coda_trainer.learning.jobs import EnvSpec, Job

#: Environments side by side; fewer where each step of their records is a pair of images.
SLOTS = 64
SLOTS_WITH_IMAGES = 8


class Recorder(ABC):
    """Slots, each with an environment and the record of the episode under way in it.

    Slots are given as rising int64 arrays ``[k]``.
    """

    def __init__(self, slots: int, max_steps: int) -> None:
        self.slots, self._max_steps = slots, max_steps
        # The record: a row a step, of which each slot has filled as many as it has taken.
        self._observations: Obs = {}
        self._features = np.zeros((slots, 0))
        self._actions = np.zeros((slots, max_steps, 7), dtype=np.float32)
        self._rewards = np.zeros((slots, max_steps), dtype=np.float32)
        self._steps = np.zeros(slots, dtype=np.int64)
        self._terminated, self._truncated, self._success = np.zeros((3, slots), dtype=bool)
        self._failure = np.full(slots, "", dtype=object)
        self._jobs: list[Job | None] = [None] * slots
        self._looks: list[list[int]] = [[] for _ in range(slots)]
        self._states: list[list[StartState]] = [[] for _ in range(slots)]

    @abstractmethod
    def _start(self, slots: np.ndarray, jobs: Sequence[Job]) -> None:
        """Begin the episodes of these jobs."""

    @abstractmethod
    def _advance(self, slots: np.ndarray, actions: np.ndarray) -> None:
        """One control step; writes how it ended into ``_terminated``, ``_truncated``, ``_success``
        and ``_failure``."""

    @abstractmethod
    def _seen(self, slots: np.ndarray) -> tuple[Obs, np.ndarray]:
        """Observations ``[k, ...]`` and features ``[k, F]`` of the current states."""

    @abstractmethod
    def _start_state(self, slot: int) -> StartState:
        """Where the episode in a slot is."""

    def start(self, slots: np.ndarray, jobs: Sequence[Job]) -> None:
        """Begin the episode of ``jobs[k]`` in slot ``slots[k]``."""
        self._start(slots, jobs)
        for slot, job in zip(slots.tolist(), jobs, strict=True):
            self._jobs[slot], self._looks[slot], self._states[slot] = job, [], []
        self._steps[slots] = 0
        self._record(slots)

    def look(self, slots: np.ndarray, keep_states: bool = False) -> Obs:
        """What the policy sees ``[k, ...]``, as it looks in these slots now. ``keep_states``: the
        record says where the episodes are, too."""
        at = self._steps[slots]
        for slot, step in zip(slots.tolist(), at.tolist(), strict=True):
            self._looks[slot].append(step)
            if keep_states:
                self._states[slot].append(self._start_state(slot))
        return {key: rows[slots, at] for key, rows in self._observations.items()}

    def features(self, slots: np.ndarray) -> np.ndarray:
        """State features ``[k, F]`` of the current states."""
        return np.asarray(self._features[slots, self._steps[slots]])

    def step(self, slots: np.ndarray, actions: np.ndarray) -> np.ndarray:
        """Execute ``actions [k, 7]``, recorded as executed.

        Returns which episodes ended with it ``[k]``.
        """
        at = self._steps[slots]
        executed = np.clip(actions.astype(np.float32), -1.0, 1.0)
        self._advance(slots, executed)
        self._actions[slots, at] = executed
        # The sparse reward: 1 where the verifier holds.
        self._rewards[slots, at] = self._success[slots]
        self._steps[slots] += 1
        self._record(slots)
        ended: np.ndarray = self._terminated[slots] | self._truncated[slots]
        return ended

    def episode(self, slot: int) -> Episode:
        """The record of the episode in a slot."""
        job, t, states = self._jobs[slot], int(self._steps[slot]), self._states[slot]
        assert job is not None
        kept = LookStates(
            np.array([state.physics for state in states]),
            np.array([state.control for state in states]),
        )
        return Episode(
            scene=job.scene,
            seed=job.seed,
            observations={key: rows[slot, : t + 1].copy() for key, rows in
                          self._observations.items()},
            actions=self._actions[slot, :t].copy(),
            features=self._features[slot, : t + 1].copy(),
            rewards=self._rewards[slot, :t].copy(),
            starts=np.array(self._looks[slot]),
            terminated=bool(self._terminated[slot]),
            truncated=bool(self._truncated[slot]),
            success=bool(self._success[slot]),
            failure=str(self._failure[slot]),
            source=job.source,
            began=0 if job.start is None else job.start.steps,
            stage=job.stage,
            states=kept if states else None,
        )  # fmt: skip

    def _record(self, slots: np.ndarray) -> None:
        at, (obs, features) = self._steps[slots], self._seen(slots)
        if not self._observations:
            rows = (self.slots, self._max_steps + 1)
            self._observations = {
                key: np.zeros((*rows, *values.shape[1:]), values.dtype)
                for key, values in obs.items()
            }
            self._features = np.zeros((*rows, features.shape[1]), dtype=np.float32)
        for key, values in obs.items():
            self._observations[key][slots, at] = values
        self._features[slots, at] = features


class Together(Recorder):
    """All slots in one :class:`ManipulationVectorEnv`."""

    def __init__(self, family: str, spec: EnvSpec, slots: int) -> None:
        # One thread: it is for the pool's workers to use the cores.
        self._env = ManipulationVectorEnv(
            slots, nthread=1, family=family, control_hz=spec.control_hz, obs_mode=spec.obs_mode
        )
        super().__init__(slots, self._env.max_steps)

    def _start(self, slots: np.ndarray, jobs: Sequence[Job]) -> None:
        scenes, seeds = [job.scene for job in jobs], [job.seed for job in jobs]
        self._env.start(slots, scenes, seeds, [job.start for job in jobs])

    def _advance(self, slots: np.ndarray, actions: np.ndarray) -> None:
        (
            self._success[slots],
            self._failure[slots],
            self._terminated[slots],
            self._truncated[slots],
        ) = self._env.advance(slots, actions)

    def _seen(self, slots: np.ndarray) -> tuple[Obs, np.ndarray]:
        return self._env.observe(slots), self._env.features[slots]

    def _start_state(self, slot: int) -> StartState:
        return self._env.start_state(slot)


class Apart(Recorder):
    """A :class:`ManipulationEnv` for each slot."""

    def __init__(self, family: str, spec: EnvSpec, slots: int) -> None:
        self.envs = [
            ManipulationEnv(
                family,
                control_hz=spec.control_hz,
                obs_mode=spec.obs_mode,
                image_size=spec.image_size,
            )
            for _ in range(slots)
        ]
        super().__init__(slots, self.envs[0].max_steps)
        self._obs: list[Obs] = [{}] * slots

    def _start(self, slots: np.ndarray, jobs: Sequence[Job]) -> None:
        for slot, job in zip(slots.tolist(), jobs, strict=True):
            self._obs[slot], _ = self.envs[slot].reset(seed=job.seed, options={"scene": job.scene})
            if job.start is not None:
                self._obs[slot] = self.envs[slot].start_at(job.start)

    def _advance(self, slots: np.ndarray, actions: np.ndarray) -> None:
        for slot, action in zip(slots.tolist(), actions, strict=True):
            self._obs[slot], _, terminated, truncated, info = self.envs[slot].step(action)
            self._terminated[slot], self._truncated[slot] = terminated, truncated
            self._success[slot], self._failure[slot] = info["success"], info["failure"]

    def _seen(self, slots: np.ndarray) -> tuple[Obs, np.ndarray]:
        seen = [self._obs[slot] for slot in slots.tolist()]
        obs = {key: np.stack([one[key] for one in seen]) for key in seen[0]}
        return obs, np.stack([self.envs[slot].features for slot in slots.tolist()])

    def _start_state(self, slot: int) -> StartState:
        return self.envs[slot].start_state()


@lru_cache(maxsize=4)
def recorder(family: str, spec: EnvSpec) -> Recorder:
    """The faster of the two that can show what is asked for; a process keeps the last ones."""
    if spec.obs_mode in WITH_IMAGES:
        return Apart(family, spec, SLOTS_WITH_IMAGES)
    return Together(family, spec, SLOTS)


@lru_cache(maxsize=4)
def single_recorder(family: str, spec: EnvSpec) -> Apart:
    """One slot, whose environment the family's expert can act in."""
    return Apart(family, spec, 1)
