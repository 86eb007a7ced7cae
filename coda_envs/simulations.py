"""Scenes of one topology, their physics stepped together by MuJoCo's own threads."""

from __future__ import annotations

from collections.abc import Callable, Sequence

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
    """Simulations of every ``stride``-th environment, ``n`` of them, in this topology.

    Those count whose environment plays it. A simulation goes the way that ``mj_step`` on an
    ``MjData`` of its own would take it, whatever the others do. Environments are given as rising
    ``[k]`` int64 arrays.
    """

    def __init__(self, compiled: Compiled, schema: FeatureSchema, n: int, stride: int) -> None:
        model = compiled.model
        self._layout = SensorLayout.of(compiled, schema)
        self._models, self._stride = [model] * n, stride
        # A state is small. An MjData for each would not fit the processor's cache, and costs more
        # to come back to than what it remembers from the step before is worth.
        self._batch = batch = Batch(model, n, nthread=1)
        self._positions, self._velocities = batch.bind("qpos"), batch.bind("qvel")
        self._controls, self._warnings = batch.bind("ctrl"), batch.warning[:, :, 1]
        # Where states are read: what touches what, Batch does not say.
        self._data = data = mujoco.MjData(model)
        self._contact = data.contact
        arrays = (data.qpos, data.qvel, data.xpos, data.xmat, data.site_xpos, data.site_xmat)
        self._views = tuple(array[None] for array in arrays)

    def start(self, envs: np.ndarray, scenes: Sequence[Compiled]) -> None:
        """Begin an episode of ``scenes[k]`` in environment ``envs[k]``."""
        rows = envs // self._stride
        for row, compiled in zip(rows.tolist(), scenes, strict=True):
            self._models[row] = compiled.model
        self._batch.set_models(self._models)
        self._batch.reset(rows, stage=_NOTHING)
        for row, compiled in zip(rows.tolist(), scenes, strict=True):
            self._positions[row] = compiled.start
        self._controls[rows, :7], self._controls[rows, 7] = robot.HOME, robot.FINGER

    def step(self, envs: np.ndarray, targets: np.ndarray, steps: int) -> np.ndarray:
        """``steps`` physics steps for each block of the controls ``targets [k, blocks, 8]``.

        Returns which environments' physics has diverged ``[k]``: these are in the state of a fresh
        ``MjData`` then.
        """
        # All blocks of one simulation before the next one's: each is fetched from memory once.
        rows, control = envs // self._stride, np.repeat(targets, steps, axis=1)
        self._batch.rollout(control.shape[1], control, record=(), ids=rows)
        diverged = np.empty(len(envs), dtype=bool)
        if sense.diverged_of(
            DIVERGED_KINDS, rows, self._warnings, self._positions, self._velocities, diverged
        ):
            self._batch.reset(rows[diverged], stage=_NOTHING)
        return diverged

    def read(self, envs: np.ndarray, commands: np.ndarray, found: SensorRows) -> None:
        """Read the states of these environments into their rows."""
        data, contact = self._data, self._contact
        reading: Callable[..., None] = sense.sense
        first, own = np.zeros(1, dtype=np.int64), np.zeros(1, dtype=np.int64)
        arguments = (
            *(*self._layout, first, own, *self._views, _ALL, found.motion, found.slots, commands),
            *(found.poses, found.features, found.proprio, found.objects),
        )
        for env in envs.tolist():
            row = env // self._stride
            own[0], model = env, self._models[row]
            data.qpos[:], data.qvel[:] = self._positions[row], self._velocities[row]
            mujoco.mj_kinematics(model, data)
            mujoco.mj_collision(model, data)
            reading(*arguments, contact.geom)
