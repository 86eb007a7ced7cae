"""Arena: scene → MjSpec → MjModel. Table, lights, cameras, robot, and the family's objects."""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import partial

import mujoco
import numpy as np

from coda_envs import robot
from coda_envs.errors import SceneError
from coda_envs.family import get_family
from coda_envs.props import COLORS, LOW_FRICTION, Body, Entity, Geom, Prop
from coda_envs.scene import Scene
from coda_envs.structure import GEOMS, dissect

#: Half size of the table's top (m); an object beyond it counts as off the table.
TABLE = (0.35, 0.50)
#: Middle of the table in x: the table's frame has its origin between robot and far edge.
TABLE_X = 0.03

#: Height and width of the largest picture (pixels).
OFFSCREEN = (960, 1280)

#: Table and things are as hard as the finger pads. As soft as MuJoCo has them by default, the arm
#: presses a light block 3 cm deep into another, and a square peg into a hole that it does not fit.
HARD = {"solref": (0.01, 1.0), "solimp": (0.95, 0.99, 0.001, 0.5, 2.0)}

# Without a handler MuJoCo prints its warnings on standard output and starts a MUJOCO_LOG.TXT in the
# working directory. Who wants to see them gives the logger "mujoco" a handler; that physics has
# diverged, the environment says by itself.
if mujoco.get_mju_user_warning() is None:
    _log = logging.getLogger("mujoco")
    _log.addHandler(logging.NullHandler())
    mujoco.set_mju_user_warning(_log.warning)

_JOINTS = {"slide": mujoco.mjtJoint.mjJNT_SLIDE, "hinge": mujoco.mjtJoint.mjJNT_HINGE}


def geom_friction(sliding: float) -> tuple[float, float, float]:
    """MuJoCo's three friction numbers: sliding, torsional (m), rolling (m)."""
    return (sliding, 0.005, 0.0001)


def geom_name(body: Body, index: int) -> str:
    """Name of a body's shape: the body's own for the first, numbered after that."""
    return body.name if index == 0 else f"{body.name}_{index}"


def _add_body(parent: mujoco.MjsBody, body: Body) -> None:
    """Add a body, its shapes, its joint and its children to the spec."""
    made = parent.add_body(
        name=body.name,
        pos=body.pos,
        quat=body.quat,
        mass=body.mass,
        ipos=body.com,
        inertia=body.inertia,
    )
    # The compiler must derive nothing from the shapes, so that it need not run for a new scene.
    made.explicitinertial = True
    joint = body.joint
    if joint is not None and joint.kind == "free":
        made.add_freejoint(name=body.name)
    elif joint is not None:
        made.add_joint(
            name=body.name,
            type=_JOINTS[joint.kind],
            axis=joint.axis,
            range=(0.0, joint.travel),
            damping=joint.damping,
            frictionloss=joint.friction,
        )
    for index, geom in enumerate(body.geoms):
        _add_geom(made, geom_name(body, index), geom)
    for child in body.children:
        _add_body(made, child)


def _add_geom(body: mujoco.MjsBody, name: str, geom: Geom) -> None:
    bits = robot.WORLD_BITS if geom.collides else (0, 0)
    body.add_geom(
        name=name,
        type=GEOMS[geom.kind],
        pos=geom.pos,
        quat=geom.quat,
        size=geom.size,
        friction=geom_friction(geom.friction),
        **HARD,
        contype=bits[0],
        conaffinity=bits[1],
        rgba=(*COLORS[geom.color], 1.0),
    )


@dataclass(frozen=True)
class Compiled:
    """A scene's model, what it was made from, and its entities in the order the family gave them.

    ``start [nq]``: ``qpos`` at the start of an episode, the joints of robot and things in place.
    ``topology``: equal for scenes whose models differ in numbers alone.
    """

    scene: Scene
    model: mujoco.MjModel
    props: tuple[Prop, ...]
    entities: tuple[Entity, ...]
    start: np.ndarray
    topology: Hashable

    def reset(self, data: mujoco.MjData) -> None:
        """Bring ``data`` to the start of an episode: the arm at home, the hand open."""
        mujoco.mj_resetData(self.model, data)
        data.qpos[:] = self.start
        data.ctrl[:7], data.ctrl[7] = robot.HOME, robot.FINGER


def build_spec(family: str, props: Sequence[Prop]) -> mujoco.MjSpec:
    """The spec before it is compiled, with table, cameras, robot and the scene's things."""
    spec = mujoco.MjSpec()
    spec.modelname = family
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
    # Drawing in software is bound by the number of triangles, most of which are the arm's capsules:
    # MuJoCo's 28 slices and 16 stacks take nearly twice as long.
    visual.quality.numslices, visual.quality.numstacks = 20, 10
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
        friction=geom_friction(LOW_FRICTION),
        **HARD,
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
    for prop in props:
        _add_body(world, prop.body)
    return spec


def compile_scene(scene: Scene) -> Compiled:
    """Compile a scene. Raises :class:`SceneError` with MuJoCo's reason where it does not build."""
    props = tuple(get_family(scene.family).props(scene))
    return compile_props(scene, props, (scene.family, dissect(props)[0]))


def compile_props(scene: Scene, props: tuple[Prop, ...], topology: Hashable) -> Compiled:
    """:func:`compile_scene` for the scene's things, which the caller has at hand."""
    try:
        model = build_spec(scene.family, props).compile()
    except ValueError as error:
        raise SceneError(f"scene {scene.id[:8]} does not compile: {error}") from error
    return assembled(scene, model, props, topology)


def assembled(
    scene: Scene, model: mujoco.MjModel, props: tuple[Prop, ...], topology: Hashable
) -> Compiled:
    """A scene with a model of its things, and where an episode starts."""
    start = model.qpos0.copy()
    places = dict(zip(robot.ARM_JOINTS, robot.HOME, strict=True))
    places |= {f"{side}_slide": robot.FINGER for side in ("left", "right")}
    for prop in props:
        for body in prop.body.walk():
            if body.joint is not None and body.joint.kind != "free":
                places[body.name] = body.joint.start
    for name, place in places.items():
        start[model.joint(name).qposadr[0]] = place
    entities = tuple(entity for prop in props for entity in prop.entities)
    return Compiled(scene, model, props, entities, start, topology)


#: MuJoCo's warnings of numbers that are not finite or far too large.
DIVERGED_KINDS = np.array(
    (
        mujoco.mjtWarning.mjWARN_BADQPOS,
        mujoco.mjtWarning.mjWARN_BADQVEL,
        mujoco.mjtWarning.mjWARN_BADQACC,
    ),
    dtype=np.int64,
)


def divergence(data: mujoco.MjData) -> Callable[[], bool]:
    """A function that says whether the physics of ``data`` has diverged since we last reset it.

    MuJoCo then resets the data by itself and goes on; only the count of its warnings tells. The
    last step's result, which no step has checked, is checked too.
    """
    from coda_envs.kernels import sense

    return partial(sense.diverged, DIVERGED_KINDS, data.warning.number, data.qpos, data.qvel)


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
        "inner_y": entity.inner_y,
        "depth": entity.depth,
        "travel": entity.travel,
        "to_shut": float(entity.to_shut),
    }
