"""The scripted expert of articulated: to the handle, take hold or push, along its way, let go.

A handle is approached from straight above, but that of a drawer under others from the front too, so
that the hand passes below their handles: flatter where one of them stands out. The hand turns with
a door.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import mujoco
import numpy as np

from coda_envs.cabinet_props import door_arm
from coda_envs.family import Expert
from coda_envs.predicates import around
from coda_envs.robot import ROTATION_SCALE
from coda_envs.skills import CLEAR, CLOSE, GAIN, OPEN, Hand
from task_families.articulated import room

if TYPE_CHECKING:
    from coda_envs.env import ManipulationEnv

#: Angle between the approach to the handle of a drawer under others and straight down: by how much
#: (m) the handle, when shut, stands out less than ``LEAD`` beyond the one over it (rad/m).
LEAD, PITCH = 0.050, 9.0
#: The most that the wrist can do with the handle at x = 0, and per metre away from the robot (rad).
WRIST, WRIST_SLOPE = 0.36, 2.0
#: Before the last straight way to the handle, the hand is this far back on it (m).
BACK = 0.075
#: Until it is aimed and before the handle, it stays this much farther out where drawers are over
#: the handle (m).
OUTSIDE = 0.04
#: That way counts as entered within this distance (m) and turn (rad); near its end twice as far
#: aside will do.
ON_WAY, AIMED = 0.008, 0.15
#: Shares of the way (1: open, or shut where that is asked) at which the hand lets go, and at which
#: it leaves a handle alone that it no longer holds.
ENOUGH, BEYOND = 0.93, 0.91
#: Speeds at which it moves the handle (m/s), the time in which the handle comes to its speed (s),
#: and the force that the grip surely holds, per half width of the handle between the fingers (N/m):
#: they press the harder the farther apart they are.
SLOWEST, FASTEST = 0.03, 0.16
START = 0.1
HOLD = 800.0
#: The fingers press where the gap between them is wider than the handle by less than this (m).
TIGHT = 0.003
#: The hand's turn lags behind a door's by this long (s); it aims ahead by what that makes.
TURN_LAG = 0.17
#: Largest turn about the vertical that the wrist takes well (rad).
TURN = 1.5


class ArticulatedExpert(Expert):
    """A reactive policy over privileged state; see :mod:`coda_envs.skills`."""

    def act(self, env: ManipulationEnv) -> np.ndarray:
        """The next action ``[7]``; reads ``env.features`` and the hand's pose."""
        return _Moment(env).act()


class _Moment:
    """The target and the hand in one state. Directions are unit vectors ``[3]``, table frame.

    ``out``: out of the part's front; ``way``: where the handle is to go; ``approach``: from the
    fingers' root to their tips.
    """

    def __init__(self, env: ManipulationEnv) -> None:
        self.hand = Hand(env)
        values = env.scene.values
        self._hz, self._gain = env.control_hz, GAIN[env.control_hz]
        self._friction = float(values["attributes.target.friction"])
        self._damping = float(values["attributes.target.damping"])
        self._mass = float(values["attributes.target.mass"])
        self._matrix = env.data.site("tcp").xmat.reshape(3, 3)
        self.handle = self.hand.view.position("target")
        yaw = self.hand.number("target", "yaw")
        cos, sin = math.cos(yaw), math.sin(yaw)
        self.out = np.array([-cos, -sin, 0.0])
        opening, closes = self.hand.number("target", "opening"), values["task.verb"] == "close"
        self._done = 1.0 - opening if closes else opening
        if values["task.furniture"] == "drawers":
            self.way, self.pitch = -self.out if closes else self.out, self._pitch()
        else:
            side, self.pitch = room.places(values)["target"], 0.0
            # Clockwise, seen from above, is where a left door opens.
            turns = -1.0 if (side == "left") != closes else 1.0
            x, y = door_arm(side, room.half_size(values)[0])
            way = turns * np.array([-(sin * x + cos * y), cos * x - sin * y, 0.0])
            self.way = way / math.hypot(x, y)
            yaw += turns * TURN_LAG * self.hand.number("target", "spin")
        self.aim = self._orientation(min(max(yaw, -TURN), TURN), self.pitch)
        self.approach = self.aim[:, 2]
        self._turn = self._rotation_to(self.aim)

    def act(self) -> np.ndarray:
        """Reach, then move, then leave, whichever the state asks for."""
        if self._done > ENOUGH or (self._done > BEYOND and not self._holds()):
            return self._leave()
        return self._drive() if self._holds() else self._reach()

    def _holds(self) -> bool:
        """The fingers are closed around the handle, and not still on the way to it."""
        hand = self.hand
        gap = float(hand.view.gripper("opening")) - 2.0 * hand.number("target", "half_y")
        pressed = gap < TIGHT or all(hand.touches("target"))
        moves = hand.number("target", "speed") > 0.01
        return bool(around(hand.view, "target")) and (pressed or moves)

    def _drive(self) -> np.ndarray:
        """Along the way, the slower the more the handle lags, and to its middle across the way."""
        off = self.handle - self.hand.position
        lag = -float(off @ self.way)
        ahead = self._ahead()
        along = max(ahead - lag, 0.4 * ahead)
        return self._move(off + (along + lag) * self.way, CLOSE)

    def _ahead(self) -> float:
        """How far (m) to aim ahead, so that the grip outdoes friction, damping and inertia."""
        grip = HOLD * self.hand.number("target", "half_y")
        fastest = (grip - self._friction) / (self._damping + self._mass / START)
        return min(max(fastest, SLOWEST), FASTEST) / self._hz / self._gain

    def _reach(self) -> np.ndarray:
        """To the handle by way of the straight line that the hand comes in on; there, close."""
        off = self.handle - self.hand.position
        ahead = float(off @ self.approach)
        aside = float(np.linalg.norm(off - ahead * self.approach))
        aimed = float(np.linalg.norm(self._turn)) < AIMED
        if aimed and aside < ON_WAY and ahead < 0.006:
            return self._move(off, CLOSE)
        entered = ON_WAY if ahead > 0.5 * BACK else 2.5 * ON_WAY
        if aimed and aside < entered and ahead < BACK + 0.02:
            # The slower ahead, the farther aside.
            share = min(1.0, (2.5 - aside / ON_WAY) / 1.5)
            return self._move(off + (share - 1.0) * ahead * self.approach, OPEN)
        start = off - BACK * self.approach
        beside = abs(float(off[0] * self.out[1] - off[1] * self.out[0]))
        if self.pitch > 0.0 and not (aimed and beside < 2.5 * ON_WAY):
            # Outside of what stands out over the handle.
            start += OUTSIDE * self.out
        # Not through what lies between: first up, then across.
        high = max(self.hand.top("cabinet"), float(self.handle[2])) + CLEAR
        behind = float(off @ self.out) > 0.02
        if behind and self.hand.position[2] < high and aside > 0.03:
            start[:2] *= 0.2
            start[2] = high + 0.02 - self.hand.position[2]
        return self._move(start, OPEN)

    def _leave(self) -> np.ndarray:
        """Open the fingers, and back the way that the hand came."""
        touched, _ = self.hand.touches("target")
        return self._move(-(0.01 if touched else 0.06) * self.approach, OPEN)

    def _pitch(self) -> float:
        """The approach's angle from straight down: 0 for the top drawer."""
        out = self.hand.number("target", "opening") * self.hand.number("target", "travel")
        leads = [
            float((self.handle - self.hand.view.position(role)) @ self.out)
            for role in ("distractor_1", "distractor_2")
            if self.hand.present(role) and self.hand.number(role, "z") > self.handle[2] + 0.02
        ]
        pitch = PITCH * (LEAD - min(leads) + out) if leads else 0.0
        most = WRIST + WRIST_SLOPE * float(self.handle[0])
        return max(min(pitch, most), 0.0)

    @staticmethod
    def _orientation(yaw: float, pitch: float) -> np.ndarray:
        """Rotation ``[3, 3]`` of a hand that points down, pitched forward, turned by ``yaw``."""
        ahead = np.array([math.cos(yaw), math.sin(yaw), 0.0])
        right = np.array([math.sin(yaw), -math.cos(yaw), 0.0])
        down = np.array([0.0, 0.0, -1.0])
        cos, sin = math.cos(pitch), math.sin(pitch)
        return np.stack([cos * ahead - sin * down, right, sin * ahead + cos * down], axis=1)

    def _rotation_to(self, aim: np.ndarray) -> np.ndarray:
        """Axis times angle ``[3]`` (rad, table frame) from the hand's orientation to ``aim``."""
        want, have, turn = np.empty(4), np.empty(4), np.empty(3)
        mujoco.mju_mat2Quat(want, aim.ravel())
        mujoco.mju_mat2Quat(have, self._matrix.ravel())
        mujoco.mju_subQuat(turn, want, have)
        mujoco.mju_rotVecQuat(turn, turn.copy(), have)
        return turn

    def _move(self, to: np.ndarray, grip: float) -> np.ndarray:
        action = self.hand.move(to, 0.0, grip)
        action[3:6] = np.clip(self._gain * self._turn / ROTATION_SCALE, -1.0, 1.0)
        return action
