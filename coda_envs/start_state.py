"""StartState: a moment of an episode from which another episode of the same scene can start."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from coda_envs.errors import SceneError
from coda_envs.scene import Scene


@dataclass(frozen=True, eq=False)
class StartState:
    """Everything that the rest of an episode depends on besides its scene, seed and actions.

    ``scene_id``: the scene it is a state of. ``physics [S]`` float64: MuJoCo's integration state
    (``mjSTATE_INTEGRATION``: time, positions, velocities, warm start, controls). ``control [15]``
    float64: the controller's row, see :class:`coda_envs.robot.Controller`. ``steps``: control steps
    already used. They count, so that an episode which starts here has the time that was left.

    Which slot of the object table shows which thing is not part of it: the seed says that.
    """

    scene_id: str
    physics: np.ndarray
    control: np.ndarray
    steps: int

    def check(self, scene: Scene, size: int, max_steps: int) -> None:
        """Raises :class:`SceneError` where no episode of ``scene`` can start here.

        ``size``: S of the scene's model. ``max_steps``: the environment's step limit.
        """
        if self.scene_id != scene.id:
            raise SceneError(
                f"the start state is one of the scene {self.scene_id[:8]}.",
                allowed=f"states of the scene {scene.id[:8]}, which is to be played",
            )
        if self.physics.shape != (size,) or self.control.shape != (15,):
            raise SceneError(
                f"the start state has physics {self.physics.shape}, control {self.control.shape}.",
                allowed=f"({size},) and (15,)",
                remedy="record it with the version of MuJoCo and of the scene that plays it",
            )
        if not 0 <= self.steps < max_steps:
            raise SceneError(
                f"the start state has used {self.steps} steps.", allowed=f"0 to {max_steps - 1}"
            )
