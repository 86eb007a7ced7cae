"""From actions to joint targets: damped-least-squares inverse kinematics of the seven joints.

``arm [13, 7]`` says what the arm is, see :func:`coda_envs.robot.arm_table`: rows 0 to 8 are poses
(position (m), quaternion (w, x, y, z)) of the base on the table, of each link in the one before at
joint angle 0, and of the point between the fingertips in the last link; rows 9 to 11 the joints'
lower limits, upper limits and home (rad); row 12 position scale (m), rotation scale (rad), lead
(m), lead (rad), damping, posture, and how far a finger opens (m).

``control [n, 15]`` is described in :mod:`coda_envs.kernels`. Quaternions are (w, x, y, z).
"""

from __future__ import annotations

import math

import numpy as np

from coda_envs.kernels.compiled import NOTHING, REAL, WHOLE, helper, kernel, read, write

# Rows and columns of ``arm``.
_BASE, _TIP, _LOWER, _UPPER, _HOME, _TUNING = 0, 8, 9, 10, 11, 12
_POSITION_SCALE, _ROTATION_SCALE, _LEAD, _LEAD_ANGLE, _DAMPING, _POSTURE, _FINGER = range(7)
# First columns of ``control``; the target's pose is the first seven.
_QUAT, _JOINTS, _COMMAND = 3, 7, 14

Quat = tuple[float, float, float, float]
Vector = tuple[float, float, float]


@helper
def _times(p: Quat, q: Quat) -> Quat:
    """The product: first the turn ``q``, then ``p``."""
    return (
        p[0] * q[0] - p[1] * q[1] - p[2] * q[2] - p[3] * q[3],
        p[0] * q[1] + p[1] * q[0] + p[2] * q[3] - p[3] * q[2],
        p[0] * q[2] - p[1] * q[3] + p[2] * q[0] + p[3] * q[1],
        p[0] * q[3] + p[1] * q[2] - p[2] * q[1] + p[3] * q[0],
    )


@helper
def _rotated(q: Quat, v: Vector) -> Vector:
    """``v`` turned by a unit quaternion."""
    x = q[0] * v[0] + q[2] * v[2] - q[3] * v[1]
    y = q[0] * v[1] + q[3] * v[0] - q[1] * v[2]
    z = q[0] * v[2] + q[1] * v[1] - q[2] * v[0]
    return (
        v[0] + 2.0 * (q[2] * z - q[3] * y),
        v[1] + 2.0 * (q[3] * x - q[1] * z),
        v[2] + 2.0 * (q[1] * y - q[2] * x),
    )


@helper
def _unit(q: Quat) -> Quat:
    length = math.sqrt(q[0] * q[0] + q[1] * q[1] + q[2] * q[2] + q[3] * q[3])
    return (q[0] / length, q[1] / length, q[2] / length, q[3] / length)


@helper
def _exponential(turn: Vector) -> Quat:
    """The quaternion of axis times angle (rad)."""
    angle = math.sqrt(turn[0] ** 2 + turn[1] ** 2 + turn[2] ** 2)
    share = math.sin(0.5 * angle) / angle if angle > 0.0 else 0.5
    return (math.cos(0.5 * angle), share * turn[0], share * turn[1], share * turn[2])


@helper
def _logarithm(q: Quat) -> Vector:
    """Axis times angle (rad, in [-π, π]) of a quaternion."""
    length = math.sqrt(q[1] * q[1] + q[2] * q[2] + q[3] * q[3])
    if length == 0.0:
        return (0.0, 0.0, 0.0)
    angle = 2.0 * math.atan2(length, q[0])
    if angle > math.pi:
        angle -= 2.0 * math.pi
    share = angle / length
    return (share * q[1], share * q[2], share * q[3])


@helper
def _onto(place: Vector, quat: Quat, pose: np.ndarray) -> tuple[Vector, Quat]:
    """The frame at ``pose [7]`` in the frame at ``place``, ``quat``."""
    x, y, z = _rotated(quat, (pose[0], pose[1], pose[2]))
    turned = _times(quat, (pose[3], pose[4], pose[5], pose[6]))
    return (place[0] + x, place[1] + y, place[2] + z), turned


@helper
def _chain(arm: np.ndarray, joints: np.ndarray, jacobian: np.ndarray) -> tuple[Vector, Quat]:
    """Place and quaternion of the point between the fingertips, and its Jacobian ``[6, 7]``."""
    base = arm[_BASE]
    place, quat = (base[0], base[1], base[2]), (base[3], base[4], base[5], base[6])
    for i in range(7):
        place, quat = _onto(place, quat, arm[1 + i])
        half = 0.5 * joints[i]
        quat = _unit(_times(quat, (math.cos(half), 0.0, 0.0, math.sin(half))))
        # Each joint turns about the z axis of its link; the link's origin lies on that axis.
        axis = _rotated(quat, (0.0, 0.0, 1.0))
        for k in range(3):
            jacobian[k, i], jacobian[3 + k, i] = place[k], axis[k]
    place, quat = _onto(place, quat, arm[_TIP])
    for i in range(7):
        x, y, z = (place[0] - jacobian[0, i], place[1] - jacobian[1, i], place[2] - jacobian[2, i])
        a, b, c = jacobian[3, i], jacobian[4, i], jacobian[5, i]
        jacobian[0, i], jacobian[1, i], jacobian[2, i] = b * z - c * y, c * x - a * z, a * y - b * x
    return place, quat


@helper
def _solve_lower_half(square: np.ndarray, right: np.ndarray) -> None:
    """Solve ``square [7, 7]`` x = ``right [7]`` in place, from the lower half alone."""
    for j in range(7):
        for i in range(j, 7):
            value = square[i, j]
            for k in range(j):
                value -= square[i, k] * square[j, k]
            square[i, j] = math.sqrt(value) if i == j else value / square[j, j]
    for i in range(7):
        for k in range(i):
            right[i] -= square[i, k] * right[k]
        right[i] /= square[i, i]
    for back in range(7):
        i = 6 - back
        for k in range(i + 1, 7):
            right[i] -= square[k, i] * right[k]
        right[i] /= square[i, i]


@helper
def _descend(arm: np.ndarray, row: np.ndarray, scratch: np.ndarray) -> float:
    """One damped-least-squares step of the joints in ``row [15]`` towards its target pose.

    dq minimises |J dq - e|² + λ |dq - p|², where p leads to the home posture: since λ is small,
    it acts in the null space of J only. Returns the error before the step: the sum of |e| (m, rad).
    """
    joints, jacobian, error, square = row[_JOINTS:_COMMAND], scratch[:6], scratch[6], scratch[7:14]
    step = scratch[14]
    place, quat = _chain(arm, joints, jacobian)
    for i in range(3):
        error[i] = row[i] - place[i]
    back = (quat[0], -quat[1], -quat[2], -quat[3])
    error[3], error[4], error[5] = _logarithm(_times((row[3], row[4], row[5], row[6]), back))
    total = 0.0
    for i in range(6):
        total += abs(error[i])
    # The normal equations (JᵀJ + λ) dq = Jᵀe + λp, by Cholesky; the lower half is enough.
    damping, posture = arm[_TUNING, _DAMPING], arm[_TUNING, _POSTURE]
    for i in range(7):
        step[i] = damping * posture * (arm[_HOME, i] - joints[i])
        for k in range(6):
            step[i] += jacobian[k, i] * error[k]
        for j in range(i + 1):
            square[i, j] = damping if i == j else 0.0
            for k in range(6):
                square[i, j] += jacobian[k, i] * jacobian[k, j]
    _solve_lower_half(square, step)
    for i in range(7):
        joints[i] = max(min(joints[i] + step[i], arm[_UPPER, i]), arm[_LOWER, i])
    return total


@helper
def _aim(tuning: np.ndarray, action: np.ndarray, pose: np.ndarray, row: np.ndarray) -> None:
    """Move the target pose in ``row [15]`` by an action, and keep it near ``pose [7]``."""
    scale, lead = tuning[_POSITION_SCALE], tuning[_LEAD]
    x = row[0] + scale * action[0] - pose[0]
    y = row[1] + scale * action[1] - pose[1]
    z = row[2] + scale * action[2] - pose[2]
    distance = math.sqrt(x * x + y * y + z * z)
    share = lead / distance if distance > lead else 1.0
    row[0], row[1], row[2] = pose[0] + share * x, pose[1] + share * y, pose[2] + share * z
    scale = tuning[_ROTATION_SCALE]
    turn = (scale * action[3], scale * action[4], scale * action[5])
    if turn[0] == 0.0 and turn[1] == 0.0 and turn[2] == 0.0:
        return
    quat = _times(_exponential(turn), (row[3], row[4], row[5], row[6]))
    now = (pose[3], pose[4], pose[5], pose[6])
    ahead = _logarithm(_times(quat, (now[0], -now[1], -now[2], -now[3])))
    angle = math.sqrt(ahead[0] ** 2 + ahead[1] ** 2 + ahead[2] ** 2)
    most = tuning[_LEAD_ANGLE]
    if angle > most:
        # The last turn on the way there.
        share = most / angle
        quat = _times(_exponential((share * ahead[0], share * ahead[1], share * ahead[2])), now)
    row[3], row[4], row[5], row[6] = _unit(quat)


@kernel(
    WHOLE,
    read(REAL, 2), WHOLE, read(REAL, 2), read(WHOLE, 1), read(REAL, 2), write(REAL, 2),
    write(REAL, 3),
)  # fmt: skip
def act(
    arm: np.ndarray,
    steps: int,
    actions: np.ndarray,
    envs: np.ndarray,
    poses: np.ndarray,
    control: np.ndarray,
    targets: np.ndarray,
) -> int:
    """One action for each of ``envs [m]``: updates ``control``, writes ``targets``.

    ``steps``: least-squares steps; ``actions [n, 7]``, numbers beyond [-1, 1] acting like the
    bound; ``poses [n, 7]``: where the grippers are; ``targets [n, blocks, 8]``: controls of the
    actuators for each block of physics steps, the joints' on a straight line to their new targets.

    Returns -1, or 7·env + component of the first number that is not finite; then nothing is done.
    """
    for k in range(len(envs)):
        for i in range(7):
            if not math.isfinite(actions[envs[k], i]):
                return 7 * int(envs[k]) + i
    scratch = np.empty((15, 7))
    action = np.empty(7)
    blocks = targets.shape[1]
    for env in envs:
        row = control[env]
        for i in range(7):
            # Rounded to float32 like the action space, so that what is stored is what acted.
            action[i] = np.float32(min(max(actions[env, i], -1.0), 1.0))
        _aim(arm[_TUNING], action, poses[env], row)
        for i in range(7):
            targets[env, 0, i] = row[_JOINTS + i]
        for _ in range(steps):
            _descend(arm, row, scratch)
        row[_COMMAND] = action[6]
        gap = arm[_TUNING, _FINGER] * (1.0 - action[6]) / 2.0
        for i in range(7):
            before = targets[env, 0, i]
            way = row[_JOINTS + i] - before
            for block in range(blocks):
                targets[env, block, i] = before + (block + 1) / blocks * way
        for block in range(blocks):
            targets[env, block, 7] = gap
    return -1


@kernel(REAL, read(REAL, 2), write(REAL, 1), WHOLE, REAL)
def solve(arm: np.ndarray, row: np.ndarray, iterations: int, tolerance: float) -> float:
    """Inverse kinematics of one row of ``control [15]`` towards its target pose.

    Stops when the error (m + rad, summed) falls below ``tolerance``; returns the last error.
    """
    scratch = np.empty((15, 7))
    error = math.inf
    for _ in range(iterations):
        error = _descend(arm, row, scratch)
        if error < tolerance:
            break
    return error


@kernel(NOTHING, read(REAL, 2), read(REAL, 1), write(REAL, 1), write(REAL, 2))
def locate(arm: np.ndarray, joints: np.ndarray, pose: np.ndarray, jacobian: np.ndarray) -> None:
    """Forward kinematics of ``joints [7]`` (rad).

    Writes ``pose [7]`` (m, quaternion) of the point between the fingertips, and
    ``jacobian [6, 7]``: its velocity (m, then rad) for each joint's.
    """
    place, quat = _chain(arm, joints, jacobian)
    pose[0], pose[1], pose[2] = place
    pose[3], pose[4], pose[5], pose[6] = quat
