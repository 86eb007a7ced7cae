"""One environment: endings, diverging physics, the instruction, wrong options, what is drawn.

What holds of every id is in test_gymnasium.py.
"""

from __future__ import annotations

import logging
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from env_cases import ENV_ID, FAMILY, column, make, place, same, scene
from hypothesis import given
from hypothesis import strategies as st

from coda_envs.env import ManipulationEnv
from coda_envs.errors import SceneError
from coda_envs.instruction import INSTRUCTION_BYTES, decode_instruction, encode_instruction

STAY = np.zeros(7, dtype=np.float32)


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
        ({"render_mode": "ascii"}, "render_mode='ascii'"),
        ({"max_steps": 0}, "max_steps is 0"),
        ({"image_size": 4000}, "16 to 960"),
        ({"image_channels": ["rgb", "normals"]}, "'rgb', 'depth', 'segmentation'"),
        ({"image_channels": []}, "image_channels="),
        ({"image_channels": "rgb"}, "image_channels='rgb'"),
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
