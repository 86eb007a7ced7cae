"""The shaping term and the reward wrapper."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from program_cases import (
    FAMILY,
    SCHEMA,
    TEMPLATE,
    diagnosis,
)

from coda_envs.env import ManipulationEnv
from coda_envs.errors import ProgramError
from coda_envs.text2potential import (
    PotentialReward,
    compile_potential,
    compile_program,
    shaping,
)


@given(
    st.lists(st.floats(0, 1), min_size=2, max_size=12),
    st.floats(0.5, 1.0),
    st.booleans(),
)
def test_the_discounted_shaped_return_of_an_episode_is_minus_phi_of_its_start(
    phis: list[float], gamma: float, terminated: bool
) -> None:
    """Whatever the way, so a loop without success never pays."""
    steps = len(phis) - 1
    done = np.arange(steps) == (steps - 1 if terminated else steps)
    extra = shaping(phis[:-1], phis[1:], gamma, np.ones(steps), done)
    tail = 0.0 if terminated else gamma**steps * phis[-1]
    assert float(gamma ** np.arange(steps) @ extra) == pytest.approx(tail - phis[0], abs=1e-9)
    loop = np.array([*phis, phis[0]])
    around = shaping(loop[:-1], loop[1:], gamma, 1, False)
    assert float(gamma ** np.arange(len(around)) @ around) <= 1e-9


@given(st.lists(st.floats(0, 1), min_size=2, max_size=8), st.floats(0.5, 1.0), st.booleans())
def test_a_chunk_is_shaped_like_its_steps_together(
    phis: list[float], gamma: float, terminated: bool
) -> None:
    k = len(phis) - 1
    done = np.arange(k) == (k - 1 if terminated else k)
    steps = shaping(phis[:-1], phis[1:], gamma, 1, done)
    chunk = shaping(phis[0], phis[-1], gamma, k, terminated)
    assert float(gamma ** np.arange(k) @ steps) == pytest.approx(float(chunk), abs=1e-9)


def _scene() -> dict[str, object]:
    return FAMILY.sample(np.random.default_rng(5), "seed").to_dict()


def test_the_wrapper_pays_the_difference_of_phi_and_zero_at_termination() -> None:
    env = PotentialReward(ManipulationEnv("pick-place", scene=_scene(), control_hz=10), gamma=0.9)
    inner = env.unwrapped
    assert isinstance(inner, ManipulationEnv)
    phi = compile_potential(TEMPLATE, SCHEMA)
    _, info = env.reset(seed=0)
    assert info["potential"] == float(phi(inner.features))
    assert info["stage"] == 0
    expert, terminated = FAMILY.expert(0), False
    while not terminated:
        before = float(phi(inner.features))
        _, reward, terminated, truncated, info = env.step(expert.act(inner))
        assert not truncated
        after = float(phi(inner.features))
        assert info["potential"] == after
        assert info["stage"] == int(phi.stage(inner.features))
        sparse = info["sparse_reward"]
        assert sparse == float(terminated)
        assert reward == pytest.approx(sparse + (0.0 if terminated else 0.9 * after) - before)
    assert info["success"]
    assert info["potential"] == 1.0


def test_truncation_keeps_phi() -> None:
    env = PotentialReward(
        ManipulationEnv("pick-place", scene=_scene(), control_hz=10, max_steps=3), gamma=0.9
    )
    _, info = env.reset(seed=0)
    truncated = False
    while not truncated:
        before = info["potential"]
        _, reward, terminated, truncated, info = env.step(np.zeros(7))
        assert not terminated
        assert reward == pytest.approx(0.9 * info["potential"] - before)


def test_a_restored_state_is_paid_like_the_first_time() -> None:
    env = PotentialReward(ManipulationEnv("pick-place", scene=_scene(), control_hz=10))
    env.reset(seed=0)
    inner = env.unwrapped
    assert isinstance(inner, ManipulationEnv)
    down = np.array([0, 0, -1, 0, 0, 0, -1], dtype=float)
    state = inner.get_state()
    first = env.step(down)[1]
    env.step(down)
    inner.set_state(state)
    assert env.step(down)[1] == first


def test_the_wrappers_spec_rebuilds_it_through_json() -> None:
    program = compile_program(TEMPLATE, [diagnosis("spatial.target.yaw", stage="grasp")]).to_dict()
    env = PotentialReward(gym.make("CoDA-PickPlace-v0", scene=_scene()), program, gamma=0.97)
    spec = env.spec
    assert spec is not None
    again = gym.make(gym.envs.registration.EnvSpec.from_json(spec.to_json()))
    rewards = []
    for each in (env, again):
        each.reset(seed=1)
        rewards.append([each.step(np.full(7, -0.3, np.float32))[1] for _ in range(3)])
    assert rewards[0] == rewards[1]


def test_the_wrapper_refuses_what_it_cannot_shape() -> None:
    scene = _scene()
    with pytest.raises(ProgramError, match="already"):
        PotentialReward(ManipulationEnv("pick-place", scene=scene, reward_mode="shaped"))
    plain = ManipulationEnv("pick-place", scene=scene)
    with pytest.raises(ProgramError, match="gamma"):
        PotentialReward(plain, gamma=1.5)
    with pytest.raises(ProgramError, match="stack"):
        PotentialReward(plain, {**TEMPLATE.to_dict(), "family": "stack"})
    with pytest.raises(ProgramError, match="stages"):
        PotentialReward(plain, {"family": "pick-place"})
