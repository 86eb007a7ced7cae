"""Pushed demonstrations: another start of the hand, the same scene, nothing of the push shown."""

from __future__ import annotations

import numpy as np

from coda_envs.env import ManipulationEnv
from coda_envs.family import get_family
from coda_trainer.learning.demonstrations import collect_demonstrations
from coda_trainer.learning.pushes import LONGEST, pushed
from coda_trainer.learning.rollout import EnvSpec, Job, RolloutPool


def _jobs(count: int) -> list[Job]:
    family, rng = get_family("pick-place"), np.random.default_rng(0)
    return [Job(family.sample(rng, "seed"), seed) for seed in range(count)]


def test_a_push_moves_the_hand_and_says_nothing_of_itself() -> None:
    env = ManipulationEnv("pick-place", control_hz=10)
    jobs = _jobs(40)
    starts = [pushed(env, job, 0.5) for job in jobs]
    moved = [job for job in starts if job.start is not None]
    assert 10 <= len(moved) <= 30
    assert all(1 <= job.start.steps <= LONGEST for job in moved if job.start)
    for job in moved:
        home, _ = env.reset(seed=job.seed, options={"scene": job.scene})
        assert job.start is not None
        away = env.start_at(job.start)
        assert np.abs(away["proprio"][:6] - home["proprio"][:6]).max() > 1e-3
    with RolloutPool(EnvSpec(10)) as pool:
        (episode,) = pool.demonstrate(0.0, moved[:1])
    first = {key: rows[0] for key, rows in episode.observations.items()}
    job = moved[0]
    env.reset(seed=job.seed, options={"scene": job.scene})
    assert job.start is not None
    for key, row in env.start_at(job.start).items():
        np.testing.assert_array_equal(first[key], row)


def test_no_push_where_none_is_wanted_or_a_start_is_given() -> None:
    env = ManipulationEnv("pick-place", control_hz=10)
    (job,) = _jobs(1)
    assert pushed(env, job, 0.0) is job
    away = pushed(env, job, 1.0)
    assert pushed(env, away, 1.0) is away


def test_the_expert_comes_back_and_the_same_seed_pushes_the_same() -> None:
    family = get_family("pick-place")
    with RolloutPool(EnvSpec(10)) as pool:
        first, again = (
            collect_demonstrations(pool, family, 8, 0.05, np.random.default_rng(3), pushes=1.0)
            for _ in range(2)
        )
    assert all(e.success for e in first)
    for a, b in zip(first, again, strict=True):
        np.testing.assert_array_equal(a.actions, b.actions)
