"""Scripted expert for put-inside: free the way in, pick the target, carry, lower, release."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from coda_envs import predicates, robot
from coda_envs.container_props import KNOB_RADIUS, POST_RADIUS
from coda_envs.family import Expert
from coda_envs.layout import Footprint
from coda_envs.skills import CLEAR, CLOSE, FLOOR, OPEN, Hand
from task_families.put_inside.room import (
    LET_GO,
    PALM_HEIGHT,
    WRIST,
    Container,
    grasp_height,
    grasp_yaws,
    palm_clear,
    place_for_lid,
)

if TYPE_CHECKING:
    from coda_envs.env import ManipulationEnv

#: Share of its travel to which a drawer is drawn, and from which on it counts as drawn.
DRAWN = 0.95
ENOUGH = 0.87
#: How far a pull runs ahead (m): the drawer follows without jerks.
PULL = 0.03
#: A knob is grasped this far over its lid's middle (m), so that the fingertips clear the slab.
KNOB_GRASP = 0.008
#: The fingers are off a thing when they are this much further open than it is wide (m).
OFF = 0.006
#: A thing on the table (m) is lifted once both fingers hold it and it moves no faster (m/s).
ON_TABLE = 0.002
CALM = 0.015
#: How far the first step of a lift aims (m).
GENTLE = 0.02


class PutInsideExpert(Expert):
    """A reactive policy over privileged state; see :mod:`coda_envs.skills`."""

    def act(self, env: ManipulationEnv) -> np.ndarray:
        """The next action ``[7]``; reads ``env.features``."""
        hand = Hand(env)
        first = _uncover(hand) if hand.present("cover") else None
        if first is not None:
            return first
        if hand.holds("target"):
            return _put(hand)
        inside = predicates.within(hand.view, "target", "receptacle")
        if inside and hand.number("target", "supported") > 0.5:
            # Put: let go and straight up, the fingers no wider than it takes between the walls.
            if hand.position[2] > hand.highest() + CLEAR:
                # Out of the way: it may be rolling still.
                return hand.move((0.0, 0.0, 0.0), 0.0, OPEN)
            deep = hand.position[2] < hand.top("receptacle")
            return _leave(hand, hand.number("target", "half_y"), _let_go(hand) if deep else OPEN)
        return hand.grasp("target", hand.highest(besides=("target",)) + CLEAR, turn=_turn(hand))


def _uncover(hand: Hand) -> np.ndarray | None:
    """The next action that takes the lid off or opens the drawer, None once that is done."""
    drawer = hand.number("cover", "travel") > 0.0
    opening = hand.number("cover", "opening")
    if hand.holds("cover"):
        if drawer:
            return _pull(hand, opening)
        place = place_for_lid(
            (hand.number("cover", "half_x"), hand.number("cover", "half_y")),
            _container(hand),
            [_footprint(hand, role) for role in ("target", "distractor_1") if hand.present(role)],
        )
        to = np.array(place) if place else hand.view.position("cover")[:2]
        return hand.carry("cover", to, 0.0, hand.highest(besides=("cover",)) + 0.02)
    done = opening > ENOUGH if drawer else predicates.uncovered(hand.view, "receptacle", "cover")
    if not done:
        return hand.grasp("cover", hand.highest() + CLEAR, above=0.0 if drawer else KNOB_GRASP)
    gap = float(np.hypot(*(hand.view.position("cover") - hand.position)[:2]))
    if gap < 0.05 and hand.position[2] < hand.top("cover") + 0.02:
        # The fingers are around it still.
        return _leave(hand, POST_RADIUS if drawer else KNOB_RADIUS, OPEN)
    return None


def _leave(hand: Hand, half: float, grip: float) -> np.ndarray:
    """Let go of a thing of this half width (m), and up once the fingers are off it."""
    off = float(hand.view.gripper("opening")) > 2.0 * half + OFF
    return hand.move((0.0, 0.0, 0.06 if off else 0.003), 0.0, grip)


def _pull(hand: Hand, opening: float) -> np.ndarray:
    """Draw the drawer out by the handle in the hand, let go at the end."""
    if opening > DRAWN:
        return hand.move((0.0, 0.0, 0.0), 0.0, OPEN)
    yaw = hand.number("receptacle", "yaw")
    way = min((1.0 - opening) * hand.number("cover", "travel") + 0.01, PULL)
    to = hand.view.position("cover") - hand.position
    to[0] -= way * math.cos(yaw)
    to[1] -= way * math.sin(yaw)
    return hand.move(to, hand.turn_to("cover"), CLOSE)


def _turn(hand: Hand) -> float:
    """How to turn the hand for the target (rad): as little as lets it come down beside the
    container."""
    x, y, _ = hand.view.position("target")
    yaws = grasp_yaws(hand.number("target", "yaw"), hand.number("target", "yaw_period"))
    height, at = grasp_height(hand.number("target", "half_z")), _container(hand)
    clear = [yaw for yaw in yaws if palm_clear(at, float(x), float(y), yaw, height)] or yaws
    return min((yaw - hand.yaw for yaw in clear), key=abs)


def _put(hand: Hand) -> np.ndarray:
    """Carry the target over its place in the container, lower it there, and let go."""
    at = _container(hand)
    half = (hand.number("target", "half_x"), hand.number("target", "half_y"))
    fillers = [_footprint(hand, f"filler_{i}") for i in (1, 2) if hand.present(f"filler_{i}")]
    spot = at.spot(half, fillers)
    held = hand.view.position("target")
    across = np.array(at.on_table(spot.x, spot.y)) - held[:2]
    gap = float(np.hypot(*across))
    underside = float(held[2]) - hand.number("target", "half_z")
    rim = hand.number("receptacle", "surface_z") + hand.number("receptacle", "depth")
    over = hand.highest(besides=("target",)) + 0.02
    # Lined up with the container; the fingers are to the left and right of the target then.
    turn = _line_up(hand.yaw, at.yaw)
    inside = bool(predicates.above(hand.view, "target", "receptacle")) and underside < rim
    if inside or (gap < 0.008 and abs(turn) < 0.12):
        # Not so low that the hand meets the walls, or the fingertips rub on the floor.
        floor = hand.number("receptacle", "surface_z")
        lowest = max(rim + 0.004 - PALM_HEIGHT, floor + FLOOR + 0.002)
        down = max(floor + 0.003 - underside, lowest - float(hand.position[2]))
        if down > -0.005:
            return hand.move((0.0, 0.0, 0.0), 0.0, _let_go(hand))
        return hand.move((*across, down), turn, CLOSE)
    if underside < ON_TABLE and not (
        hand.touches("target")[1] and hand.number("target", "speed") < CALM
    ):
        # The fingers are closing still.
        return hand.move((0.0, 0.0, 0.0), 0.0, CLOSE)
    clear = over - underside < 0.015
    # Gently at first: the grip is still closing.
    rise = min(over - underside, GENTLE + max(underside, 0.0))
    return hand.move((*(across if clear else (0.0, 0.0)), rise), turn if clear else 0.0, CLOSE)


def _line_up(yaw: float, to: float) -> float:
    """The shorter turn (rad) of the hand at ``yaw`` that lines it up with a container at ``to``."""
    turns = [t - yaw for t in (to, to - math.pi, to + math.pi) if abs(t) <= WRIST]
    return min(turns, key=abs)


def _let_go(hand: Hand) -> float:
    """The gripper command that opens the fingers just enough to let go of the target."""
    share = (hand.number("target", "half_y") + LET_GO) / robot.FINGER
    return max(OPEN, min(1.0 - 2.0 * share, -0.05))


def _container(hand: Hand) -> Container:
    """The container in the state that the hand sees."""
    x, y, _ = hand.view.position("receptacle")
    travel = hand.number("receptacle", "travel")
    # A cabinet stands as high as the handle of its drawer, all but for some millimetres.
    top = hand.top("cover") if travel else hand.top("receptacle")
    return Container(
        float(x),
        float(y),
        hand.number("receptacle", "yaw"),
        (hand.number("receptacle", "half_x"), hand.number("receptacle", "half_y")),
        (hand.number("receptacle", "inner"), hand.number("receptacle", "inner_y")),
        top,
        travel,
        hand.number("receptacle", "opening") * travel,
    )


def _footprint(hand: Hand, role: str) -> Footprint:
    """The circle that a free thing takes up."""
    x, y, _ = hand.view.position(role)
    half = hand.number(role, "half_x"), hand.number(role, "half_y")
    radius = math.hypot(*half) if hand.number(role, "yaw_period") else half[0]
    return Footprint(role, float(x), float(y), radius)
