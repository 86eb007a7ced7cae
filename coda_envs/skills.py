"""Skills: the motions that the families' scripted experts are made of.

Each is a function of the current state alone, so that an expert recovers when noise pushes the arm
away, and its answer is the right label from any state on the way.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import TYPE_CHECKING

import numpy as np

from coda_envs.robot import POSITION_SCALE, ROTATION_SCALE
from coda_envs.view import View

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
OPEN, CLOSE = -1.0, 1.0


class Hand:
    """The gripper and what it may do next, in one state of an environment. Made anew each step."""

    def __init__(self, env: ManipulationEnv) -> None:
        self.view = View(env.family.schema, env.features)
        self.roles = env.family.roles
        self.position = self.view.gripper_position()
        self.yaw = float(self.view.gripper("yaw"))
        self.closed = float(self.view.gripper("command")) > 0.0
        self._gain, self._speed = GAIN[env.control_hz], SPEED[env.control_hz]

    def number(self, role: str, column: str) -> float:
        """A feature of a role."""
        return float(self.view.of(role, column))

    def present(self, role: str) -> bool:
        """Whether the scene has the role."""
        return self.number(role, "present") > 0.5

    def top(self, role: str) -> float:
        """Height of a thing's upper side over the table (m)."""
        return self.number(role, "z") + self.number(role, "half_z")

    def highest(self, besides: Collection[str] = ()) -> float:
        """Height of the highest thing the gripper may have to pass over (m)."""
        tops = [self.top(r) for r in self.roles if r not in besides and self.present(r)]
        return max(tops, default=0.0)

    def touches(self, role: str) -> tuple[bool, bool]:
        """Whether (one, both) finger pads touch the thing."""
        left, right = (self.number(role, side) > 0.5 for side in ("left", "right"))
        return left or right, left and right

    def holds(self, role: str) -> bool:
        """The closed hand holds the thing; one pad may lose touch for a moment up in the air."""
        touched, both = self.touches(role)
        x, y, z = self.view.position(role) - self.position
        half_z = self.number(role, "half_z")
        between = math.hypot(x, y) < 0.02 and abs(z) < half_z + 0.01
        raised = self.number(role, "z") - half_z > 0.005
        return self.closed and touched and between and (both or raised)

    def turn_to(self, role: str) -> float:
        """Turn (rad) that lines the fingers up with the thing, the shorter of the ways."""
        period = self.number(role, "yaw_period")
        if period == 0.0:
            return -0.5 * self.yaw
        turn = self.number(role, "yaw") - self.yaw
        turn = (turn + period / 2) % period - period / 2
        # Of two equal ways, the one that keeps the wrist away from its limit.
        if period > 3.0 and abs(self.yaw + turn) > 1.75:
            turn -= math.copysign(period, turn)
        return turn

    def grasp(
        self,
        role: str,
        hover: float,
        *,
        low: float = FLOOR,
        above: float = 0.0,
        turn: float | None = None,
    ) -> np.ndarray:
        """Towards a grasp from above: over the thing at height ``hover`` (m), down, close.

        ``low``: the lowest the point between the fingertips may go (m); ``above``: how far over the
        thing's middle it is grasped (m); ``turn``: of the hand (rad), the shortest by default.
        """
        target = self.view.position(role)
        half_z = self.number(role, "half_z")
        gap = float(np.hypot(*(target[:2] - self.position[:2])))
        turn = self.turn_to(role) if turn is None else turn
        grasp_z = max(low, float(target[2]) + above + min(0.0, half_z - 0.02))
        aligned = gap < GRASP_GAP and abs(turn) < GRASP_TURN
        if aligned and abs(float(self.position[2]) - grasp_z) < 0.008:
            return self.move((0.0, 0.0, grasp_z - self.position[2]), turn, CLOSE)
        to = np.array([target[0], target[1], grasp_z]) - self.position
        if not (gap < 2.0 * GRASP_GAP and abs(turn) < 2.0 * GRASP_TURN):
            # Stay above what stands around until the fingers are over the thing.
            hover = max(hover, float(target[2]) + half_z + 0.05)
            near = gap < 0.03 and abs(turn) < 0.3
            to[2] = (grasp_z + 0.03 + half_z if near else hover) - self.position[2]
            if self.position[2] < hover - 0.03 and not near:
                to[:2] *= 0.2
        return self.move(to, turn, OPEN)

    def carry(
        self, role: str, to: np.ndarray, surface: float, clear: float, *, turn: float = 0.0
    ) -> np.ndarray:
        """Carry the held thing over ``to [2]`` at height ``clear`` (m) of its underside, lower it
        onto ``surface`` (m), and let go."""
        held = self.view.position(role)
        underside = float(held[2]) - self.number(role, "half_z")
        way = np.zeros(3)
        across = to[:2] - held[:2]
        if float(np.hypot(*across)) < 0.015:
            if underside < surface + 0.008:
                return self.move(way, 0.0, OPEN)
            way[:2], way[2] = across, surface + 0.004 - underside
            return self.move(way, turn, CLOSE)
        way[2] = clear - underside
        # Across only once the thing is clear of what stands in the way.
        if way[2] < 0.015:
            way[:2] = across
        return self.move(way, turn, CLOSE)

    def rise(self, speed: float = 0.06) -> np.ndarray:
        """Open, and straight up."""
        return self.move((0.0, 0.0, speed), 0.0, OPEN)

    def move(
        self, to: np.ndarray | tuple[float, float, float], turn: float, grip: float
    ) -> np.ndarray:
        """The action ``[7]`` that covers a share of the way ``to [3]`` (m) and of ``turn``."""
        action = np.zeros(7)
        action[:3] = self._gain * np.asarray(to) / POSITION_SCALE
        action[:3] = np.clip(action[:3], -self._speed, self._speed)
        action[5] = self._gain * turn / ROTATION_SCALE
        action[6] = grip
        return np.clip(action, -1.0, 1.0)
