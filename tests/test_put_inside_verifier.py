"""The verifier of put-inside under attack: what looks like success and is not, and what is."""

from __future__ import annotations

import math

import numpy as np
import pytest
from env_cases import column, drive, place, rest, solved, tilted
from put_inside_cases import (
    CONTAINERS,
    FAMILY,
    in_container,
    make,
    put,
    slide,
    uncover,
    values,
    with_distractor,
)

from coda_envs import predicates
from coda_envs.env import ManipulationEnv
from coda_envs.view import View


def holds(env: ManipulationEnv, predicate: str, *roles: str) -> bool:
    return bool(predicates.evaluate(FAMILY.schema, env.features, predicate, roles))


@pytest.mark.parametrize("kind", CONTAINERS)
@pytest.mark.parametrize("at", [(0.0, 0.0), (0.03, -0.03)])
def test_resting_inside_is_success(kind: str, at: tuple[float, float]) -> None:
    env = make(values(kind))
    uncover(env)
    put(env, at=at)
    rest(env, 0.5)
    assert solved(env)


@pytest.mark.parametrize("shape", ["cube", "bar", "cylinder"])
def test_lying_on_a_side_is_success_too(shape: str) -> None:
    env = make(values("box", attributes__target__shape=shape))
    put(env, above=column(env, "target.half_y"), quat=tilted(math.pi / 2, (1, 0, 0)))
    rest(env, 0.5)
    assert abs(column(env, "target.upright")) < 0.1
    assert solved(env)


@pytest.mark.parametrize("kind", CONTAINERS)
@pytest.mark.parametrize("control_hz", [10, 20])
def test_doing_nothing_never_succeeds(kind: str, control_hz: int) -> None:
    env = make(values(kind), control_hz=control_hz)
    assert not solved(env)
    for _ in range(40):
        _, reward, terminated, _, info = env.step(np.zeros(7))
        assert reward == 0.0
        assert not terminated
        assert not info["success"]


def test_no_fresh_scene_is_solved_at_the_start() -> None:
    env = ManipulationEnv("put-inside", within="generator")
    for seed in range(40):
        _, info = env.reset(seed=seed)
        assert not info["success"]
        assert info["sparse_reward"] == 0.0


@pytest.mark.parametrize("kind", CONTAINERS)
def test_a_near_miss_beside_the_container_fails(kind: str) -> None:
    env = make(values(kind))
    uncover(env)
    side = column(env, "receptacle.half_y") + (0.012 if kind == "drawer" else 0.0)
    place(env, "target", (*in_container(env, 0.0, -side - 0.019, 0.0)[:2], 0.018))
    rest(env, 0.5)
    assert column(env, "target.table") == 1.0
    assert not solved(env)


def test_touching_a_bowl_from_under_its_overhanging_wall_fails() -> None:
    env = make(values("bowl", attributes__target__size=0.013, attributes__receptacle__rim=0.07))
    # The floor ends at 70 mm, the wall stands on the table 80 mm from the middle and hangs over.
    for away in (0.093, 0.094, 0.095, 0.096, 0.097):
        x, y, _ = in_container(env, away, 0.0, 0.0)
        place(env, "target", (x, y, 0.013), tilted(0.2, (0, 0, 1)))
        assert away < column(env, "receptacle.half_x")
        assert not solved(env)
    assert not holds(env, "above", "target", "receptacle")


@pytest.mark.parametrize("kind", CONTAINERS)
@pytest.mark.parametrize("height", [0.001, 0.01, 0.06, 0.2])
def test_in_the_air_over_the_floor_fails(kind: str, height: float) -> None:
    env = make(values(kind))
    uncover(env)
    put(env, above=column(env, "target.half_z") + height)
    assert column(env, "target.speed") == 0.0
    assert not solved(env)


@pytest.mark.parametrize(
    "velocity",
    [(0.1, 0, 0, 0, 0, 0), (0, 0, 0, 0, 0, 2.0), (0, 0, -0.05, 0, 0, 0)],
    ids=["sliding", "spinning", "landing"],
)
def test_moving_inside_fails(velocity: tuple[float, ...]) -> None:
    env = make(values("box"))
    put(env, above=column(env, "target.half_z") - 0.0001, velocity=velocity)
    assert column(env, "target.supported") == 1.0
    assert not solved(env)


@pytest.mark.parametrize("kind", CONTAINERS)
def test_thrown_in_it_succeeds_only_once_at_rest(kind: str) -> None:
    env = make(values(kind, attributes__target__shape="cylinder"), max_steps=1000)
    uncover(env)
    put(
        env, at=(-0.05, 0.0), above=0.08,
        quat=tilted(math.pi / 2, (1, 0, 0)), velocity=(0.8, 0, 0, 0, 20.0, 0),
    )  # fmt: skip
    for _ in range(100):
        _, _, terminated, _, info = env.step(np.zeros(7))
        if info["success"]:
            assert column(env, "target.speed") < 0.03
            assert column(env, "target.spin") < 0.5
            assert holds(env, "within", "target", "receptacle")
        if terminated:
            break


def test_riding_in_a_moving_drawer_it_succeeds_only_once_that_stands() -> None:
    env = make(values("drawer"), max_steps=1000)
    slide(env, 0.6, speed=0.3)
    yaw = column(env, "receptacle.yaw")
    outwards = (-0.3 * math.cos(yaw), -0.3 * math.sin(yaw), 0, 0, 0, 0)
    put(env, at=(-0.03, 0.0), above=column(env, "target.half_z") - 0.0001, velocity=outwards)
    assert column(env, "target.supported") == 1.0
    assert column(env, "receptacle.speed") == pytest.approx(0.3)
    assert not solved(env)
    rest(env, 2.0)
    assert solved(env)


@pytest.mark.parametrize("kind", CONTAINERS)
@pytest.mark.parametrize("control_hz", [10, 20])
def test_held_inside_it_fails_until_let_go(kind: str, control_hz: int) -> None:
    env = make(values(kind), control_hz=control_hz, max_steps=2000)

    def held_over_it(env: ManipulationEnv) -> bool:
        over = holds(env, "above", "target", "receptacle") and holds(env, "grasped", "target")
        x, y = (column(env, f"target.{a}") - column(env, f"receptacle.{a}") for a in "xy")
        return over and math.hypot(x, y) < 0.03

    drive(env, held_over_it)
    # Lowered softly, and held there, however still it lies.
    action = np.array([0, 0, 0, 0, 0, 0, 1.0])
    for _ in range(6 * control_hz):
        underside = column(env, "target.z") - column(env, "target.half_z")
        above = underside - column(env, "receptacle.surface_z")
        down = column(env, "target.supported") == 1.0
        action[2] = 0.0 if down else -0.01 - 3.0 * above
        _, _, terminated, _, info = env.step(action)
        assert not terminated
        assert not info["success"]
    assert column(env, "target.supported") == 1.0
    assert column(env, "target.left") + column(env, "target.right") == 2.0
    assert column(env, "target.speed") < 0.03
    drive(env, solved)


def test_another_thing_inside_fails() -> None:
    env = make(with_distractor("box"))
    put(env, "distractor_1")
    rest(env, 0.5)
    assert column(env, "distractor_1.supported") == 1.0
    assert not solved(env)


@pytest.mark.parametrize("kind", ["lidded", "drawer"])
def test_on_top_of_what_covers_the_container_fails(kind: str) -> None:
    env = make(values(kind))
    # On the lid beside its knob; on the cabinet, which stands around the shut drawer.
    slide(env, 0.0) if kind == "drawer" else None
    top = 0.012 + 0.05 + 0.011 if kind == "drawer" else 0.008 + 0.05 + 0.008
    x, y, _ = in_container(env, 0.04, 0.0, 0.0)
    place(env, "target", (x, y, top + 0.018))
    rest(env, 0.5)
    assert column(env, "target.speed") < 0.01
    assert column(env, "target.z") > 0.08
    assert not solved(env)


def test_on_a_filler_it_is_inside_as_long_as_it_stays_below_the_rim() -> None:
    # 20 mm of filler and 26 mm of target: below a rim of 50 mm, above one of 40 mm.
    for rim, expected in ((0.05, True), (0.04, False)):
        env = make(
            values("box", 1, attributes__receptacle__rim=rim, attributes__target__size=0.013)
        )
        x, y, z = (column(env, f"filler_1.{axis}") for axis in "xyz")
        place(env, "target", (x, y, z + 0.010 + 0.013), tilted(0.2, (0, 0, 1)))
        rest(env, 0.5)
        assert column(env, "target.supported") == 1.0
        assert column(env, "target.upright") > 0.99
        assert solved(env) is expected


@pytest.mark.parametrize("rim", [0.04, 0.055, 0.07])
@pytest.mark.parametrize("angle", [0.5, 0.9, -0.9, 1.2])
@pytest.mark.parametrize("beyond", [-0.035, -0.015, 0.0, 0.02])
def test_dropped_onto_the_rim_it_is_inside_only_where_no_corner_stands_out(
    rim: float, angle: float, beyond: float
) -> None:
    at = values(
        "box", attributes__receptacle__rim=rim, spatial__receptacle__yaw=0.0,
        attributes__target__shape="bar", attributes__target__size=0.019,
    )  # fmt: skip
    env = make(at, max_steps=1000)
    wall = column(env, "receptacle.half_x")
    put(env, at=(wall + beyond, 0.0), above=rim + 0.05, quat=tilted(angle, (0, 1, 0)))
    rest(env, 1.5)
    # What the verifier reads from few columns, measured on the body itself.
    corners = _corners(env)
    between = np.all(np.abs(corners[:, :2] - (0.02, 0.12)) < (wall, 0.08))
    below = max(corners[:, 2]) < column(env, "receptacle.surface_z") + rim + 0.003
    assert column(env, "target.speed") < 0.03
    assert solved(env) == (between and below)


def _corners(env: ManipulationEnv) -> np.ndarray:
    """The target's eight corners ``[8, 3]`` (m), from the simulation itself."""
    body = env.data.body("target")
    half = np.array([column(env, f"target.half_{axis}") for axis in "xyz"])
    signs = np.array([[a, b, c] for a in (-1, 1) for b in (-1, 1) for c in (-1, 1)])
    return np.asarray(body.xpos + (signs * half) @ body.xmat.reshape(3, 3).T)


def test_across_the_rims_of_a_box_fails() -> None:
    env = make(
        values(
            "box", attributes__receptacle__size=0.05, attributes__receptacle__ratio=1.0,
            attributes__target__shape="bar", attributes__target__size=0.024,
        )
    )  # fmt: skip
    # In the corner, over two walls.
    put(env, at=(0.04, 0.04), above=0.05 + 0.024, quat=tilted(-math.pi / 4 + 0.2, (0, 0, 1)))
    rest(env, 1.0)
    assert not solved(env)


def test_a_shut_in_target_touches_no_rim_it_is_below() -> None:
    """A state on either side of the rim: the highest point decides, to a few millimetres."""
    env = make(values("box"))
    depth, half = column(env, "receptacle.depth"), column(env, "target.half_z")
    for gap, expected in ((-0.002, True), (0.006, False)):
        put(env, above=depth + gap - half)
        assert holds(env, "within", "target", "receptacle") is expected


def test_a_lid_uncovers_when_it_lies_beside_and_a_drawer_when_it_is_open() -> None:
    for kind in ("box", "bowl"):
        assert holds(make(values(kind)), "uncovered", "receptacle", "cover")
    env = make(values("lidded"))
    assert not holds(env, "uncovered", "receptacle", "cover")
    put(env, "cover", above=0.25)
    assert not holds(env, "uncovered", "receptacle", "cover")
    # Beside, but in the air; half over the box; on the table.
    place(env, "cover", (0.02, -0.3, 0.2))
    assert not holds(env, "uncovered", "receptacle", "cover")
    put(env, "cover", at=(0.07, 0.0), above=0.08)
    assert not holds(env, "uncovered", "receptacle", "cover")
    uncover(env)
    assert holds(env, "uncovered", "receptacle", "cover")
    env = make(values("drawer"))
    for opening, expected in ((0.0, False), (0.5, False), (0.79, False), (0.81, True), (1.0, True)):
        slide(env, opening)
        assert holds(env, "uncovered", "receptacle", "cover") is expected


def test_the_predicates_say_the_same_of_one_state_and_of_many() -> None:
    rows = []
    for kind in CONTAINERS:
        env = make(values(kind, 1))
        for place_ in ((0.0, 0.0), (0.05, 0.05), (0.2, 0.0)):
            put(env, at=place_)
            rows.append(env.features.copy())
    many = np.stack(rows)
    for name, roles in (
        ("above", ("target", "receptacle")),
        ("within", ("target", "receptacle")),
        ("inside", ("target", "receptacle")),
        ("uncovered", ("receptacle", "cover")),
    ):
        function = predicates.REGISTRY[name].function
        singly = [bool(function(View(FAMILY.schema, row), *roles)) for row in rows]
        together = function(View(FAMILY.schema, many), *roles)
        assert together.tolist() == singly
        assert name == "inside" or 0 < sum(singly) < len(singly)
