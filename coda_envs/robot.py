"""The arm: a primitive Panda (capsules, box fingers, no meshes), its controller, its gripper.

Kinematics, joint limits, masses and inertias are the values Franka Robotics publishes for the
Panda (see NOTICE); shapes, gripper and gains are this project's own.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import lru_cache

import mujoco
import numpy as np

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


def add_arm(spec: mujoco.MjSpec, collide: bool = True) -> mujoco.MjsBody:
    """Add the seven links and the hand; returns the hand's body."""
    body = spec.worldbody.add_body(name="link0", pos=BASE)
    _shape(body, "link0", (0, 0, 0.03), (0, 0, 0.11), 0.075, collide, _WHITE)
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
        _shape(body, name, start, end, radius, collide, _WHITE)
    # The hand sits 107 mm beyond link 7, turned by -45 degrees.
    hand = body.add_body(
        name="hand",
        pos=(0, 0, 0.107),
        quat=(0.9238795325, 0, 0, -0.3826834324),
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
    collide: bool,
    rgba: tuple[float, ...],
) -> None:
    bits = ROBOT_BITS if collide else (0, 0)
    body.add_geom(
        name=f"{name}_shape",
        type=mujoco.mjtGeom.mjGEOM_CAPSULE,
        fromto=(*start, *end),
        size=(radius, 0, 0),
        contype=bits[0],
        conaffinity=bits[1],
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


@lru_cache(maxsize=1)
def _arm_model() -> mujoco.MjModel:
    """The arm alone, without geometry that collides: what inverse kinematics runs on."""
    spec = mujoco.MjSpec()
    configure(spec)
    add_arm(spec, collide=False)
    return spec.compile()


#: Metres and radians of a full action component, as LIBERO's users know them.
POSITION_SCALE = 0.05
ROTATION_SCALE = 0.5
#: The target may lead the gripper by this much at most (m, rad), so that a blocked arm does not
#: wind up.
LEAD = 0.08
LEAD_ANGLE = 0.6
_DAMPING = 1e-4
_POSTURE = 0.05
_HOME = np.array(HOME)
_PULL = _POSTURE * math.sqrt(_DAMPING)
_LOWER, _UPPER = np.array([link[3] for link in _LINKS]).T.copy()


@dataclass
class Controller:
    """Turns delta-pose actions into joint targets: ``steps`` damped-least-squares steps an action.

    The end-effector target is integrated from the actions and clamped to lead the gripper by at
    most ``LEAD``. What a step leaves open the next action's takes up.

    State: ``position [3]`` (m), ``quat [4]`` (w, x, y, z), ``joints [7]`` (rad).
    """

    steps: int = 2
    position: np.ndarray = field(default_factory=lambda: np.zeros(3))
    quat: np.ndarray = field(default_factory=lambda: np.array([1.0, 0, 0, 0]))
    joints: np.ndarray = field(default_factory=lambda: np.array(HOME))

    def __post_init__(self) -> None:
        model, data = self._model, self._data = _arm_model(), mujoco.MjData(_arm_model())
        self._site = model.site("tcp").id
        # Views and buffers are made once: an action uses each of them twice.
        self._angles = data.qpos
        self._tip, self._tip_matrix = data.site_xpos[self._site], data.site_xmat[self._site]
        self._quat, self._turn = np.zeros(4), np.zeros(3)
        # The damping is seven more rows of the least-squares problem, √λ dq = √λ p.
        self._rows = np.zeros((13, 7))
        self._rows[6:] = math.sqrt(_DAMPING) * np.eye(7)
        self._position_rows, self._rotation_rows = self._rows[:3], self._rows[3:6]
        self._wanted = np.zeros(13)
        self._position_error, self._rotation_error = self._wanted[:3], self._wanted[3:6]
        self._posture = self._wanted[6:]
        self._square, self._right, self._step = np.zeros((7, 7)), np.zeros(7), np.zeros(7)

    def reset(self, joints: np.ndarray) -> None:
        """Start from these arm joints, the target where the gripper is."""
        self.joints = np.array(joints, dtype=float)
        position, matrix = self.forward(self.joints)
        self.position = position
        mujoco.mju_mat2Quat(self.quat, matrix.ravel())

    def forward(self, joints: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Position ``[3]`` and rotation ``[3, 3]`` of the point between the fingertips."""
        self._angles[:] = joints
        mujoco.mj_kinematics(self._model, self._data)
        return self._tip.copy(), self._tip_matrix.reshape(3, 3).copy()

    def move(self, action: np.ndarray, at: np.ndarray, at_quat: np.ndarray) -> np.ndarray:
        """Joint targets ``[7]`` after one action (its first six components in [-1, 1]).

        ``at [3]`` and ``at_quat [4]`` are where the gripper is now.
        """
        lead = self.position + POSITION_SCALE * action[:3] - at
        distance = math.hypot(*lead.tolist())
        if distance > LEAD:
            lead *= LEAD / distance
        self.position = at + lead
        turn = ROTATION_SCALE * action[3:6]
        angle = math.hypot(*turn.tolist())
        if angle > 0.0:
            mujoco.mju_axisAngle2Quat(self._quat, turn / angle, angle)
            turned = np.empty(4)
            mujoco.mju_mulQuat(turned, self._quat, self.quat)
            self.quat = self._limited(turned, at_quat)
        self._angles[:] = self.joints
        for _ in range(self.steps):
            self._descend()
        self.joints = self._angles.copy()
        return self.joints

    @staticmethod
    def _limited(quat: np.ndarray, at_quat: np.ndarray) -> np.ndarray:
        """``quat``, or where it leads ``at_quat`` too far, the last turn on the way there."""
        # |<p, q>| is the cosine of half the angle between them.
        if abs(quat.dot(at_quat)) < math.cos(LEAD_ANGLE / 2):
            ahead = np.empty(3)
            mujoco.mju_subQuat(ahead, quat, at_quat)
            quat = at_quat.copy()
            mujoco.mju_quatIntegrate(quat, ahead, LEAD_ANGLE / math.hypot(*ahead.tolist()))
        mujoco.mju_normalize4(quat)
        return quat

    def _descend(self) -> None:
        """One damped-least-squares step of the arm model's joint angles towards the target.

        dq minimises |J dq - e|² + λ |dq - p|², where p leads to the home posture: since λ is small,
        it acts in the null space of J only.
        """
        model, data, angles, rows = self._model, self._data, self._angles, self._rows
        # MuJoCo's small matrix functions throughout: between physics steps, with cold caches, a
        # call into BLAS or LAPACK costs many times the arithmetic.
        mujoco.mj_kinematics(model, data)
        # The Jacobian is taken about the centre of mass that this call updates.
        mujoco.mj_comPos(model, data)
        mujoco.mj_jacSite(model, data, self._position_rows, self._rotation_rows, self._site)
        mujoco.mju_sub(self._position_error, self.position, self._tip)
        mujoco.mju_mat2Quat(self._quat, self._tip_matrix)
        mujoco.mju_subQuat(self._turn, self.quat, self._quat)
        mujoco.mju_rotVecQuat(self._rotation_error, self._turn, self._quat)
        mujoco.mju_sub(self._posture, _HOME, angles)
        mujoco.mju_scl(self._posture, self._posture, _PULL)
        # The normal equations, by Cholesky.
        mujoco.mju_mulMatTMat(self._square, rows, rows)
        mujoco.mju_mulMatTVec(self._right, rows, self._wanted)
        mujoco.mju_cholFactor(self._square, 0.0)
        mujoco.mju_cholSolve(self._step, self._square, self._right)
        mujoco.mju_addTo(angles, self._step)
        np.minimum(angles, _UPPER, out=angles)
        np.maximum(angles, _LOWER, out=angles)

    def solve_pose(self, position: np.ndarray, quat: np.ndarray, iterations: int = 60) -> float:
        """Inverse kinematics from the current joints; returns the remaining error (m + rad)."""
        self.position = np.array(position, dtype=float)
        self.quat = np.array(quat, dtype=float)
        self._angles[:] = self.joints
        error = np.inf
        for _ in range(iterations):
            self._descend()
            error = float(np.abs(self._wanted[:6]).sum())
            if error < 1e-4:
                break
        self.joints = self._angles.copy()
        return error
