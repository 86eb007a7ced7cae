"""The compiled loops: right by MuJoCo's own kinematics, the same in every row, cached on disk."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import mujoco
import numpy as np
import pytest
from env_cases import ENV_ID, FAMILY, make, same, scene, tray_scene

from coda_envs import robot
from coda_envs.arena import compile_scene
from coda_envs.errors import CodaError
from coda_envs.kernels import control, sense
from coda_envs.sensing import Sensor, SensorLayout, SensorRows

ROOT = Path(__file__).parents[1]
ARM = robot.arm_table()
LOWER, UPPER = ARM[9], ARM[10]


def random_joints(rng: np.random.Generator) -> np.ndarray:
    return rng.uniform(LOWER, UPPER)


# Control --------------------------------------------------------------------------------------


def mujoco_pose(joints: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Position, rotation and Jacobian of the point between the fingertips, as MuJoCo has them."""
    model, data = MODEL, mujoco.MjData(MODEL)
    addresses = [int(model.joint(name).qposadr[0]) for name in robot.ARM_JOINTS]
    dofs = [int(model.joint(name).dofadr[0]) for name in robot.ARM_JOINTS]
    data.qpos[addresses] = joints
    mujoco.mj_kinematics(model, data)
    mujoco.mj_comPos(model, data)
    site = model.site("tcp").id
    jacobian = np.zeros((6, model.nv))
    mujoco.mj_jacSite(model, data, jacobian[:3], jacobian[3:], site)
    return data.site_xpos[site], data.site_xmat[site].reshape(3, 3), jacobian[:, dofs]


MODEL = compile_scene(scene()).model


def test_the_arm_is_the_one_that_mujoco_simulates() -> None:
    rng = np.random.default_rng(0)
    controller = robot.Controller()
    for _ in range(200):
        joints = random_joints(rng)
        position, rotation, jacobian = mujoco_pose(joints)
        pose, found = np.empty(7), np.empty((6, 7))
        control.locate(ARM, joints, pose, found)
        assert np.allclose(pose[:3], position, rtol=0, atol=1e-10)
        assert np.allclose(found, jacobian, rtol=0, atol=1e-10)
        ours = controller.forward(joints)
        assert np.allclose(ours[0], position, rtol=0, atol=1e-10)
        assert np.allclose(ours[1], rotation, rtol=0, atol=1e-10)
    limits = [MODEL.joint(name).range for name in robot.ARM_JOINTS]
    assert np.array_equal(np.transpose(limits), (LOWER, UPPER))


def test_one_step_minimises_the_damped_error() -> None:
    rng = np.random.default_rng(1)
    controller = robot.Controller()
    damping, posture = ARM[12, 4], ARM[12, 5]
    for _ in range(50):
        joints = np.clip(robot.HOME + rng.normal(0, 0.2, 7), LOWER, UPPER)
        goal = np.clip(joints + rng.normal(0, 0.02, 7), LOWER, UPPER)
        controller.reset(goal)
        position, quat = controller.position.copy(), controller.quat.copy()
        controller.reset(joints)
        turn = np.empty(3)
        # MuJoCo gives the turn in the gripper's frame, the Jacobian is in the table's.
        mujoco.mju_subQuat(turn, quat, controller.quat.copy())
        at, rotation, jacobian = mujoco_pose(joints)
        error = np.concatenate([position - at, rotation @ turn])
        pull = posture * (np.array(robot.HOME) - joints)
        rows = np.vstack([jacobian, np.sqrt(damping) * np.eye(7)])
        wanted = np.concatenate([error, np.sqrt(damping) * pull])
        step = np.linalg.lstsq(rows, wanted, rcond=None)[0]
        assert controller.solve_pose(position, quat, 1) == pytest.approx(np.abs(error).sum())
        expected = np.clip(joints + step, LOWER, UPPER)
        assert np.allclose(controller.joints, expected, rtol=0, atol=1e-9)


def rows_of_control(n: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Random arguments of ``act`` for n environments: the arm near home, the target ahead."""
    rows = np.zeros((n, 15))
    poses = np.zeros((n, 7))
    for i in range(n):
        joints = np.clip(robot.HOME + rng.normal(0, 0.3, 7), LOWER, UPPER)
        control.locate(ARM, joints, poses[i], np.empty((6, 7)))
        rows[i, :7] = poses[i]
        rows[i, :3] += rng.uniform(-0.05, 0.05, 3)
        rows[i, 7:14] = joints
    actions = rng.uniform(-1.5, 1.5, (n, 7))
    return {"actions": actions, "poses": poses, "control": rows}


def act(given: dict[str, np.ndarray], envs: np.ndarray, targets: np.ndarray) -> int:
    return control.act(ARM, 2, given["actions"], envs, given["poses"], given["control"], targets)


def test_an_action_gives_the_same_bytes_alone_and_among_others() -> None:
    n = 64
    rng = np.random.default_rng(2)
    many = rows_of_control(n, rng)
    alone = {name: array.copy() for name, array in many.items()}
    targets = np.zeros((n, 4, 8))
    assert act(many, rng.permutation(n), targets) == -1
    for i in range(n):
        one = {name: array[i : i + 1] for name, array in alone.items()}
        blocks = np.zeros((1, 4, 8))
        assert act(one, np.zeros(1, dtype=np.int64), blocks) == -1
        assert same(one["control"][0], many["control"][i])
        assert same(blocks[0], targets[i])
    assert not np.array_equal(targets[0], targets[1])


def test_strides_do_not_matter() -> None:
    n = 3
    plain = rows_of_control(n, np.random.default_rng(3))
    wide = {name: np.repeat(array, 2, axis=1)[:, ::2] for name, array in plain.items()}
    assert not wide["control"].flags.c_contiguous
    targets = np.zeros((2, n, 2, 8))
    for given, out in zip((plain, wide), targets, strict=True):
        act(given, np.arange(n), out)
    assert same(targets[0], targets[1])
    assert same(plain["control"], np.ascontiguousarray(wide["control"]))


def test_only_the_rows_that_are_asked_for_change() -> None:
    given = rows_of_control(4, np.random.default_rng(4))
    before = given["control"].copy()
    targets = np.full((4, 2, 8), 7.0)
    act(given, np.array([2, 0]), targets)
    for i in (1, 3):
        assert same(given["control"][i], before[i])
        assert (targets[i] == 7.0).all()
    assert not np.array_equal(given["control"][2], before[2])


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf])
def test_a_number_that_is_not_finite_stops_every_row(wrong: float) -> None:
    given = rows_of_control(3, np.random.default_rng(5))
    given["actions"][1, 4] = wrong
    before = given["control"].copy()
    targets = np.zeros((3, 2, 8))
    assert act(given, np.array([0, 1, 2]), targets) == 7 * 1 + 4
    assert same(given["control"], before)
    assert not targets.any()
    # What no environment is asked to do is not looked at.
    assert act(given, np.array([0, 2]), targets) == -1


def test_joint_targets_stay_within_the_joints_limits() -> None:
    rng = np.random.default_rng(6)
    controller = robot.Controller()
    for _ in range(20):
        action = rng.choice([-1.0, 1.0], 7)
        for _ in range(30):
            # The gripper follows at once: nothing holds the target back.
            pose = np.concatenate([controller.position, controller.quat])[None]
            targets = controller.act(action, pose)
            assert (targets[:, :7] >= LOWER - 1e-12).all()
            assert (targets[:, :7] <= UPPER + 1e-12).all()
            assert np.linalg.norm(controller.quat) == pytest.approx(1.0, abs=1e-12)


def test_the_blocks_lead_straight_to_the_new_targets() -> None:
    controller = robot.Controller(blocks=4)
    before = controller.joints.copy()
    pose = np.concatenate([controller.position, controller.quat])[None]
    targets = controller.act(np.array([1.0, -1.0, 0.5, 0.0, 0.0, 1.0, 0.5]), pose).copy()
    assert same(targets[-1, :7], controller.joints)
    assert np.abs(controller.joints - before).max() > 0.01
    steps = np.diff(np.vstack([before, targets[:, :7]]), axis=0)
    assert np.allclose(steps, steps[0], rtol=0, atol=1e-15)
    assert targets[:, 7] == pytest.approx([robot.FINGER * 0.25] * 4)


def test_threads_do_not_disturb_one_another() -> None:
    n = 8
    given = rows_of_control(n, np.random.default_rng(7))
    expected = {name: array.copy() for name, array in given.items()}
    halves = np.arange(n // 2), np.arange(n // 2, n)
    together, apart = np.zeros((n, 2, 8)), np.zeros((n, 2, 8))
    for _ in range(200):
        act(expected, np.arange(n), together)

    def run(envs: np.ndarray) -> None:
        for _ in range(200):
            act(given, envs, apart)

    threads = [threading.Thread(target=run, args=(envs,)) for envs in halves]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert same(apart, together)
    assert same(given["control"], expected["control"])


# Sensing --------------------------------------------------------------------------------------


def states(count: int) -> list[Any]:
    """Environments of one topology in the middle of expert episodes, each with its own scene."""
    found = []
    for i in range(count):
        env = make(tray_scene(spatial__target__x=0.01 * i, attributes__target__size=0.018))
        env.reset(seed=i)
        expert = FAMILY.expert(i)
        for _ in range(25 + 6 * i):
            env.step(expert.act(env))
        found.append(env)
    return found


def test_many_simulations_are_read_like_each_alone() -> None:
    envs = states(4)
    n = len(envs)
    arrays = ("qpos", "qvel", "xpos", "xmat", "site_xpos", "site_xmat")
    stacked = [np.stack([getattr(env.data, name) for env in envs]) for name in arrays]
    rows = SensorRows(n + 1, FAMILY.schema)
    layout = SensorLayout.of(envs[0]._compiled, FAMILY.schema)
    # Environments in another order than simulations, and one row that belongs to nobody.
    sims, rank = np.array([2, 0, 3, 1]), np.array([4, 0, 1, 2])
    for sim, row in zip(sims, rank, strict=True):
        rows.load(row, envs[sim]._compiled, envs[sim]._order)
    pairs = [envs[sim].data.contact.geom for sim in sims]
    assert all(len(pair) for pair in pairs)
    ends = np.cumsum([len(pair) for pair in pairs])
    commands = np.zeros(n + 1)
    commands[rank] = [envs[sim]._controller.command.item() for sim in sims]
    sense.sense(
        *layout, sims, rank, *stacked, ends, rows.motion, rows.slots, commands,
        rows.poses, rows.features, rows.proprio, rows.objects, np.concatenate(pairs),
    )  # fmt: skip
    for sim, row in zip(sims, rank, strict=True):
        env = envs[sim]
        obs = env.set_state(env.get_state())
        assert same(rows.features[row], env.features)
        assert same(rows.proprio[row], obs["proprio"])
        assert same(rows.objects[row].ravel(), obs["objects"])
    assert not rows.features[3].any()
    assert not rows.proprio[3].any()


def test_a_contact_that_ends_leaves_no_flag() -> None:
    env = make()
    touching = FAMILY.schema.index("target.table")
    assert env.features[touching] == 1.0
    env.data.joint("target").qpos[2] += 0.1
    env.set_state(env.get_state())
    assert env.features[touching] == 0.0


def test_what_the_sensor_hands_out_is_a_copy() -> None:
    env = make()
    sensor = Sensor(env._compiled, env.data, FAMILY.schema)
    sensor.arrange(env._order)
    handed = sensor.read(), sensor.proprio(), sensor.objects()
    for array in handed:
        array[:] = 9.0
    assert same(sensor.proprio(), env._sensor.proprio())
    assert same(sensor.objects(), env._sensor.objects())
    assert same(sensor.read(), env.features)


def test_features_keep_their_meaning_in_the_hand() -> None:
    env = states(1)[0]
    while not env._success and env.features[FAMILY.schema.index("target.left")] < 0.5:
        env.step(FAMILY.expert(0).act(env))
    site, body = env.model.site("tcp").id, env.data.body("target")
    value = dict(zip(FAMILY.schema.names, env.features, strict=True))
    assert value["target.left"] == 1.0
    assert [value[f"gripper.{c}"] for c in "xyz"] == list(env.data.site_xpos[site])
    assert [value[f"target.{c}"] for c in "xyz"] == list(body.xpos)
    assert value["target.upright"] == body.xmat[8]
    assert value["target.speed"] == pytest.approx(np.linalg.norm(env.data.joint("target").qvel[:3]))
    assert value["target.spin"] == pytest.approx(np.linalg.norm(env.data.joint("target").qvel[3:]))
    fingers = [env.data.joint(f"{side}_slide").qpos.item() for side in ("left", "right")]
    assert value["gripper.opening"] == pytest.approx(sum(fingers))
    touched = {frozenset(pair) for pair in env.data.contact.geom.tolist()}
    named = {"left": "left_pad", "right": "right_pad", "table": "table"}
    target = env.model.geom("target").id
    for column, other in named.items():
        meets = frozenset((target, env.model.geom(other).id)) in touched
        assert value[f"target.{column}"] == float(meets)


# Compiling ------------------------------------------------------------------------------------


def test_arrays_of_other_types_are_refused_rather_than_compiled() -> None:
    given = rows_of_control(1, np.random.default_rng(0))
    given["actions"] = given["actions"].astype(np.float32)
    with pytest.raises(TypeError, match="No matching definition"):
        act(given, np.zeros(1, dtype=np.int64), np.zeros((1, 1, 8)))


def python(code: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, **variables},
    )


STEP = f"""
import gymnasium, numpy, coda_envs
env = gymnasium.make({ENV_ID!r})
obs, _ = env.reset(seed=0)
obs, *_ = env.step(numpy.full(7, 0.5, dtype=numpy.float32))
from coda_envs.kernels import control, sense
kernels = (control.act, sense.sense, sense.diverged)
print(sum(sum(kernel.stats.cache_hits.values()) for kernel in kernels))
print(obs["proprio"].tobytes().hex())
"""


@pytest.mark.slow
def test_a_second_process_takes_the_kernels_from_the_cache(tmp_path: Path) -> None:
    first, second = (python(STEP, NUMBA_CACHE_DIR=str(tmp_path)) for _ in range(2))
    assert first.stdout.startswith("0\n"), first.stderr
    assert second.stdout.startswith("3\n"), second.stderr
    assert first.stdout.split()[1] == second.stdout.split()[1]


def test_without_a_folder_for_the_cache_the_error_names_the_remedy(tmp_path: Path) -> None:
    # Where a file stands, nobody can make a folder, not even root.
    package = tmp_path / "coda_envs"
    (package / "kernels").mkdir(parents=True)
    for path in ("__init__.py", "errors.py", "kernels/__init__.py", "kernels/compiled.py"):
        source = ROOT / "coda_envs" / path
        (package / path).write_text("" if path == "__init__.py" else source.read_text())
    (package / "kernels" / "some.py").write_text(
        "from coda_envs.kernels.compiled import REAL, kernel\n"
        "@kernel(REAL, REAL)\n"
        "def twice(x: float) -> float:\n"
        "    return 2.0 * x\n"
    )
    (package / "kernels" / "__pycache__").write_text("")
    (tmp_path / "home").write_text("")
    home = {"HOME": str(tmp_path / "home"), "XDG_CACHE_HOME": str(tmp_path / "home")}
    code = "from coda_envs.kernels import some; print(some.twice(2.0))"
    variables = {"PYTHONPATH": str(tmp_path), "PYTHONSAFEPATH": "1", "NUMBA_CACHE_DIR": "", **home}
    done = python(code, **variables)
    assert CodaError.__name__ in done.stderr
    assert "set the variable NUMBA_CACHE_DIR to a folder that can be written" in done.stderr
    cache = tmp_path / "cache"
    done = python(code, **variables | {"NUMBA_CACHE_DIR": str(cache)})
    assert done.stdout == "4.0\n", done.stderr
    assert list(cache.rglob("*.nbc"))
