"""The arm: a primitive Panda (capsules, box fingers, no meshes), its controller, its gripper.

Kinematics, joint limits, masses and inertias are the values Franka Robotics publishes for the
Panda (see NOTICE); shapes, gripper and gains are this project's own.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import mujoco
import numpy as np

from coda_envs.actions import as_actions, not_finite

#: Where the arm's base stands in the table frame (m).
BASE = (-0.5, 0.0, 0.0)

#: Physics time step (s), and the contact settings that hold a grasped object without slip.
TIMESTEP = 0.005

# (name, position in the parent (m), quaternion in the parent (w, x, y, z), range (rad),
#  mass (kg), centre of mass (m), full inertia xx yy zz xy xz yz (kg m²))
_S = 0.7071067811865476
_LINKS = (
    ("link1", (0, 0, 0.333), (1, 0, 0, 0), (-2.8973, 2.8973), 4.970684,
     (3.875e-3, 2.081e-3, -0.1750),
     (0.70337, 0.70661, 9.1170e-3, -1.3900e-4, 6.7720e-3, 1.9169e-2)),
    ("link2", (0, 0, 0), (_S, -_S, 0, 0), (-1.7628, 1.7628), 0.646926,
     (-3.141e-3, -2.872e-2, 3.495e-3),
     (7.9620e-3, 2.8110e-2, 2.5995e-2, -3.9250e-3, 1.0254e-2, 7.0400e-4)),
    ("link3", (0, -0.316, 0), (_S, _S, 0, 0), (-2.8973, 2.8973), 3.228604,
     (2.7518e-2, 3.9252e-2, -6.6502e-2),
     (3.7242e-2, 3.6155e-2, 1.0830e-2, -4.7610e-3, -1.1396e-2, -1.2805e-2)),
    ("link4", (0.0825, 0, 0), (_S, _S, 0, 0), (-3.0718, -0.0698), 3.587895,
     (-5.317e-2, 1.04419e-1, 2.7454e-2),
     (2.5853e-2, 1.9552e-2, 2.8323e-2, 7.7960e-3, -1.3320e-3, 8.6410e-3)),
    ("link5", (-0.0825, 0.384, 0), (_S, -_S, 0, 0), (-2.8973, 2.8973), 1.225946,
     (-1.1953e-2, 4.1065e-2, -3.8437e-2),
     (3.5549e-2, 2.9474e-2, 8.6270e-3, -2.1170e-3, -4.0370e-3, 2.2900e-4)),
    ("link6", (0, 0, 0), (_S, _S, 0, 0), (-0.0175, 3.7525), 1.666555,
     (6.0149e-2, -1.4117e-2, -1.0517e-2),
     (1.9640e-3, 4.3540e-3, 5.4330e-3, 1.0900e-4, -1.1580e-3, 3.4100e-4)),
    ("link7", (0.088, 0, 0), (_S, _S, 0, 0), (-2.8973, 2.8973), 0.735522,
     (1.0517e-2, -4.252e-3, 6.1597e-2),
     (1.2516e-2, 1.0027e-2, 4.8150e-3, -4.2800e-4, -1.1960e-3, -7.4100e-4)),
)  # fmt: skip

# Capsules of each link in its own frame: (from (m), to (m), radius (m)).
_CAPSULES = {
    "link1": ((0, 0, -0.20), (0, 0, 0.0), 0.06),
    "link2": ((0, -0.02, 0), (0, -0.19, 0), 0.06),
    "link3": ((0, 0, -0.12), (0.06, 0, 0), 0.055),
    "link4": ((0, 0, 0), (-0.0825, 0.10, 0), 0.055),
    "link5": ((0, 0, -0.27), (0, 0.06, -0.06), 0.05),
    "link6": ((0, 0, 0), (0.088, 0, 0), 0.05),
    "link7": ((0, 0, -0.02), (0, 0, 0.075), 0.045),
}

_KP = (4500.0, 4500.0, 3500.0, 3500.0, 2000.0, 2000.0, 2000.0)
# Close to critical damping for the inertia each joint carries: the arm follows within one step.
_KV = (200.0, 200.0, 150.0, 150.0, 60.0, 60.0, 60.0)
_FORCE = (87.0, 87.0, 87.0, 87.0, 12.0, 12.0, 12.0)

#: The hand sits 107 mm beyond link 7, turned by -45 degrees.
_HAND, _HAND_QUAT = 0.107, (0.9238795325, 0.0, 0.0, -0.3826834324)
#: Distance from the flange's hand frame to the point between the fingertips (m).
_TCP = 0.1034
#: Most a finger opens (m); the gap between the pads is twice that.
FINGER = 0.04

#: Bits of the contact masks: the robot meets objects and table, never itself.
ROBOT_BITS = (1, 2)
WORLD_BITS = (2, 3)

_WHITE = (0.93, 0.93, 0.94, 1.0)
_DARK = (0.22, 0.23, 0.25, 1.0)
_PAD = (0.35, 0.36, 0.38, 1.0)

ARM_JOINTS = tuple(f"joint{i}" for i in range(1, 8))
#: Joint angles at reset: the gripper points down, 24 cm over (-0.05, 0) of the table (rad).
HOME = (0.0, -0.16713164, 0.0, -2.50741097, 0.0, 2.34027810, 0.78539816)


def configure(spec: mujoco.MjSpec) -> None:
    """Set the physics options every scene shares."""
    option = spec.option
    option.timestep = TIMESTEP
    option.integrator = mujoco.mjtIntegrator.mjINT_DISCRETE
    option.solver = mujoco.mjtSolver.mjSOL_NEWTON
    option.iterations = 20
    option.ls_iterations = 20
    option.cone = mujoco.mjtCone.mjCONE_ELLIPTIC
    option.impratio = 10.0
    option.jacobian = mujoco.mjtJacobian.mjJAC_DENSE
    spec.compiler.autolimits = True
    spec.compiler.degree = False


def add_arm(spec: mujoco.MjSpec) -> mujoco.MjsBody:
    """Add the seven links and the hand; returns the hand's body."""
    body = spec.worldbody.add_body(name="link0", pos=BASE)
    _shape(body, "link0", (0, 0, 0.03), (0, 0, 0.11), 0.075, _WHITE)
    for name, pos, quat, limits, mass, com, inertia in _LINKS:
        body = body.add_body(
            name=name, pos=pos, quat=quat, mass=mass, ipos=com, fullinertia=inertia, gravcomp=1.0
        )
        body.explicitinertial = True
        body.add_joint(
            name=f"joint{name[-1]}",
            type=mujoco.mjtJoint.mjJNT_HINGE,
            axis=(0, 0, 1),
            range=limits,
            armature=0.1,
            damping=1.0,
        )
        start, end, radius = _CAPSULES[name]
        _shape(body, name, start, end, radius, _WHITE)
    hand = body.add_body(
        name="hand",
        pos=(0, 0, _HAND),
        quat=_HAND_QUAT,
        mass=0.73,
        ipos=(-0.01, 0, 0.03),
        inertia=(0.001, 0.0025, 0.0017),
        gravcomp=1.0,
    )
    hand.explicitinertial = True
    hand.add_site(name="tcp", pos=(0, 0, _TCP), size=(0.004, 0.004, 0.004), group=4)
    return hand


def _shape(
    body: mujoco.MjsBody,
    name: str,
    start: tuple[float, ...],
    end: tuple[float, ...],
    radius: float,
    rgba: tuple[float, ...],
) -> None:
    body.add_geom(
        name=f"{name}_shape",
        type=mujoco.mjtGeom.mjGEOM_CAPSULE,
        fromto=(*start, *end),
        size=(radius, 0, 0),
        contype=ROBOT_BITS[0],
        conaffinity=ROBOT_BITS[1],
        rgba=rgba,
        mass=0.0,
    )


def add_robot(spec: mujoco.MjSpec) -> None:
    """Add arm, gripper and their actuators to a scene."""
    hand = add_arm(spec)
    hand.add_geom(
        name="hand_shape",
        type=mujoco.mjtGeom.mjGEOM_BOX,
        pos=(0, 0, 0.028),
        size=(0.02, 0.10, 0.028),
        contype=ROBOT_BITS[0],
        conaffinity=ROBOT_BITS[1],
        rgba=_WHITE,
        mass=0.0,
    )
    hand.add_camera(name="wrist", pos=(0.07, 0, 0.0), quat=(0, _S, -_S, 0), fovy=75.0)
    for side, sign in (("left", 1.0), ("right", -1.0)):
        finger = hand.add_body(
            name=f"{side}_finger",
            pos=(0, 0, 0.0584),
            mass=0.015,
            ipos=(0, sign * 0.012, 0.025),
            inertia=(2.4e-6, 2.4e-6, 7.5e-7),
            gravcomp=1.0,
        )
        finger.explicitinertial = True
        finger.add_joint(
            name=f"{side}_slide",
            type=mujoco.mjtJoint.mjJNT_SLIDE,
            axis=(0, sign, 0),
            range=(0.0, FINGER),
            damping=20.0,
            armature=0.05,
        )
        finger.add_geom(
            name=f"{side}_pad",
            type=mujoco.mjtGeom.mjGEOM_BOX,
            pos=(0, sign * 0.007, 0.0285),
            size=(0.010, 0.007, 0.0265),
            contype=ROBOT_BITS[0],
            conaffinity=ROBOT_BITS[1],
            condim=4,
            friction=(1.5, 0.02, 0.001),
            priority=1,
            solref=(0.01, 1.0),
            solimp=(0.95, 0.99, 0.001, 0.5, 2.0),
            rgba=_PAD,
            mass=0.0,
        )
    for i, name in enumerate(ARM_JOINTS):
        actuator = spec.add_actuator(
            name=name,
            target=name,
            trntype=mujoco.mjtTrn.mjTRN_JOINT,
            forcerange=(-_FORCE[i], _FORCE[i]),
        )
        actuator.set_to_position(kp=_KP[i], kv=_KV[i])
    tendon = spec.add_tendon(name="grip")
    tendon.wrap_joint("left_slide", 0.5)
    tendon.wrap_joint("right_slide", 0.5)
    spec.add_equality(
        name="fingers",
        type=mujoco.mjtEq.mjEQ_JOINT,
        objtype=mujoco.mjtObj.mjOBJ_JOINT,
        name1="left_slide",
        name2="right_slide",
        data=[0, 1, *[0] * 10],
        solref=(0.005, 1.0),
    )
    grip = spec.add_actuator(
        name="gripper", target="grip", trntype=mujoco.mjtTrn.mjTRN_TENDON, forcerange=(-25.0, 25.0)
    )
    grip.set_to_position(kp=800.0, kv=40.0)


#: Metres and radians of a full action component, as LIBERO's users know them.
POSITION_SCALE = 0.05
ROTATION_SCALE = 0.5
#: The target may lead the gripper by this much at most (m, rad), so that a blocked arm does not
#: wind up.
LEAD = 0.08
LEAD_ANGLE = 0.6
_DAMPING = 1e-4
_POSTURE = 0.05


def arm_table() -> np.ndarray:
    """The arm ``[13, 7]`` as :mod:`coda_envs.kernels.control` takes it."""
    at_rest = (1.0, 0.0, 0.0, 0.0)
    poses = [(*BASE, *at_rest), *((*pos, *quat) for _, pos, quat, *_ in _LINKS)]
    # The hand turns about the axis on which the tip lies.
    poses.append((0.0, 0.0, _HAND + _TCP, *_HAND_QUAT))
    table = np.array(
        [
            *poses,
            *np.transpose([limits for _, _, _, limits, *_ in _LINKS]),
            HOME,
            (POSITION_SCALE, ROTATION_SCALE, LEAD, LEAD_ANGLE, _DAMPING, _POSTURE, FINGER),
        ]
    )
    table[: len(poses), 3:] /= np.linalg.norm(table[: len(poses), 3:], axis=1, keepdims=True)
    return table


class Controller:
    """Turns delta-pose actions into joint targets: ``steps`` damped-least-squares steps an action.

    The end-effector target is integrated from the actions and clamped to lead the gripper by at
    most ``LEAD``. What a step leaves open the next action's takes up. The way to the new joint
    targets is cut into ``blocks``, each with controls of its own.

    All it remembers is ``control [1, 15]``, a row of :mod:`coda_envs.kernels`, of which
    ``position [3]`` (m) and ``quat [4]`` (w, x, y, z) of the target, ``joints [7]`` (rad) and
    ``command [1]``, the last action's gripper component, are views.
    """

    def __init__(self, steps: int = 2, blocks: int = 1) -> None:
        # numba comes with the kernels, and not before somebody moves an arm.
        from coda_envs.kernels import control

        self.steps = steps
        self.control = np.zeros((1, 15))
        row = self.control[0]
        self.position, self.quat, self.joints, self.command = np.split(row, (3, 7, 14))
        self._kernels, self._arm = control, arm_table()
        self._only = np.zeros(1, dtype=np.int64)
        self._targets = np.zeros((1, blocks, 8))
        self._controls: np.ndarray = self._targets[0]
        self.reset(np.array(HOME))

    def reset(self, joints: np.ndarray) -> None:
        """Start from these arm joints ``[7]`` (rad), the target where the gripper is, open."""
        self.joints[:] = joints
        self._kernels.locate(self._arm, self.joints, self.control[0, :7], np.empty((6, 7)))
        self.command[:] = -1.0

    def forward(self, joints: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Position ``[3]`` and rotation ``[3, 3]`` of the point between the fingertips."""
        pose, matrix = np.empty(7), np.empty(9)
        self._kernels.locate(self._arm, np.asarray(joints, dtype=float), pose, np.empty((6, 7)))
        mujoco.mju_quat2Mat(matrix, pose[3:])
        return pose[:3], matrix.reshape(3, 3)

    def act(self, action: Any, pose: np.ndarray) -> np.ndarray:
        """The actuators' controls ``[blocks, 8]`` after an action ``[7]``.

        ``pose [1, 7]``: where the gripper is now (m; w, x, y, z). The controls are overwritten by
        the next call. Raises ``ValueError``, and changes nothing, for an action of another shape
        or with numbers that are not finite.
        """
        actions = as_actions(action, (7,))[None]
        wrong = self._kernels.act(
            self._arm, self.steps, actions, self._only, pose, self.control, self._targets
        )
        if wrong >= 0:
            raise not_finite(actions[0], wrong)
        return self._controls

    def move(self, action: np.ndarray, at: np.ndarray, at_quat: np.ndarray) -> np.ndarray:
        """Joint targets ``[7]`` (rad) after an action ``[7]``.

        ``at [3]`` and ``at_quat [4]`` are where the gripper is now.
        """
        self.act(action, np.concatenate([at, at_quat])[None])
        return self.joints.copy()

    def solve_pose(self, position: np.ndarray, quat: np.ndarray, iterations: int = 60) -> float:
        """Inverse kinematics from the current joints; returns the remaining error (m + rad)."""
        self.position[:], self.quat[:] = position, quat
        return self._kernels.solve(self._arm, self.control[0], iterations, 1e-4)


@lru_cache(maxsize=1)
def home_control() -> np.ndarray:
    """The row ``[15]`` of ``control`` with which an episode begins: the arm at home, open hand."""
    row: np.ndarray = Controller().control[0]
    row.flags.writeable = False
    return row
