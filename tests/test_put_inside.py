"""The put-inside family: layout, language, expert, stages, and the state that the expert reads."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from env_cases import column, rest
from hypothesis import given
from hypothesis import strategies as st
from put_inside_cases import CONTAINERS, FAMILY, make, slide, uncover, values, with_distractor

from coda_envs import language
from coda_envs.env import ManipulationEnv
from coda_envs.interactions import load_interactions, sample_interaction, third
from coda_envs.scene import Scene
from coda_envs.skills import Hand
from coda_envs.text2potential import compile_potential
from coda_envs.validity import validate
from task_families.put_inside import expert, things
from task_families.put_inside.family import _referents
from task_families.put_inside.room import Container, grasp_yaws, palm_clear, place_for_lid

PHI = compile_potential(FAMILY.template, FAMILY.schema)


def play(scene: Scene, control_hz: int = 20) -> tuple[bool, np.ndarray]:
    """Whether the expert succeeds, and the features ``[T + 1, F]`` of its episode."""
    env = make(scene, control_hz=control_hz)
    acting, rows, done = FAMILY.expert(), [env.features.copy()], False
    while not done:
        _, _, terminated, truncated, info = env.step(acting.act(env))
        rows.append(env.features.copy())
        done = terminated or truncated
    return bool(info["success"]), np.stack(rows)


# Layout -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("at", "words"),
    [
        (values("box", attributes__target__size=0.026), "stands out of the container"),
        (values("box", spatial__target__x=0.02, spatial__target__y=0.0), "target too near recep"),
        (
            values("bowl", 2, attributes__receptacle__size=0.05, attributes__filler_1__size=0.016),
            "no room in the container",
        ),
        (
            with_distractor("box", spatial__distractor_1__x=0.0, spatial__distractor_1__y=-0.2),
            "distractor_1 too near target",
        ),
        (
            with_distractor("box", spatial__distractor_1__x=0.02, spatial__distractor_1__y=0.23),
            "distractor_1 too near receptacle",
        ),
        (values("drawer", spatial__receptacle__x=0.1, spatial__receptacle__y=0.3), "out of reach"),
        (
            # A bar fits between the fingers one way, in which the hand meets the high wall.
            values(
                "box", attributes__receptacle__rim=0.07, attributes__target__shape="bar",
                spatial__receptacle__yaw=0.0, spatial__target__x=0.02, spatial__target__y=-0.05,
                attributes__target__size=0.014,
            ),
            "in the hand's way",
        ),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_said(at: dict[str, object], words: str) -> None:
    assert words in str(FAMILY.problem(at))


def test_enough_of_the_draws_can_be_laid_out() -> None:
    rng = np.random.default_rng(0)
    draws = [FAMILY.draw(rng, "generator", "generator", {}, {}) for _ in range(400)]
    assert np.mean([FAMILY.flaw(v) is None for v in draws]) > 0.15


def test_most_scenes_are_valid_at_the_first_try() -> None:
    rng = np.random.default_rng(1)
    scenes = [FAMILY.sample(rng, "generator") for _ in range(40)]
    failed = [c.checks[-1] for c in (validate(s, solve_tries=0) for s in scenes) if not c.passed]
    assert len(failed) <= 2, failed


@pytest.mark.parametrize("kind", CONTAINERS)
@pytest.mark.parametrize("extreme", [0, 1])
def test_the_largest_and_the_smallest_lie_still(kind: str, extreme: int) -> None:
    at = values(kind, 2, spatial__filler_1__bearing=0.7)
    for factor in FAMILY.space.factors:
        if factor.type != "discrete" and factor.group == "attributes" and factor.path in at:
            at[factor.path] = factor.limits[extreme]
    env = make(at)
    assert env.data.contact.dist.min(initial=0.0) > -0.001
    columns = FAMILY.schema.indices([f"{r}.{a}" for r in env.entity_roles for a in "xyz"])
    before = env.features[columns]
    rest(env, 1.0)
    assert np.abs(env.features[columns] - before).max() < 0.002
    for role in env.entity_roles:
        assert column(env, f"{role}.speed") < 0.005
        assert column(env, f"{role}.upright") > 0.999


# Geometry ---------------------------------------------------------------------------------------


@given(
    x=st.floats(-0.3, 0.3),
    y=st.floats(-0.3, 0.3),
    px=st.floats(-0.3, 0.3),
    py=st.floats(-0.3, 0.3),
    yaw=st.floats(-0.7, 0.7),
    slid=st.floats(0.0, 1.0),
)
def test_a_containers_frame_and_back(
    x: float, y: float, px: float, py: float, yaw: float, slid: float
) -> None:
    at = Container(x, y, yaw, (0.08, 0.08), (0.07, 0.07), 0.1, 0.12, slid * 0.12)
    assert at.on_table(*at.own(px, py)) == pytest.approx((px, py), abs=1e-9)
    # What it takes up does not depend on where its drawer stands.
    back = (slid - 1.0) * 0.12
    opened = Container(*at.on_table(back, 0.0), yaw, at.half, at.inner, 0.1, 0.12, 0.12)
    assert opened.gap(px, py) == pytest.approx(at.gap(px, py), abs=1e-9)


@pytest.mark.parametrize("kind", CONTAINERS)
def test_layout_and_expert_see_the_same_container(kind: str) -> None:
    env = make(values(kind, 2))
    if kind == "drawer":
        slide(env, 1.0)
    seen, planned = expert._container(Hand(env)), things.container(values(kind, 2))
    for name in ("x", "y", "yaw", "half", "inner", "travel", "slid"):
        assert getattr(seen, name) == pytest.approx(getattr(planned, name), abs=1e-6), name
    assert seen.top >= planned.top - 1e-6


@pytest.mark.parametrize("kind", CONTAINERS)
@pytest.mark.parametrize("bearing", [-3.0, -1.6, -0.8, 0.0, 0.8, 1.6, 3.0])
def test_fillers_lie_inside_and_leave_a_spot_for_the_target(kind: str, bearing: float) -> None:
    at = values(kind, 2, spatial__filler_1__bearing=bearing, attributes__receptacle__size=0.078)
    at["attributes.target.size"] = 0.015
    container = things.container(at)
    placed = things.fillers(at, container)
    half = things.half_extents(at, "target")
    spot = container.spot(half[:2], placed)
    assert spot.spare > 0.0
    for filler in placed:
        x, y = container.own(filler.x, filler.y)
        assert abs(x) < container.inner[0] - 0.010
        assert math.hypot(x - spot.x, y - spot.y) > filler.radius + 0.015
    env = make(at)
    rest(env, 0.5)
    for i in (1, 2):
        assert column(env, f"filler_{i}.supported") == 1.0
        assert column(env, f"filler_{i}.speed") < 0.01


def test_the_hand_turns_where_a_high_wall_is_in_its_way() -> None:
    high = Container(0.0, 0.1, 0.0, (0.07, 0.07), (0.06, 0.06), 0.078)
    low = Container(0.0, 0.1, 0.0, (0.07, 0.07), (0.06, 0.06), 0.05)
    near = (0.0, -0.03)
    assert palm_clear(low, *near, 0.0, 0.015)
    assert not palm_clear(high, *near, 0.0, 0.015)
    assert palm_clear(high, *near, math.pi / 2, 0.015)
    assert palm_clear(high, 0.0, -0.12, 0.0, 0.015)
    # A bar can be grasped one way only, a cube two ways, a cylinder any.
    assert [round(y, 3) for y in grasp_yaws(0.3, math.pi)] == [0.3]
    assert len(grasp_yaws(0.3, math.pi / 2)) == 2
    assert len(grasp_yaws(0.3, 0.0)) == 5


def test_a_lid_finds_a_free_place_or_none() -> None:
    at = things.container(values("lidded"))
    place = place_for_lid(things.lid_half(at), at, [])
    assert place is not None
    assert at.gap(*place) > math.hypot(*things.lid_half(at))
    taken = [things.footprint(values("lidded"), "target")]
    crowd = [type(taken[0])("distractor_1", x, y, 0.05)
             for x in (-0.2, 0.0, 0.2) for y in (-0.4, -0.2, 0.0, 0.2, 0.4)]  # fmt: skip
    assert place_for_lid(things.lid_half(at), at, crowd) is None


# Language ---------------------------------------------------------------------------------------


def test_the_instruction_names_the_target_and_where_it_goes() -> None:
    for kind, words in (
        ("box", "put the red cube in the box"),
        ("bowl", "put the red cube in the bowl"),
        ("lidded", "put the red cube in the box"),
        ("drawer", "put the red cube in the drawer"),
    ):
        instruction, paraphrases = FAMILY.describe(values(kind))
        assert instruction == words
        assert len({instruction, *paraphrases, FAMILY.unseen_wording(values(kind))}) == 4


def test_what_lies_inside_can_make_an_instruction_ambiguous() -> None:
    assert FAMILY.ambiguity(values("box", 1, task__reference="color")) is None
    red = values("box", 1, task__reference="color", attributes__filler_1__color="red")
    assert "fits filler_1 too" in str(FAMILY.ambiguity(red))
    assert "fits filler_1 too" in str(FAMILY.ambiguity(values("box", 1, task__reference="shape")))
    assert FAMILY.describe(values("box", 1, task__reference="size_shape"))[0] == (
        "put the large cube in the box"
    )
    assert FAMILY.ambiguity(values("box", 1, task__reference="size_shape")) is None
    assert FAMILY.describe(values("box", 1, task__reference="place"))[0] == (
        "put the right cube in the box"
    )
    assert "does not fit" in str(FAMILY.ambiguity(values("box", task__reference="place")))


def test_every_scene_has_words_that_fit_its_target_alone() -> None:
    rng = np.random.default_rng(2)
    for _ in range(60):
        scene = FAMILY.sample(rng, "generator")
        of_scene = family_referents(scene)
        for text in (scene.task.instruction, *scene.task.paraphrases):
            assert len(text) <= 120
            assert language.check_instruction(text, of_scene[0], of_scene) is None


def family_referents(scene: Scene) -> list[language.Referent]:
    return _referents(scene.values)


# Regions and interactions -----------------------------------------------------------------------


def test_every_pair_of_task_choices_occurs_in_training() -> None:
    rng = np.random.default_rng(3)
    keys = FAMILY.space.keys["task"]
    drawn = [FAMILY.space.sample_keys(rng, "generator") for _ in range(2000)]
    for one, other in itertools.combinations(keys, 2):
        pairs = {(d[one], d[other]) for d in drawn}
        both = (FAMILY.space[one].generator, FAMILY.space[other].generator)
        assert pairs == set(itertools.product(*both))


def test_interactions_are_small_parts_of_the_space_and_rare_in_demonstrations() -> None:
    rng = np.random.default_rng(4)
    interactions = load_interactions(FAMILY)
    assert 4 <= len(interactions) <= 6
    for interaction in interactions:
        for part in range(3):
            scene = sample_interaction(FAMILY, interaction, rng, "generator", part)
            magnitude = interaction.magnitude(scene.values)
            assert magnitude is not None
            assert third(magnitude) == part
    seeds = [FAMILY.sample(rng, "seed").values for _ in range(100)]
    assert not any(i.magnitude(v) is not None for i in interactions for v in seeds)


# Expert and stages ------------------------------------------------------------------------------


@pytest.mark.parametrize("control_hz", [10, 20])
def test_the_expert_solves_fresh_scenes(control_hz: int) -> None:
    rng = np.random.default_rng(5)
    scenes = [FAMILY.sample(rng, "generator") for _ in range(12)]
    assert sum(play(scene, control_hz)[0] for scene in scenes) >= 11


@pytest.mark.parametrize("kind", CONTAINERS)
def test_phi_rises_and_the_gates_open_in_order(kind: str) -> None:
    rng = np.random.default_rng(6)
    for _ in range(2):
        _check_stages(FAMILY.sample(rng, "generator", fixed={"task.container": kind}))


def _check_stages(scene: Scene) -> bool:
    success, rows = play(scene)
    if success:
        phi, gates = PHI(rows), PHI.gates(rows)
        assert phi[0] < 0.5
        assert phi[-1] == 1.0
        assert np.diff(phi).min() > -0.05, scene.values
        opened = gates.argmax(axis=0)
        assert gates.any(axis=0).all()
        assert (np.diff(opened) >= 0).all(), (PHI.stage_names, opened.tolist())
    return success


@pytest.mark.slow
@pytest.mark.parametrize("region", ["generator", "ood"])
def test_phi_never_drops_on_the_experts_way(region: str) -> None:
    rng = np.random.default_rng(7)
    done = [_check_stages(FAMILY.sample(rng, "generator", region=region)) for _ in range(60)]
    assert np.mean(done) >= 0.95


@pytest.mark.slow
def test_the_expert_solves_the_hard_end_of_every_interaction() -> None:
    rng = np.random.default_rng(8)
    for interaction in load_interactions(FAMILY):
        scenes = [sample_interaction(FAMILY, interaction, rng, "ood", 2) for _ in range(20)]
        assert sum(play(scene)[0] for scene in scenes) >= 19, interaction.name


def test_the_lid_goes_on_the_table_and_stays_there() -> None:
    success, rows = play(FAMILY.scene(values("lidded", 2)))
    assert success
    last = dict(zip(FAMILY.schema.names, rows[-1], strict=True))
    assert last["cover.table"] == 1.0
    assert last["cover.upright"] > 0.999
    # What lay inside is inside still.
    assert last["filler_1.supported"] == last["filler_2.supported"] == 1.0


def test_the_expert_goes_on_from_a_state_in_which_the_way_in_is_free() -> None:
    for kind in ("lidded", "drawer"):
        env = make(values(kind))
        uncover(env)
        acting, done = FAMILY.expert(), False
        while not done:
            _, _, terminated, truncated, info = env.step(acting.act(env))
            assert column(env, "cover.left") == column(env, "cover.right") == 0.0
            done = terminated or truncated
        assert info["success"]


def test_every_container_is_one_of_the_ids() -> None:
    env = ManipulationEnv("put-inside", within="generator")
    seen = set()
    for seed in range(40):
        env.reset(seed=seed)
        seen.add(env.scene.values["task.container"])
        assert len(env.entity_roles) <= 6
    assert seen == set(CONTAINERS)
