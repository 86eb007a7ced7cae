"""Rollouts in the vector environment: each episode is what a single environment plays."""

from __future__ import annotations

import numpy as np
import pytest
from env_cases import scene, tray_scene
from rollout_cases import ENV, jobs, same
from tiny_run import WEAK

from coda_envs.env import ManipulationEnv
from coda_envs.errors import SceneError
from coda_envs.vector import ManipulationVectorEnv
from coda_trainer.learning.actor import Actor, ActorSpec
from coda_trainer.learning.jobs import Job
from coda_trainer.learning.recording import Apart, Together
from coda_trainer.learning.rollout import RolloutPool
from coda_trainer.learning.units import play

#: Fewer slots than jobs, so that slots are filled again.
SLOTS = 3


@pytest.mark.parametrize("family", ["pick-place", "put-inside"])
def test_together_and_apart_are_the_same(flow: ActorSpec, family: str) -> None:
    asked = jobs(5, seed=2, family=family)
    actor = Actor(flow)
    together, apart = (
        play(kind(family, ENV, SLOTS), actor, flow.noise, asked, keep_states=True)
        for kind in (Together, Apart)
    )
    same(together, apart)


def test_episodes_that_succeed_make_room_for_the_next() -> None:
    # Two topologies, and ways of different length.
    asked = [
        Job((tray_scene if i % 2 else scene)(spatial__target__x=0.03 * i - 0.1), i)
        for i in range(8)
    ]
    actor = Actor(ActorSpec(WEAK, {"lessons": 0}))
    together, apart = (
        play(kind("pick-place", ENV, SLOTS), actor, None, asked, keep_states=True)
        for kind in (Together, Apart)
    )
    same(together, apart)
    assert sum(e.success for e in together) >= 5
    assert len({e.length for e in together}) > 2


def test_a_pool_takes_jobs_of_several_families(flow: ActorSpec) -> None:
    families = ("pick-place", "articulated")
    apart = {family: jobs(2, family=family) for family in families}
    mixed = [apart[family][i] for i in range(2) for family in families]
    with RolloutPool(ENV) as pool:
        found = pool.run(flow, mixed), pool.demonstrate(0.0, mixed)
        alone = {f: (pool.run(flow, own), pool.demonstrate(0.0, own)) for f, own in apart.items()}
    for i, family in enumerate(families):
        for mine, own in zip(found, alone[family], strict=True):
            same(mine[i::2], own)


def test_environments_start_and_advance_one_by_one() -> None:
    env = ManipulationVectorEnv(3, max_steps=4)
    alone = ManipulationEnv(max_steps=4)
    actions = np.random.default_rng(0).uniform(-1, 1, (4, 7))
    first, last = np.array([0]), np.array([2])
    env.start(np.array([0, 2]), [scene(), tray_scene()], [5, 6])
    env.advance(first, actions[:1])
    before = env.observe(first)
    alone.reset(seed=6, options={"scene": tray_scene()})
    for action in actions:
        outcomes = env.advance(last, action[None])
        obs, _, terminated, truncated, info = alone.step(action)
        assert all(env.observe(last)[key][0].tobytes() == obs[key].tobytes() for key in obs)
        assert (outcomes.terminated[0], outcomes.truncated[0]) == (terminated, truncated)
        assert (outcomes.success[0], outcomes.failure[0]) == (info["success"], info["failure"])
    assert truncated
    # What the others did is nothing to it.
    assert all(env.observe(first)[key].tobytes() == before[key].tobytes() for key in before)
    for idle in (np.array([1]), last):
        with pytest.raises(Exception, match=rf"environment {idle[0]} has no episode: call start"):
            env.advance(idle, actions[:1])
    env.start(last, [scene()], [0])
    env.advance(np.array([0, 2]), actions[:2])


def test_an_environment_whose_start_failed_has_no_episode() -> None:
    env = ManipulationVectorEnv(2)
    both = np.arange(2)
    env.start(both, [scene(), scene()], [0, 1])
    other = env.start_state(0)
    with pytest.raises(SceneError, match="the start state is one of the scene"):
        env.start(both[1:], [tray_scene()], [0], [other])
    with pytest.raises(Exception, match="environment 1 has no episode"):
        env.advance(both, np.zeros((2, 7)))
    env.advance(both[:1], np.zeros((1, 7)))
