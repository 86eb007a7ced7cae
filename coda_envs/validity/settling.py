"""What moves by itself: free things that fall, tip or slide, and joints that drift."""

from __future__ import annotations

import math
from dataclasses import dataclass

import mujoco
import numpy as np

from coda_envs.validity.inspection import CheckFailedError, Simulation

#: Farthest that a free thing may move (m) and turn (rad).
MOVE = 0.005
TURN = 0.05
#: Farthest that a joint may move, as a share of its travel.
DRIFT = 0.02


@dataclass(frozen=True)
class Resting:
    """Where all that can move is at one moment.

    ``poses``: position ``[3]`` (m) and rotation ``[3, 3]`` of every free body; ``joints``: position
    (m or rad) and travel of every other joint of the scene's things. Both by the body's name.
    """

    poses: dict[str, tuple[np.ndarray, np.ndarray]]
    joints: dict[str, tuple[float, float]]

    @classmethod
    def of(cls, simulation: Simulation) -> Resting:
        """The state that the simulation is in."""
        model, data = simulation.model, simulation.data
        mujoco.mj_kinematics(model, data)
        poses, joints = {}, {}
        for prop in simulation.compiled.props:
            for body in prop.body.walk():
                if body.joint is None:
                    continue
                if body.joint.kind == "free":
                    state = data.body(body.name)
                    poses[body.name] = (state.xpos.copy(), state.xmat.reshape(3, 3).copy())
                else:
                    position = float(data.joint(body.name).qpos[0])
                    joints[body.name] = (position, body.joint.travel)
        return cls(poses, joints)

    def compare(self, after: Resting) -> str:
        """The largest movement, in words. Raises :class:`CheckFailedError` beyond the limits."""
        move = turn = drift = 0.0
        for name, (position, matrix) in self.poses.items():
            position_after, matrix_after = after.poses[name]
            offset = position_after - position
            moved = float(np.linalg.norm(offset))
            turned = _angle((float(np.trace(matrix.T @ matrix_after)) - 1.0) / 2.0)
            leaned = _angle(float(matrix[:, 2] @ matrix_after[:, 2]))
            manner = _manner(offset, moved, turned, leaned)
            if manner:
                raise CheckFailedError(
                    f"{name} {manner}: in 1 s it moves {1000 * moved:.1f} mm, leans over by "
                    f"{leaned:.2f} rad and turns by {turned:.2f} rad"
                )
            move, turn = max(move, moved), max(turn, turned)
        for name, (begin, travel) in self.joints.items():
            share = abs(after.joints[name][0] - begin) / travel
            if share > DRIFT:
                raise CheckFailedError(
                    f"{name} drifts: in 1 s its joint moves {100 * share:.1f}% of its travel"
                )
            drift = max(drift, share)
        return (
            f"largest movement {1000 * move:.2f} mm, {turn:.3f} rad, {100 * drift:.1f}% of a joint"
        )


def _manner(offset: np.ndarray, moved: float, turned: float, leaned: float) -> str:
    """How a free thing moves too far, or empty; tipping comes first, for it moves things too."""
    if leaned > TURN:
        return "tips"
    if moved > MOVE:
        if abs(offset[2]) < math.hypot(offset[0], offset[1]):
            return "slides"
        return "falls" if offset[2] < 0 else "rises"
    return "turns" if turned > TURN else ""


def _angle(cosine: float) -> float:
    return math.acos(min(1.0, max(-1.0, cosine)))
