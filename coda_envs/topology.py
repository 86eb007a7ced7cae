"""Topologies: a model compiled once for all scenes of one structure, and written for each of them.

MuJoCo's compiler takes some milliseconds a scene; writing the numbers of a scene into a copy of a
compiled model takes a fraction of one, and gives the same model to the last bit.
"""

from __future__ import annotations

import copy
import threading
from collections import OrderedDict
from collections.abc import Hashable, Sequence
from functools import cached_property
from typing import Any

import mujoco
import numpy as np

from coda_envs.arena import Compiled, assembled, compile_props
from coda_envs.family import get_family
from coda_envs.props import Prop
from coda_envs.scene import Scene
from coda_envs.structure import GEOMS, Numbers, dissect

#: Topologies kept in a process; beyond this the one not used for longest is compiled anew.
KEPT = 128
#: Topologies of which an environment keeps a model and data, about half a megabyte each.
PAIRS = 16

_BOX, _CYLINDER = GEOMS["box"], GEOMS["cylinder"]


class _Fields:
    """All of a model that can be changed: its arrays, and the numbers of its options."""

    def __init__(self, model: mujoco.MjModel) -> None:
        self.arrays: list[np.ndarray] = []
        self.numbers: list[tuple[Any, str]] = []
        self._look(model, model=True)

    def _look(self, part: Any, *, model: bool = False) -> None:
        for name in dir(part):
            if name.startswith("_"):
                continue
            value = getattr(part, name)
            if isinstance(value, np.ndarray):
                # Most of the arrays are of things that our models lack.
                if value.size:
                    self.arrays.append(value)
            elif isinstance(value, int | float):
                # The model's own numbers are sizes.
                if not model:
                    self.numbers.append((part, name))
            elif type(value).__module__ == mujoco.MjModel.__module__:
                self._look(value)


class Pair:
    """A model that scenes of one topology are written into, one after the other, and its data.

    To make the two takes longer than to write a scene.
    """

    def __init__(self, model: mujoco.MjModel) -> None:
        self.model = model
        self.data = mujoco.MjData(model)
        self._fields = _Fields(model)

    def restore(self, fields: _Fields) -> None:
        """Make the model what these fields say."""
        for mine, given in zip(self._fields.arrays, fields.arrays, strict=True):
            mine[...] = given
        for (part, name), (other, _) in zip(self._fields.numbers, fields.numbers, strict=True):
            setattr(part, name, getattr(other, name))


class Topology:
    """A compiled model of a structure, never handed out itself, and how numbers are written.

    ``model`` was compiled with ``props``: the last of its bodies, joints and shapes are theirs, the
    first those of table and robot.
    """

    def __init__(self, model: mujoco.MjModel, props: Sequence[Prop]) -> None:
        self._model = model
        self._fields = _Fields(model)
        # Two threads may load scenes at the same time, and there is one MjData.
        self._lock = threading.Lock()
        bodies = [body for prop in props for body in prop.body.walk()]
        kinds = {body.name: body.joint.kind for body in bodies if body.joint is not None}
        bound = [name for name, kind in kinds.items() if kind != "free"]
        free = [name for name, kind in kinds.items() if kind == "free"]
        self._bodies = slice(model.nbody - len(bodies), None)
        self._geoms = slice(model.ngeom - sum(len(body.geoms) for body in bodies), None)
        # Of the joints that are not free: their numbers, and their only degrees of freedom.
        self._joints = np.array([model.joint(name).id for name in bound], dtype=np.intp)
        self._dofs = model.jnt_dofadr[self._joints]
        first = [model.joint(name).qposadr[0] for name in free]
        self._free = np.array(first, dtype=np.intp)[:, None] + np.arange(7)
        # The shapes that collide, counted from the first of the props', and where each body's end.
        collide = model.geom_contype[self._geoms] | model.geom_conaffinity[self._geoms]
        self._solid = np.flatnonzero(collide)
        of = model.geom_bodyid[self._geoms][self._solid] - (model.nbody - len(bodies))
        self._ends = np.searchsorted(of, np.arange(len(bodies)), side="right")
        nodes = int(model.body_bvhnum.sum())
        self._nodes = slice(nodes - int(model.body_bvhnum[self._bodies].sum()), nodes)

    def model(self, numbers: Numbers) -> mujoco.MjModel:
        """A model of these numbers; the caller's to change."""
        model = copy.copy(self._model)
        with self._lock:
            self._write(model, self._data, numbers)
        return model

    @cached_property
    def _data(self) -> mujoco.MjData:
        return mujoco.MjData(self._model)

    def pair(self) -> Pair:
        """A model and its data, for :meth:`rewrite`."""
        return Pair(copy.copy(self._model))

    def rewrite(self, pair: Pair, numbers: Numbers) -> None:
        """Bring a pair's model to these numbers, whatever somebody has changed in it."""
        pair.restore(self._fields)
        self._write(pair.model, pair.data, numbers)

    def _write(self, model: mujoco.MjModel, data: mujoco.MjData, numbers: Numbers) -> None:
        bodies, geoms, joints = numbers.bodies, numbers.geoms, numbers.joints
        at, shapes = self._bodies, self._geoms
        model.body_pos[at], model.body_quat[at] = bodies[:, :3], bodies[:, 3:7]
        model.body_ipos[at], model.body_mass[at] = bodies[:, 7:10], bodies[:, 10]
        model.body_inertia[at] = bodies[:, 11:]
        half, radius = _extents(numbers.kinds, geoms[:, :3])
        model.geom_type[shapes], model.geom_size[shapes] = numbers.kinds, geoms[:, :3]
        model.geom_aabb[shapes, 3:], model.geom_rbound[shapes] = half, radius
        model.geom_pos[shapes], model.geom_quat[shapes] = geoms[:, 3:6], geoms[:, 6:10]
        model.geom_friction[shapes, 0], model.geom_rgba[shapes, :3] = geoms[:, 10], geoms[:, 11:]
        model.jnt_axis[self._joints], model.jnt_range[self._joints, 1] = joints[:, :3], joints[:, 3]
        model.dof_damping[self._dofs] = joints[:, 4]
        model.dof_frictionloss[self._dofs] = joints[:, 5]
        model.qpos0[self._free] = model.qpos_spring[self._free] = numbers.free
        self._write_volumes(model, bodies[:, 7:10], half, geoms[:, 3:10])
        mujoco.mj_setConst(model, data)
        # The compiler's own, which scales the solver's tolerance. Added up one by one, as it does.
        model.stat.meaninertia = np.add.accumulate(model.dof_M0)[-1] / model.nv

    def _write_volumes(
        self, model: mujoco.MjModel, coms: np.ndarray, half: np.ndarray, poses: np.ndarray
    ) -> None:
        from coda_envs.kernels.volumes import volumes

        nodes, solid = self._nodes, self._solid
        volumes(
            self._ends, half[solid], poses[solid], coms,
            model.bvh_aabb[nodes], model.bvh_nodeid[nodes],
        )  # fmt: skip
        leaves = model.bvh_nodeid[nodes]
        first = model.ngeom - len(half)
        leaves[:] = np.where(leaves >= 0, solid[leaves] + first, -1)


def _extents(kinds: np.ndarray, sizes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Half extents ``[g, 3]`` and radii ``[g]`` of the boxes and spheres around shapes."""
    half = sizes.copy()
    round_ = kinds != _BOX
    half[round_, 1] = sizes[round_, 0]
    half[round_, 2] = np.where(kinds == _CYLINDER, sizes[:, 1], sizes[:, 0])[round_]
    x, y, z = sizes.T
    across = x * x + y * y
    radius = np.sqrt(np.where(kinds == _BOX, across + z * z, across))
    return half, np.where(kinds == GEOMS["sphere"], x, radius)


_topologies: OrderedDict[Hashable, Topology] = OrderedDict()


def build(scene: Scene) -> Compiled:
    """The scene's model, the caller's to change; equal to what
    :func:`coda_envs.arena.compile_scene` gives.

    Only the first scene of a topology is compiled. Raises :class:`SceneError` with MuJoCo's reason
    where a scene does not build.
    """
    props, key, numbers = _dissected(scene)
    if numbers is None:
        return compile_props(scene, props, key)
    return assembled(scene, _topology(scene, props, key).model(numbers), props, key)


class Workspace:
    """The models and data of one environment, a pair for each of the last topologies it played."""

    def __init__(self) -> None:
        self._pairs: OrderedDict[Hashable, Pair] = OrderedDict()

    def load(self, scene: Scene) -> tuple[Compiled, mujoco.MjData]:
        """:func:`build`, with a model and data that are the environment's until it loads another
        scene, and hold that one from then on."""
        props, key, numbers = _dissected(scene)
        if numbers is None:
            compiled = compile_props(scene, props, key)
            return compiled, mujoco.MjData(compiled.model)
        topology = _topology(scene, props, key)
        pair = self._pairs.get(key)
        if pair is None:
            pair = self._pairs[key] = topology.pair()
            if len(self._pairs) > PAIRS:
                self._pairs.popitem(last=False)
        self._pairs.move_to_end(key)
        topology.rewrite(pair, numbers)
        return assembled(scene, pair.model, props, key), pair.data


def _dissected(scene: Scene) -> tuple[tuple[Prop, ...], Hashable, Numbers | None]:
    """The scene's things, its topology, and the things' numbers."""
    props = tuple(get_family(scene.family).props(scene))
    structure, numbers = dissect(props)
    return props, (scene.family, structure), numbers


def _topology(scene: Scene, props: tuple[Prop, ...], key: Hashable) -> Topology:
    """The topology of that key, compiled with this scene if it is not among the last ones."""
    topology = _topologies.get(key)
    if topology is None:
        topology = _topologies[key] = Topology(compile_props(scene, props, key).model, props)
        while len(_topologies) > KEPT:
            _topologies.popitem(last=False)
    _topologies.move_to_end(key)
    return topology
