"""The verifier under attack: what looks like success and is not, and what is."""

from __future__ import annotations

import math

import numpy as np
import pytest
from env_cases import FAMILY, column, drive, make, place, rest, scene, solved, tilted, tray_scene

from coda_envs.env import ManipulationEnv
from coda_envs.scene import Scene

#: The plate's middle and the height of a 4 cm cube that rests on it (m).
PLATE = (0.02, 0.12)
ON_PLATE = 0.03
SCENES = {"plate": scene, "tray": tray_scene}


def resting_height(env: ManipulationEnv) -> float:
    return column(env, "receptacle.surface_z") + column(env, "target.half_z")


def carried(env: ManipulationEnv) -> bool:
    """Held by both fingers over the receptacle."""
    held = column(env, "target.left") + column(env, "target.right") == 2.0
    gap = math.dist([column(env, f"target.{axis}") for axis in "xy"], PLATE)
    return held and gap < 0.03


@pytest.mark.parametrize("kind", SCENES)
def test_resting_on_the_receptacle_is_success(kind: str) -> None:
    env = make(SCENES[kind]())
    for offset in (-0.04, 0.0, 0.04):
        place(env, "target", (PLATE[0], PLATE[1] + offset, resting_height(env)))
        rest(env, 0.5)
        assert solved(env)


@pytest.mark.parametrize("shape", ["cube", "bar", "cylinder"])
def test_lying_on_a_side_is_success_too(shape: str) -> None:
    env = make(scene(attributes__target__shape=shape))
    half = column(env, "target.half_y")
    place(env, "target", (*PLATE, 0.01 + half), tilted(math.pi / 2, (1, 0, 0)))
    rest(env, 0.5)
    assert abs(column(env, "target.upright")) < 0.1
    assert solved(env)


@pytest.mark.parametrize("kind", SCENES)
@pytest.mark.parametrize("control_hz", [10, 20])
def test_doing_nothing_never_succeeds(kind: str, control_hz: int) -> None:
    env = make(SCENES[kind](), control_hz=control_hz)
    assert not solved(env)
    for _ in range(50):
        _, reward, terminated, _, info = env.step(np.zeros(7))
        assert reward == 0.0
        assert not terminated
        assert not info["success"]


def test_no_fresh_scene_is_solved_at_the_start() -> None:
    env = ManipulationEnv(within="generator")
    for seed in range(60):
        _, info = env.reset(seed=seed)
        assert not info["success"]
        assert not info["is_success"]
        assert info["sparse_reward"] == 0.0


@pytest.mark.parametrize("gap", [0.001, 0.01, 0.05])
def test_a_near_miss_beside_the_plate_fails(gap: float) -> None:
    env = make()
    place(env, "target", (PLATE[0], PLATE[1] - 0.08 - 0.02 - gap, 0.02))
    rest(env, 0.5)
    assert column(env, "target.speed") < 0.01
    assert not solved(env)


def test_touching_the_plate_from_beside_it_fails() -> None:
    env = make()
    place(env, "target", (PLATE[0], PLATE[1] - 0.0999, 0.02))
    assert column(env, "target.supported") == 1.0
    assert not solved(env)


def test_half_over_the_edge_with_its_middle_outside_fails() -> None:
    env = make()
    place(env, "target", (PLATE[0], PLATE[1] - 0.085, ON_PLATE - 0.0001))
    assert column(env, "target.supported") == 1.0
    assert not solved(env)


@pytest.mark.parametrize("height", [0.0005, 0.005, 0.03, 0.2])
def test_in_the_air_over_the_plate_fails(height: float) -> None:
    env = make()
    place(env, "target", (*PLATE, ON_PLATE + height))
    assert column(env, "target.speed") == 0.0
    assert not solved(env)


@pytest.mark.parametrize(
    "velocity",
    [(0.1, 0, 0, 0, 0, 0), (0, 0, 0, 0, 0, 2.0), (0, 0, -0.05, 0, 0, 0)],
    ids=["sliding", "spinning", "landing"],
)
def test_moving_on_the_plate_fails(velocity: tuple[float, ...]) -> None:
    env = make()
    place(env, "target", (*PLATE, ON_PLATE - 0.0001), velocity=velocity)
    assert column(env, "target.supported") == 1.0
    assert not solved(env)


@pytest.mark.parametrize("kind", SCENES)
def test_thrown_across_the_receptacle_it_succeeds_only_once_at_rest(kind: str) -> None:
    env = make(SCENES[kind](attributes__target__shape="cylinder"), max_steps=1000)
    start = (PLATE[0] - 0.06, PLATE[1], resting_height(env) + 0.05)
    place(env, "target", start, tilted(math.pi / 2, (1, 0, 0)), velocity=(1.0, 0, 0, 0, 20.0, 0))
    for _ in range(100):
        _, _, terminated, _, info = env.step(np.zeros(7))
        if info["success"]:
            assert column(env, "target.speed") < 0.03
            assert column(env, "target.spin") < 0.5
            assert math.hypot(
                column(env, "target.x") - PLATE[0], column(env, "target.y") - PLATE[1]
            ) < column(env, "receptacle.inner")
        if terminated:
            break


@pytest.mark.parametrize("kind", SCENES)
@pytest.mark.parametrize("control_hz", [10, 20])
def test_held_on_the_receptacle_it_fails_until_let_go(kind: str, control_hz: int) -> None:
    env = make(SCENES[kind](), control_hz=control_hz, max_steps=1000)

    drive(env, lambda env: column(env, "target.z") < resting_height(env) + 0.05 and carried(env))
    # Lowered and held there for two seconds, however still it lies.
    hold, lower = np.array([0, 0, 0, 0, 0, 0, 1.0]), np.array([0, 0, -0.01, 0, 0, 0, 1.0])
    for _ in range(5):
        env.step(hold)
    # Slowly: the fingertips themselves are a millimetre above the surface.
    while column(env, "target.supported") == 0.0:
        env.step(lower)
    for _ in range(2 * control_hz):
        _, _, terminated, _, info = env.step(hold)
        assert not terminated
        assert not info["success"]
    assert column(env, "target.supported") == 1.0
    assert column(env, "target.speed") < 0.03
    expert = FAMILY.expert()
    for _ in range(2 * control_hz):
        _, reward, terminated, _, info = env.step(expert.act(env))
        if terminated:
            break
    assert info["success"]
    assert reward == 1.0


def test_another_object_on_the_plate_fails() -> None:
    env = make()
    place(env, "distractor_1", (*PLATE, ON_PLATE))
    rest(env, 0.5)
    assert column(env, "distractor_1.supported") == 1.0
    assert not solved(env)


def test_on_top_of_an_object_that_is_on_the_plate_fails() -> None:
    env = make()
    place(env, "distractor_1", (*PLATE, ON_PLATE))
    place(env, "target", (*PLATE, ON_PLATE + 0.04))
    rest(env, 0.5)
    assert column(env, "target.speed") < 0.01
    assert not solved(env)


@pytest.mark.parametrize("rim", [0.01, 0.02, 0.05])
@pytest.mark.parametrize("angle", [0.6, 0.9, -0.9, -1.2])
@pytest.mark.parametrize("beyond", [-0.03, -0.01, 0.01, 0.03])
def test_leaning_on_the_rim_of_a_tray_fails(rim: float, angle: float, beyond: float) -> None:
    at = tray_scene(attributes__receptacle__rim=rim, attributes__target__size=0.025)
    env = make(at, max_steps=1000)
    wall = PLATE[1] + 0.07
    place(env, "target", (PLATE[0], wall + beyond, rim + 0.06), tilted(angle, (1, 0, 0)))
    rest(env, 2.0)
    lean = abs(column(env, "target.upright"))
    if 0.2 < lean < 0.98:
        assert not solved(env)
    if solved(env):
        flat = column(env, "receptacle.surface_z") + column(env, "target.half_z")
        assert column(env, "target.z") == pytest.approx(flat, abs=0.003)


def test_across_two_rims_of_a_tray_fails() -> None:
    at = tray_scene(attributes__receptacle__size=0.05, attributes__target__shape="bar")
    env = make(at.edit("attributes.target.size", 0.025))
    place(env, "target", (*PLATE, 0.058 + 0.025), tilted(math.pi / 4, (0, 0, 1)))
    rest(env, 1.0)
    assert not solved(env)


@pytest.mark.parametrize("control_hz", [10, 20])
def test_the_expert_solves_fresh_scenes(control_hz: int) -> None:
    env = ManipulationEnv(within="generator", control_hz=control_hz)
    solved_ = 0
    for seed in range(20):
        env.reset(seed=seed)
        expert, done = FAMILY.expert(seed), False
        while not done:
            _, reward, terminated, truncated, info = env.step(expert.act(env))
            done = terminated or truncated
        assert info["success"] == info["is_success"] == (reward == 1.0)
        solved_ += info["success"]
    assert solved_ >= 19


def test_the_expert_never_puts_down_a_distractor() -> None:
    at: Scene = scene(spatial__distractor_1__x=-0.08, spatial__distractor_1__y=-0.1)
    env = make(at)
    before = [column(env, f"distractor_1.{axis}") for axis in "xy"]
    drive(env, solved)
    after = [column(env, f"distractor_1.{axis}") for axis in "xy"]
    assert np.allclose(before, after, atol=0.01)
