"""The window that shows an episode, and videos that Gymnasium records of one."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
from env_cases import ENV_ID, FAMILY, scene


def bare(**variables: str) -> dict[str, str]:
    """The environment variables of a machine without a display, and these."""
    return {"PYTHONPATH": ":".join(p for p in sys.path if p), **variables}


def test_without_a_display_a_window_is_refused_with_the_remedy_at_the_first_reset() -> None:
    code = (
        "import coda_envs, gymnasium as gym\n"
        "from coda_envs.errors import CodaError\n"
        f"env = gym.make({ENV_ID!r}, render_mode='human')\n"
        "assert env.unwrapped.metadata['render_modes'] == ['rgb_array']\n"
        "try: env.reset(seed=0)\n"
        "except CodaError as error: print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        env=bare(), capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.startswith("render_mode='human' cannot open a window: ")
    assert "DISPLAY" in done.stdout
    assert "render_mode='rgb_array'" in done.stdout
    assert done.stderr == ""


#: Watch an episode, close the window as a person does, go on; a second window is left open.
WATCH = f"""
import sys
import coda_envs, glfw, gymnasium as gym
from env_cases import digest, playback
plain, watched = (
    gym.make({ENV_ID!r}, within="generator", obs_mode="rgb", image_size=32, render_mode=mode)
    for mode in (None, "human")
)
first, second = (
    digest([list(playback(env.unwrapped, seed, steps=4)) for seed in (0, 1)])
    for env in (plain, watched)
)
print(first == second, watched.unwrapped.render())
with open(sys.argv[1], "rb") as screen:
    print(any(screen.read()[-400_000:]))
glfw.set_window_should_close(watched.unwrapped._window._window, True)
list(playback(watched.unwrapped, 2, steps=2))
watched.close()
watched.reset(seed=0)
"""


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("Xvfb") is None, reason="needs Xvfb")
@pytest.mark.parametrize("driver", ["glfw", "egl"])
def test_a_window_shows_the_episode_and_changes_nothing(driver: str, tmp_path: Path) -> None:
    reading, writing = os.pipe()
    # Xvfb chooses a free display, and keeps the picture on its screen in a file.
    options = ["-displayfd", str(writing), "-fbdir", str(tmp_path), "-screen", "0", "1024x768x24"]
    server = subprocess.Popen(["Xvfb", *options], pass_fds=[writing], stderr=subprocess.DEVNULL)
    os.close(writing)
    try:
        with open(reading) as pipe:
            display = f":{pipe.readline().strip()}"
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", WATCH, str(tmp_path / "Xvfb_screen0")],
            env=bare(DISPLAY=display, MUJOCO_GL=driver), capture_output=True, text=True, check=True,
        )  # fmt: skip
    finally:
        server.terminate()
        server.wait()
    assert done.stdout.split("\n")[:2] == ["True None", "True"]
    assert done.stderr == ""


def test_a_recorded_video_has_every_frame_at_the_control_rate(tmp_path: Path) -> None:
    pytest.importorskip("moviepy", reason="gymnasium.wrappers.RecordVideo needs moviepy")
    import imageio_ffmpeg

    env = gym.make(ENV_ID, scene=scene().to_dict(), render_mode="rgb_array", control_hz=10,
                   render_size=[96, 128])  # fmt: skip
    env = gym.wrappers.RecordVideo(env, str(tmp_path / "videos"))
    env.reset(seed=0)
    expert, frames, ended = FAMILY.expert(), 1, False
    while not ended:
        _, _, terminated, truncated, info = env.step(expert.act(env.unwrapped))
        frames, ended = frames + 1, terminated or truncated
    env.close()
    assert info["success"]
    path = str(tmp_path / "videos" / "rl-video-episode-0.mp4")
    count, seconds = imageio_ffmpeg.count_frames_and_secs(path)
    assert count == frames
    assert seconds == pytest.approx(frames / 10, abs=0.05)
    reader = imageio_ffmpeg.read_frames(path)
    assert next(reader)["fps"] == 10
    picture = np.frombuffer(next(reader), dtype=np.uint8).reshape(96, 128, 3)
    reader.close()
    env.reset(seed=0)
    drawn = env.render().astype(int)
    env.close()
    assert np.abs(picture - drawn).mean() < 8
