"""Scenes of one topology, their physics stepped together by MuJoCo's own threads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import mujoco
import numpy as np
from mujoco.batch import Batch

from coda_envs import robot
from coda_envs.arena import DIVERGED_KINDS, Compiled
from coda_envs.features import FeatureSchema
from coda_envs.kernels import sense
from coda_envs.sensing import SensorLayout, SensorRows

_NOTHING = mujoco.mjtStage.mjSTAGE_NONE
#: Ends of the contacts of a single simulation, which are all there are.
_ALL = np.array([np.iinfo(np.int64).max])


class Simulations:
    """A simulation for each of ``n`` environments, of which those count that play this topology.

    A simulation goes the way that ``mj_step`` on an ``MjData`` of its own would take it, whatever
    the others do and however many threads there are. Environments are given as rising ``[k]``
    int64 arrays.
    """

    def __init__(self, compiled: Compiled, schema: FeatureSchema, n: int, nthread: int) -> None:
        model = compiled.model
        self._layout = SensorLayout.of(compiled, schema)
        self._model, self._models = model, [model] * n
        # Not persistent: MjData of all simulations do not fit into the processor's cache, and to
        # come back to one costs more than what it remembers of the step before saves.
        self._batch = batch = Batch(model, n, nthread=nthread)
        self._positions, self._velocities = batch.bind("qpos"), batch.bind("qvel")
        self._controls, self._warnings = batch.bind("ctrl"), batch.warning[:, :, 1]
        # Where states are read: what touches what, the batch does not say.
        self._data = data = mujoco.MjData(model)
        self._contact = data.contact
        arrays = (data.qpos, data.qvel, data.xpos, data.xmat, data.site_xpos, data.site_xmat)
        self._views = tuple(array[None] for array in arrays)

    def start(self, envs: np.ndarray, scenes: Sequence[Compiled]) -> None:
        """Begin an episode of ``scenes[k]`` in environment ``envs[k]``."""
        for env, compiled in zip(envs.tolist(), scenes, strict=True):
            self._models[env] = compiled.model
        self._batch.set_models(self._models)
        self._batch.reset(envs, stage=_NOTHING)
        for env, compiled in zip(envs.tolist(), scenes, strict=True):
            self._positions[env] = compiled.start
        self._controls[envs, :7], self._controls[envs, 7] = robot.HOME, robot.FINGER

    @property
    def state(self) -> np.ndarray:
        """MuJoCo's integration states ``[n, S]``; what is written is where a simulation goes on."""
        state: np.ndarray = self._batch.state
        return state

    def leave(self, env: int) -> None:
        """Let go of the model of an environment that plays another topology now."""
        self._models[env] = self._model

    def step(self, envs: np.ndarray, targets: np.ndarray, steps: int) -> np.ndarray:
        """``steps`` physics steps for each block of the controls ``targets [k, blocks, 8]``.

        Returns which environments' physics has diverged ``[k]``: these are in the state of a fresh
        ``MjData`` then.
        """
        # All blocks of one simulation before the next one's: its model and state are fetched once.
        # A simulation that MuJoCo warns of stops: its physics has diverged.
        control = np.repeat(targets, steps, axis=1)
        self._batch.rollout(control.shape[1], control, record=(), ids=envs)
        diverged = np.empty(len(envs), dtype=bool)
        if sense.diverged_of(
            DIVERGED_KINDS, envs, self._warnings, self._positions, self._velocities, diverged
        ):
            self._batch.reset(envs[diverged], stage=_NOTHING)
        return diverged

    def read(self, envs: np.ndarray, commands: np.ndarray, found: SensorRows) -> None:
        """Read the states of these environments into their rows."""
        data, contact, models = self._data, self._contact, self._models
        kinematics, collision = mujoco.mj_kinematics, mujoco.mj_collision
        first, own = np.zeros(1, dtype=np.int64), np.zeros(1, dtype=np.int64)
        arrays = (
            *(*self._layout, first, own, *self._views, _ALL, found.motion, found.slots, commands),
            *(found.poses, found.features, found.proprio, found.objects),
        )
        reading: Callable[[np.ndarray], None] = partial(sense.sense, *arrays)
        qpos, qvel = data.qpos, data.qvel
        for env in envs.tolist():
            own[0], model = env, models[env]
            qpos[:], qvel[:] = self._positions[env], self._velocities[env]
            kinematics(model, data)
            collision(model, data)
            reading(contact.geom)
