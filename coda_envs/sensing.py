"""Simulator state → features and observations, by addresses that are resolved once a model."""

from __future__ import annotations

import math
from collections.abc import Sequence

import mujoco
import numpy as np

from coda_envs.arena import COLORS, SHAPES, Compiled, constant_columns
from coda_envs.features import GRIPPER, OBJECT, FeatureSchema

#: Rows of the object table; scenes fill as many as they have objects, in shuffled order.
N_SLOTS = 6

#: Columns of a row: position (m, table frame), first two columns of the rotation matrix, half
#: extents (m), shape (one of five), colour (RGB in [0, 1]), whether the row is used.
SLOT_COLUMNS = (
    ("x", "y", "z")
    + ("r00", "r10", "r20", "r01", "r11", "r21")
    + ("half_x", "half_y", "half_z")
    + tuple(f"is_{shape}" for shape in SHAPES)
    + ("red", "green", "blue")
    + ("present",)
)

#: Columns of ``proprio``: gripper position (m), axis-angle (rad, see :func:`axis_angle`), finger
#: positions (m, the right one negative), as openpi's LIBERO policies expect.
PROPRIO = ("x", "y", "z", "ax", "ay", "az", "left", "right")

#: Largest absolute value of each column of ``proprio`` and of the object table, and of every state
#: feature (SI units). No state of a sound simulation comes near them, an angle's π apart: the arm
#: reaches 1.4 m, a thing struck off the table slides a few. They make the observation spaces
#: finite; an observation is clipped to them, which tells on diverging physics alone.
PROPRIO_BOUND = np.array([3.0] * 3 + [3.15] * 3 + [0.5] * 2, dtype=np.float32)
SLOT_BOUND = np.array([20.0] * 3 + [1.0] * (len(SLOT_COLUMNS) - 3), dtype=np.float32)
FEATURE_BOUND = 1000.0

# As floats; of a slot those of the position, since the rest cannot leave its bounds.
_PROPRIO_BOUNDS = PROPRIO_BOUND.tolist()
_SLOT_BOUNDS = SLOT_BOUND[:3].tolist()
_COLUMN = {name: i for i, name in enumerate(OBJECT)}
_X, _YAW, _UPRIGHT, _SPEED, _SPIN = (
    _COLUMN[name] for name in ("x", "yaw", "upright", "speed", "spin")
)

#: What a contact with each of these says of an object, by feature column.
_TOUCHES = {"left": "left", "right": "right", "table": "table", "receptacle": "supported"}


def axis_angle(matrix: np.ndarray) -> np.ndarray:
    """Rotation ``[3, 3]`` as axis times angle ``[3]``, angle in [0, π].

    Both signs of a quaternion give the same vector. At exactly π, where two vectors fit, the first
    component that is not zero is positive; crossing π flips the vector's sign, which no three
    numbers can avoid: a policy that needs continuity converts back to a matrix.
    """
    quat = np.empty(4)
    mujoco.mju_mat2Quat(quat, matrix.ravel())
    return np.array(_turn(*quat.tolist()))


def _turn(w: float, x: float, y: float, z: float) -> tuple[float, float, float]:
    """Axis times angle of a quaternion, as :func:`axis_angle` says."""
    sign = 1.0
    if abs(w) < 1e-9:
        w, sign = 0.0, math.copysign(1.0, next((c for c in (x, y, z) if abs(c) > 1e-9), 1.0))
    elif w < 0.0:
        w, sign = -w, -1.0
    length = math.sqrt(x * x + y * y + z * z)
    if length < 1e-12:
        return 0.0, 0.0, 0.0
    scale = sign * 2.0 * math.atan2(length, w) / length
    return x * scale, y * scale, z * scale


class Sensor:
    """Reads one compiled scene's state. Create one for each model.

    A reading is some dozens of numbers: too few for NumPy, whose calls cost more than the arithmetic.
    So MuJoCo's arrays are turned into Python floats, and those into one array at the end.
    """

    def __init__(self, compiled: Compiled, schema: FeatureSchema) -> None:
        model, entities = compiled.model, compiled.entities
        self.n_objects = len(entities)
        self._site = model.site("tcp").id
        first = int(model.joint("joint1").dofadr[0])
        self._arm = slice(first, first + 7)
        self._fingers = [int(model.joint(f"{s}_slide").qposadr[0]) for s in ("left", "right")]
        # Where ``take`` finds the objects' positions and rotation matrices: [n, 3] and [n, 9].
        bodies = np.array([[model.body(e.role).id] for e in entities])
        self._positions = 3 * bodies + np.arange(3)
        self._matrices = 9 * bodies + np.arange(9)
        # Of each object: its first feature column, and its first velocity if it has any.
        rows = [schema.role_offset(e.role) for e in entities]
        dofs = [int(model.joint(e.role).dofadr[0]) if e.free else None for e in entities]
        self._objects = list(zip(rows, dofs, strict=True))
        self._flag = _contact_flags(compiled, rows)

        # What does not change during an episode; every reading starts from a copy.
        self._template = [0.0] * schema.size
        self._looks = np.zeros((N_SLOTS, len(SLOT_COLUMNS)), dtype=np.float32)
        for i, (row, entity) in enumerate(zip(rows, entities, strict=True)):
            for name, value in constant_columns(entity).items():
                self._template[row + _COLUMN[name]] = value
            self._looks[i, 9:12] = entity.half
            self._looks[i, 12 + SHAPES.index(entity.shape)] = 1.0
            self._looks[i, 17:20] = COLORS[entity.color]
            self._looks[i, 20] = 1.0

    def gripper(self, data: mujoco.MjData) -> tuple[np.ndarray, np.ndarray]:
        """Position ``[3]`` and rotation ``[3, 3]`` of the point between the fingertips."""
        return data.site_xpos[self._site], data.site_xmat[self._site].reshape(3, 3)

    def features(self, data: mujoco.MjData, command: float) -> np.ndarray:
        """The state features ``[F]`` float64; positions and contacts must be up to date."""
        out = self._template.copy()
        if data.ncon:
            for one, two in data.contact.geom.tolist():
                out[self._flag[one][two]] = 1.0
        # After the contacts: those that set no flag have written into column 0.
        x, y, z = data.site_xpos[self._site].tolist()
        rotation = data.site_xmat[self._site].tolist()
        qpos, qvel = data.qpos.tolist(), data.qvel.tolist()
        left, right = self._fingers
        out[: len(GRIPPER)] = (
            x,
            y,
            z,
            math.atan2(rotation[3], rotation[0]),
            -rotation[8],
            qpos[left] + qpos[right],
            command,
            math.hypot(*qvel[self._arm]),
        )
        positions = data.xpos.take(self._positions).tolist()
        matrices = data.xmat.take(self._matrices).tolist()
        for (row, dof), position, matrix in zip(self._objects, positions, matrices, strict=True):
            out[row + _X : row + _X + 3] = position
            out[row + _YAW] = math.atan2(matrix[3], matrix[0])
            out[row + _UPRIGHT] = matrix[8]
            if dof is not None:
                out[row + _SPEED] = math.hypot(*qvel[dof : dof + 3])
                out[row + _SPIN] = math.hypot(*qvel[dof + 3 : dof + 6])
        return np.array(out)

    def proprio(self, data: mujoco.MjData) -> np.ndarray:
        """``[8]`` float32, columns of :data:`PROPRIO`."""
        quat = np.empty(4)
        mujoco.mju_mat2Quat(quat, data.site_xmat[self._site])
        left, right = (data.qpos.item(finger) for finger in self._fingers)
        position = data.site_xpos[self._site].tolist()
        values = (*position, *_turn(*quat.tolist()), left, -right)
        return np.array(_bounded(values, _PROPRIO_BOUNDS), dtype=np.float32)

    def objects(self, data: mujoco.MjData, order: np.ndarray) -> np.ndarray:
        """The object table ``[N_SLOTS, len(SLOT_COLUMNS)]`` float32, row i at slot ``order[i]``."""
        positions = data.xpos.take(self._positions).tolist()
        matrices = data.xmat.take(self._matrices).tolist()
        poses = [
            [*_bounded(position, _SLOT_BOUNDS), m[0], m[3], m[6], m[1], m[4], m[7]]
            for position, m in zip(positions, matrices, strict=True)
        ]
        out = np.empty_like(self._looks)
        out[order] = self._looks
        out[order[: self.n_objects], :9] = poses
        return out


def _bounded(values: Sequence[float], bounds: Sequence[float]) -> list[float]:
    return [min(max(value, -bound), bound) for value, bound in zip(values, bounds, strict=True)]


def _contact_flags(compiled: Compiled, rows: Sequence[int]) -> list[list[int]]:
    """Feature column ``[ngeom][ngeom]`` that a contact of two geoms sets, 0 where none.

    ``rows``: first column of each entity.
    """
    model, entities = compiled.model, compiled.entities
    # Each geom as one of: nothing that is reported, the table, a finger pad, an entity.
    kinds = ["", "table", "left", "right", *(entity.role for entity in entities)]
    named = {model.geom("table").id: "table"}
    named |= {model.geom(f"{side}_pad").id: side for side in ("left", "right")}
    roles = {model.body(entity.role).id: entity.role for entity in entities}
    kind = [
        kinds.index(named.get(geom, roles.get(int(body), "")))
        for geom, body in enumerate(model.geom_bodyid)
    ]
    columns = np.zeros((len(kinds),) * 2, dtype=np.intp)
    for row, entity in zip(rows, entities, strict=True):
        for other, name in _TOUCHES.items():
            if other in kinds and other != entity.role:
                one, two = kinds.index(entity.role), kinds.index(other)
                columns[one, two] = columns[two, one] = row + _COLUMN[name]
    flags: list[list[int]] = columns[np.ix_(kind, kind)].tolist()
    return flags
