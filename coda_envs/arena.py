"""Arena: scene → MjSpec → MjModel. Table, lights, cameras, robot, and the family's objects."""

from __future__ import annotations

import logging
import math
from collections import OrderedDict
from dataclasses import dataclass, field

import mujoco
import numpy as np

from coda_envs import robot
from coda_envs.errors import SceneError
from coda_envs.family import get_family
from coda_envs.scene import Scene

#: Half size of the table's top (m); an object beyond it counts as off the table.
TABLE = (0.35, 0.50)
#: Middle of the table in x: the table's frame has its origin between robot and far edge.
TABLE_X = 0.03

#: Height and width of the largest picture (pixels).
OFFSCREEN = (960, 1280)

#: Thickness of a tray's walls (m).
WALL = 0.010

COLORS: dict[str, tuple[float, float, float]] = {
    "red": (0.85, 0.15, 0.14),
    "green": (0.20, 0.62, 0.25),
    "blue": (0.16, 0.35, 0.80),
    "yellow": (0.93, 0.79, 0.18),
    "purple": (0.52, 0.25, 0.66),
    "orange": (0.94, 0.50, 0.13),
    "white": (0.93, 0.93, 0.90),
    "gray": (0.52, 0.54, 0.56),
    "black": (0.16, 0.16, 0.18),
}
SHAPES = ("cube", "bar", "cylinder", "plate", "tray")

# Without a handler MuJoCo prints its warnings on standard output and starts a MUJOCO_LOG.TXT in the
# working directory.
if mujoco.get_mju_user_warning() is None:
    mujoco.set_mju_user_warning(logging.getLogger("mujoco").warning)

# The lowest sliding friction any pair can have: MuJoCo takes the larger of the two, so the table
# stays low and the object's own value decides.
_LOW_FRICTION = (0.3, 0.005, 0.0001)


@dataclass(frozen=True)
class Entity:
    """What sensing needs to know of one object: its looks, and the constant feature columns."""

    role: str
    shape: str
    color: str
    half: tuple[float, float, float]
    free: bool
    yaw_period: float = 0.0
    inner: float = 0.0
    surface_z: float = 0.0


@dataclass
class SceneBuilder:
    """What a family's ``build`` calls: adds objects to the spec and remembers their entities."""

    spec: mujoco.MjSpec
    entities: list[Entity] = field(default_factory=list)

    def add_object(
        self,
        role: str,
        shape: str,
        half: tuple[float, float, float],
        xy: tuple[float, float],
        yaw: float,
        mass: float,
        friction: float,
        color: str,
    ) -> None:
        """A free object that stands on the table: ``cube``, ``bar`` (boxes) or ``cylinder``.

        ``half``: half extents (m); ``yaw``: turn about the vertical (rad); ``friction``: sliding.
        """
        body = self.spec.worldbody.add_body(
            name=role, pos=(*xy, half[2]), quat=(math.cos(yaw / 2), 0, 0, math.sin(yaw / 2))
        )
        body.add_freejoint(name=role)
        round_ = shape == "cylinder"
        body.add_geom(
            name=role,
            type=mujoco.mjtGeom.mjGEOM_CYLINDER if round_ else mujoco.mjtGeom.mjGEOM_BOX,
            size=(half[0], half[2], 0) if round_ else half,
            mass=mass,
            friction=(friction, 0.005, 0.0001),
            contype=robot.WORLD_BITS[0],
            conaffinity=robot.WORLD_BITS[1],
            rgba=(*COLORS[color], 1.0),
        )
        period = 0.0 if round_ else (math.pi / 2 if shape == "cube" else math.pi)
        self.entities.append(Entity(role, shape, color, half, free=True, yaw_period=period))

    def add_plate(self, role: str, radius: float, xy: tuple[float, float], color: str) -> None:
        """A flat disc fixed to the table, 1 cm high; ``radius`` in metres."""
        half_z = 0.005
        body = self.spec.worldbody.add_body(name=role, pos=(*xy, half_z))
        disc = mujoco.mjtGeom.mjGEOM_CYLINDER
        self._fixed(body, role, disc, (0, 0, 0), (radius, half_z, 0), color)
        self.entities.append(
            Entity(
                role, "plate", color, (radius, radius, half_z), free=False,
                inner=radius, surface_z=2 * half_z,
            )
        )  # fmt: skip

    def add_tray(
        self, role: str, half: float, rim: float, xy: tuple[float, float], color: str
    ) -> None:
        """A square tray fixed to the table; ``half``: its half width, ``rim``: its walls' height
        (m)."""
        floor, wall = 0.004, WALL / 2
        half_z = (2 * floor + rim) / 2
        box = mujoco.mjtGeom.mjGEOM_BOX
        body = self.spec.worldbody.add_body(name=role, pos=(*xy, half_z))
        self._fixed(body, role, box, (0, 0, floor - half_z), (half, half, floor), color)
        for i, (x, y) in enumerate(((1, 0), (-1, 0), (0, 1), (0, -1))):
            size = (wall if x else half, wall if y else half, half_z)
            at = (x * (half - wall), y * (half - wall), 0.0)
            self._fixed(body, f"{role}_wall{i}", box, at, size, color)
        self.entities.append(
            Entity(
                role, "tray", color, (half, half, half_z), free=False,
                inner=half - WALL, surface_z=2 * floor,
            )
        )  # fmt: skip

    def _fixed(
        self,
        body: mujoco.MjsBody,
        name: str,
        kind: mujoco.mjtGeom,
        at: tuple[float, ...],
        size: tuple[float, ...],
        color: str,
    ) -> None:
        body.add_geom(
            name=name,
            type=kind,
            pos=at,
            size=size,
            friction=_LOW_FRICTION,
            contype=robot.WORLD_BITS[0],
            conaffinity=robot.WORLD_BITS[1],
            rgba=(*COLORS[color], 1.0),
        )


@dataclass(frozen=True)
class Compiled:
    """A scene's model and the entities in it, in the order the family added them."""

    scene: Scene
    model: mujoco.MjModel
    entities: tuple[Entity, ...]


def build_spec(scene: Scene) -> SceneBuilder:
    """The scene's spec before it is compiled, with table, cameras, robot and objects."""
    spec = mujoco.MjSpec()
    spec.modelname = scene.family
    robot.configure(spec)
    # Fixed, so that moving one object changes nothing that is derived from all of them.
    spec.stat.center = (0.0, 0.0, 0.1)
    spec.stat.extent = 1.0
    spec.stat.meansize = 0.05
    spec.stat.meanmass = 0.5
    visual = spec.visual
    visual.headlight.ambient = (0.45, 0.45, 0.45)
    visual.headlight.diffuse = (0.25, 0.25, 0.25)
    visual.headlight.specular = (0.05, 0.05, 0.05)
    visual.map.znear = 0.01
    visual.global_.offheight, visual.global_.offwidth = OFFSCREEN
    # A plain light backdrop: without one the picture ends in black.
    sky = spec.add_texture(name="sky", type=mujoco.mjtTexture.mjTEXTURE_SKYBOX)
    sky.builtin = mujoco.mjtBuiltin.mjBUILTIN_GRADIENT
    sky.rgb1 = (0.87, 0.90, 0.93)
    sky.rgb2 = (0.72, 0.77, 0.82)
    sky.width, sky.height = 16, 96
    world = spec.worldbody
    light = world.add_light(pos=(0.3, -0.4, 1.5), dir=(-0.2, 0.3, -1.0), castshadow=False)
    light.type = mujoco.mjtLightType.mjLIGHT_DIRECTIONAL
    light.diffuse = (0.55, 0.55, 0.55)
    light.specular = (0.1, 0.1, 0.1)
    world.add_geom(
        name="table",
        type=mujoco.mjtGeom.mjGEOM_PLANE,
        pos=(TABLE_X, 0, 0),
        size=(*TABLE, 0.1),
        friction=_LOW_FRICTION,
        contype=robot.WORLD_BITS[0],
        conaffinity=robot.WORLD_BITS[1],
        rgba=(0.80, 0.72, 0.60, 1.0),
    )
    world.add_geom(
        name="table_top",
        type=mujoco.mjtGeom.mjGEOM_BOX,
        pos=(TABLE_X, 0, -0.0255),
        size=(*TABLE, 0.025),
        contype=0,
        conaffinity=0,
        rgba=(0.62, 0.52, 0.40, 1.0),
    )
    _camera(world, "agentview", eye=(-0.40, -0.62, 0.66), at=(0.0, 0.0, 0.06), fovy=50.0)
    robot.add_robot(spec)
    builder = SceneBuilder(spec)
    get_family(scene.family).build(builder, scene)
    return builder


def compile_scene(scene: Scene) -> Compiled:
    """Compile a scene. Raises :class:`SceneError` with MuJoCo's reason where it does not build."""
    builder = build_spec(scene)
    try:
        model = builder.spec.compile()
    except ValueError as error:
        raise SceneError(f"scene {scene.id[:8]} does not compile: {error}") from error
    return Compiled(scene, model, tuple(builder.entities))


#: MuJoCo's warnings of numbers that are not finite or far too large.
_DIVERGED = tuple(
    int(kind)
    for kind in (
        mujoco.mjtWarning.mjWARN_BADQPOS,
        mujoco.mjtWarning.mjWARN_BADQVEL,
        mujoco.mjtWarning.mjWARN_BADQACC,
    )
)


def diverged(data: mujoco.MjData) -> bool:
    """Whether physics has diverged since the data was last reset by us.

    MuJoCo then resets the data by itself and goes on; only the count of its warnings tells.
    """
    counts = data.warning.number.tolist()
    if any(counts[kind] for kind in _DIVERGED):
        return True
    # The last step's result, which no step has checked.
    return not math.isfinite(sum(data.qpos.tolist()) + sum(data.qvel.tolist()))


def _camera(
    body: mujoco.MjsBody,
    name: str,
    eye: tuple[float, float, float],
    at: tuple[float, float, float],
    fovy: float,
) -> None:
    """A camera at ``eye`` that looks at ``at`` with the world's z axis up."""
    back = np.subtract(eye, at)
    back /= np.linalg.norm(back)
    right = np.cross((0.0, 0.0, 1.0), back)
    right /= np.linalg.norm(right)
    up = np.cross(back, right)
    quat = np.empty(4)
    mujoco.mju_mat2Quat(quat, np.stack([right, up, back], axis=1).ravel())
    body.add_camera(name=name, pos=eye, quat=quat, fovy=fovy)


class CompileCache:
    """The last few compiled scenes of one environment. Never shared: users may edit models."""

    def __init__(self, size: int = 8) -> None:
        self._size = size
        self._entries: OrderedDict[str, Compiled] = OrderedDict()

    def get(self, scene: Scene) -> Compiled:
        """The compiled scene, compiling it if it is not among the last few."""
        found = self._entries.get(scene.id)
        if found is None:
            found = self._entries[scene.id] = compile_scene(scene)
            if len(self._entries) > self._size:
                self._entries.popitem(last=False)
        self._entries.move_to_end(scene.id)
        return found


def constant_columns(entity: Entity) -> dict[str, float]:
    """The feature columns of a role that do not change during an episode."""
    return {
        "present": 1.0,
        "half_x": entity.half[0],
        "half_y": entity.half[1],
        "half_z": entity.half[2],
        "yaw_period": entity.yaw_period,
        "inner": entity.inner,
        "surface_z": entity.surface_z,
    }
