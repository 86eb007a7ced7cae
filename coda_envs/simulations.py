"""Many scenes of one topology, stepped together by MuJoCo's own threads."""

from __future__ import annotations

import mujoco
import numpy as np
from mujoco.batch import Batch

from coda_envs import robot
from coda_envs.arena import DIVERGED_KINDS, Compiled
from coda_envs.features import FeatureSchema
from coda_envs.kernels import sense
from coda_envs.sensing import SensorLayout, SensorRows

#: Positions, velocities and what follows from them are up to date after this stage.
_CURRENT = mujoco.mjtStage.mjSTAGE_VEL
#: Simulations that a topology has room for at first. Each keeps about 200 kB.
_ROOM = 8
#: As mjMAXVAL: beyond this MuJoCo takes a number for diverged.
_HUGE = mujoco.mjMAXVAL


class Simulations:
    """A row for each environment that plays a scene of this topology, and room for more.

    A simulation goes the way that ``mj_step`` on an ``MjData`` of its own would take it, whatever
    the other rows hold and however many threads there are. Rows are given as rising ``[k]`` int32
    arrays; ``envs [rows]`` says whose they are, -1 where nobody's.
    """

    def __init__(self, compiled: Compiled, schema: FeatureSchema, nthread: int) -> None:
        self._layout = SensorLayout.of(compiled, schema)
        self._nthread = nthread
        self._models: list[mujoco.MjModel] = []
        self.envs = np.empty(0, dtype=np.int64)
        # One simulation's contacts: Batch itself hands out none.
        self._one = mujoco.MjData(compiled.model)
        self._contact = self._one.contact
        self._make_room(compiled.model, _ROOM)

    def _grow(self) -> None:
        """Have twice as many rows, those that there are as they are."""
        old, state = len(self.envs), self._batch.state
        self._make_room(self._models[0], 2 * old)
        self._batch.set_models(self._models)
        self._batch.state[:old] = state
        self._batch.forward(np.arange(old, dtype=np.int32), stage=_CURRENT)

    def _make_room(self, model: mujoco.MjModel, rows: int) -> None:
        new = rows - len(self.envs)
        self._models += [model] * new
        self.envs = np.concatenate([self.envs, np.full(new, -1, dtype=np.int64)])
        # Persistent: what is computed to read a state is then the first part of the next step.
        self._batch = batch = Batch(model, rows, nthread=self._nthread, persistent=True)
        self._controls, self._positions = batch.bind("ctrl"), batch.bind("qpos")
        self._velocities, self._ncon = batch.bind("qvel"), batch.bind("ncon")
        poses = [batch.bind(name) for name in ("xpos", "xmat", "site_xpos", "site_xmat")]
        self._arrays = (self._positions, self._velocities, *poses)

    def add(self, env: int) -> int:
        """Give an environment a row, which :meth:`start` is to be called for; returns it."""
        if not (self.envs < 0).any():
            self._grow()
        row = int(np.argmax(self.envs < 0))
        self.envs[row] = env
        return row

    def remove(self, row: int) -> None:
        """Take the row back."""
        self.envs[row] = -1

    def start(self, rows: np.ndarray, scenes: list[Compiled]) -> None:
        """Begin an episode of ``scenes[k]`` in ``rows[k]``."""
        for row, compiled in zip(rows.tolist(), scenes, strict=True):
            self._models[row] = compiled.model
        self._batch.set_models(self._models)
        self._batch.reset(rows, stage=mujoco.mjtStage.mjSTAGE_NONE)
        for row, compiled in zip(rows.tolist(), scenes, strict=True):
            self._positions[row] = compiled.start
        self._controls[rows, :7], self._controls[rows, 7] = robot.HOME, robot.FINGER
        self._batch.forward(rows, stage=_CURRENT)

    def step(self, rows: np.ndarray, targets: np.ndarray, steps: int) -> np.ndarray:
        """``steps`` physics steps for each block of the controls ``targets [k, blocks, 8]``.

        Returns which rows' physics has diverged ``[k]``: these are in the state of a fresh
        ``MjData`` then.
        """
        last = targets.shape[1] - 1
        for block in range(last + 1):
            self._controls[rows] = targets[:, block]
            stage = _CURRENT if block == last else mujoco.mjtStage.mjSTAGE_NONE
            self._batch.step(rows, nstep=steps, stage=stage)
        diverged = self._diverged(rows)
        if diverged.any():
            self._batch.reset(rows[diverged], stage=_CURRENT)
        return diverged

    def _diverged(self, rows: np.ndarray) -> np.ndarray:
        """Which rows :func:`coda_envs.arena.divergence` would name, ``[k]``."""
        warned = self._batch.warning[rows][:, DIVERGED_KINDS, 1].any(axis=1)
        # False for NaN too.
        sound = (np.abs(self._positions[rows]) <= _HUGE).all(axis=1)
        sound &= (np.abs(self._velocities[rows]) <= _HUGE).all(axis=1)
        return np.asarray(warned | ~sound)

    def read(self, rows: np.ndarray, commands: np.ndarray, found: SensorRows) -> None:
        """Read the state of ``rows`` into the rows of their environments."""
        pairs, ends = self._contacts(rows)
        sense.sense(
            *self._layout, rows.astype(np.int64), self.envs[rows], *self._arrays, ends,
            found.motion, found.slots, commands, found.poses, found.features, found.proprio,
            found.objects, pairs,
        )  # fmt: skip

    def _contacts(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Pairs of geoms that touch ``[p, 2]``, row after row, and where each row's end ``[k]``."""
        counts = self._ncon[rows]
        ends = np.cumsum(counts, dtype=np.int64)
        pairs = np.empty((int(ends[-1]) if len(ends) else 0, 2), dtype=np.int32)
        for row, count, end in zip(rows.tolist(), counts.tolist(), ends.tolist(), strict=True):
            if count:
                self._batch.get_data(row, self._one)
                pairs[end - count : end] = self._contact.geom
        return pairs, ends
