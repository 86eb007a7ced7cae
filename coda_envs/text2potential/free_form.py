"""Free-form dense reward: progress paid as it stands. NOT policy-invariant; a baseline only.

What people and language models write when they are asked for a dense reward: a sum of how near, how
high, how far along. Unlike potential-based shaping it pays for *being* somewhere, again at every
step, so that an episode spent hovering near the goal can be worth more than one that ends in it.
No theorem keeps its optimal policy.
"""

from __future__ import annotations

import numpy as np

from coda_envs.errors import ProgramError
from coda_envs.text2potential.evaluate import Potential


class FreeFormReward:
    """Dense reward ``features [..., F]`` → ``[...]`` in [0, ``scale``] of the states arrived in.

    ``scale`` times the mean, by the stages' weights, of every stage's progress at once: no gates,
    no order, no difference from the state before. Raises :class:`ProgramError` for a scale that is
    not above 0.
    """

    #: Adding it to the sparse reward can change which policy is best.
    policy_invariant = False

    def __init__(self, potential: Potential, scale: float = 0.1) -> None:
        if not 0.0 < scale < float("inf"):
            raise ProgramError(f"the free-form reward's scale is {scale!r}.", allowed="above 0")
        self.potential = potential
        self.scale = scale
        weights = np.array([stage.weight for stage in potential.program.stages])
        self._shares = weights / weights.sum()

    def __call__(self, features: np.ndarray) -> np.ndarray:
        """Reward ``[...]`` of arriving in these states."""
        paid = self.scale * (self.potential.progress(features) @ self._shares)
        return np.asarray(np.minimum(paid, self.scale))
