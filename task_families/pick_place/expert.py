"""The scripted expert of pick-place: a reactive policy over privileged state.

Every action is a function of the current state alone, so it recovers when noise pushes the arm
away, and its answer is the right label from any state on the way.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from coda_envs.family import Expert
from coda_envs.predicates import View
from coda_envs.robot import POSITION_SCALE, ROTATION_SCALE

if TYPE_CHECKING:
    from coda_envs.env import ManipulationEnv

#: Height of the fingertips over the highest thing on the way (m).
CLEAR = 0.045
#: Lowest the point between the fingertips goes (m): the tips end 9 mm below it.
FLOOR = 0.012
#: How far from the object's middle a grasp may close (m), how far turned (rad).
GRASP_GAP = 0.007
GRASP_TURN = 0.12
#: Rest of the way that one action covers, by control rate: the arm lags its target by about 50 ms,
#: so that at 20 Hz a larger share would overshoot.
GAIN = {10: 0.8, 20: 0.4}
#: Largest position action, by control rate: 0.5 m/s either way, slow enough not to shake things
#: out of the fingers.
SPEED = {10: 1.0, 20: 0.55}


class PickPlaceExpert(Expert):
    """Above the target, down, close, up, over the receptacle, down, open, up."""

    def act(self, env: ManipulationEnv) -> np.ndarray:
        """The next action ``[7]``; reads ``env.features``."""
        self._gain, self._speed = GAIN[env.control_hz], SPEED[env.control_hz]
        view = View(env.family.schema, env.features)
        gripper = view.gripper_position()
        target = view.position("target")
        goal = view.position("receptacle")
        half_z = float(view.of("target", "half_z"))
        closed = float(view.gripper("command")) > 0.0
        # One pad may lose touch for a moment; the object is still between the fingers then.
        left, right = (bool(view.of("target", side) > 0.5) for side in ("left", "right"))
        touched, both = left or right, left and right
        gap = float(np.hypot(*(target[:2] - gripper[:2])))
        carry = self._highest(env, view) + CLEAR
        turn = self._turn(view)

        held = touched and gap < 0.02 and abs(float(target[2] - gripper[2])) < half_z + 0.01
        if held and closed and (both or float(target[2]) - half_z > 0.005):
            return self._carry(view, gripper, target, goal, half_z, carry)
        inside = float(view.horizontal_gap("target", "receptacle")) < float(
            view.of("receptacle", "inner")
        )
        if inside and (float(view.of("target", "supported")) > 0.5 or float(target[2]) < 0.0):
            # Placed: open and go straight up.
            return self._action(np.array([0.0, 0.0, 0.06]), 0.0, -1.0)
        grasp_z = max(FLOOR, float(target[2]) + min(0.0, half_z - 0.02))
        aligned = gap < GRASP_GAP and abs(turn) < GRASP_TURN
        low = abs(float(gripper[2]) - grasp_z) < 0.008
        if aligned and low:
            return self._action(np.array([0.0, 0.0, grasp_z - gripper[2]]), turn, 1.0)
        to = np.array([target[0], target[1], grasp_z]) - gripper
        if not (gap < 2.0 * GRASP_GAP and abs(turn) < 2.0 * GRASP_TURN):
            # Stay above what stands around until the fingers are over the target.
            hover = max(carry, float(target[2]) + half_z + 0.05)
            near = gap < 0.03 and abs(turn) < 0.3
            to[2] = (grasp_z + 0.03 + half_z if near else hover) - gripper[2]
            if gripper[2] < hover - 0.03 and not near:
                to[:2] *= 0.2
        return self._action(to, turn, -1.0)

    def _carry(
        self,
        view: View,
        gripper: np.ndarray,
        target: np.ndarray,
        goal: np.ndarray,
        half_z: float,
        carry: float,
    ) -> np.ndarray:
        to = np.zeros(3)
        underside = float(target[2]) - half_z
        across = goal[:2] - target[:2]
        gap = float(np.hypot(*across))
        surface = float(view.of("receptacle", "surface_z"))
        if gap < 0.015:
            to[:2] = across
            to[2] = surface + 0.004 - underside
            if underside < surface + 0.008:
                return self._action(to * 0.0, 0.0, -1.0)
            return self._action(to, 0.0, 1.0)
        rise = carry - CLEAR + 0.02 - underside
        to[2] = rise
        # Across only once the object is clear of what stands in the way.
        if rise < 0.015:
            to[:2] = across
        return self._action(to, 0.0, 1.0)

    @staticmethod
    def _highest(env: ManipulationEnv, view: View) -> float:
        """Height of the highest thing the gripper may have to pass over, target apart (m)."""
        tops = [
            float(view.of(role, "z") + view.of(role, "half_z"))
            for role in env.family.roles
            if role != "target" and float(view.of(role, "present")) > 0.5
        ]
        return max(tops)

    @staticmethod
    def _turn(view: View) -> float:
        """Turn (rad) that lines the fingers up with the target, the shorter of the ways."""
        period = float(view.of("target", "yaw_period"))
        if period == 0.0:
            return -0.5 * float(view.gripper("yaw"))
        turn = float(view.of("target", "yaw") - view.gripper("yaw"))
        turn = (turn + period / 2) % period - period / 2
        # Of two equal ways, the one that keeps the wrist away from its limit.
        if period > 3.0 and abs(float(view.gripper("yaw")) + turn) > 1.75:
            turn -= math.copysign(period, turn)
        return turn

    def _action(self, to: np.ndarray, turn: float, grip: float) -> np.ndarray:
        action = np.zeros(7)
        action[:3] = self._gain * to / POSITION_SCALE
        action[:3] = np.clip(action[:3], -self._speed, self._speed)
        action[5] = self._gain * turn / ROTATION_SCALE
        action[6] = grip
        return np.clip(action, -1.0, 1.0)
