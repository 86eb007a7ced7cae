"""Pictures: upright, not mirrored, where the camera's geometry says, independent of one another."""

from __future__ import annotations

import gc
import math
import subprocess
import sys

import gymnasium as gym
import numpy as np
import pytest
from env_cases import ENV_ID, make, place, same, scene, tilted, tray_scene

from coda_envs.env import ManipulationEnv

CAMERAS = {"agentview": (480, 640), "wrist": (320, 320)}
#: Its target is the only red thing.
RED = scene()


def red_pixels(picture: np.ndarray) -> np.ndarray:
    """Rows and columns ``[n, 2]`` of the pixels that are clearly red."""
    red, green, blue = (picture[..., i].astype(int) for i in range(3))
    return np.argwhere((red > 90) & (red > 2 * green) & (red > 2 * blue))


def projected(env: ManipulationEnv, camera: str, point: np.ndarray) -> np.ndarray:
    """Row and column at which a pinhole camera sees a point of the table frame."""
    height, width = CAMERAS[camera]
    index = env.model.camera(camera).id
    right, up, back = env.data.cam_xmat[index].reshape(3, 3).T
    ray = point - env.data.cam_xpos[index]
    scale = 0.5 * height / math.tan(math.radians(env.model.cam_fovy[index]) / 2) / -(ray @ back)
    return np.array([height / 2 - scale * (ray @ up), width / 2 + scale * (ray @ right)])


@pytest.mark.parametrize("camera", CAMERAS)
@pytest.mark.parametrize("x", [-0.05, 0.08])
@pytest.mark.parametrize("y", [-0.1, 0.0, 0.1])
def test_an_object_appears_where_the_camera_sees_it(camera: str, x: float, y: float) -> None:
    env = make(RED)
    place(env, "target", (x, y, 0.02))
    found = red_pixels(env.picture(camera, *CAMERAS[camera]))
    assert len(found) > 100
    assert np.linalg.norm(found.mean(0) - projected(env, camera, np.array([x, y, 0.02]))) < 8
    env.close()


def test_the_main_camera_stands_upright_at_the_robots_side() -> None:
    env = make(RED)
    shape = CAMERAS["agentview"]

    def at(x: float, y: float, z: float) -> np.ndarray:
        place(env, "target", (x, y, z))
        return red_pixels(env.picture("agentview", *shape)).mean(0)

    row, column = at(0.05, -0.1, 0.02)
    # Higher up is higher in the picture; away from the robot and to its right is rightwards.
    assert at(0.05, -0.1, 0.12)[0] < row - 20
    assert at(0.15, -0.1, 0.02)[1] > column + 20
    assert at(0.05, 0.1, 0.02)[1] < column - 20
    env.close()


def test_the_wrist_camera_has_the_fingertips_on_top_and_is_not_mirrored() -> None:
    env = make(RED)
    shape = CAMERAS["wrist"]
    picture = env.picture("wrist", *shape)
    colourful = np.ptp(picture.astype(int), axis=2) > 20
    fingers = np.argwhere((picture.sum(2) < 250) & ~colourful)
    assert len(fingers) > 500
    assert fingers[:, 0].max() < shape[0] / 3

    def at(x: float, y: float) -> np.ndarray:
        place(env, "target", (x, y, 0.02))
        return red_pixels(env.picture("wrist", *shape)).mean(0)

    row, column = at(0.0, 0.0)
    # Away from the robot is down in the picture, the robot's left is right.
    assert at(0.05, 0.0)[0] > row + 10
    assert at(0.0, 0.05)[1] > column + 10
    env.close()


@pytest.mark.parametrize("camera", CAMERAS)
def test_a_yaw_of_90_degrees_turns_the_bar(camera: str) -> None:
    def extent(env: ManipulationEnv) -> np.ndarray:
        found = red_pixels(env.picture(camera, *CAMERAS[camera]))
        return np.asarray(found.max(0) - found.min(0), dtype=float)

    level = make(scene(attributes__target__shape="bar", spatial__target__yaw=0.0))
    turned = make(scene(attributes__target__shape="bar", spatial__target__yaw=1.5707))
    by_state = make(scene(attributes__target__shape="bar", spatial__target__yaw=0.0))
    # The same turn as a quaternion w, x, y, z.
    place(by_state, "target", (0.0, -0.1, 0.02), tilted(math.pi / 2, (0, 0, 1)))
    shape = CAMERAS[camera]
    pictures = [e.picture(camera, *shape).astype(int) for e in (turned, by_state)]
    assert np.abs(pictures[0] - pictures[1]).mean() < 0.2
    if camera == "wrist":
        rows, columns = extent(level)
        assert rows > 1.5 * columns
        rows, columns = extent(turned)
        assert columns > 1.5 * rows
    else:
        assert np.abs(pictures[0] - level.picture(camera, *shape)).max() > 100
    for env in (level, turned, by_state):
        env.close()


def test_render_gives_the_documented_picture() -> None:
    env = gym.make(ENV_ID, render_mode="rgb_array")
    env.reset(seed=0)
    picture = env.render()
    assert picture.shape == (480, 640, 3)
    assert picture.dtype == np.uint8
    assert picture.std() > 20
    assert same(picture, env.unwrapped.picture("agentview", 480, 640))
    env.close()
    small = gym.make(ENV_ID, render_mode="rgb_array", render_size=[48, 96])
    small.reset(seed=0)
    assert small.render().shape == (48, 96, 3)
    small.close()


def test_a_picture_shows_the_current_state_and_is_the_callers_own() -> None:
    env = make(obs_mode="rgb", image_size=64)
    obs, *_ = env.step(np.ones(7))
    kept = {name: part.copy() for name, part in obs.items()}
    obs["agentview"][:] = 0
    later, *_ = env.step(np.ones(7))
    assert not same(later["agentview"], kept["agentview"])
    assert later["agentview"].std() > 10
    assert same(env.picture("agentview", 64, 64), later["agentview"])
    env.close()


def test_pictures_do_not_depend_on_other_environments() -> None:
    one, two = make(scene()), make(tray_scene())
    first, second = (e.picture("agentview", 96, 96) for e in (one, two))
    one.close()
    assert same(two.picture("agentview", 96, 96), second)
    # A closed environment draws again when asked, and one that is forgotten disturbs nobody.
    assert same(one.picture("agentview", 96, 96), first)
    del one
    gc.collect()
    assert same(two.picture("agentview", 96, 96), second)
    two.close()
    two.close()


def test_one_renderer_draws_scene_after_scene() -> None:
    env = make(scene())
    first = env.picture("agentview", 96, 96)
    env.reset(options={"scene": tray_scene()})
    fresh = make(tray_scene())
    assert same(env.picture("agentview", 96, 96), fresh.picture("agentview", 96, 96))
    env.reset(options={"scene": scene()})
    assert same(env.picture("agentview", 96, 96), first)
    env.close()
    fresh.close()


def test_an_environment_that_was_never_closed_ends_without_noise() -> None:
    code = (
        "import coda_envs, gymnasium as gym\n"
        f"env = gym.make({ENV_ID!r}, obs_mode='rgb', image_size=32)\n"
        "env.reset(seed=0)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": ":".join(p for p in sys.path if p)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == ""
    assert done.stderr == ""
