"""Simulator state → features and observations, by addresses that are resolved once a model."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import mujoco
import numpy as np

from coda_envs.arena import Compiled, constant_columns
from coda_envs.errors import SceneError
from coda_envs.features import GRIPPER, OBJECT, FeatureSchema
from coda_envs.props import COLORS, SHAPES, Entity

#: Rows of the object table; scenes fill as many as they have objects, in shuffled order.
N_SLOTS = 6

#: Columns of a row: position (m, table frame), first two columns of the rotation matrix, half
#: extents (m), shape (one of ``SHAPES``), colour (RGB in [0, 1]), whether the row is used.
SLOT_COLUMNS = (
    *("x", "y", "z"),
    *("r00", "r10", "r20", "r01", "r11", "r21"),
    *("half_x", "half_y", "half_z"),
    *(f"is_{shape}" for shape in SHAPES),
    *("red", "green", "blue"),
    "present",
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

_PROPRIO_BOUNDS = PROPRIO_BOUND.tolist()
_HIGHEST, _LOWEST = SLOT_BOUND[:3].astype(float), -SLOT_BOUND[:3].astype(float)
# The first two columns of a rotation matrix that is stored by rows.
_FIRST_COLUMNS = np.array((0, 3, 6, 1, 4, 7))
_COLUMN = {name: i for i, name in enumerate(OBJECT)}
_X, _YAW, _UPRIGHT, _SPEED, _SPIN, _OPENING = (
    _COLUMN[name] for name in ("x", "yaw", "upright", "speed", "spin", "opening")
)
#: First columns of the object table's blocks.
_HALF, _SHAPE = SLOT_COLUMNS.index("half_x"), SLOT_COLUMNS.index(f"is_{SHAPES[0]}")
_RGB, _PRESENT = SLOT_COLUMNS.index("red"), SLOT_COLUMNS.index("present")

#: What a contact with each of these says of an object, by feature column. Of a pair that both
#: columns of roles fit, the first counts.
_TOUCHES = {
    "left": "left",
    "right": "right",
    "table": "table",
    "receptacle": "supported",
    "target": "on_target",
}


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


def object_table(objects: np.ndarray) -> np.ndarray:
    """The ``objects`` observation ``[..., N_SLOTS · D]`` as rows ``[..., N_SLOTS, D]`` of
    :data:`SLOT_COLUMNS`."""
    return objects.reshape(*objects.shape[:-1], N_SLOTS, len(SLOT_COLUMNS))


class Reading(NamedTuple):
    """One state as MuJoCo knows it, copied out of its arrays once for all that is made of it.

    ``position [3]`` and ``quat [4]`` (w, x, y, z) of the point between the fingertips, its rotation
    ``matrix`` by rows, ``positions [n, 3]`` and ``matrices [n, 9]`` of the objects, generalised
    coordinates and velocities, and the pairs of geoms that touch.
    """

    position: np.ndarray
    quat: np.ndarray
    matrix: list[float]
    positions: np.ndarray
    matrices: np.ndarray
    qpos: list[float]
    qvel: list[float]
    touching: list[list[int]]


class _Jointed(NamedTuple):
    """How an entity on a joint moves: addresses, travel, and speeds (m/s, rad/s) for a joint's."""

    address: int
    dof: int
    travel: float
    lever: float
    turns: float

    @classmethod
    def of(cls, model: mujoco.MjModel, entity: Entity) -> _Jointed | None:
        """The joint of an entity, or None."""
        if not entity.joint:
            return None
        joint = model.joint(entity.joint)
        hinge = int(joint.type[0]) == mujoco.mjtJoint.mjJNT_HINGE
        return cls(
            int(joint.qposadr[0]),
            int(joint.dofadr[0]),
            entity.travel,
            entity.lever if hinge else 1.0,
            1.0 if hinge else 0.0,
        )


class Sensor:
    """Reads the state of one ``MjData`` of a compiled scene.

    A reading is some dozens of numbers, too few for NumPy, whose calls cost more than the
    arithmetic. So MuJoCo's arrays, of which views are taken once, are turned into Python floats,
    and those into one array at the end.
    """

    def __init__(self, compiled: Compiled, data: mujoco.MjData, schema: FeatureSchema) -> None:
        self._data = data
        self._qpos, self._qvel = data.qpos, data.qvel
        self._xpos, self._xmat = data.xpos, data.xmat
        model, entities = compiled.model, compiled.entities
        self.n_objects = len(entities)
        site = model.site("tcp").id
        self._tip, self._tip_matrix = data.site_xpos[site], data.site_xmat[site]
        first = int(model.joint("joint1").dofadr[0])
        self._arm = slice(first, first + 7)
        self._fingers = [int(model.joint(f"{s}_slide").qposadr[0]) for s in ("left", "right")]
        # Where ``take`` finds the objects' positions and rotation matrices: [n, 3] and [n, 9].
        bodies = np.array([[model.body(e.role).id] for e in entities])
        self._positions = 3 * bodies + np.arange(3)
        self._matrices = 9 * bodies + np.arange(9)
        if self.n_objects > N_SLOTS:
            raise SceneError(
                f"scene {compiled.scene.id[:8]} has {self.n_objects} things.",
                allowed=f"at most {N_SLOTS}, the rows of the object table",
                remedy="give the family's props fewer entities",
            )
        # Of each object: its first feature column, its first velocity if it is free, and its joint.
        rows = [schema.role_offset(e.role) for e in entities]
        dofs = [int(model.joint(e.role).dofadr[0]) if e.free else None for e in entities]
        joints = [_Jointed.of(model, e) for e in entities]
        self._objects = list(zip(rows, dofs, joints, strict=True))
        self._flag = _contact_flags(compiled, rows)

        # What does not change during an episode is written once.
        self._template = [0.0] * schema.size
        self._table = np.zeros((N_SLOTS, len(SLOT_COLUMNS)), dtype=np.float32)
        self._table_positions = self._table[: self.n_objects, :3]
        self._table_columns = self._table[: self.n_objects, 3:9]
        for i, (row, entity) in enumerate(zip(rows, entities, strict=True)):
            for name, value in constant_columns(entity).items():
                self._template[row + _COLUMN[name]] = value
            self._table[i, _HALF : _HALF + 3] = entity.half
            self._table[i, _SHAPE + SHAPES.index(entity.shape)] = 1.0
            self._table[i, _RGB : _RGB + 3] = COLORS[entity.color]
            self._table[i, _PRESENT] = 1.0

    def read(self) -> Reading:
        """The current state; positions and contacts of the data must be up to date."""
        quat = np.empty(4)
        mujoco.mju_mat2Quat(quat, self._tip_matrix)
        return Reading(
            self._tip.copy(),
            quat,
            self._tip_matrix.tolist(),
            self._xpos.take(self._positions),
            self._xmat.take(self._matrices),
            self._qpos.tolist(),
            self._qvel.tolist(),
            self._data.contact.geom.tolist() if self._data.ncon else [],
        )

    def features(self, reading: Reading, command: float) -> np.ndarray:
        """The state features ``[F]`` float64. ``command``: the last action's gripper component."""
        out = self._template.copy()
        for one, two in reading.touching:
            out[self._flag[one][two]] = 1.0
        # After the contacts: those that set no flag have written into column 0.
        x, y, z = reading.position.tolist()
        matrix, qpos, qvel = reading.matrix, reading.qpos, reading.qvel
        left, right = self._fingers
        out[: len(GRIPPER)] = (
            x,
            y,
            z,
            math.atan2(matrix[3], matrix[0]),
            -matrix[8],
            qpos[left] + qpos[right],
            command,
            math.hypot(*qvel[self._arm]),
        )
        poses = zip(reading.positions.tolist(), reading.matrices.tolist(), strict=True)
        for (row, dof, joint), (position, matrix) in zip(self._objects, poses, strict=True):
            out[row + _X : row + _X + 3] = position
            out[row + _YAW] = math.atan2(matrix[3], matrix[0])
            out[row + _UPRIGHT] = matrix[8]
            if dof is not None:
                out[row + _SPEED] = math.hypot(*qvel[dof : dof + 3])
                out[row + _SPIN] = math.hypot(*qvel[dof + 3 : dof + 6])
            elif joint is not None:
                velocity = abs(qvel[joint.dof])
                out[row + _OPENING] = qpos[joint.address] / joint.travel
                out[row + _SPEED] = velocity * joint.lever
                out[row + _SPIN] = velocity * joint.turns
        return np.array(out)

    def proprio(self, reading: Reading) -> np.ndarray:
        """``[8]`` float32, columns of :data:`PROPRIO`."""
        left, right = (reading.qpos[finger] for finger in self._fingers)
        turn = _turn(*reading.quat.tolist())
        values = (*reading.position.tolist(), *turn, left, -right)
        bounded = [max(-b, min(v, b)) for v, b in zip(values, _PROPRIO_BOUNDS, strict=True)]
        return np.array(bounded, dtype=np.float32)

    def objects(self, reading: Reading, order: np.ndarray) -> np.ndarray:
        """The table ``[N_SLOTS, len(SLOT_COLUMNS)]`` float32 with object ``order[i]`` in slot i."""
        # Only positions can leave the bounds: a thing that is pushed off the table falls and falls.
        positions = np.minimum(reading.positions, _HIGHEST)
        np.maximum(positions, _LOWEST, out=self._table_positions, casting="same_kind")
        self._table_columns[:] = reading.matrices.take(_FIRST_COLUMNS, axis=1)
        return self._table.take(order, axis=0)


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
    for other, name in reversed(_TOUCHES.items()):
        parts = [entity.role for entity in entities if entity.part_of == other]
        meant = [kinds.index(kind) for kind in (other, *parts) if kind in kinds]
        for row, entity in zip(rows, entities, strict=True):
            one = kinds.index(entity.role)
            if entity.role == other:
                continue
            for two in meant:
                columns[one, two] = columns[two, one] = row + _COLUMN[name]
    flags: list[list[int]] = columns[np.ix_(kind, kind)].tolist()
    return flags
