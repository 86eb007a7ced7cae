"""What the checks of one scene share while they run."""

from __future__ import annotations

from dataclasses import dataclass

import mujoco
import numpy as np

from coda_envs.arena import Compiled
from coda_envs.family import TaskFamily
from coda_envs.props import Entity
from coda_envs.scene import Scene
from coda_envs.sensing import Sensor
from coda_envs.view import View


class CheckFailedError(Exception):
    """A check did not pass; carries the detail."""


@dataclass(frozen=True)
class Simulation:
    """A scene's model and state."""

    compiled: Compiled
    data: mujoco.MjData
    sensor: Sensor

    @property
    def model(self) -> mujoco.MjModel:
        """The compiled model."""
        return self.compiled.model

    @property
    def entities(self) -> tuple[Entity, ...]:
        """The scene's things."""
        return self.compiled.entities

    def refresh(self) -> None:
        """Bring positions and contacts up to the current state."""
        mujoco.mj_kinematics(self.model, self.data)
        mujoco.mj_collision(self.model, self.data)

    def features(self) -> np.ndarray:
        """State features ``[F]`` of the current state, the hand told to open."""
        self.refresh()
        return self.sensor.read()


@dataclass
class Inspection:
    """One scene under inspection.

    ``tries``: how often the expert may try. ``settled`` and ``simulated`` end up in the
    certificate.
    """

    scene: Scene
    family: TaskFamily
    tries: int
    simulation: Simulation | None = None
    settled: tuple[float, ...] = ()
    simulated: int = 0

    @property
    def now(self) -> Simulation:
        """The simulation that the check ``compiles`` has made."""
        assert self.simulation is not None
        return self.simulation

    def view(self) -> View:
        """The current state by names."""
        return View(self.family.schema, self.now.features())

    def entity(self, role: str) -> Entity:
        """The thing with this role."""
        return next(e for e in self.now.entities if e.role == role)
