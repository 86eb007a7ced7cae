"""From MuJoCo's arrays to state features and observations, and whether physics has diverged.

The arrays that describe a scene are those of :class:`coda_envs.sensing.SensorLayout` and
:class:`coda_envs.sensing.SensorRows`. What is constant for a scene is in the rows already; a kernel
writes the rest.
"""

from __future__ import annotations

import math

import numpy as np
from numba import types

from coda_envs.kernels.compiled import NOTHING, REAL, TRUTH, WHOLE, helper, kernel, read, write

#: Below this a component of a unit quaternion counts as zero.
_ZERO = 1e-9
#: MuJoCo takes what is larger than this for diverged.
_HUGE = 1e10

Quat = tuple[float, float, float, float]


@helper
def _quat(matrix: np.ndarray) -> Quat:
    """The unit quaternion (w, x, y, z) of a rotation ``matrix [9]``, by rows."""
    a, b, c = matrix[0], matrix[4], matrix[8]
    x, y, z = matrix[7] - matrix[5], matrix[2] - matrix[6], matrix[3] - matrix[1]
    # From the largest component, so that nothing small is divided by.
    if a + b + c > 0.0:
        w, x, y, z = 1.0 + a + b + c, x, y, z
    elif a > b and a > c:
        w, x, y, z = x, 1.0 + a - b - c, matrix[1] + matrix[3], matrix[2] + matrix[6]
    elif b > c:
        w, x, y, z = y, matrix[1] + matrix[3], 1.0 - a + b - c, matrix[5] + matrix[7]
    else:
        w, x, y, z = z, matrix[2] + matrix[6], matrix[5] + matrix[7], 1.0 - a - b + c
    length = math.sqrt(w * w + x * x + y * y + z * z)
    return (w / length, x / length, y / length, z / length)


@helper
def _axis_angle(quat: Quat) -> tuple[float, float, float]:
    """Axis times angle, as :func:`coda_envs.sensing.axis_angle` says."""
    w, x, y, z = quat
    length = math.sqrt(x * x + y * y + z * z)
    if length < 1e-12:
        return (0.0, 0.0, 0.0)
    if abs(w) < _ZERO:
        w = 0.0
        first = x if abs(x) > _ZERO else (y if abs(y) > _ZERO else z)
        sign = math.copysign(1.0, first)
    else:
        sign = math.copysign(1.0, w)
    scale = sign * 2.0 * math.atan2(length, abs(w)) / length
    return (scale * x, scale * y, scale * z)


@helper
def _norm(values: np.ndarray, first: int, count: int) -> float:
    total = 0.0
    for i in range(first, first + count):
        total += values[i] * values[i]
    return math.sqrt(total)


@helper
def _bounded(values: np.ndarray) -> bool:
    for value in values:  # noqa: SIM110  (numba has no any())
        # False for NaN too.
        if not abs(value) <= _HUGE:
            return False
    return True


@helper
def _within(value: float, bound: float) -> float:
    return min(max(value, -bound), bound)


@kernel(
    NOTHING,
    read(WHOLE, 1), read(WHOLE, 2), read(WHOLE, 1), read(WHOLE, 2), read(WHOLE, 1), read(REAL, 1),
    read(WHOLE, 1), read(WHOLE, 1),
    read(REAL, 2), read(REAL, 2), read(REAL, 3), read(REAL, 3), read(REAL, 3), read(REAL, 3),
    read(WHOLE, 1), read(REAL, 3), read(WHOLE, 2), read(REAL, 1),
    write(REAL, 2), write(REAL, 2), write(types.float32, 2), write(types.float32, 3),
    read(types.int32, 2),
)  # fmt: skip
def sense(
    robot: np.ndarray,
    entities: np.ndarray,
    kinds: np.ndarray,
    touches: np.ndarray,
    flags: np.ndarray,
    bounds: np.ndarray,
    sims: np.ndarray,
    envs: np.ndarray,
    qpos: np.ndarray,
    qvel: np.ndarray,
    xpos: np.ndarray,
    xmat: np.ndarray,
    site_xpos: np.ndarray,
    site_xmat: np.ndarray,
    ends: np.ndarray,
    motion: np.ndarray,
    slots: np.ndarray,
    commands: np.ndarray,
    poses: np.ndarray,
    features: np.ndarray,
    proprio: np.ndarray,
    objects: np.ndarray,
    pairs: np.ndarray,
) -> None:
    """Read simulation ``sims[k]`` into row ``envs[k]`` of the results, for every k < m.

    ``robot`` to ``bounds``: the layout. ``qpos [s, nq]``, ``qvel [s, nv]``, ``xpos [s, nbody, 3]``,
    ``xmat [s, nbody, 9]``, ``site_xpos [s, nsite, 3]``, ``site_xmat [s, nsite, 9]``: MuJoCo's, with
    positions up to date. ``pairs [p, 2]`` int32: geoms that touch; those of ``sims[k]`` end before
    ``ends[k]``, or with the last pair. ``motion``, ``slots``, ``poses``, ``features``, ``proprio``,
    ``objects``: the rows. ``commands [n]``: last gripper commands.
    """
    site, arm, left, right = robot[0], robot[1], robot[2], robot[3]
    start = 0
    for k in range(len(sims)):
        sim, env = sims[k], envs[k]
        angles, speeds, out = qpos[sim], qvel[sim], features[env]
        position, matrix, pose = site_xpos[sim, site], site_xmat[sim, site], poses[env]
        quat = _quat(matrix)
        turn = _axis_angle(quat)
        for i in range(3):
            pose[i] = out[i] = position[i]
            proprio[env, i] = _within(position[i], bounds[i])
            proprio[env, 3 + i] = _within(turn[i], bounds[3 + i])
        for i in range(4):
            pose[3 + i] = quat[i]
        proprio[env, 6] = _within(angles[left], bounds[6])
        proprio[env, 7] = _within(-angles[right], bounds[7])
        # The columns of features.GRIPPER.
        out[3] = math.atan2(matrix[3], matrix[0])
        out[4] = -matrix[8]
        out[5] = angles[left] + angles[right]
        out[6] = commands[env]
        out[7] = _norm(speeds, arm, 7)
        for flag in flags:
            out[flag] = 0.0
        end = min(ends[k], len(pairs))
        for i in range(start, end):
            column = touches[kinds[pairs[i, 0]], kinds[pairs[i, 1]]]
            if column >= 0:
                out[column] = 1.0
        start = end
        for i in range(len(entities)):
            x, yaw, upright, speed, spin, opening, body, free, joint, dof = entities[i]
            position, matrix, slot = xpos[sim, body], xmat[sim, body], objects[env, slots[env, i]]
            for j in range(3):
                out[x + j] = position[j]
                # The first columns of sensing.SLOT_COLUMNS. Only positions can leave the bounds: a
                # thing that is pushed off the table falls and falls.
                slot[j] = _within(position[j], bounds[8])
                slot[3 + j], slot[6 + j] = matrix[3 * j], matrix[3 * j + 1]
            out[yaw] = math.atan2(matrix[3], matrix[0])
            out[upright] = matrix[8]
            if free >= 0:
                out[speed] = _norm(speeds, free, 3)
                out[spin] = _norm(speeds, free + 3, 3)
            elif joint >= 0:
                out[opening] = angles[joint] / motion[env, i, 0]
                out[speed] = abs(speeds[dof]) * motion[env, i, 1]
                out[spin] = abs(speeds[dof]) * motion[env, i, 2]


@helper
def _has_diverged(
    kinds: np.ndarray, warnings: np.ndarray, qpos: np.ndarray, qvel: np.ndarray
) -> bool:
    for kind in kinds:
        if warnings[kind] > 0:
            return True
    return not (_bounded(qpos) and _bounded(qvel))


@kernel(TRUTH, read(WHOLE, 1), read(types.int32, 1), read(REAL, 1), read(REAL, 1))
def diverged(kinds: np.ndarray, warnings: np.ndarray, qpos: np.ndarray, qvel: np.ndarray) -> bool:
    """Whether a simulation has any of the ``kinds`` of MuJoCo's ``warnings``, or a coordinate or
    velocity that MuJoCo would warn of at its next step."""
    return _has_diverged(kinds, warnings, qpos, qvel)


@kernel(
    TRUTH,
    read(WHOLE, 1), read(WHOLE, 1), read(types.int32, 2), read(REAL, 2), read(REAL, 2),
    write(TRUTH, 1),
)  # fmt: skip
def diverged_of(
    kinds: np.ndarray,
    sims: np.ndarray,
    warnings: np.ndarray,
    qpos: np.ndarray,
    qvel: np.ndarray,
    found: np.ndarray,
) -> bool:
    """Write :func:`diverged` of simulations ``sims [k]`` into ``found [k]``; whether any has."""
    some = False
    for k in range(len(sims)):
        sim = sims[k]
        found[k] = _has_diverged(kinds, warnings[sim], qpos[sim], qvel[sim])
        some = some or found[k]
    return some


@kernel(NOTHING, read(REAL, 1), write(REAL, 1))
def axis_angle(matrix: np.ndarray, turn: np.ndarray) -> None:
    """Rotation ``matrix [9]``, by rows → ``turn [3]``, see :func:`coda_envs.sensing.axis_angle`."""
    turn[0], turn[1], turn[2] = _axis_angle(_quat(matrix))
