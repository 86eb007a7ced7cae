"""Saved states, signs and slots. Seeds and restored futures: test_gymnasium.py, for every id."""

from __future__ import annotations

import numpy as np
import pytest
from env_cases import digest, make, place, same, scene

from coda_envs.env import ManipulationEnv
from coda_envs.errors import SceneError
from coda_envs.sensing import SLOT_COLUMNS, object_table


def test_a_state_goes_into_an_instance_that_was_never_reset() -> None:
    env = make()
    env.step(np.ones(7))
    fresh = ManipulationEnv()
    assert same(fresh.set_state(env.get_state()), env.set_state(env.get_state()))
    assert fresh.scene == env.scene


def test_a_state_is_a_copy() -> None:
    env = make()
    state = env.get_state()
    kept = digest(state)
    for _ in range(3):
        env.step(np.ones(7))
    assert digest(state) == kept
    env.set_state(state)
    env.step(np.ones(7))
    assert digest(state) == kept


def test_a_state_of_another_shape_is_refused() -> None:
    env = make()
    state = env.get_state()
    with pytest.raises(SceneError, match="physics has the shape"):
        env.set_state(state | {"physics": state["physics"][:-1]})


@pytest.mark.parametrize("role", ["target", "distractor_1"])
def test_both_signs_of_a_quaternion_are_one_state(role: str) -> None:
    env = make(obs_mode="privileged", reward_mode="shaped")
    rng = np.random.default_rng(0)
    for _ in range(20):
        quat = rng.normal(size=4)
        quat /= np.linalg.norm(quat)
        seen = []
        for sign in (1.0, -1.0):
            obs = place(env, role, (0.05, 0.1, 0.05), tuple(sign * quat))
            seen.append((obs, env.features, env.potential(env.features)))
        assert same(seen[0][0], seen[1][0])
        assert same(seen[0][1], seen[1][1])
        assert seen[0][2] == seen[1][2]


def test_slots_follow_the_seed_and_do_not_give_the_target_away() -> None:
    env = make(scene(attributes__receptacle__color="black"))
    red_column, present = SLOT_COLUMNS.index("red"), SLOT_COLUMNS.index("present")
    slots = set()
    for seed in range(40):
        obs, _ = env.reset(seed=seed)
        assert same(env.reset(seed=seed)[0], obs)
        rows = object_table(obs["objects"])
        red = np.flatnonzero((rows[:, red_column] > 0.8) & (rows[:, present] == 1.0))
        assert len(red) == 1
        slots.add(int(red[0]))
    assert slots == set(range(6))
