"""The scripted expert of stack-insert: fetch the target and set it down, then the second block."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from coda_envs import predicates
from coda_envs.family import Expert
from coda_envs.skills import CLEAR, CLOSE, OPEN, Hand
from coda_envs.socket_props import SHAFT, SHAFT_LENGTH

if TYPE_CHECKING:
    from coda_envs.env import ManipulationEnv

#: Between fingers that are this near its middle (m, horizontally) a thing is held.
AROUND = 0.018
#: Height of the point between the fingertips at which they are clear of the table (m).
FREE = 0.015
#: From where on the held thing comes down (m, horizontally), and how near the middle it must be to
#: go all the way: a peg by the share of its clearance.
NEAR = 0.03
MIDDLE, MIDDLE_SHARE = 0.006, 0.5
#: How far from parallel to the walls a peg may be when it enters the hole (rad).
PARALLEL = 0.05
#: Most height over the base's top at which the thing is brought to the middle, how fast that height
#: falls with what is missing, and the height at which the thing is let go (m). A funnel: a policy
#: cloned from an expert that waits learns to wait.
WAIT, SLOPE, LET_GO = 0.015, 1.5, 0.0025
#: Most of the way that is asked for at once, so that the thing keeps its place between the fingers
#: (m): across, down, and up from where it stands.
ACROSS, DOWN, UP = 0.045, 0.02, 0.03
#: The hand rises straight up until it is this far (m) over what it has let go of.
RISE = 0.03


class StackInsertExpert(Expert):
    """A reactive policy over privileged state; see :mod:`coda_envs.skills`."""

    def act(self, env: ManipulationEnv) -> np.ndarray:
        """The next action ``[7]``; reads ``env.features``."""
        hand = Hand(env)
        if hand.holds("target"):
            return _set_down(hand, "target", "receptacle")
        if not _in_place(hand, "target", "receptacle"):
            # A peg is grasped by its grip.
            above = SHAFT_LENGTH / 2 if _hollow(hand, "receptacle") else 0.0
            return _fetch(hand, "target", above)
        if not hand.present("second"):
            return hand.rise()
        if hand.holds("second"):
            return _set_down(hand, "second", "target")
        if _in_place(hand, "second", "target") or _beside(hand, "target"):
            return hand.rise()
        return _fetch(hand, "second", turn=_turn_across(hand, "second", "receptacle"))


def _fetch(hand: Hand, role: str, above: float = 0.0, turn: float | None = None) -> np.ndarray:
    """Towards a grasp. Once the fingers are around the thing they go on closing, even if the arm
    has gone a little too far."""
    gap = hand.view.position(role)[:2] - hand.position[:2]
    if predicates.around(hand.view, role) and math.hypot(*gap) < AROUND:
        # Fingertips that press on the table cannot close.
        up = max(0.0, FREE - float(hand.position[2]))
        return hand.move((0.0, 0.0, up), 0.0, CLOSE)
    over = hand.highest(besides=(role,))
    return hand.grasp(role, over + CLEAR, above=above, turn=turn)


def _set_down(hand: Hand, role: str, base: str) -> np.ndarray:
    """Carry the held thing over the base, line it up, lower it, let go."""
    held, to = hand.view.position(role), hand.view.position(base)
    insert = _hollow(hand, base)
    floor = hand.number(base, "surface_z") if insert else hand.top(base)
    rim = floor + hand.number(base, "depth")
    underside = float(held[2]) - hand.number(role, "half_z")
    across = to[:2] - held[:2]
    gap = math.hypot(*across)
    turn = _turn_into(hand, role, base) if insert else 0.0
    middle = MIDDLE_SHARE * (hand.number(base, "inner") - SHAFT) if insert else MIDDLE
    if gap < NEAR and underside < floor + LET_GO:
        return hand.move((0.0, 0.0, 0.0), 0.0, OPEN)
    way = np.zeros(3)
    if gap < NEAR:
        way[:2] = across
        lined_up = gap < middle and abs(turn) < PARALLEL
        inside = insert and underside < rim - 0.002
        missing = max(gap - middle, 0.0)
        above = (
            rim + min(WAIT, 0.002 + SLOPE * missing)
            if insert
            else floor + min(WAIT, SLOPE * missing)
        )
        way[2] = max((floor if lined_up or inside else above) - underside, -DOWN)
        return hand.move(way, turn, CLOSE)
    way[2] = max(rim, hand.highest(besides=(role,))) + 0.02 - underside
    # Across only once the thing is clear of what stands in the way.
    if way[2] < 0.015:
        way[:2] = across * min(1.0, ACROSS / gap)
        return hand.move(way, turn, CLOSE)
    if underside < 0.01:
        way[2] = min(way[2], UP)
    return hand.move(way, 0.0, CLOSE)


def _in_place(hand: Hand, role: str, base: str) -> bool:
    """The thing is where the goal wants it, the hand still there or not."""
    if _hollow(hand, base):
        deep = hand.number(role, "z") - hand.number(role, "half_z") < hand.number(base, "surface_z")
        return bool(predicates.over(hand.view, role, base)) and deep
    return bool(predicates.on_top(hand.view, role, base))


def _hollow(hand: Hand, base: str) -> bool:
    return hand.number(base, "depth") > 0.0


def _beside(hand: Hand, role: str) -> bool:
    """The hand has not yet risen from the thing."""
    x, y, _ = hand.view.position(role) - hand.position
    return math.hypot(x, y) < 0.06 and float(hand.position[2]) < hand.top(role) + RISE


def _turn_into(hand: Hand, role: str, base: str) -> float:
    """Turn (rad) that makes a square peg parallel to the hole's walls; 0 for a round one."""
    if hand.number(role, "yaw_period") == 0.0:
        return 0.0
    turn = hand.number(base, "yaw") - hand.number(role, "yaw")
    return _within(turn, math.pi / 2)


def _turn_across(hand: Hand, role: str, tower: str) -> float:
    """Turn (rad) for the one of a block's two grasps in which the wide hand passes the tower."""
    way = hand.view.position(tower) - hand.view.position(role)
    # The hand is wide along its own y axis; the axis that points least at the tower is best.
    axes = [hand.number(role, "yaw") + quarter * math.pi / 2 for quarter in (0, 1)]
    away = min(axes, key=lambda yaw: abs(way[1] * math.cos(yaw) - way[0] * math.sin(yaw)))
    # Half a turn of the hand changes nothing: the wrist stays within a quarter turn of home.
    return _within(away, math.pi) - hand.yaw


def _within(angle: float, period: float) -> float:
    """The angle (rad) modulo the period, within half of it around 0."""
    return (angle + period / 2) % period - period / 2
