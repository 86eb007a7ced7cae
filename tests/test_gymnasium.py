"""Every built-in id as Gymnasium, Stable-Baselines3 and users of both expect an environment to be.

What one family alone can show is in test_env.py and test_determinism.py.
"""

from __future__ import annotations

import copy
import json
import os
import pickle
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from env_cases import digest, playback, same
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode

from coda_envs.cameras import CAMERAS
from coda_envs.env import ManipulationEnv
from coda_envs.observations import OBS_MODES
from coda_envs.registration import BUILT_IN_IDS

pytestmark = pytest.mark.parametrize("env_id", BUILT_IN_IDS.values())

#: Every way to observe, under both rewards, with every image channel.
WITH: dict[str, dict[str, Any]] = {
    "rgb": {"reward_mode": "shaped"},
    "rgb+state": {"image_channels": ["depth", "segmentation"]},
    "privileged": {"reward_mode": "shaped", "control_hz": 10},
}
MODES = [{"obs_mode": mode, **WITH.get(mode, {})} for mode in OBS_MODES]
STAY = np.zeros(7, dtype=np.float32)
#: Numbers that float32 does not hold.
ODD = np.linspace(-0.99, 0.987654321, 7)
WIDE = {"within": "generator", "obs_mode": "privileged", "reward_mode": "shaped"}


def make(env_id: str, **options: Any) -> ManipulationEnv:
    """The environment of an id without Gymnasium's wrappers, reset with seed 0."""
    env = gym.make(env_id, **options).unwrapped
    assert isinstance(env, ManipulationEnv)
    env.reset(seed=0)
    return env


@pytest.mark.parametrize("options", MODES, ids=OBS_MODES)
def test_gymnasium_accepts_it_without_a_warning(env_id: str, options: dict[str, Any]) -> None:
    env = gym.make(f"coda_envs:{env_id}", image_size=32, render_mode="rgb_array", **options)
    check_env(env.unwrapped)
    env.close()


@pytest.mark.parametrize("options", MODES, ids=OBS_MODES)
def test_stable_baselines_accepts_it_without_a_warning(
    env_id: str, options: dict[str, Any]
) -> None:
    # Imported here, since it brings torch.
    from stable_baselines3.common.env_checker import check_env as sb3_check_env

    env = gym.make(env_id, image_size=40, **options)
    sb3_check_env(env)
    env.close()


@pytest.mark.parametrize("control_hz", [10, 20])
def test_every_observation_of_a_wild_rollout_lies_in_its_space(
    env_id: str, control_hz: int
) -> None:
    env = make(env_id, **WIDE, control_hz=control_hz, max_steps=60)
    rng = np.random.default_rng(control_hz)
    ended = 0
    for step in range(400):
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
            assert terminated == bool(info["success"] or info["failure"])
            ended += 1
            env.reset()
    assert ended > 5


@pytest.mark.parametrize("control_hz", [10, 20])
def test_metadata_and_pictures_are_as_declared(env_id: str, control_hz: int) -> None:
    env = make(env_id, control_hz=control_hz, render_mode="rgb_array", render_size=[48, 64])
    assert ManipulationEnv.metadata["render_modes"] == ["rgb_array", "human"]
    assert env.metadata["render_fps"] == control_hz
    assert env.render_mode in env.metadata["render_modes"]
    picture = env.render()
    assert picture is not None
    assert picture.shape == (48, 64, 3)
    assert picture.dtype == np.uint8
    before = env.data.time
    env.step(STAY)
    assert env.data.time - before == pytest.approx(1 / control_hz)
    env.close()
    assert make(env_id).render() is None


@pytest.mark.parametrize("channels", [("rgb",), ("depth",), ("segmentation", "rgb")])
def test_the_image_channels_that_were_asked_for_are_observed(
    env_id: str, channels: tuple[str, ...]
) -> None:
    env = make(env_id, obs_mode="rgb", image_size=24, image_channels=channels)
    obs = env.step(STAY)[0]
    names = {"rgb": "{}", "depth": "{}_depth", "segmentation": "{}_segmentation"}
    asked = {names[channel].format(camera) for channel in channels for camera in CAMERAS}
    assert set(obs) == {"proprio", "instruction"} | asked
    assert env.observation_space.contains(obs)
    env.close()


def test_kwargs_survive_json_and_the_spec_survives_pickling(env_id: str) -> None:
    scene = make(env_id).scene
    options = {"scene": scene.to_dict(), "obs_mode": "privileged", "control_hz": 10,
               "image_channels": ["rgb", "depth"], "render_size": [48, 64]}  # fmt: skip
    env = gym.make(env_id, **options)
    again = gym.make(env_id, **json.loads(json.dumps(options)))
    from_json = gym.make(gym.envs.registration.EnvSpec.from_json(env.spec.to_json()))
    from_pickle = gym.make(pickle.loads(pickle.dumps(env.spec)))
    first, _ = env.reset(seed=5)
    for other in (again, from_json, from_pickle):
        assert other.unwrapped.control_hz == 10
        assert other.unwrapped.image_channels == ("rgb", "depth")
        assert same(other.reset(seed=5)[0], first)


def pickled(env: gym.Env) -> Any:
    return pickle.loads(pickle.dumps(env))


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, pickled])
def test_a_copied_environment_goes_on_by_itself(env_id: str, copied: Any) -> None:
    env = make(env_id, **WIDE, render_mode="rgb_array", max_steps=40)
    for _ in range(3):
        env.step(np.ones(7))
    env.render()
    other = copied(env)
    assert other.spec == env.spec
    assert other.max_steps == 40

    def future(env: ManipulationEnv) -> list[object]:
        return [env.step(-np.ones(7)), env.features, env.step(STAY), *(env.reset() for _ in "ab")]

    before = digest(env.get_state())
    first = digest(future(other))
    assert digest(env.get_state()) == before
    assert digest(future(env)) == first
    assert same(other.render(), env.render())
    for each in (env, other):
        each.close()


def test_an_environment_is_copied_before_its_first_reset(env_id: str) -> None:
    env = gym.make(env_id, control_hz=10)
    other = pickled(env)
    assert same(other.reset(seed=3)[0], env.reset(seed=3)[0])


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_vector_environments_play_what_single_ones_play(env_id: str, mode: str) -> None:
    keywords: dict[str, Any] = {"autoreset_mode": AutoresetMode.SAME_STEP}
    if mode == "async":
        keywords["context"] = "spawn"
    options: dict[str, Any] = {"within": "generator", "control_hz": 10, "max_steps": 3}
    vector = gym.make_vec(env_id, 2, vectorization_mode=mode, vector_kwargs=keywords, **options)
    singles = [gym.make(env_id, **options) for _ in range(2)]
    actions = np.linspace(-1, 1, 14, dtype=np.float32).reshape(2, 7)
    try:
        together, _ = vector.reset(seed=[3, 4])
        apart = [env.reset(seed=seed)[0] for env, seed in zip(singles, (3, 4), strict=True)]
        for step in range(5):
            for name, rows in together.items():
                assert same(rows, np.stack([obs[name] for obs in apart]))
            together, rewards, _, truncated, infos = vector.step(actions)
            results = [env.step(a) for env, a in zip(singles, actions, strict=True)]
            apart = [result[0] for result in results]
            assert rewards.tolist() == [result[1] for result in results]
            assert truncated.tolist() == [step == 2] * 2
            if step == 2:
                last, final = apart, infos["final_obs"]
                apart = [env.reset()[0] for env in singles]
        # The last observations of the finished episodes are still what they were.
        assert all(same(a, b) for a, b in zip(final, last, strict=True))
    finally:
        vector.close()


@pytest.mark.parametrize("autoreset", [AutoresetMode.NEXT_STEP, AutoresetMode.DISABLED])
def test_episodes_follow_one_another_in_a_vector(env_id: str, autoreset: AutoresetMode) -> None:
    options: dict[str, Any] = {"control_hz": 10, "max_steps": 2}
    vector = gym.make_vec(env_id, 1, vectorization_mode="sync",
                          vector_kwargs={"autoreset_mode": autoreset}, **options)  # fmt: skip
    single = gym.make(env_id, **options)
    vector.reset(seed=6)
    single.reset(seed=6)
    for _ in range(2):
        obs, _, _, truncated, _ = vector.step(STAY[None])
        last = single.step(STAY)[0]
    assert truncated.all()
    assert all(same(obs[name][0], last[name]) for name in last)
    kept = copy.deepcopy(obs)
    if autoreset is AutoresetMode.DISABLED:
        following, _ = vector.reset(options={"reset_mask": np.array([True])})
    else:
        following = vector.step(STAY[None])[0]
    first = single.reset()[0]
    assert all(same(following[name][0], first[name]) for name in first)
    assert same(obs, kept)
    vector.close()


def test_what_was_handed_out_stays_as_it_was(env_id: str) -> None:
    env = make(env_id, obs_mode="rgb+state", image_size=32,
               image_channels=["rgb", "depth", "segmentation"])  # fmt: skip
    obs, _, _, _, info = env.step(np.array([1, 1, -1, 0, 0, 1, 1]))
    features = env.features
    before = copy.deepcopy((obs, info, features))
    for _ in range(5):
        env.step(np.ones(7))
    env.reset(seed=9)
    assert same(obs, before[0])
    assert info == before[1]
    assert same(features, before[2])
    env.close()


def fingerprint(env_id: str) -> str:
    """What this process makes of two seeds; run by the test below in processes of their own."""
    env = make(env_id, **WIDE)
    return digest([list(playback(env, seed)) for seed in (11, 12)])


def test_every_process_gets_the_same_bytes(env_id: str) -> None:
    code = f"from test_gymnasium import fingerprint; print(fingerprint({env_id!r}))"
    path = os.pathsep.join([os.path.dirname(__file__), *(p for p in sys.path if p)])
    prints = [fingerprint(env_id)]
    for hash_seed in ("1", "2"):
        env = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": path}
        done = subprocess.run(
            [sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True
        )
        prints.append(done.stdout.strip())
    assert len(set(prints)) == 1


def test_the_seed_decides_and_resets_without_one_go_on(env_id: str) -> None:
    env = make(env_id, within="generator")

    def scenes(seed: int) -> list[str]:
        env.reset(seed=seed)
        found = [env.scene.id]
        for _ in range(4):
            env.reset()
            found.append(env.scene.id)
        return found

    first = scenes(7)
    assert len(set(first)) == 5
    assert scenes(7) == first
    assert scenes(8) != first
    env.reset(seed=7)
    again, _ = env.reset(seed=7)
    assert env.scene.id == first[0]
    assert same(again, make(env_id, within="generator").reset(seed=7)[0])


def test_what_ran_before_leaves_no_trace(env_id: str) -> None:
    clean = digest(list(playback(make(env_id, **WIDE), 3)))
    env = make(env_id, **WIDE)
    for seed in range(12):
        # More scenes than the cache of compiled models holds, left in mid-episode.
        list(playback(env, seed, steps=4))
    assert digest(list(playback(env, 3))) == clean
    for harm in ("qfrc_applied", "xfrc_applied", "ctrl", "qacc_warmstart", "qvel"):
        # In the scene to come, which is then not loaded anew.
        env.reset(seed=3)
        getattr(env.data, harm)[:] = 3.0
        env.step(np.ones(7))
        assert digest(list(playback(env, 3))) == clean
    env.data.qvel[:] = np.nan
    env.step(np.ones(7))
    assert digest(list(playback(env, 3))) == clean


def test_global_generators_are_neither_used_nor_touched(env_id: str) -> None:
    env = make(env_id, within="generator")
    np.random.seed(1)
    first = digest(list(playback(env, 5, steps=5)))
    after = np.random.random()
    np.random.seed(1)
    assert np.random.random() == after
    np.random.seed(2)
    assert digest(list(playback(env, 5, steps=5))) == first


@pytest.mark.parametrize("control_hz", [10, 20])
@pytest.mark.parametrize("fresh", [False, True], ids=["same instance", "fresh instance"])
def test_a_restored_state_has_the_same_future(env_id: str, control_hz: int, fresh: bool) -> None:
    env = make(env_id, **WIDE, control_hz=control_hz)
    env.reset(seed=21)
    expert = env.family.expert()
    # As far as the grasp, where contacts and warm start matter.
    for _ in range(control_hz):
        env.step(expert.act(env))
    state = env.get_state()
    actions = [expert.act(env), *np.random.default_rng(0).uniform(-1, 1, (29, 7))]
    features = env.features

    def future(env: ManipulationEnv) -> Iterator[object]:
        for action in actions:
            yield from (env.step(action), env.features, env.get_state())
        yield env.reset()

    first = digest(list(future(env)))
    other = make(env_id, **WIDE, control_hz=control_hz) if fresh else env
    other.reset(seed=99)
    other.step(np.ones(7))
    obs = other.set_state(state)
    assert same(other.features, features)
    assert same(other.get_state(), state)
    assert other.observation_space.contains(obs)
    assert digest(list(future(other))) == first


@pytest.mark.parametrize(
    "alike",
    [
        pytest.param([np.ones(7), np.full(7, 40.0), [1e300] * 7], id="beyond the bounds"),
        pytest.param([ODD, ODD.tolist(), ODD.astype(np.float32)], id="stored in float32"),
    ],
)
def test_actions_that_are_written_differently_act_alike(env_id: str, alike: list[Any]) -> None:
    env = make(env_id, reward_mode="shaped")
    start = env.get_state()
    outcomes = []
    for action in alike:
        env.set_state(start)
        outcomes.append(digest([env.step(action), env.get_state()]))
    assert len(set(outcomes)) == 1


@pytest.mark.parametrize(
    ("action", "named"),
    [
        ([0, 0, 0, float("nan"), 0, 0, 0], r"action\[3\] is nan"),
        ([0, 0, 0, 0, 0, 0, float("-inf")], r"action\[6\] is -inf"),
        (np.zeros(6), r"shape \(6,\); allowed: \(7,\)"),
        (np.zeros((1, 7)), r"shape \(1, 7\)"),
        (["a"] * 7, "could not convert"),
    ],
)
def test_an_unusable_action_is_refused_and_changes_nothing(
    env_id: str, action: object, named: str
) -> None:
    env = make(env_id)
    env.step(np.ones(7))
    before = env.get_state()
    with pytest.raises(ValueError, match=named):
        env.step(action)  # type: ignore[arg-type]
    assert same(env.get_state(), before)


@pytest.mark.parametrize("control_hz", [10, 20])
def test_ends_and_rewards_are_as_defined(env_id: str, control_hz: int) -> None:
    sparse = make(env_id, control_hz=control_hz)
    shaped = make(env_id, control_hz=control_hz, reward_mode="shaped", gamma=0.9)
    for seed in range(5):
        sparse.reset(seed=seed)
        _, info = shaped.reset(seed=seed)
        expert, ended = sparse.family.expert(seed), False
        while not ended:
            action, potential = expert.act(sparse), info["potential"]
            _, reward, terminated, truncated, plain = sparse.step(action)
            _, extra, *ends, info = shaped.step(action)
            ended = terminated or truncated
            success = bool(plain["success"])
            assert reward == info["sparse_reward"] == float(success)
            assert ends == [terminated, truncated]
            assert terminated == bool(success or plain["failure"])
            kept = 0.0 if terminated else info["potential"]
            assert extra - reward == pytest.approx(0.9 * kept - potential, abs=1e-12)
            last = sparse.get_state()["steps"] == sparse.max_steps
            assert truncated == (last and not terminated)
        if success:
            return
    pytest.fail("the expert solved none of five scenes of the seed range")
