"""Same seed, same bytes: in any process, after any history, from any restored state."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Iterator

import numpy as np
import pytest
from env_cases import FAMILY, make, place, same, scene

from coda_envs.env import ManipulationEnv
from coda_envs.errors import SceneError
from coda_envs.sensing import object_table


def playback(env: ManipulationEnv, seed: int, steps: int = 25) -> Iterator[object]:
    """Everything an episode with this seed and fixed random actions gives."""
    rng = np.random.default_rng(seed)
    yield env.reset(seed=seed)
    yield env.scene.id
    for _ in range(steps):
        yield env.step(rng.uniform(-1, 1, 7))
        yield env.features
        yield env.get_state()["physics"]


def digest(results: object) -> str:
    """A hash over all bytes of nested results."""
    sha = hashlib.sha256()

    def add(value: object) -> None:
        if isinstance(value, dict):
            for key in sorted(value):
                sha.update(key.encode())
                add(value[key])
        elif isinstance(value, np.ndarray):
            sha.update(f"{value.dtype}{value.shape}".encode() + value.tobytes())
        elif isinstance(value, tuple | list):
            for part in value:
                add(part)
        else:
            sha.update(repr(value).encode())

    add(results)
    return sha.hexdigest()


def fingerprint() -> str:
    """What this process makes of two seeds; run by the test below in processes of their own."""
    env = ManipulationEnv(within="generator", obs_mode="privileged", reward_mode="shaped")
    return digest([list(playback(env, seed)) for seed in (11, 12)])


def test_every_process_gets_the_same_bytes() -> None:
    code = "from test_determinism import fingerprint; print(fingerprint())"
    path = os.pathsep.join([os.path.dirname(__file__), *(p for p in sys.path if p)])
    prints = [fingerprint()]
    for hash_seed in ("1", "2"):
        env = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": path}
        done = subprocess.run(
            [sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True
        )
        prints.append(done.stdout.strip())
    assert len(set(prints)) == 1


def test_what_ran_before_leaves_no_trace() -> None:
    options = {"within": "generator", "obs_mode": "privileged"}
    clean = digest(list(playback(ManipulationEnv(**options), 3)))
    env = ManipulationEnv(**options)
    for seed in range(12):
        # More scenes than the cache of compiled models holds, left in mid-episode.
        list(playback(env, seed, steps=4))
    env.reset(options={"scene": scene()})
    place(env, "target", (0.1, 0.1, 0.4), velocity=(1, 2, 3, 4, 5, 6))
    env.data.qfrc_applied[:] = 3.0
    env.data.xfrc_applied[:] = 3.0
    env.data.ctrl[:] = 1.0
    env.step(np.ones(7))
    env.data.qvel[:] = np.nan
    env.step(np.ones(7))
    assert digest(list(playback(env, 3))) == clean


def test_a_reset_in_the_same_scene_is_as_clean() -> None:
    env = make()
    clean = digest(list(playback(env, 4)))
    env.data.xfrc_applied[:] = 2.0
    env.data.qacc_warmstart[:] = 5.0
    env.step(np.ones(7))
    assert digest(list(playback(env, 4))) == clean


def test_the_seed_decides_and_resets_without_one_go_on() -> None:
    def scenes(env: ManipulationEnv, seed: int) -> list[str]:
        found = []
        for i in range(5):
            env.reset(seed=seed if i == 0 else None)
            found.append(env.scene.id)
        return found

    env = ManipulationEnv(within="generator")
    first = scenes(env, 7)
    assert len(set(first)) == 5
    assert scenes(env, 7) == first
    assert scenes(env, 8) != first
    env.reset(seed=7)
    env.reset(seed=7)
    assert env.scene.id == first[0]


def test_global_generators_are_neither_used_nor_touched() -> None:
    env = ManipulationEnv(within="generator")
    np.random.seed(1)
    first = digest(list(playback(env, 5, steps=5)))
    after = np.random.random()
    np.random.seed(1)
    assert np.random.random() == after
    np.random.seed(2)
    assert digest(list(playback(env, 5, steps=5))) == first


@pytest.mark.parametrize("control_hz", [10, 20])
@pytest.mark.parametrize("fresh", [False, True], ids=["same instance", "fresh instance"])
def test_a_restored_state_has_the_same_future(control_hz: int, fresh: bool) -> None:
    options = {"obs_mode": "privileged", "reward_mode": "shaped", "control_hz": control_hz}
    env = ManipulationEnv(within="generator", **options)
    env.reset(seed=21)
    expert = FAMILY.expert()
    # As far as the grasp, where contacts and warm start matter.
    for _ in range(control_hz):
        env.step(expert.act(env))
    state = env.get_state()
    actions = [expert.act(env), *np.random.default_rng(0).uniform(-1, 1, (19, 7))]
    features = env.features

    def future(env: ManipulationEnv) -> list[object]:
        results: list[object] = []
        for action in actions:
            results += [env.step(action), env.features, env.get_state()]
        return [*results, env.reset()]

    first = future(env)
    other = ManipulationEnv(within="generator", **options) if fresh else env
    other.reset(seed=99)
    other.step(np.ones(7))
    obs = other.set_state(state)
    assert same(other.features, features)
    assert same(other.get_state(), state)
    assert other.observation_space.contains(obs)
    assert digest(future(other)) == digest(first)


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
    slots = set()
    for seed in range(40):
        obs, _ = env.reset(seed=seed)
        assert same(env.reset(seed=seed)[0], obs)
        rows = object_table(obs["objects"])
        red = np.flatnonzero((rows[:, 17] > 0.8) & (rows[:, 20] == 1.0))
        assert len(red) == 1
        slots.add(int(red[0]))
    assert slots == set(range(6))
