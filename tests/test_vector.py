"""Many environments in one: each is, to the byte, what it would be alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from env_cases import ENV_ID, make, scene, tray_scene
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from coda_envs import register_library
from coda_envs.env import ManipulationEnv
from coda_envs.errors import SceneError
from coda_envs.family import BUILT_IN, Expert, get_family
from coda_envs.instruction import decode_instruction
from coda_envs.vector import ManipulationVectorEnv

N = 3


def together(env_id: str, n: int = N, **options: Any) -> ManipulationVectorEnv:
    """The vector environment that ``make_vec`` makes."""
    env = gym.make_vec(env_id, n, vectorization_mode="vector_entry_point", **options)
    assert isinstance(env, ManipulationVectorEnv)
    return env


def apart(env_id: str, mode: str = "NextStep", n: int = N, **options: Any) -> SyncVectorEnv:
    """As many environments that ``make`` makes, side by side."""
    env = gym.make_vec(
        env_id, n, vectorization_mode="sync", vector_kwargs={"autoreset_mode": mode}, **options
    )
    assert isinstance(env, SyncVectorEnv)
    return env


def assert_same(one: Any, two: Any, where: str = "") -> None:
    """Equal in every byte and type, item by item where arrays hold objects."""
    if isinstance(one, dict):
        assert one.keys() == two.keys(), where
        for key in one:
            assert_same(one[key], two[key], f"{where}.{key}")
    elif isinstance(one, np.ndarray):
        assert one.dtype == two.dtype, where
        assert one.shape == two.shape, where
        if one.dtype == object:
            for i, (a, b) in enumerate(zip(one, two, strict=True)):
                assert_same(a, b, f"{where}[{i}]")
        else:
            assert one.tobytes() == two.tobytes(), where
    else:
        assert type(one) is type(two), where
        assert one == two, where


def assert_same_outcome(one: tuple[Any, ...], two: tuple[Any, ...], where: str = "") -> None:
    assert len(one) == len(two)
    for number, (a, b) in enumerate(zip(one, two, strict=True)):
        assert_same(a, b, f"{where} part {number}")


class Experts:
    """The family's experts, one for every episode of every environment."""

    def __init__(self, envs: SyncVectorEnv) -> None:
        self._envs = [env.unwrapped for env in envs.envs]
        self._experts: list[Expert | None] = [None] * len(self._envs)

    def act(self, over: np.ndarray) -> np.ndarray:
        """An action for each; ``over``: whose last episode ended with the last step."""
        actions = np.zeros((len(self._envs), 7), dtype=np.float32)
        for i, env in enumerate(self._envs):
            assert isinstance(env, ManipulationEnv)
            if over[i]:
                # The step resets; its action counts for nothing.
                self._experts[i] = None
                continue
            expert = self._experts[i] or env.family.expert(i)
            self._experts[i] = expert
            actions[i] = expert.act(env)
        return actions


@pytest.mark.parametrize("family", BUILT_IN)
@pytest.mark.parametrize(("nthread", "control_hz"), [(1, 20), (2, 10)])
def test_experts_play_the_same_episodes(family: str, nthread: int, control_hz: int) -> None:
    env_id = get_family(family).env_id
    options = {"within": "generator", "obs_mode": "privileged", "control_hz": control_hz}
    one, two = together(env_id, nthread=nthread, **options), apart(env_id, **options)
    assert_same_outcome(one.reset(seed=7), two.reset(seed=7))
    experts = Experts(two)
    over = np.zeros(N, dtype=bool)
    successes = episodes = 0
    scenes = {at.id for at in one.scenes}
    for step in range(1000):
        actions = experts.act(over)
        outcome = two.step(actions)
        assert_same_outcome(one.step(actions), outcome, f"step {step}")
        over = outcome[2] | outcome[3]
        successes += int(outcome[2].sum())
        episodes += int(over.sum())
        scenes |= {at.id for at in one.scenes}
        if episodes >= 2 * N:
            break
    assert successes >= N
    assert len(scenes) > N
    one.close()


@pytest.mark.parametrize("family", BUILT_IN)
@pytest.mark.parametrize("mode", ["NextStep", "SameStep"])
def test_short_wild_episodes_are_the_same(family: str, mode: str) -> None:
    # Resets in every third step, each to a new scene and often to another topology.
    env_id, n = get_family(family).env_id, 6
    options = {
        "within": "generator",
        "obs_mode": "privileged",
        "reward_mode": "shaped",
        "max_steps": 7,
    }
    one = together(env_id, n, autoreset_mode=mode, nthread=2, **options)
    two = apart(env_id, mode, n, **options)
    assert one.metadata["autoreset_mode"] == AutoresetMode(mode)
    assert_same_outcome(one.reset(seed=3), two.reset(seed=3))
    rng = np.random.default_rng(0)
    ended = 0
    for step in range(40):
        actions = rng.uniform(-1.5, 1.5, (n, 7))
        first, second = one.step(actions), two.step(actions)
        assert_same_outcome(first, second, f"step {step}")
        ended += int(first[3].sum())
        assert ("final_obs" in first[4]) == (mode == "SameStep" and first[3].any())
    assert ended >= 4 * n
    # Without a seed the generators go on.
    assert_same_outcome(one.reset(), two.reset())
    assert one.np_random_seed == two.np_random_seed


def test_some_may_step_while_others_reset() -> None:
    one, two = together(ENV_ID, max_steps=5), apart(ENV_ID, max_steps=5)
    one.reset(seed=0), two.reset(seed=0)
    far = (0.0, -0.49, 0.02)
    for step in range(20):
        if step == 2:
            for env in (1, 2):
                inner = two.envs[env].unwrapped
                assert isinstance(inner, ManipulationEnv)
                joint = inner.data.joint("target")
                joint.qpos[:3], joint.qvel[1] = far, -2.0
                address = int(inner.model.joint("target").qposadr[0])
                dof = int(inner.model.joint("target").dofadr[0])
                simulations = one._simulations[one._topologies[env]]
                simulations._positions[env, address : address + 3] = far
                simulations._velocities[env, dof + 1] = -2.0
        actions = np.zeros((N, 7))
        outcome = two.step(actions)
        assert_same_outcome(one.step(actions), outcome, f"step {step}")
        if step == 2:
            assert outcome[4]["failure"].tolist() == ["", *["target off the table"] * 2]


@pytest.mark.parametrize("speed", [float("nan"), 1e9, 1e12])
def test_physics_that_diverges_ends_its_own_episode_alone(speed: float) -> None:
    options = {"obs_mode": "privileged", "reward_mode": "shaped"}
    one, two = together(ENV_ID, **options), apart(ENV_ID, **options)
    one.reset(seed=0), two.reset(seed=0)
    for step in range(6):
        if step == 2:
            inner = two.envs[1].unwrapped
            assert isinstance(inner, ManipulationEnv)
            inner.data.qvel[:] = speed
            one._simulations[one._topologies[1]]._velocities[1] = speed
        outcome = two.step(np.zeros((N, 7)))
        assert_same_outcome(one.step(np.zeros((N, 7))), outcome, f"step {step}")
        if step == 2:
            assert outcome[4]["failure"].tolist() == ["", "physics diverged", ""]
            assert outcome[2].tolist() == [False, True, False]


def test_what_was_handed_out_stays_as_it_was() -> None:
    env = together(ENV_ID, obs_mode="privileged", reward_mode="shaped", max_steps=3)
    env.reset(seed=0)
    outcome = env.step(np.ones((N, 7)))
    features = env.features
    kept = [
        (part, part.copy())
        for group in (outcome[0].values(), outcome[1:4], outcome[4].values(), [features])
        for part in group
    ]
    for _ in range(6):
        env.step(-np.ones((N, 7)))
    env.reset(seed=5)
    for part, before in kept:
        assert_same(part, before)


def test_seeds_may_be_given_one_by_one() -> None:
    env = together(ENV_ID)
    alone = gym.make(ENV_ID)
    obs, infos = env.reset(seed=[4, None, 9])
    for i, seed in ((0, 4), (2, 9)):
        expected, info = alone.reset(seed=seed)
        assert_same({name: rows[i] for name, rows in obs.items()}, expected)
        assert infos["scene_id"][i] == info["scene_id"]
    with pytest.raises(SceneError, match="2 seeds were given"):
        env.reset(seed=[1, 2])


def test_a_scene_may_be_asked_for() -> None:
    env = together(ENV_ID)
    at = tray_scene()
    _, infos = env.reset(seed=0, options={"scene": at})
    assert set(infos["scene_id"]) == {at.id}
    assert env.scenes == (at,) * N
    with pytest.raises(SceneError, match="unknown reset option 'sceen'"):
        env.reset(options={"sceen": at})


def test_a_suite_is_played_by_index() -> None:
    env, alone = together(ENV_ID, suite="seed"), ManipulationEnv(suite="seed")
    obs, _ = env.reset(seed=0, options={"index": 5})
    expected, _ = alone.reset(seed=0, options={"index": 5})
    assert_same({name: rows[0] for name, rows in obs.items()}, expected)


def test_every_id_has_it_and_its_spec_makes_it_again(tmp_path: Path) -> None:
    (tmp_path / "one.yaml").write_text(tray_scene().to_yaml())
    ids = [*(get_family(family).env_id for family in BUILT_IN), *register_library(tmp_path)]
    try:
        for env_id in ids:
            env = gym.make_vec(env_id, num_envs=2, control_hz=10, max_steps=4)
            assert isinstance(env, ManipulationVectorEnv)
            spec = gym.envs.registration.EnvSpec.from_json(env.spec.to_json())
            again = gym.make_vec(spec)
            assert isinstance(again, ManipulationVectorEnv)
            assert again.num_envs == 2
            assert_same_outcome(env.reset(seed=1), again.reset(seed=1))
            env.close()
    finally:
        gym.registry.pop(ids[-1])


def test_spaces_hold_what_is_given() -> None:
    env = together(ENV_ID, obs_mode="privileged", within="generator")
    alone = gym.make(ENV_ID, obs_mode="privileged")
    assert env.single_observation_space == alone.observation_space
    assert env.single_action_space == alone.action_space
    obs, infos = env.reset(seed=0)
    assert env.observation_space.contains(obs)
    env.action_space.seed(0)
    obs, rewards, terminated, truncated, infos = env.step(env.action_space.sample())
    assert env.observation_space.contains(obs)
    assert rewards.dtype == np.float64
    assert terminated.dtype == truncated.dtype == bool
    assert decode_instruction(obs["instruction"][2]) == infos["instruction"][2]


def test_gymnasiums_own_wrappers_take_it() -> None:
    env = gym.wrappers.vector.RecordEpisodeStatistics(together(ENV_ID, max_steps=4))
    env.reset(seed=0)
    for _ in range(3):
        env.step(np.zeros((N, 7)))
    *_, infos = env.step(np.zeros((N, 7)))
    assert infos["episode"]["l"].tolist() == [4, 4, 4]


@pytest.mark.parametrize(
    ("actions", "named"),
    [
        (np.where(np.arange(21).reshape(3, 7) == 16, np.nan, 0.0), r"environment 2: action\[2\]"),
        (np.zeros((2, 7)), r"shape \(2, 7\)"),
        (np.zeros(7), r"shape \(7,\)"),
    ],
)
def test_unusable_actions_are_refused_and_change_nothing(actions: np.ndarray, named: str) -> None:
    one, two = together(ENV_ID), together(ENV_ID)
    one.reset(seed=0), two.reset(seed=0)
    with pytest.raises(ValueError, match=named):
        one.step(actions)
    assert_same_outcome(one.step(np.ones((N, 7))), two.step(np.ones((N, 7))))


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"obs_mode": "rgb"}, r"obs_mode='rgb'.*vectorization_mode='sync' or 'async'"),
        ({"render_mode": "rgb_array"}, r"render_mode='rgb_array'.*'sync' or 'async'"),
        ({"obs_mode": "sate"}, "did you mean 'state'"),
        ({"num_envs": 0}, "num_envs=0"),
        ({"nthread": -1}, "nthread=-1"),
        ({"autoreset_mode": "Disabled"}, "autoreset_mode='Disabled'"),
        ({"suite": "sed"}, "did you mean 'seed'"),
    ],
)
def test_a_wrong_option_is_named_with_what_is_allowed(options: dict[str, Any], named: str) -> None:
    with pytest.raises(SceneError, match=named):
        ManipulationVectorEnv(**({"num_envs": 2} | options))


def test_it_must_be_reset_first_and_may_be_reset_after_it_was_closed() -> None:
    env = together(ENV_ID)
    for ask in (lambda: env.step(np.zeros((N, 7))), lambda: env.scenes):
        with pytest.raises(gym.error.ResetNeeded, match="call reset"):
            ask()
    first, _ = env.reset(seed=0)
    env.close()
    with pytest.raises(gym.error.ResetNeeded, match="call reset"):
        env.step(np.zeros((N, 7)))
    assert_same(env.reset(seed=0)[0], first)


def test_a_single_environments_edits_do_not_reach_it() -> None:
    at = scene()
    edited = make(at)
    edited.model.opt.gravity[2] = 5.0
    edited.model.body_mass[:] = 9.0
    env, clean = together(ENV_ID, scene=json.loads(at.canonical_json())), make(at)
    env.reset(seed=0), clean.reset(seed=0)
    for _ in range(3):
        obs, *_ = env.step(np.ones((N, 7)))
        expected, *_ = clean.step(np.ones(7))
    assert_same({name: rows[0] for name, rows in obs.items()}, expected)
