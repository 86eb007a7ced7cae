"""Rollouts: episodes by the hundred, in worker processes, the same whatever their number."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from functools import lru_cache
from multiprocessing.connection import wait
from typing import Any, Self

import numpy as np

from coda_envs.env import ManipulationEnv
from coda_envs.errors import RunError
from coda_envs.family import get_family
from coda_envs.scene import Scene
from coda_trainer.episode import Episode
from coda_trainer.learning.actor import Actor, ActorSpec

#: Jobs of a work unit and environments stepped side by side in it. Units, not workers, decide what
#: shares a batch, so that results do not depend on the number of workers.
UNIT = 64
SIDE_BY_SIDE = 16

#: Called with the number of finished episodes.
Progress = Callable[[int], None]


@dataclass(frozen=True)
class Job:
    """One episode to run: the scene, the seed of environment and noise, what it is for."""

    scene: Scene
    seed: int
    source: str = ""
    noise_multiplier: float = 1.0


@dataclass(frozen=True)
class EnvSpec:
    """The environment of the rollouts."""

    family: str
    control_hz: int = 10
    obs_mode: str = "state"


class RolloutPool:
    """Runs jobs with ``workers`` processes (1: in this one). Use as a context manager."""

    def __init__(self, env: EnvSpec, workers: int = 1) -> None:
        self.env = env
        self._workers = workers
        self._pool: ProcessPoolExecutor | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop the worker processes, and forget the policy that acted in this one: another run
        may use the same folder names."""
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
            self._pool = None
        _forget_actors()

    def run(
        self, actor: ActorSpec, jobs: Sequence[Job], progress: Progress | None = None
    ) -> list[Episode]:
        """The episodes of ``jobs``, in their order. Raises :class:`RunError` if a worker dies."""
        return self._map(_run_unit, actor, jobs, progress)

    def demonstrate(
        self, noise: float, jobs: Sequence[Job], progress: Progress | None = None
    ) -> list[Episode]:
        """The expert's episodes of ``jobs``, Gaussian noise of that size on its pose actions."""
        return self._map(_demonstrate_unit, noise, jobs, progress)

    def _map(
        self,
        work: Callable[[EnvSpec, Any, Sequence[Job]], list[Episode]],
        how: Any,
        jobs: Sequence[Job],
        progress: Progress | None,
    ) -> list[Episode]:
        units = [jobs[i : i + UNIT] for i in range(0, len(jobs), UNIT)]
        episodes: list[Episode] = []
        for unit in self._results(work, how, units):
            episodes.extend(unit)
            if progress is not None:
                progress(len(episodes))
        return episodes

    def _results(
        self,
        work: Callable[[EnvSpec, Any, Sequence[Job]], list[Episode]],
        how: Any,
        units: Sequence[Sequence[Job]],
    ) -> Iterator[list[Episode]]:
        if self._workers == 1:
            for unit in units:
                yield work(self.env, how, unit)
            return
        if self._pool is None:
            # Spawned, not forked: torch and OpenGL do not survive a fork.
            self._pool = ProcessPoolExecutor(
                self._workers,
                mp_context=multiprocessing.get_context("spawn"),
                initializer=_start_worker,
            )
        try:
            futures: list[Future[list[Episode]]] = [
                self._pool.submit(work, self.env, how, unit) for unit in units
            ]
            for future in futures:
                yield future.result()
        except BrokenProcessPool as error:
            # What is left of it is of no use: a later call starts new workers.
            self.close()
            raise RunError(
                "a rollout worker died (killed, or out of memory).",
                remedy="go on with `coda train --resume`, with fewer workers if memory is short",
            ) from error


def _start_worker() -> None:
    # Ctrl-C reaches every process of the terminal; the trainer alone answers it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    import torch

    torch.set_num_threads(1)


def _end_with_parent() -> None:
    """End this worker when its trainer was killed: nobody would ever give it work again."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    wait([parent.sentinel])
    os._exit(1)


@lru_cache(maxsize=4)
def _environments(spec: EnvSpec, count: int) -> tuple[ManipulationEnv, ...]:
    return tuple(
        ManipulationEnv(spec.family, control_hz=spec.control_hz, obs_mode=spec.obs_mode)  # type: ignore[arg-type]
        for _ in range(count)
    )


_actors: dict[tuple[str, ...], Actor] = {}


def _actor(spec: ActorSpec) -> Actor:
    if spec.key not in _actors:
        # One at a time: the policies of past rounds are not used again.
        _forget_actors()
        _actors[spec.key] = Actor(spec)
    return _actors[spec.key]


def _forget_actors() -> None:
    for old in _actors.values():
        old.backbone.close()
    _actors.clear()


class _Recorder:
    """Collects one running episode."""

    def __init__(self, env: ManipulationEnv, job: Job) -> None:
        self.env, self.job = env, job
        obs, _ = env.reset(seed=job.seed, options={"scene": job.scene})
        self.rng = np.random.default_rng((job.seed, 1))
        self.obs = obs
        self._observations = [obs]
        self._features = [env.features.astype(np.float32)]
        self._actions: list[np.ndarray] = []
        self._rewards: list[float] = []
        self._starts: list[int] = []
        self.ended = False
        self._end: tuple[bool, bool, dict[str, Any]] = (False, False, {})

    def look(self) -> None:
        """Note that the policy looks at this step."""
        self._starts.append(len(self._actions))

    def step(self, action: np.ndarray) -> None:
        """Execute one action and record it as executed."""
        executed = np.clip(action.astype(np.float32), -1.0, 1.0)
        self.obs, _, terminated, truncated, info = self.env.step(executed)
        self._actions.append(executed)
        self._rewards.append(float(info["sparse_reward"]))
        self._observations.append(self.obs)
        self._features.append(self.env.features.astype(np.float32))
        self.ended = terminated or truncated
        self._end = (terminated, truncated, info)

    def episode(self) -> Episode:
        """The finished record."""
        terminated, truncated, info = self._end
        return Episode(
            scene=self.job.scene,
            seed=self.job.seed,
            observations={
                key: np.stack([o[key] for o in self._observations]) for key in self._observations[0]
            },
            actions=np.stack(self._actions),
            features=np.stack(self._features),
            rewards=np.array(self._rewards, dtype=np.float32),
            starts=np.array(self._starts),
            terminated=terminated,
            truncated=truncated,
            success=bool(info["success"]),
            failure=str(info["failure"]),
            source=self.job.source,
        )


def _run_unit(env: EnvSpec, spec: ActorSpec, jobs: Sequence[Job]) -> list[Episode]:
    """All jobs of a unit, ``SIDE_BY_SIDE`` at a time; a finished one makes room for the next."""
    actor = _actor(spec)
    envs = _environments(env, SIDE_BY_SIDE)
    done: dict[int, Episode] = {}
    waiting = iter(enumerate(jobs))
    running: dict[int, tuple[int, _Recorder]] = {}
    looks = 0
    while True:
        for slot in range(SIDE_BY_SIDE):
            if slot not in running and (following := next(waiting, None)) is not None:
                running[slot] = (following[0], _Recorder(envs[slot], following[1]))
                actor.backbone.reset([slot])
        if not running:
            return [done[i] for i in range(len(jobs))]
        slots = sorted(running)
        recorders = [running[slot][1] for slot in slots]
        obs = {key: np.stack([r.obs[key] for r in recorders]) for key in recorders[0].obs}
        chunk = actor.chunk(
            obs,
            seed=_look_seed(jobs[0].seed, looks),
            noise=spec.noise,
            rngs=[r.rng for r in recorders],
            multipliers=[r.job.noise_multiplier for r in recorders],
        )
        looks += 1
        for slot, recorder, actions in zip(slots, recorders, chunk, strict=True):
            recorder.look()
            for action in actions:
                recorder.step(action)
                if recorder.ended:
                    done[running.pop(slot)[0]] = recorder.episode()
                    break


def _look_seed(unit: int, look: int) -> int:
    return int(np.random.SeedSequence((unit, look)).generate_state(1)[0])


def _demonstrate_unit(env: EnvSpec, noise: float, jobs: Sequence[Job]) -> list[Episode]:
    family = get_family(env.family)
    (single,) = _environments(env, 1)
    episodes = []
    for job in jobs:
        recorder = _Recorder(single, job)
        expert = family.expert(job.seed)
        while not recorder.ended:
            recorder.look()
            action = expert.act(single)
            # The gripper command stays clean: half-closed fingers are no demonstration.
            action[:6] += noise * recorder.rng.standard_normal(6) * (1, 1, 1, 0, 0, 1)
            recorder.step(action)
        episodes.append(recorder.episode())
    return episodes
