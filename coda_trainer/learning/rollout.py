"""Rollouts: episodes by the hundred, in worker processes, the same whatever their number."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from multiprocessing.connection import wait
from typing import Any, Self

from coda_envs.errors import RunError
from coda_trainer.episode import Episode
from coda_trainer.learning.actor import ActorSpec
from coda_trainer.learning.jobs import EnvSpec, ExpertMaker, Job
from coda_trainer.learning.units import demonstrate_unit, forget_actors, run_unit

__all__ = ["UNIT", "EnvSpec", "Job", "Progress", "RolloutPool"]

#: Jobs of a work unit. Units, not workers, decide what shares a batch, so that results do not
#: depend on the number of workers; larger ones would leave a worker idle when jobs are few.
UNIT = 64

#: Called with the number of finished episodes.
Progress = Callable[[int], None]


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
        forget_actors()

    def run(
        self,
        actor: ActorSpec,
        jobs: Sequence[Job],
        progress: Progress | None = None,
        *,
        keep_states: bool = False,
    ) -> list[Episode]:
        """The episodes of ``jobs``, in their order. ``keep_states``: other episodes may start from
        them, see :mod:`coda_trainer.learning.start_states`. Raises :class:`RunError` if a worker
        dies."""
        return self._map(partial(run_unit, keep_states=keep_states), actor, jobs, progress)

    def demonstrate(
        self,
        noise: float,
        jobs: Sequence[Job],
        progress: Progress | None = None,
        *,
        pushes: float = 0.0,
        make: ExpertMaker | None = None,
    ) -> list[Episode]:
        """The expert's episodes of ``jobs``, Gaussian noise of that size on its pose actions.

        ``pushes``: share that starts where a push has left the hand, see
        :mod:`coda_trainer.learning.pushes`. ``make``: another expert, which it makes of family and
        job; it must pickle.
        """
        work = partial(demonstrate_unit, pushes=pushes, make=make)
        return self._map(work, noise, jobs, progress)

    def _map(
        self,
        work: Callable[[EnvSpec, Any, Sequence[Job]], list[Episode]],
        how: Any,
        jobs: Sequence[Job],
        progress: Progress | None,
    ) -> list[Episode]:
        units = _units(jobs)
        episodes: dict[int, Episode] = {}
        results = self._results(work, how, [[jobs[i] for i in unit] for unit in units])
        for unit, found in zip(units, results, strict=True):
            episodes.update(zip(unit, found, strict=True))
            if progress is not None:
                progress(len(episodes))
        return [episodes[i] for i in range(len(jobs))]

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


def _units(jobs: Sequence[Job]) -> list[list[int]]:
    """Which jobs share a batch, by their places in ``jobs``: up to ``UNIT`` of one family."""
    of_family: dict[str, list[int]] = {}
    for place, job in enumerate(jobs):
        of_family.setdefault(job.scene.family, []).append(place)
    return [
        places[i : i + UNIT] for places in of_family.values() for i in range(0, len(places), UNIT)
    ]


def _start_worker() -> None:
    # Ctrl-C reaches every process of the terminal; the trainer alone answers it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=end_with_parent, daemon=True).start()
    import torch

    torch.set_num_threads(1)


def end_with_parent() -> None:
    """End this worker when its trainer was killed: nobody would ever give it work again."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    wait([parent.sentinel])
    os._exit(1)
