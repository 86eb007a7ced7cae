"""Hindsight subgoals: what failed episodes show is imitated, and nothing else comes of it."""

from __future__ import annotations

import numpy as np
import pytest
from program_cases import FAMILY, scene

from coda_envs.text2potential import compile_potential
from coda_trainer.episode import Episode
from coda_trainer.learning.hindsight import WEIGHT, cut, subgoal_parts
from tests.synthetic_episodes import episode

POTENTIAL = compile_potential(FAMILY.template, FAMILY.schema)
#: Episodes that get 0, 1, … 5 of the five stages done, one more at each step; the last succeeds.
EPISODES = [episode(scene(), done, seed=done) for done in range(6)]
GAMMA = 0.9


def test_failures_that_got_the_subgoal_done_are_cut_where_they_did() -> None:
    parts = subgoal_parts(EPISODES, POTENTIAL, ["grasp"], GAMMA)
    # Grasped means two stages done; the success is learnt from as a whole elsewhere.
    assert [p.episode.seed for p in parts] == [2, 3, 4]
    for part in parts:
        assert part.episode.length == len(part.weight) == 2
        assert POTENTIAL.stage(part.episode.features).tolist() == [0, 1, 2]
        assert part.weight == pytest.approx([WEIGHT * GAMMA, WEIGHT])
        assert not part.episode.success


def test_of_several_subgoals_the_latest_that_was_done_counts() -> None:
    parts = subgoal_parts(EPISODES, POTENTIAL, ["grasp", "transport"], GAMMA)
    assert {p.episode.seed: p.episode.length for p in parts} == {2: 2, 3: 2, 4: 4}
    assert subgoal_parts(EPISODES, POTENTIAL, ["place"], GAMMA) == []
    assert subgoal_parts(EPISODES, POTENTIAL, [], GAMMA) == []


def test_an_episode_that_began_past_the_subgoal_shows_nothing_of_it() -> None:
    late = EPISODES[3]
    begun = Episode(
        scene=late.scene,
        seed=9,
        observations={},
        actions=late.actions[2:],
        features=late.features[2:],
        rewards=late.rewards[2:],
        starts=np.array([0]),
        terminated=False,
        truncated=True,
        success=False,
        stage="lift",
    )
    assert POTENTIAL.stage(begun.features[0]) == 2
    assert subgoal_parts([begun], POTENTIAL, ["grasp"], GAMMA) == []
    (part,) = subgoal_parts([begun], POTENTIAL, ["grasp", "lift"], GAMMA)
    assert part.episode.length == 1


def test_a_cut_episode_is_the_beginning_of_the_whole_one() -> None:
    whole = EPISODES[5]
    part = cut(whole, 3)
    assert part.length == len(part.features) - 1 == len(part.rewards) == 3
    assert np.array_equal(part.features, whole.features[:4])
    # It ended nowhere: it was cut, and no reward came until then.
    assert (part.terminated, part.truncated, part.rewards.sum()) == (False, True, 0.0)
