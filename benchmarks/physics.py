"""How much of a time is physics: MuJoCo's own steps, inside rollouts and alone."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import mujoco
from mujoco.batch import Batch

from coda_envs.env import ManipulationEnv
from coda_trainer.episode import Episode

#: Episodes that are played again to time ``mj_step``, evenly spread over all.
REPLAYED = 16


@contextmanager
def physics_seconds() -> Iterator[list[float]]:
    """Note the seconds on the processor of each call of ``mj_step`` and of a batch's rollout."""
    spent: list[float] = []
    mj_step, rollout = mujoco.mj_step, Batch.rollout

    def timed(step: Callable[..., Any]) -> Callable[..., Any]:
        def stepped(*arguments: Any, **named: Any) -> Any:
            began = time.thread_time()
            found = step(*arguments, **named)
            spent.append(time.thread_time() - began)
            return found

        return stepped

    mujoco.mj_step, Batch.rollout = timed(mj_step), timed(rollout)
    try:
        yield spent
    finally:
        mujoco.mj_step, Batch.rollout = mj_step, rollout


def raw_seconds(family: str, control_hz: int, episodes: Sequence[Episode]) -> float:
    """Seconds on the processor of ``mj_step`` along the episodes, in a single environment.

    ``REPLAYED`` of them are played; the others are taken to cost as much a step.
    """
    env = ManipulationEnv(family, control_hz=control_hz)
    some = episodes[:: max(1, len(episodes) // REPLAYED)]
    with physics_seconds() as spent:
        for episode in some:
            env.reset(seed=episode.seed, options={"scene": episode.scene})
            for action in episode.actions:
                env.step(action)
    env.close()
    share = sum(e.length for e in some) / sum(e.length for e in episodes)
    return sum(spent) / share
