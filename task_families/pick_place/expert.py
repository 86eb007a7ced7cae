"""The scripted expert of pick-place: above the target, down, close, up, across, down, open, up."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from coda_envs.family import Expert
from coda_envs.skills import CLEAR, Hand

if TYPE_CHECKING:
    from coda_envs.env import ManipulationEnv


class PickPlaceExpert(Expert):
    """A reactive policy over privileged state; see :mod:`coda_envs.skills`."""

    def act(self, env: ManipulationEnv) -> np.ndarray:
        """The next action ``[7]``; reads ``env.features``."""
        hand = Hand(env)
        over = hand.highest(besides=("target",))
        if hand.holds("target"):
            goal, surface = hand.view.position("receptacle"), hand.number("receptacle", "surface_z")
            return hand.carry("target", goal, surface, over + 0.02)
        inside = float(hand.view.horizontal_gap("target", "receptacle")) < hand.number(
            "receptacle", "inner"
        )
        resting = hand.number("target", "supported") > 0.5 or hand.number("target", "z") < 0.0
        if inside and resting:
            # Placed: open and go straight up.
            return hand.rise()
        return hand.grasp("target", over + CLEAR)
