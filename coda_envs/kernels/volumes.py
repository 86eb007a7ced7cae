"""The tree of bounding boxes that MuJoCo's compiler builds over the shapes of a body."""

from __future__ import annotations

import numpy as np
from numba import types

from coda_envs.kernels.compiled import NOTHING, REAL, WHOLE, helper, kernel, read, write

# Below this the compiler takes two numbers for equal.
_EPS = 1e-14


@helper
def _turn(quat: np.ndarray, x: float, y: float, z: float) -> tuple[float, float, float]:
    """A vector turned by a quaternion, in the compiler's order of operations."""
    if (x == 0.0 and y == 0.0 and z == 0.0) or (
        quat[0] == 1.0 and quat[1] == 0.0 and quat[2] == 0.0 and quat[3] == 0.0
    ):
        return (x, y, z)
    a = quat[0] * x + quat[2] * z - quat[3] * y
    b = quat[0] * y + quat[3] * x - quat[1] * z
    c = quat[0] * z + quat[1] * y - quat[2] * x
    return (
        x + 2.0 * (quat[2] * c - quat[3] * b),
        y + 2.0 * (quat[3] * a - quat[1] * c),
        z + 2.0 * (quat[1] * b - quat[2] * a),
    )


@helper
def _corners(half: np.ndarray, pose: np.ndarray, com: np.ndarray, box: np.ndarray) -> None:
    """Lowest and highest coordinates ``box [6]`` of a shape, from the body's centre of mass."""
    for axis in range(3):
        box[axis], box[3 + axis] = np.inf, -np.inf
    for corner in range(8):
        x = half[0] if corner & 1 else -half[0]
        y = half[1] if corner & 2 else -half[1]
        z = half[2] if corner & 4 else -half[2]
        x, y, z = _turn(pose[3:], x, y, z)
        for axis, value in enumerate((x, y, z)):
            place = value + (pose[axis] - com[axis])
            box[axis] = min(box[axis], place)
            box[3 + axis] = max(box[3 + axis], place)


@helper
def _before(one: int, two: int, axis: int, poses: np.ndarray, com: np.ndarray) -> bool:
    """Whether shape ``one`` comes before ``two`` along an axis; of equal ones, the first."""
    a, b = poses[one, axis] - com[axis], poses[two, axis] - com[axis]
    return a < b if abs(a - b) > _EPS else one < two


@helper
def _longest(box: np.ndarray) -> int:
    """The axis along which a box is longest, the first of equal ones."""
    axis = 0
    for other in range(1, 3):
        if box[3 + other] - box[other] >= box[3 + axis] - box[axis] + _EPS:
            axis = other
    return axis


@kernel(
    NOTHING,
    read(WHOLE, 1), read(REAL, 2), read(REAL, 2), read(REAL, 2), write(REAL, 2),
    write(types.int32, 1),
)  # fmt: skip
def volumes(
    ends: np.ndarray,
    halves: np.ndarray,
    poses: np.ndarray,
    coms: np.ndarray,
    boxes: np.ndarray,
    shapes: np.ndarray,
) -> None:
    """The trees of several bodies, one after the other, each from its root downwards.

    Of the shapes that collide, body by body: ``halves [g, 3]`` half extents, ``poses [g, 7]`` place
    and quaternion in the body's frame. The shapes of body k end before ``ends[k]``; ``coms [b, 3]``
    are the bodies' centres of mass. Writes ``boxes [n, 6]``, middle and half extents of each node,
    and ``shapes [n]``: the shape of a leaf, an index into ``halves``, else -1. A body with s shapes
    has 2s - 1 nodes.
    """
    leaf = np.empty((len(halves), 6))
    box = np.empty(6)
    order = np.arange(len(halves))
    # Parts of ``order`` whose nodes are still to be made, the next one last.
    waiting = np.empty((len(halves) + 1, 2), dtype=np.int64)
    node = first = 0
    for body in range(len(ends)):
        com = coms[body]
        for shape in range(first, ends[body]):
            _corners(halves[shape], poses[shape], com, leaf[shape])
        count = 0
        if ends[body] > first:
            waiting[0, 0], waiting[0, 1] = first, ends[body]
            count = 1
        first = ends[body]
        while count > 0:
            count -= 1
            low, high = waiting[count]
            for axis in range(3):
                box[axis], box[3 + axis] = np.inf, -np.inf
                for k in range(low, high):
                    box[axis] = min(box[axis], leaf[order[k], axis])
                    box[3 + axis] = max(box[3 + axis], leaf[order[k], 3 + axis])
                if abs(box[axis] - box[3 + axis]) < _EPS:
                    box[axis] -= _EPS
                    box[3 + axis] += _EPS
                boxes[node, axis] = (box[3 + axis] + box[axis]) / 2.0
                boxes[node, 3 + axis] = (box[3 + axis] - box[axis]) / 2.0
            shapes[node] = order[low] if high - low == 1 else -1
            node += 1
            if high - low == 1:
                continue
            axis = _longest(box)
            for k in range(low + 1, high):
                moved, place = order[k], k
                while place > low and _before(moved, order[place - 1], axis, poses, com):
                    order[place] = order[place - 1]
                    place -= 1
                order[place] = moved
            middle = low + (high - low) // 2
            waiting[count, 0], waiting[count, 1] = middle, high
            waiting[count + 1, 0], waiting[count + 1, 1] = low, middle
            count += 2
