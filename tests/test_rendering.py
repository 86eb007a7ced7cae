"""Pictures, distances and labels: upright, where the camera's geometry says, independent of one
another."""

from __future__ import annotations

import gc
import math
import subprocess
import sys

import gymnasium as gym
import mujoco
import numpy as np
import pytest
from env_cases import ENV_ID, make, place, same, scene, tilted, tray_scene

from coda_envs.cameras import DEPTH_BOUND
from coda_envs.env import ManipulationEnv
from coda_envs.errors import SceneError
from coda_envs.registration import BUILT_IN_IDS
from coda_envs.sensing import SLOT_COLUMNS, object_table

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


def seen_points(env: ManipulationEnv, camera: str, depth: np.ndarray) -> np.ndarray:
    """Points ``[h, w, 3]`` of the table frame that the pixels' middles show at these distances."""
    height, width = depth.shape
    index = env.model.camera(camera).id
    right, up, back = env.data.cam_xmat[index].reshape(3, 3).T
    focal = 0.5 * height / math.tan(math.radians(env.model.cam_fovy[index]) / 2)
    rows, columns = np.mgrid[0:height, 0:width] + 0.5
    rays = (
        ((columns - width / 2) / focal)[..., None] * right
        - ((rows - height / 2) / focal)[..., None] * up
        - back
    )
    return env.data.cam_xpos[index] + depth[..., None] * rays


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


# Distances and labels ---------------------------------------------------------------------------


@pytest.mark.parametrize("camera", CAMERAS)
def test_depth_is_the_distance_to_table_and_things(camera: str) -> None:
    env = make(RED)
    place(env, "target", (0.0, 0.0, 0.02))
    depth = env.depth(camera, *CAMERAS[camera])
    assert depth.shape == CAMERAS[camera]
    assert depth.dtype == np.float32
    points = seen_points(env, camera, depth)
    # The cube's top, the table twice and the plate's top, all seen well inside their edges.
    for x, y, z in [(0.0, 0.0, 0.04), (0.0, -0.06, 0.0), (0.08, -0.04, 0.0), (0.02, 0.09, 0.01)]:
        row, column = np.round(projected(env, camera, np.array([x, y, z])) - 0.5).astype(int)
        assert points[row, column] == pytest.approx([x, y, z], abs=0.003)
        assert points[row, column, 2] == pytest.approx(z, abs=0.0005)
    env.close()


def test_looking_changes_neither_the_state_nor_the_next_look() -> None:
    env = make(tray_scene())
    state, picture = env.get_state(), env.picture("wrist", 64, 64)
    depth, labels = env.depth("wrist", 64, 64), env.segmentation("wrist", 64, 64)
    assert same(env.picture("wrist", 64, 64), picture)
    assert same(env.depth("wrist", 64, 64), depth)
    assert same(env.segmentation("wrist", 64, 64), labels)
    assert same(env.get_state(), state)
    env.close()


def test_nothing_is_as_far_as_the_far_plane_and_bounded_when_observed() -> None:
    env = make(RED, obs_mode="rgb", image_size=64, image_channels=["depth"])
    away = env.picture("agentview", 64, 64)[0, -1]
    assert env.depth("agentview", 64, 64)[0, -1] == pytest.approx(50.0)
    assert away[2] > away[0]
    obs, _ = env.reset(seed=0)
    observed = obs["agentview_depth"].reshape(64, 64)
    assert observed.max() == np.float32(DEPTH_BOUND)
    near = observed < DEPTH_BOUND
    assert 0.2 < near.mean() < 1.0
    assert same(observed[near], env.depth("agentview", 64, 64)[near])
    env.close()


def label_of(env: ManipulationEnv, geom: int) -> int:
    """Label of the innermost thing whose body holds a geom, directly or in a part of it."""
    body = env.model.geom_bodyid[geom]
    while body:
        if (name := env.model.body(body).name) in env.entity_roles:
            return 1 + env.entity_roles.index(name)
        body = env.model.body_parentid[body]
    return 0


@pytest.mark.parametrize("camera", CAMERAS)
@pytest.mark.parametrize("env_id", BUILT_IN_IDS.values())
def test_every_label_lies_on_its_thing(env_id: str, camera: str) -> None:
    env = gym.make(env_id, within="generator").unwrapped
    compared = 0
    for seed in range(3):
        env.reset(seed=seed)
        labels = env.segmentation(camera, 120, 160)
        points = seen_points(env, camera, env.depth(camera, 120, 160))
        assert labels.dtype == np.int32
        # Labels of the geoms whose boxes a point touches; the table itself is a plane without one.
        touched = np.zeros((*labels.shape, 1 + len(env.entity_roles)), dtype=bool)
        touched[..., 0] = np.abs(points[..., 2]) < 1e-3
        for geom in np.flatnonzero(env.model.geom_type != mujoco.mjtGeom.mjGEOM_PLANE):
            offset = points - env.data.geom_xpos[geom]
            local = np.abs(offset @ env.data.geom_xmat[geom].reshape(3, 3))
            on = (local < env.model.geom_aabb[geom, 3:] + 1e-3).all(-1)
            touched[..., label_of(env, geom)] |= on
        certain = touched.sum(-1) == 1
        assert (labels[certain] == touched[certain].argmax(-1)).all()
        compared += int((labels[certain] > 0).sum())
        assert np.take_along_axis(touched, labels[..., None], -1)[labels > 0].all()
    assert compared > 200
    env.close()


def test_a_label_that_is_observed_is_a_row_of_the_object_table() -> None:
    env = make(RED, obs_mode="rgb+state", image_size=128, image_channels=["segmentation"])
    rows = {SLOT_COLUMNS.index(axis): i for i, axis in enumerate("xyz")}
    labels_of_target = set()
    for seed in range(12):
        obs, _ = env.reset(seed=seed)
        labels = obs["agentview_segmentation"][..., 0]
        table = object_table(obs["objects"])
        points = seen_points(env, "agentview", env.depth("agentview", 128, 128))
        found = set(np.unique(labels).tolist()) - {0}
        assert found == set((1 + np.flatnonzero(table[:, SLOT_COLUMNS.index("present")])).tolist())
        for label in found:
            middle = points[labels == label].mean(0)
            assert middle == pytest.approx(table[label - 1][list(rows)], abs=0.03)
        target = env.segmentation("agentview", 128, 128) == 1 + env.entity_roles.index("target")
        labels_of_target |= set(labels[target].tolist())
    # No label means "target" in every episode.
    assert len(labels_of_target) > 3
    env.close()


@pytest.mark.parametrize(
    ("camera", "height", "width", "named"),
    [
        ("agentveiw", 64, 64, "no camera 'agentveiw'.*did you mean 'agentview'"),
        ("wrist", 2000, 64, "2000 × 64.*960 × 1280"),
        ("wrist", 64, 0, "64 × 0"),
    ],
)
def test_a_picture_that_cannot_be_taken_is_refused(
    camera: str, height: int, width: int, named: str
) -> None:
    env = make(RED)
    for channel in (env.picture, env.depth, env.segmentation):
        with pytest.raises(SceneError, match=named):
            channel(camera, height, width)
