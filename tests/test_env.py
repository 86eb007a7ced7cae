"""The environment as Gymnasium and Stable-Baselines3 see it: spaces, checkers, vectors, errors."""

from __future__ import annotations

import json
import logging
import pickle
import subprocess
import sys
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
from env_cases import ENV_ID, FAMILY, column, make, place, same, scene
from gymnasium.utils.env_checker import check_env
from hypothesis import given
from hypothesis import strategies as st

from coda_envs.env import OBS_MODES, ManipulationEnv
from coda_envs.errors import SceneError
from coda_envs.instruction import INSTRUCTION_BYTES, decode_instruction, encode_instruction

MODES = [(obs, reward) for obs in OBS_MODES for reward in ("sparse", "shaped")]
STAY = np.zeros(7, dtype=np.float32)


@pytest.mark.parametrize(("obs_mode", "reward_mode"), MODES)
def test_gymnasium_accepts_it_without_a_warning(obs_mode: str, reward_mode: str) -> None:
    options = {"obs_mode": obs_mode, "reward_mode": reward_mode, "image_size": 32}
    env = gym.make(f"coda_envs:{ENV_ID}", render_mode="rgb_array", **options)
    check_env(env.unwrapped)
    env.close()


@pytest.mark.parametrize(("obs_mode", "reward_mode"), MODES)
def test_stable_baselines_accepts_it(obs_mode: str, reward_mode: str) -> None:
    # Imported here, since it brings torch.
    from stable_baselines3.common.env_checker import check_env as sb3_check_env

    env = gym.make(ENV_ID, obs_mode=obs_mode, reward_mode=reward_mode, image_size=64)
    sb3_check_env(env)
    env.close()


@pytest.mark.parametrize("control_hz", [10, 20])
def test_every_observation_of_a_wild_rollout_lies_in_its_space(control_hz: int) -> None:
    env = ManipulationEnv(within="generator", obs_mode="privileged", control_hz=control_hz)
    rng = np.random.default_rng(control_hz)
    obs, _ = env.reset(seed=control_hz)
    ended = 0
    for step in range(2000):
        if step % 10 == 0:
            push = rng.uniform(-4, 4, 7)
        obs, reward, terminated, truncated, info = env.step(push + rng.normal(0, 0.5, 7))
        assert env.observation_space.contains(obs)
        assert np.isfinite(reward)
        # A real state was not clipped: it stays away from every bound but those of unit columns.
        for name in ("proprio", "objects", "features"):
            high = env.observation_space[name].high
            assert (np.abs(obs[name]) < high)[high > 1.0].all()
        if terminated or truncated:
            assert info["success"] or info["failure"] or truncated
            ended += 1
            obs, _ = env.reset()
    assert ended > 5


def test_kwargs_survive_json_and_the_spec_survives_pickling() -> None:
    options = {"scene": scene().to_dict(), "obs_mode": "privileged", "control_hz": 10}
    env = gym.make(ENV_ID, **options)
    again = gym.make(ENV_ID, **json.loads(json.dumps(options)))
    from_json = gym.make(gym.envs.registration.EnvSpec.from_json(env.spec.to_json()))
    from_pickle = gym.make(pickle.loads(pickle.dumps(env.spec)))
    first, _ = env.reset(seed=5)
    for other in (again, from_json, from_pickle):
        assert other.unwrapped.control_hz == 10
        assert same(other.reset(seed=5)[0], first)


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_vector_environments_play_what_single_ones_play(mode: str) -> None:
    keywords = {"context": "spawn"} if mode == "async" else {}
    vector = gym.make_vec(
        ENV_ID, 2, vectorization_mode=mode, vector_kwargs=keywords, control_hz=10, max_steps=3
    )
    singles = [gym.make(ENV_ID, control_hz=10, max_steps=3) for _ in range(2)]
    try:
        together, _ = vector.reset(seed=[3, 4])
        apart = [env.reset(seed=seed)[0] for env, seed in zip(singles, (3, 4), strict=True)]
        actions = np.linspace(-1, 1, 14, dtype=np.float32).reshape(2, 7)
        for _ in range(3):
            for name, rows in together.items():
                assert same(rows, np.stack([obs[name] for obs in apart]))
            together, _, _, truncated, _ = vector.step(actions)
            apart = [env.step(a)[0] for env, a in zip(singles, actions, strict=True)]
        assert truncated.all()
    finally:
        vector.close()


def test_what_was_handed_out_stays_as_it_was() -> None:
    env = make(obs_mode="rgb+state", image_size=32)
    obs, _, _, _, info = env.step(np.array([1, 1, -1, 0, 0, 1, 1]))
    features = env.features
    before = pickle.loads(pickle.dumps((obs, info, features)))
    for _ in range(5):
        env.step(np.ones(7))
    env.reset(seed=9)
    assert same(obs, before[0])
    assert info == before[1]
    assert same(features, before[2])


@pytest.mark.parametrize("reward_mode", ["sparse", "shaped"])
def test_actions_beyond_the_bounds_act_like_the_bound(reward_mode: str) -> None:
    env = make(reward_mode=reward_mode)
    start = env.get_state()
    outcomes = []
    for action in (np.ones(7), np.full(7, 40.0), [1e300] * 7, np.full(7, 1.5, dtype=np.float32)):
        env.set_state(start)
        obs, reward, *_ = env.step(action)
        outcomes.append((obs, reward, env.get_state()["physics"]))
    for obs, reward, physics in outcomes[1:]:
        assert same(obs, outcomes[0][0])
        assert reward == outcomes[0][1]
        assert same(physics, outcomes[0][2])


def test_an_action_acts_as_it_is_stored_in_float32() -> None:
    env = make()
    start = env.get_state()
    action = np.linspace(-0.99, 0.987654321, 7)
    outcomes = []
    for given_as in (action, action.tolist(), action.astype(np.float32)):
        env.set_state(start)
        env.step(given_as)
        outcomes.append(env.get_state()["physics"])
    assert same(outcomes[0], outcomes[1])
    assert same(outcomes[0], outcomes[2])


@pytest.mark.parametrize(
    ("action", "named"),
    [
        ([0, 0, 0, float("nan"), 0, 0, 0], r"action\[3\] is nan"),
        ([0, float("inf"), 0, 0, 0, 0, 0], r"action\[1\] is inf"),
        ([0, 0, 0, 0, 0, 0, float("-inf")], r"action\[6\] is -inf"),
        (np.zeros(6), r"shape \(6,\); allowed: \(7,\)"),
        (np.zeros((1, 7)), r"shape \(1, 7\)"),
        (0.5, r"shape \(\)"),
        (["a"] * 7, "could not convert"),
    ],
)
def test_an_unusable_action_is_refused_and_changes_nothing(action: object, named: str) -> None:
    env = make()
    env.step(np.ones(7))
    before = env.get_state()
    with pytest.raises(ValueError, match=named):
        env.step(action)
    assert same(env.get_state(), before)


def test_only_the_step_limit_truncates() -> None:
    env = make(max_steps=3)
    ends = [env.step(STAY)[2:4] for _ in range(3)]
    assert ends == [(False, False), (False, False), (False, True)]


def test_an_object_off_the_table_ends_the_episode_with_the_reason() -> None:
    env = make()
    place(env, "target", (0.0, -0.49, 0.02), velocity=(0, -2.0, 0, 0, 0, 0))
    endings = [env.step(STAY) for _ in range(3)]
    _, reward, terminated, truncated, info = endings[-1]
    assert terminated
    assert not truncated
    assert info["failure"] == "target off the table"
    assert not info["success"]
    assert reward == 0.0
    _, info = env.reset(seed=0)
    assert info["failure"] == ""


@pytest.mark.parametrize("step", [0, 3])
@pytest.mark.parametrize("speed", [float("nan"), float("inf"), 1e9, 1e12])
def test_diverged_physics_ends_the_episode_and_the_next_is_clean(
    step: int,
    speed: float,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    env = make(obs_mode="privileged", reward_mode="shaped")
    clean, _ = env.reset(seed=1)
    for _ in range(step):
        env.step(STAY)
    env.data.qvel[:] = speed
    obs, reward, terminated, truncated, info = env.step(STAY)
    assert terminated
    assert not truncated
    assert info["failure"] == "physics diverged"
    assert not info["success"]
    assert np.isfinite(reward)
    assert env.observation_space.contains(obs)
    assert all(np.isfinite(part).all() for part in obs.values())
    assert same(env.reset(seed=1)[0], clean)
    # MuJoCo by itself would print on standard output and start a log file here.
    assert capfd.readouterr().out == ""
    assert not list(tmp_path.iterdir())


def test_a_warning_of_mujoco_reaches_the_log(caplog: pytest.LogCaptureFixture) -> None:
    env = make()
    env.data.qvel[:] = np.nan
    with caplog.at_level(logging.WARNING, logger="mujoco"):
        env.step(STAY)
    assert "unstable" in caplog.text


def test_a_thing_far_away_is_clipped_to_the_space() -> None:
    env = make(obs_mode="privileged")
    obs = place(env, "distractor_1", (5000.0, 0.0, 0.02))
    assert env.observation_space.contains(obs)
    assert obs["objects"].max() == env.observation_space["objects"].high.max()
    assert column(env, "distractor_1.x") == 5000.0


def test_the_instruction_reaches_the_observation_and_nothing_else() -> None:
    plain = scene()
    told = plain.model_copy(
        update={"task": plain.task.model_copy(update={"instruction": "räum den Würfel auf"})}
    )
    first, second = make(plain, obs_mode="privileged"), make(told, obs_mode="privileged")
    for step in range(3):
        one, two = (env.step(np.full(7, 0.3 * step))[0] for env in (first, second))
        assert decode_instruction(one.pop("instruction")) == plain.task.instruction
        assert decode_instruction(two.pop("instruction")) == "räum den Würfel auf"
        assert same(one, two)


@given(st.text(st.characters(exclude_characters="\0", codec="utf-8"), max_size=INSTRUCTION_BYTES))
def test_an_instruction_is_read_back_as_written_or_refused(text: str) -> None:
    if len(text.encode()) > INSTRUCTION_BYTES:
        with pytest.raises(SceneError, match=f"at most {INSTRUCTION_BYTES}"):
            encode_instruction(text)
    else:
        data = encode_instruction(text)
        assert data.shape == (INSTRUCTION_BYTES,)
        assert decode_instruction(data) == text


@pytest.mark.parametrize("words", ["", "é" * 70, "x" * 121, "put\0it"])
def test_a_scene_refuses_an_instruction_that_no_observation_holds(words: str) -> None:
    data = scene().to_dict()
    data["task"]["instruction"] = words
    with pytest.raises(SceneError, match=r"task\.instruction"):
        ManipulationEnv(scene=data)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"obs_mode": "image"}, "obs_mode='image'"),
        ({"control_hz": 50}, "control_hz=50"),
        ({"reward_mode": "dense"}, "reward_mode='dense'"),
        ({"control_mode": "joint"}, "control_mode='joint'"),
        ({"render_mode": "human"}, "render_mode='human'"),
        ({"max_steps": 0}, "max_steps is 0"),
        ({"image_size": 4000}, "16 to 960"),
        ({"render_size": (2000, 2000)}, "960 × 1280"),
        ({"potential": {}}, "reward_mode is 'sparse'"),
        ({"suite": "sed"}, "did you mean 'seed'"),
        ({"suite": "seed", "library": "x"}, "suite= and library="),
        ({"library": "/nowhere"}, "does not exist"),
        ({"within": "everything"}, "'generator', 'seed'"),
        ({"family": "pick-plaice"}, "did you mean 'pick-place'"),
    ],
)
def test_a_wrong_option_is_named_with_what_is_allowed(options: dict, named: str) -> None:
    with pytest.raises(SceneError, match=named):
        ManipulationEnv(**options)


def test_a_wrong_reset_option_is_named() -> None:
    env = make()
    with pytest.raises(SceneError, match="unknown reset option 'scenes'"):
        env.reset(options={"scenes": {}})
    with pytest.raises(SceneError, match="0 to 0"):
        env.reset(options={"index": 7})


def test_scenes_are_drawn_from_the_range_that_was_asked_for() -> None:
    space = FAMILY.space
    for within in ("seed", "generator"):
        env = ManipulationEnv(within=within)
        for seed in range(10):
            env.reset(seed=seed)
            assert FAMILY.region(env.scene) == "generator"
            for path, value in env.scene.values.items():
                bounds = getattr(space[path], within)
                if space[path].type == "discrete":
                    assert value in bounds
                else:
                    assert bounds[0] <= value <= bounds[1]


def test_mujoco_imported_first_can_still_draw_without_a_display() -> None:
    code = (
        "import mujoco, coda_envs, gymnasium as gym\n"
        f"env = gym.make({ENV_ID!r}, obs_mode='rgb', image_size=32)\n"
        "print(env.reset(seed=0)[0]['agentview'].std() > 1)"
    )
    bare = {"PATH": "/usr/bin:/bin", "PYTHONPATH": ":".join(p for p in sys.path if p)}
    done = subprocess.run(
        [sys.executable, "-c", code], env=bare, capture_output=True, text=True, check=False
    )
    assert done.stdout.strip() == "True", done.stderr
