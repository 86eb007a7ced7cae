"""The verifier of stack-insert under attack: what looks like success and is not, and what is."""

from __future__ import annotations

import math

import numpy as np
import pytest
from env_cases import column, drive, place, rest, solved, tilted
from stack_cases import BASE, KINDS, goal_height, half, make, top

from coda_envs.env import ManipulationEnv
from coda_envs.socket_props import SHAFT
from task_families.stack_insert.parts import EDGE

HOLD = np.array([0, 0, 0, 0, 0, 0, 1.0])
TOWERS = ("stack_two", "stack_three")


def build(env: ManipulationEnv, dx: float = 0.0) -> None:
    """Put the target, and the second block if there is one, where the goal wants them."""
    place(env, "target", (BASE[0] + dx, BASE[1], goal_height(env)))
    if column(env, "second.present"):
        z = top(env, "target") + half(env, "second") - 0.0001
        place(env, "second", (BASE[0] + dx, BASE[1], z))


# What is success --------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", ["cube", "bar", "cylinder"])
@pytest.mark.parametrize("dx", [-0.004, 0.0, 0.004])
def test_at_rest_where_the_goal_wants_it_is_success(kind: str, shape: str, dx: float) -> None:
    env = make(kind, {"attributes__target__shape": shape})
    build(env, dx)
    rest(env, 0.5)
    assert solved(env)


@pytest.mark.parametrize("kind", TOWERS)
def test_blocks_that_have_been_turned_over_make_a_tower_too(kind: str) -> None:
    env = make(kind)
    on_side = tilted(math.pi / 2, (1, 0, 0))
    place(env, "receptacle", (*BASE, column(env, "receptacle.half_z")), on_side)
    place(env, "target", (*BASE, top(env) + column(env, "target.half_y")), on_side)
    if kind == "stack_three":
        z = top(env) + 2 * column(env, "target.half_y") + half(env, "second")
        place(env, "second", (*BASE, z), on_side)
    rest(env, 0.5)
    assert abs(column(env, "target.upright")) < 0.1
    assert solved(env)


# What is not ------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("control_hz", [10, 20])
def test_doing_nothing_never_succeeds(kind: str, control_hz: int) -> None:
    env = make(kind, control_hz=control_hz)
    assert not solved(env)
    for _ in range(30):
        _, reward, terminated, _, info = env.step(np.zeros(7))
        assert reward == 0.0
        assert not terminated
        assert not info["success"]


def test_no_fresh_scene_is_solved_at_the_start() -> None:
    env = ManipulationEnv("stack-insert", within="generator")
    for seed in range(60):
        _, info = env.reset(seed=seed)
        assert not info["success"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("gap", [0.0005, 0.01, 0.05])
def test_beside_the_base_or_the_socket_fails(kind: str, gap: float) -> None:
    env = make(kind)
    edge = column(env, "receptacle.half_y") + column(env, "target.half_y")
    place(env, "target", (BASE[0], BASE[1] - edge - gap, half(env, "target")))
    rest(env, 0.3)
    assert not solved(env)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("height", [0.0005, 0.004, 0.03, 0.2])
def test_in_the_air_over_its_place_fails(kind: str, height: float) -> None:
    env = make(kind)
    place(env, "target", (*BASE, goal_height(env) + height))
    assert column(env, "target.speed") == 0.0
    assert not solved(env)


@pytest.mark.parametrize(
    ("kind", "role"),
    [(k, "target") for k in KINDS]
    + [(k, "receptacle") for k in TOWERS]
    + [("stack_three", "second")],
)
@pytest.mark.parametrize(
    "velocity",
    [(0.1, 0, 0, 0, 0, 0), (0, 0, 0, 0, 0, 2.0), (0, 0, -0.05, 0, 0, 0)],
    ids=["sliding", "spinning", "landing"],
)
def test_while_a_part_moves_it_fails(kind: str, role: str, velocity: tuple[float, ...]) -> None:
    env = make(kind)
    build(env)
    assert solved(env)
    at = tuple(column(env, f"{role}.{axis}") for axis in "xyz")
    place(env, role, at, velocity=velocity)  # type: ignore[arg-type]
    assert not solved(env)


@pytest.mark.parametrize("kind", KINDS)
def test_another_thing_in_its_place_fails(kind: str) -> None:
    env = make(kind)
    surface = goal_height(env) - half(env, "target")
    place(env, "distractor_1", (*BASE, surface + half(env, "distractor_1")))
    rest(env, 0.5)
    assert column(env, "distractor_1.supported") == 1.0
    assert not solved(env)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("control_hz", [10, 20])
def test_held_in_its_place_it_fails_until_let_go(kind: str, control_hz: int) -> None:
    env = make(kind, control_hz=control_hz, max_steps=2000)
    last = "second" if kind == "stack_three" else "target"

    def touches(env: ManipulationEnv) -> bool:
        low = column(env, "target.z") < goal_height(env) + 0.02
        if last == "second":
            low = low and column(env, "second.z") < top(env, "target") + half(env, "second") + 0.02
        return low and column(env, f"{last}.left") + column(env, f"{last}.right") == 2.0

    def near_goal(env: ManipulationEnv) -> bool:
        # The second block goes on the target, wherever the expert has put that.
        under = [column(env, f"target.{axis}") for axis in "xy"] if last == "second" else BASE
        gap = math.dist([column(env, f"{last}.{axis}") for axis in "xy"], under)
        return gap < 0.004 and touches(env)

    drive(env, near_goal)
    touch = "second.on_target" if last == "second" else "target.supported"
    lower = np.array([0, 0, -0.05, 0, 0, 0, 1.0])
    for _ in range(60):
        env.step(lower)
        if column(env, touch) and goal_height(env) - column(env, "target.z") > -0.001:
            break
    for _ in range(2 * control_hz):
        _, _, terminated, _, info = env.step(HOLD)
        assert not terminated
        assert not info["success"]
    assert column(env, touch) == 1.0
    drive(env, solved)


@pytest.mark.parametrize("kind", KINDS)
def test_dropped_and_thrown_it_succeeds_only_once_at_rest(kind: str) -> None:
    env = make(kind, max_steps=1000)
    build(env)
    z = column(env, "target.z")
    for velocity in ((0, 0, 0, 0, 0, 0), (0.5, 0, 0, 0, 6.0, 0)):
        place(env, "target", (*BASE, z + 0.03), velocity=velocity)
        for _ in range(40):
            _, _, terminated, _, info = env.step(np.zeros(7))
            if info["success"]:
                assert column(env, "target.speed") < 0.03
                assert column(env, "target.spin") < 0.5
            if terminated:
                break


# Towers -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", TOWERS)
def test_too_near_the_edge_of_the_base_it_fails(kind: str) -> None:
    env = make(kind)
    inner = column(env, "receptacle.inner")
    assert inner == pytest.approx(column(env, "receptacle.half_x") - EDGE)
    for beyond, inside in ((-0.001, True), (0.001, False)):
        build(env, dx=inner + beyond)
        assert column(env, "target.supported") == 1.0
        assert solved(env) == inside


@pytest.mark.parametrize("kind", TOWERS)
@pytest.mark.parametrize("angle", [0.3, 0.6, 1.0])
def test_leaning_on_the_base_fails(kind: str, angle: float) -> None:
    env = make(kind)
    beside = BASE[1] - column(env, "receptacle.half_y")
    place(env, "target", (BASE[0], beside, top(env) + 0.01), tilted(angle, (1, 0, 0)))
    assert not solved(env)
    rest(env, 1.0)
    assert not solved(env)


@pytest.mark.parametrize("kind", TOWERS)
def test_the_base_on_the_target_fails(kind: str) -> None:
    env = make(kind)
    x, y = (column(env, f"target.{axis}") for axis in "xy")
    place(env, "receptacle", (x, y, top(env, "target") + half(env, "receptacle") - 0.0001))
    if kind == "stack_three":
        place(env, "second", (x, y, top(env, "receptacle") + half(env, "second") - 0.0001))
    rest(env, 0.5)
    assert column(env, "target.supported") == 1.0
    assert not solved(env)


@pytest.mark.parametrize("kind", TOWERS)
def test_a_tower_on_another_block_fails(kind: str) -> None:
    env = make(kind)
    place(env, "distractor_1", (*BASE, half(env, "distractor_1")))
    place(env, "receptacle", (*BASE, top(env, "distractor_1") + half(env, "receptacle")))
    build(env)
    rest(env, 0.5)
    assert column(env, "target.speed") < 0.01
    assert not solved(env)


def test_two_of_three_blocks_are_not_enough() -> None:
    env = make("stack_three")
    place(env, "target", (*BASE, goal_height(env)))
    rest(env, 0.5)
    assert column(env, "target.supported") == 1.0
    assert not solved(env)


@pytest.mark.parametrize(
    "order", [("second", "target"), ("target", "distractor_1"), ("distractor_1", "target")]
)
def test_three_blocks_in_another_order_fail(order: tuple[str, str]) -> None:
    env = make("stack_three")
    for below, role in zip(("receptacle", *order), order, strict=False):
        place(env, role, (*BASE, top(env, below) + half(env, role) - 0.0001))
    rest(env, 0.5)
    assert column(env, f"{order[1]}.speed") < 0.01
    assert not solved(env)


@pytest.mark.parametrize("kind", KINDS)
def test_no_push_drives_one_thing_into_another(kind: str) -> None:
    env = make(kind, {"attributes__target__mass": 0.03}, max_steps=2000)

    def over_its_place(env: ManipulationEnv) -> bool:
        held = column(env, "target.left") + column(env, "target.right") == 2.0
        gap = math.dist([column(env, f"target.{axis}") for axis in "xy"], BASE)
        return held and gap < 0.003 and column(env, "target.z") < goal_height(env) + 0.02

    drive(env, over_its_place)
    names = np.array([env.model.body(int(body)).name for body in env.model.geom_bodyid])
    things = np.isin(names, ("world", "target", "receptacle"))
    deepest = 0.0
    for _ in range(40):
        # The arm's whole force; as soft as MuJoCo has things by default they overlap by 20 mm.
        env.step(np.array([0, 0, -1, 0, 0, 0, 1.0]))
        contact = env.data.contact
        overlaps = -contact.dist[things[contact.geom].all(axis=1)]
        deepest = max(deepest, float(overlaps.max(initial=0.0)))
    assert 0.0005 < deepest < 0.01


# The socket -------------------------------------------------------------------------------------


@pytest.mark.parametrize("share", [0.0, 0.5, 0.85])
def test_part_of_the_way_down_the_hole_fails(share: float) -> None:
    env = make("insert")
    depth = column(env, "receptacle.depth")
    place(env, "target", (*BASE, goal_height(env) + (1 - share) * depth))
    assert column(env, "target.speed") == 0.0
    assert not solved(env)


@pytest.mark.parametrize("shape", ["cube", "cylinder"])
def test_standing_on_the_rim_fails(shape: str) -> None:
    env = make("insert", {"attributes__target__shape": shape})
    beside = (column(env, "receptacle.inner") + column(env, "receptacle.half_x")) / 2
    place(env, "target", (BASE[0] + beside, BASE[1], top(env) + half(env, "target") - 0.0001))
    assert column(env, "target.supported") == 1.0
    assert not solved(env)
    rest(env, 0.5)
    assert not solved(env)


@pytest.mark.parametrize("clearance", [0.005, 0.008])
@pytest.mark.parametrize("angle", [0.2, 0.35])
def test_leaning_in_the_hole_fails(clearance: float, angle: float) -> None:
    changes = {"attributes__receptacle__clearance": clearance}
    env = make("insert", {**changes, "attributes__receptacle__depth": 0.015})
    place(env, "target", (*BASE, goal_height(env) + 0.003), tilted(angle, (1, 0, 0)))
    assert not solved(env)
    place(env, "target", (*BASE, goal_height(env)), tilted(angle, (1, 0, 0)))
    assert column(env, "target.supported") == 1.0
    assert not solved(env)


def test_lying_across_the_hole_fails() -> None:
    env = make("insert")
    place(env, "target", (*BASE, top(env) + 0.02), tilted(math.pi / 2, (1, 0, 0)))
    rest(env, 1.0)
    assert column(env, "target.supported") == 1.0
    assert not solved(env)


def test_a_turned_square_peg_does_not_go_into_a_tight_hole() -> None:
    tight = {"attributes__receptacle__clearance": 0.003}
    for yaw, fits in ((0.0, True), (math.pi / 4, False)):
        env = make("insert", tight)
        turned = tilted(yaw, (0, 0, 1))
        place(env, "target", (*BASE, top(env) + half(env, "target") + 0.002), turned)
        rest(env, 1.0)
        assert solved(env) == fits


def test_the_hole_is_as_wide_as_declared() -> None:
    for clearance in (0.003, 0.008):
        env = make("insert", {"attributes__receptacle__clearance": clearance})
        assert column(env, "receptacle.inner") == pytest.approx(SHAFT + clearance)
        for offset, free in ((clearance - 0.0003, True), (clearance + 0.0003, False)):
            place(env, "target", (BASE[0] + offset, BASE[1], goal_height(env) + 0.001))
            assert (column(env, "target.supported") == 0.0) == free
