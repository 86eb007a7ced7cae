"""Simulator state → features and observations, by addresses that are resolved once a model."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import partial
from typing import NamedTuple

import mujoco
import numpy as np

from coda_envs.arena import Compiled, constant_columns
from coda_envs.errors import SceneError
from coda_envs.features import OBJECT, FeatureSchema
from coda_envs.props import COLORS, SHAPES

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

_COLUMN = {name: i for i, name in enumerate(OBJECT)}
#: Columns of a role that change with the state, in the order in which the kernel takes them.
_MOVING = ("x", "yaw", "upright", "speed", "spin", "opening")
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
_OPEN = np.array([-1.0])
#: Layouts kept in a process.
_KEPT = 256
#: What a single simulation's contacts end before, however many there are.
_ALL = np.array([np.iinfo(np.int64).max])


def axis_angle(matrix: np.ndarray) -> np.ndarray:
    """Rotation ``[3, 3]`` as axis times angle ``[3]``, angle in [0, π].

    Both signs of a quaternion give the same vector. At exactly π, where two vectors fit, the first
    component that is not zero is positive; crossing π flips the vector's sign, which no three
    numbers can avoid: a policy that needs continuity converts back to a matrix.
    """
    from coda_envs.kernels import sense

    turn = np.empty(3)
    sense.axis_angle(matrix.reshape(9), turn)
    return turn


def object_table(objects: np.ndarray) -> np.ndarray:
    """The ``objects`` observation ``[..., N_SLOTS · D]`` as rows ``[..., N_SLOTS, D]`` of
    :data:`SLOT_COLUMNS`."""
    return objects.reshape(*objects.shape[:-1], N_SLOTS, len(SLOT_COLUMNS))


class SensorLayout(NamedTuple):
    """Where a topology's models keep what the sensor reads: int64 addresses, resolved once.

    Two scenes share a layout where their models have the same bodies, joints and geoms in the same
    order, and their entities the same ``role``, ``free``, ``joint`` and ``part_of``.

    ``robot [4]``: tip site, the arm's first dof, qpos addresses of the left and right finger.
    ``entities [e, 10]``: feature columns of ``_MOVING``; body; first dof where it is free, else -1;
    qpos address and dof of the joint that moves it otherwise, else -1.
    ``kinds [ngeom]``: what each geom belongs to, as rows and columns of ``touches [k, k]``: the
    feature column that a contact of the two sets, -1 where none. ``flags [f]``: all those columns.
    ``bounds [9]`` float64: of ``proprio``'s columns, and of positions in the object table.
    """

    robot: np.ndarray
    entities: np.ndarray
    kinds: np.ndarray
    touches: np.ndarray
    flags: np.ndarray
    bounds: np.ndarray

    @classmethod
    def of(cls, compiled: Compiled, schema: FeatureSchema) -> SensorLayout:
        """The layout of a compiled scene. Raises :class:`SceneError` where it has too many
        things for the object table."""
        key = (compiled.topology, schema.roles)
        if key not in _layouts:
            if len(_layouts) >= _KEPT:
                _layouts.clear()
            _layouts[key] = cls._resolved(compiled, schema)
        return _layouts[key]

    @classmethod
    def _resolved(cls, compiled: Compiled, schema: FeatureSchema) -> SensorLayout:
        model, entities = compiled.model, compiled.entities
        if len(entities) > N_SLOTS:
            raise SceneError(
                f"scene {compiled.scene.id[:8]} has {len(entities)} things.",
                allowed=f"at most {N_SLOTS}, the rows of the object table",
                remedy="give the family's props fewer entities",
            )
        fingers = [int(model.joint(f"{side}_slide").qposadr[0]) for side in ("left", "right")]
        robot = [model.site("tcp").id, int(model.joint("joint1").dofadr[0]), *fingers]
        rows = []
        for entity in entities:
            first = schema.role_offset(entity.role)
            free = int(model.joint(entity.role).dofadr[0]) if entity.free else -1
            joint, dof = -1, -1
            if entity.joint:
                found = model.joint(entity.joint)
                joint, dof = int(found.qposadr[0]), int(found.dofadr[0])
            columns = [first + _COLUMN[name] for name in _MOVING]
            rows.append([*columns, model.body(entity.role).id, free, joint, dof])
        kinds, touches = _contact_flags(compiled, schema)
        return cls(
            np.array(robot, dtype=np.int64),
            np.array(rows, dtype=np.int64),
            np.array(kinds, dtype=np.int64),
            touches,
            np.unique(touches[touches >= 0]),
            np.array([*PROPRIO_BOUND, SLOT_BOUND[0]], dtype=np.float64),
        )


_layouts: dict[Hashable, SensorLayout] = {}


class SensorRows:
    """What the sensor finds, one row an environment, and what is constant for each one's scene.

    ``features [n, F]`` float64; ``proprio [n, 8]``, ``objects [n, N_SLOTS, D]`` float32; ``poses
    [n, 7]``: position (m) and quaternion (w, x, y, z) of the point between the fingertips.
    ``motion [n, N_SLOTS, 3]``: travel (m or rad) of each entity's joint, and what a velocity of
    that joint means in m/s and in rad/s. ``slots [n, N_SLOTS]``: in which row of the object table
    each entity is. The arrays are written in place: who keeps numbers copies them.
    """

    def __init__(self, n: int, schema: FeatureSchema) -> None:
        self._schema = schema
        self.features = np.zeros((n, schema.size))
        self.proprio = np.zeros((n, len(PROPRIO)), dtype=np.float32)
        self.objects = np.zeros((n, N_SLOTS, len(SLOT_COLUMNS)), dtype=np.float32)
        self.poses = np.zeros((n, 7))
        self.motion = np.zeros((n, N_SLOTS, 3))
        self.slots = np.zeros((n, N_SLOTS), dtype=np.int64)

    def load(self, env: int, compiled: Compiled, order: np.ndarray) -> None:
        """Write what is constant for a scene. Object ``order[i]`` goes into slot i of the table."""
        self.features[env] = 0.0
        for i, entity in enumerate(compiled.entities):
            first = self._schema.role_offset(entity.role)
            for name, value in constant_columns(entity).items():
                self.features[env, first + _COLUMN[name]] = value
            if entity.joint:
                kind = int(compiled.model.joint(entity.joint).type[0])
                hinge = kind == mujoco.mjtJoint.mjJNT_HINGE
                lever = (entity.lever, 1.0) if hinge else (1.0, 0.0)
                self.motion[env, i] = (entity.travel, *lever)
        self.arrange(env, compiled, order)

    def arrange(self, env: int, compiled: Compiled, order: np.ndarray) -> None:
        """Put the scene's objects into other slots."""
        self.slots[env] = np.argsort(order)
        table = self.objects[env]
        table[:] = 0.0
        for slot, entity in zip(self.slots[env], compiled.entities, strict=False):
            table[slot, _HALF : _HALF + 3] = entity.half
            table[slot, _SHAPE + SHAPES.index(entity.shape)] = 1.0
            table[slot, _RGB : _RGB + 3] = COLORS[entity.color]
            table[slot, _PRESENT] = 1.0


class Sensor:
    """Reads the state of one ``MjData`` of a compiled scene.

    ``command [1]``: the last action's gripper component, the hand told to open if it is left out;
    the array is read anew each time. ``pose [1, 7]``: where the gripper was when the state was last
    read, see :class:`SensorRows`.
    """

    def __init__(
        self,
        compiled: Compiled,
        data: mujoco.MjData,
        schema: FeatureSchema,
        command: np.ndarray = _OPEN,
    ) -> None:
        from coda_envs.kernels import sense

        self._compiled, self._contact = compiled, data.contact
        self._rows = rows = SensorRows(1, schema)
        rows.load(0, compiled, np.arange(N_SLOTS))
        self.pose = rows.poses
        self._features: np.ndarray = rows.features[0]
        self._proprio: np.ndarray = rows.proprio[0]
        self._objects = rows.objects.reshape(-1)
        only = np.zeros(1, dtype=np.int64)
        # Views of MuJoCo's arrays, taken once: asking for one costs more than reading it.
        self._sense: Callable[[np.ndarray], None] = partial(
            sense.sense,
            *SensorLayout.of(compiled, schema),
            *(only, only),
            *(data.qpos[None], data.qvel[None], data.xpos[None], data.xmat[None]),
            *(data.site_xpos[None], data.site_xmat[None]),
            *(_ALL, rows.motion, rows.slots, command),
            *(rows.poses, rows.features, rows.proprio, rows.objects),
        )

    def arrange(self, order: np.ndarray) -> None:
        """Put object ``order[i]`` into slot i of the object table, from the next reading on."""
        self._rows.arrange(0, self._compiled, order)

    def read(self) -> np.ndarray:
        """The state features ``[F]`` float64; positions and contacts of the data must be up to
        date."""
        self._sense(self._contact.geom)
        return self._features.copy()

    def proprio(self) -> np.ndarray:
        """``[8]`` float32, columns of :data:`PROPRIO`, as they were when last read."""
        return self._proprio.copy()

    def objects(self) -> np.ndarray:
        """The object table, flat, ``[N_SLOTS · D]`` float32, as it was when last read."""
        return self._objects.copy()


def _contact_flags(compiled: Compiled, schema: FeatureSchema) -> tuple[list[int], np.ndarray]:
    """``kinds`` and ``touches`` of a :class:`SensorLayout`."""
    model, entities = compiled.model, compiled.entities
    # Each geom as one of: nothing that is reported, the table, a finger pad, an entity.
    names = ["", "table", "left", "right", *(entity.role for entity in entities)]
    named = {model.geom("table").id: "table"}
    named |= {model.geom(f"{side}_pad").id: side for side in ("left", "right")}
    roles = {model.body(entity.role).id: entity.role for entity in entities}
    kinds = [
        names.index(named.get(geom, roles.get(int(body), "")))
        for geom, body in enumerate(model.geom_bodyid)
    ]
    touches = np.full((len(names),) * 2, -1, dtype=np.int64)
    for other, name in reversed(_TOUCHES.items()):
        parts = [entity.role for entity in entities if entity.part_of == other]
        meant = [names.index(kind) for kind in (other, *parts) if kind in names]
        for entity in entities:
            one = names.index(entity.role)
            if entity.role == other:
                continue
            for two in meant:
                column = schema.role_offset(entity.role) + _COLUMN[name]
                touches[one, two] = touches[two, one] = column
    return kinds, touches
