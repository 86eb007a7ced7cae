"""Simulator state → features and observations, by addresses that are resolved once a model."""

from __future__ import annotations

import math

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

_TABLE, _LEFT, _RIGHT, _OTHER = 0, 1, 2, 3
_FIRST_ROLE = 4


def axis_angle(matrix: np.ndarray) -> np.ndarray:
    """Rotation ``[3, 3]`` as axis times angle ``[3]``, angle in [0, π].

    Both signs of a quaternion give the same vector. At exactly π, where two vectors fit, the first
    component that is not zero is positive; crossing π flips the vector's sign, which no three
    numbers can avoid: a policy that needs continuity converts back to a matrix.
    """
    quat = np.empty(4)
    mujoco.mju_mat2Quat(quat, matrix.ravel())
    w, v = float(quat[0]), quat[1:]
    if abs(w) < 1e-9:
        lead = next((float(c) for c in v if abs(c) > 1e-9), 1.0)
        w, v = 0.0, v * math.copysign(1.0, lead)
    elif w < 0.0:
        w, v = -w, -v
    length = math.sqrt(float(v @ v))
    if length < 1e-12:
        return np.zeros(3)
    return np.asarray(v * (2.0 * math.atan2(length, w) / length))


class Sensor:
    """Reads one compiled scene's state. Create one for each model; reading allocates little."""

    def __init__(self, compiled: Compiled, schema: FeatureSchema) -> None:
        model = compiled.model
        self._site = model.site("tcp").id
        self._arm = np.array([model.joint(f"joint{i}").dofadr[0] for i in range(1, 8)])
        self._fingers = [int(model.joint(f"{s}_slide").qposadr[0]) for s in ("left", "right")]
        entities = compiled.entities
        self.n_objects = len(entities)
        self._bodies = np.array([model.body(e.role).id for e in entities])
        self._velocity = np.array(
            [model.joint(e.role).dofadr[0] if e.free else -1 for e in entities]
        )
        self._free = np.flatnonzero(self._velocity >= 0)
        self._free_dofs = self._velocity[self._free][:, None] + np.arange(6)

        # Which entity each geom belongs to, for the vectorised contact scan.
        by_body = {int(b): _FIRST_ROLE + i for i, b in enumerate(self._bodies)}
        self._entity = np.full(model.ngeom, _OTHER)
        for geom in range(model.ngeom):
            self._entity[geom] = by_body.get(int(model.geom_bodyid[geom]), _OTHER)
        self._entity[model.geom("table").id] = _TABLE
        self._entity[model.geom("left_pad").id] = _LEFT
        self._entity[model.geom("right_pad").id] = _RIGHT
        self._touch = np.zeros((_FIRST_ROLE + self.n_objects,) * 2, dtype=bool)
        roles = [e.role for e in entities]
        self._receptacle = (
            _FIRST_ROLE + roles.index("receptacle") if "receptacle" in roles else _OTHER
        )

        # The constant columns once; every reading starts from a copy of them.
        self._template = np.zeros(schema.size)
        self._rows = np.array([schema.role_offset(role) for role in roles])
        for row, entity in zip(self._rows, entities, strict=True):
            for name, value in constant_columns(entity).items():
                self._template[row + OBJECT.index(name)] = value
        column = {name: i for i, name in enumerate(OBJECT)}
        self._pose = self._rows[:, None] + np.arange(column["x"], column["x"] + 3)
        self._yaw = self._rows + column["yaw"]
        self._upright = self._rows + column["upright"]
        self._speed = self._rows[self._free] + column["speed"]
        self._spin = self._rows[self._free] + column["spin"]
        self._flags = self._rows[:, None] + [
            column[name] for name in ("left", "right", "supported", "table")
        ]
        self._table_rows = np.zeros((N_SLOTS, len(SLOT_COLUMNS)), dtype=np.float32)
        for i, entity in enumerate(entities):
            self._table_rows[i, 9:12] = entity.half
            self._table_rows[i, 12 + SHAPES.index(entity.shape)] = 1.0
            self._table_rows[i, 17:20] = COLORS[entity.color]
            self._table_rows[i, 20] = 1.0

    def gripper(self, data: mujoco.MjData) -> tuple[np.ndarray, np.ndarray]:
        """Position ``[3]`` and rotation ``[3, 3]`` of the point between the fingertips."""
        return data.site_xpos[self._site], data.site_xmat[self._site].reshape(3, 3)

    def features(self, data: mujoco.MjData, command: float) -> np.ndarray:
        """The state features ``[F]`` float64; positions and contacts must be up to date."""
        out = self._template.copy()
        position, rotation = self.gripper(data)
        left, right = data.qpos[self._fingers[0]], data.qpos[self._fingers[1]]
        joints = data.qvel[self._arm]
        out[: len(GRIPPER)] = (
            position[0],
            position[1],
            position[2],
            math.atan2(rotation[1, 0], rotation[0, 0]),
            -rotation[2, 2],
            left + right,
            command,
            math.sqrt(joints @ joints),
        )
        matrices = data.xmat[self._bodies]
        out[self._pose] = data.xpos[self._bodies]
        out[self._yaw] = np.arctan2(matrices[:, 3], matrices[:, 0])
        out[self._upright] = matrices[:, 8]
        velocity = data.qvel[self._free_dofs]
        out[self._speed] = np.sqrt((velocity[:, :3] ** 2).sum(1))
        out[self._spin] = np.sqrt((velocity[:, 3:] ** 2).sum(1))
        touch = self._touch
        touch[:] = False
        if data.ncon:
            pairs = self._entity[data.contact.geom]
            touch[pairs[:, 0], pairs[:, 1]] = True
            touch[pairs[:, 1], pairs[:, 0]] = True
        rows = touch[_FIRST_ROLE:]
        out[self._flags] = rows[:, (_LEFT, _RIGHT, self._receptacle, _TABLE)]
        return out

    def proprio(self, data: mujoco.MjData) -> np.ndarray:
        """``[8]`` float32, columns of :data:`PROPRIO`."""
        position, rotation = self.gripper(data)
        out = np.empty(8, dtype=np.float32)
        out[:3] = position
        out[3:6] = axis_angle(rotation)
        out[6] = data.qpos[self._fingers[0]]
        out[7] = -data.qpos[self._fingers[1]]
        return out

    def objects(self, data: mujoco.MjData, order: np.ndarray) -> np.ndarray:
        """The object table ``[N_SLOTS, len(SLOT_COLUMNS)]`` float32, row i at slot ``order[i]``."""
        rows = self._table_rows
        n = self.n_objects
        matrices = data.xmat[self._bodies]
        rows[:n, :3] = data.xpos[self._bodies]
        rows[:n, 3:9] = matrices[:, (0, 3, 6, 1, 4, 7)]
        out = np.empty_like(rows)
        out[order] = rows
        return out
