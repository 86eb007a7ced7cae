"""The arm: the convention of its pose, its controller and its gripper."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from env_cases import column, make, rest, same
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial.transform import Rotation

from coda_envs import robot
from coda_envs.sensing import axis_angle

angles = st.floats(-4 * math.pi, 4 * math.pi, allow_nan=False)
units = st.tuples(*[st.floats(-1, 1)] * 3).filter(lambda v: math.hypot(*v) > 0.01)
#: No component is so small that it could be rounding.
plain_units = st.tuples(*[st.integers(-100, 100)] * 3).filter(any)


@given(units, angles)
def test_axis_angle_is_the_rotation_with_an_angle_of_at_most_pi(
    axis: tuple[float, float, float], angle: float
) -> None:
    turn = Rotation.from_rotvec(np.array(axis) / math.hypot(*axis) * angle)
    found = axis_angle(turn.as_matrix())
    assert np.linalg.norm(found) <= math.pi + 1e-12
    assert (Rotation.from_rotvec(found).inv() * turn).magnitude() < 1e-7


@given(plain_units)
def test_at_half_a_turn_the_first_component_is_positive(axis: tuple[int, int, int]) -> None:
    unit = np.array(axis) / math.hypot(*axis)
    ways = [axis_angle(Rotation.from_rotvec(s * math.pi * unit).as_matrix()) for s in (1, -1)]
    assert np.allclose(ways[0], ways[1], atol=1e-6)
    assert next(c for c in ways[0] if abs(c) > 1e-6) > 0
    assert math.isclose(float(np.linalg.norm(ways[0])), math.pi, abs_tol=1e-6)


def test_the_gripper_points_down_at_reset() -> None:
    env = make()
    obs, _ = env.reset(seed=0)
    # Straight down is half a turn about x: (π, 0, 0), or its negative a hair beyond.
    assert np.allclose(np.abs(obs["proprio"][3:6]), (math.pi, 0, 0), atol=0.01)
    assert np.allclose(obs["proprio"][:3], (-0.05, 0, 0.24), atol=0.01)
    assert column(env, "gripper.tilt") == pytest.approx(1.0, abs=1e-4)
    assert column(env, "gripper.yaw") == pytest.approx(0.0, abs=0.01)


@pytest.mark.parametrize("axis", [3, 4])
def test_turning_through_straight_down_jumps_by_sign_alone(axis: int) -> None:
    env = make(max_steps=1000)
    action = np.zeros(7)
    action[axis], action[6] = -0.3, -1.0
    for _ in range(5):
        env.step(action)
    rest(env, 0.5)
    action[axis] = 0.03
    poses = []
    for _ in range(200):
        obs, *_ = env.step(action)
        poses.append(obs["proprio"][3:6].astype(float))
    assert column(env, "gripper.tilt") < 1.0 - 1e-3
    lengths = [float(np.linalg.norm(pose)) for pose in poses]
    assert max(lengths) <= math.pi + 1e-6
    for before, after in itertools.pairwise(poses):
        turns = Rotation.from_rotvec(before), Rotation.from_rotvec(after)
        assert (turns[0].inv() * turns[1]).magnitude() < 0.05
        near = np.linalg.norm(after - before) < 0.05
        flipped = np.linalg.norm(after + before) < 0.1
        assert near or flipped


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_a_translation_moves_the_gripper_along_its_axis(axis: int, sign: float) -> None:
    env = make()
    start, _ = env.reset(seed=0)
    action = np.zeros(7)
    action[axis], action[6] = 0.6 * sign, -1.0
    obs, *_ = env.step(action)
    rest(env, 0.5)
    obs, *_ = env.step(np.array([0, 0, 0, 0, 0, 0, -1.0]))
    moved = obs["proprio"][:3] - start["proprio"][:3]
    wanted = np.eye(3)[axis] * 0.6 * sign * robot.POSITION_SCALE
    assert np.allclose(moved, wanted, atol=0.004)


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_a_turn_is_about_an_axis_of_the_table(axis: int, sign: float) -> None:
    env = make()
    start, _ = env.reset(seed=0)
    action = np.zeros(7)
    action[3 + axis], action[6] = 0.4 * sign, -1.0
    env.step(action)
    rest(env, 1.0)
    obs, *_ = env.step(np.array([0, 0, 0, 0, 0, 0, -1.0]))
    before, after = (Rotation.from_rotvec(o["proprio"][3:6]) for o in (start, obs))
    turned = (after * before.inv()).as_rotvec()
    wanted = np.eye(3)[axis] * 0.4 * sign * robot.ROTATION_SCALE
    assert np.allclose(turned, wanted, atol=0.02)
    assert np.allclose(obs["proprio"][:3], start["proprio"][:3], atol=0.004)


def test_plus_one_closes_the_gripper_and_minus_one_opens_it() -> None:
    env = make()
    close, open_ = np.zeros(7), np.zeros(7)
    close[6], open_[6] = 1.0, -1.0
    for action, gap in ((close, 0.0), (open_, 2 * robot.FINGER)):
        for _ in range(20):
            obs, *_ = env.step(action)
        assert column(env, "gripper.opening") == pytest.approx(gap, abs=0.004)
        left, right = obs["proprio"][6:]
        assert left == pytest.approx(-right, abs=0.002)


def test_a_blocked_arm_does_not_wind_up() -> None:
    env = make(max_steps=1000)
    down, up = np.zeros(7), np.zeros(7)
    down[2], down[6] = -1.0, -1.0
    up[2], up[6] = 1.0, -1.0
    for _ in range(60):
        obs, *_ = env.step(down)
    lowest = obs["proprio"][2]
    for _ in range(5):
        obs, *_ = env.step(up)
    assert obs["proprio"][2] > lowest + 0.05


def test_the_same_joints_give_the_same_controller_whatever_it_did() -> None:
    fresh, used = robot.Controller(), robot.Controller()
    fresh.reset(np.array(robot.HOME))
    used.reset(np.array(robot.HOME) + 0.1)
    for _ in range(5):
        position, _ = used.forward(used.joints)
        used.move(np.ones(7), position, used.quat.copy())
    used.reset(np.array(robot.HOME))
    for controller in (fresh, used):
        controller.move(np.full(7, 0.5), controller.position.copy(), controller.quat.copy())
    assert same(fresh.joints, used.joints)


def test_inverse_kinematics_finds_a_reachable_pose_and_admits_an_unreachable_one() -> None:
    down = np.array([0.0, 1.0, 0.0, 0.0])
    controller = robot.Controller()
    controller.reset(np.array(robot.HOME))
    assert controller.solve_pose(np.array([0.05, 0.1, 0.1]), down) < 1e-3
    position, matrix = controller.forward(controller.joints)
    assert np.allclose(position, (0.05, 0.1, 0.1), atol=1e-3)
    assert matrix[2, 2] == pytest.approx(-1.0, abs=1e-3)
    controller.reset(np.array(robot.HOME))
    assert controller.solve_pose(np.array([1.5, 0.0, 0.1]), down) > 0.1
