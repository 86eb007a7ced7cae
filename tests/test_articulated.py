"""The articulated family: what counts as opened or closed, layout, language, expert, stages."""

from __future__ import annotations

import numpy as np
import pytest
from articulated_cases import DOORS, DRAWERS, FAMILY, KINDS, VERBS, make, play, put, scene
from env_cases import column, drive, rest, solved

from coda_envs import language
from coda_envs.cabinet_props import BOARD, GAP
from coda_envs.env import ManipulationEnv
from coda_envs.factor import Value
from coda_envs.features import FeatureSchema
from coda_envs.interactions import load_interactions, sample_interaction
from coda_envs.predicates import OPEN, SHUT, engaged, operated
from coda_envs.programs.potential import Term
from coda_envs.skills import CLOSE, Hand
from coda_envs.text2potential import compile_potential
from coda_envs.text2potential.terms import resolve
from coda_envs.validity import validate
from coda_envs.view import View
from task_families.articulated import room

PHI = compile_potential(FAMILY.template, FAMILY.schema)


# Verifier ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_open_and_shut_count_from_their_thresholds_on(kind: str) -> None:
    env = make(scene(kind))
    for share, done in ((OPEN - 0.01, False), (OPEN + 0.01, True), (1.0, True), (0.0, False)):
        put(env, share)
        assert solved(env) == done
    env = make(scene(kind, task__verb="close"))
    for share, done in ((SHUT + 0.01, False), (SHUT - 0.01, True), (0.0, True), (1.0, False)):
        put(env, share)
        assert solved(env) == done


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("verb", VERBS)
def test_doing_nothing_never_succeeds(kind: str, verb: str) -> None:
    env = make(scene(kind, task__verb=verb))
    assert not solved(env)
    for _ in range(60):
        _, reward, terminated, _, info = env.step(np.zeros(7))
        assert reward == 0.0
        assert not terminated
        assert not info["success"]


def test_no_fresh_scene_is_solved_at_the_start() -> None:
    env = ManipulationEnv("articulated", within="generator")
    for seed in range(40):
        _, info = env.reset(seed=seed)
        assert not info["success"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("verb", "share", "sign"), [("open", 0.9, 1.0), ("close", 0.05, -1.0)])
def test_passing_through_is_not_success(kind: str, verb: str, share: float, sign: float) -> None:
    env = make(scene(kind, task__verb=verb))
    put(env, share, speed=sign * (0.05 if kind == "drawers" else 0.8))
    assert not solved(env)


@pytest.mark.parametrize("kind", KINDS)
def test_swung_hard_it_counts_only_once_it_rests_open(kind: str) -> None:
    env = make(scene(kind), max_steps=1000)
    put(env, 0.2, speed=1.0 if kind == "drawers" else 10.0)
    counted = False
    for _ in range(60):
        _, _, terminated, _, info = env.step(np.zeros(7))
        if info["success"]:
            counted = True
            assert column(env, "target.speed") < 0.03
            assert column(env, "target.opening") > OPEN
        if terminated:
            break
    assert counted == (column(env, "target.opening") > OPEN)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("control_hz", [10, 20])
def test_held_it_fails_until_let_go(kind: str, verb: str, control_hz: int) -> None:
    env = make(scene(kind, task__verb=verb), control_hz=control_hz, max_steps=1000)

    def there(env: ManipulationEnv) -> bool:
        opening = column(env, "target.opening")
        return opening > 0.85 if verb == "open" else opening < 0.07

    drive(env, there)
    hold = np.array([0, 0, 0, 0, 0, 0, 1.0])
    for _ in range(2 * control_hz):
        _, _, _, _, info = env.step(hold)
        # Of two fingers on a handle that cannot give way, one may lose touch for a moment.
        touched = column(env, "target.left") + column(env, "target.right") > 0.0
        assert touched
        assert not info["success"]
    assert there(env)
    assert column(env, "target.speed") < 0.03
    env.step(-hold)
    env.step(-hold)
    assert solved(env)


def test_a_fist_that_leans_on_the_board_has_not_let_go() -> None:
    """The board beside the handle is part of what a finger can hold on to."""
    top = {"task__verb": "close", "task__drawer": "top", "spatial__cabinet__yaw": 0.0}
    env = make(scene(**top), max_steps=1000)
    # On the board's outer face, 8 cm to the right of the handle.
    face = np.array([0.13 - GAP - BOARD, -0.1 - 0.08, 0.15])

    def steer(beyond: float) -> None:
        """A fist goes where the board is, or so far (m) beyond that."""
        for _ in range(40):
            hand = Hand(env)
            to = face - hand.position
            to[0] += beyond
            env.step(hand.move(to, 0.0, CLOSE))

    put(env, 0.05)
    steer(-0.06)
    assert solved(env)
    steer(0.02)
    assert column(env, "target.left") + column(env, "target.right") > 0.0
    assert column(env, "target.opening") < SHUT
    assert column(env, "target.speed") < 0.01
    assert not solved(env)
    steer(-0.06)
    assert solved(env)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("verb", "share"), [("open", 1.0), ("close", 0.0)])
def test_another_part_counts_for_nothing(kind: str, verb: str, share: float) -> None:
    env = make(scene(kind, task__verb=verb))
    put(env, share, "distractor_1")
    rest(env, 0.2)
    assert column(env, "distractor_1.opening") == pytest.approx(share, abs=0.05)
    assert not solved(env)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("verb", VERBS)
def test_the_other_way_round_is_no_success(kind: str, verb: str) -> None:
    env = make(scene(kind, task__verb=verb))
    put(env, 0.0 if verb == "open" else 1.0)
    rest(env, 0.2)
    assert not solved(env)


def test_predicates_and_progress_read_what_the_task_asks_for() -> None:
    schema = FeatureSchema(("target",))

    def row(**values: float) -> np.ndarray:
        features = np.zeros(schema.size)
        given = {"target.present": 1.0, "target.travel": 0.1, "target.half_y": 0.01} | {
            name.replace("__", "."): value for name, value in values.items()
        }
        for name, value in given.items():
            features[schema.index(name)] = value
        return features

    opened, shut = row(target__opening=0.9), row(target__opening=0.05, target__to_shut=1.0)
    states = np.stack([opened, shut, row(target__opening=0.05), row(target__travel=0.0)])
    assert operated(View(schema, states), "target").tolist() == [True, True, False, False]
    assert [bool(operated(View(schema, s), "target")) for s in states] == [True, True, False, False]
    progress = resolve(Term(term="joint_fraction", roles=("target",)), schema)
    assert progress(View(schema, states[:2])).tolist() == pytest.approx([1.0, 1.0])
    half = np.stack([row(target__opening=0.4), row(target__opening=0.55, target__to_shut=1.0)])
    assert progress(View(schema, half)).tolist() == pytest.approx([0.5, 0.5])
    # Around the handle; a fist before it; an open hand over it; a fist that pushes it shut; one
    # that touches it before it has closed.
    hands = np.stack([
        row(gripper__opening=0.022, gripper__command=1.0),
        row(gripper__opening=0.0, gripper__command=1.0, target__left=1.0),
        row(gripper__opening=0.08, gripper__command=-1.0),
        row(gripper__opening=0.0, gripper__command=1.0, target__left=1.0, target__to_shut=1.0),
        row(gripper__opening=0.05, gripper__command=1.0, target__left=1.0, target__to_shut=1.0),
    ])  # fmt: skip
    assert engaged(View(schema, hands), "target").tolist() == [True, False, False, True, False]


# Layout and language ----------------------------------------------------------------------------


def test_what_cannot_be_worked_on_is_said() -> None:
    assert "none in the middle" in str(FAMILY.problem(DRAWERS | {"task.drawers": 2}))
    hidden = DOORS | {"spatial.cabinet.y": 0.06}
    assert "behind the hand" in str(FAMILY.problem(hidden))


def test_a_third_of_the_draws_can_be_laid_out() -> None:
    rng = np.random.default_rng(0)
    draws = [FAMILY.space.sample(rng, "generator") for _ in range(400)]
    assert np.mean([FAMILY.flaw(v) is None for v in draws]) > 0.35


def test_the_layout_knows_where_the_handle_is() -> None:
    rng = np.random.default_rng(1)
    for _ in range(12):
        at = FAMILY.sample(rng, "generator")
        env = make(at)
        share = room.opening(at.values, "target")
        assert column(env, "target.opening") == pytest.approx(share, abs=1e-6)
        place = [column(env, f"target.{axis}") for axis in "xyz"]
        assert place == pytest.approx(room.handle(at.values, share), abs=1e-6)


def test_parts_beside_the_target_stand_open_as_far_as_leaves_room() -> None:
    wide = {f"spatial.distractor_{i}.ajar": 1.0 for i in (1, 2)}
    values = DRAWERS | wide
    openings = [room.opening(values, f"distractor_{i}") for i in (1, 2)]
    assert [room.places(values)[f"distractor_{i}"] for i in (1, 2)] == ["top", "bottom"]
    assert openings[0] < openings[1]


@pytest.mark.parametrize(
    ("kind", "changes", "instruction"),
    [
        ("drawers", {}, "open the middle drawer"),
        ("drawers", {"task.reference": "handle"}, "open the drawer with the post"),
        ("drawers", {"task.reference": "color_handle"}, "open the drawer with the red post"),
        ("drawers", {"task.drawer": "bottom", "task.verb": "close"}, "close the bottom drawer"),
        ("doors", {}, "open the left door"),
        ("doors", {"task.reference": "color"}, "open the door with the red handle"),
        ("doors", {"task.door": "right", "task.verb": "close"}, "close the right door"),
    ],
)
def test_instructions(kind: str, changes: dict[str, Value], instruction: str) -> None:
    values = KINDS[kind] | changes
    assert FAMILY.describe(values)[0] == instruction
    assert FAMILY.flaw(values) is None


def test_an_instruction_that_fits_two_parts_is_refused() -> None:
    assert "distractor_2 too" in str(FAMILY.ambiguity(DRAWERS | {"task.reference": "color"}))


def test_every_fresh_instruction_is_true_of_one_part() -> None:
    rng = np.random.default_rng(2)
    for region in ("generator", "ood", "ood-far"):
        for _ in range(40):
            at = FAMILY.sample(rng, "generator", region)
            assert len(at.task.instruction) <= 120
            if at.task.choices["reference"] != "place":
                continue
            words = FAMILY.describe(at.values)[0].split()
            noun = at.task.choices["furniture"][:-1]
            things = [
                language.Referent(role, None, noun, None, *middle, free=False)
                for role, middle in room.middles(at.values).items()
            ]
            assert language.referents(" ".join(words[-2:]), things) == ("target",)


# Expert and stages ------------------------------------------------------------------------------


@pytest.mark.parametrize("control_hz", [10, 20])
def test_the_expert_solves_fresh_scenes(control_hz: int) -> None:
    rng = np.random.default_rng(3)
    outcomes = [play(FAMILY.sample(rng, "generator"), control_hz)[0] for _ in range(16)]
    assert sum(outcomes) >= 15


def test_the_expert_leaves_the_other_parts_alone() -> None:
    for kind in KINDS:
        _, rows = play(scene(kind))
        moved = rows[:, FAMILY.schema.index("distractor_1.opening")]
        assert np.ptp(moved) < 0.05


def check_stages(rows: np.ndarray) -> None:
    """Φ never drops by more than 0.05, ends at 1, and the gates open in order."""
    phi = PHI(rows)
    assert np.diff(phi).min() > -0.05
    assert phi[-1] == 1.0
    gates = PHI.gates(rows)
    assert gates.any(axis=0).all()
    first = gates.argmax(axis=0)
    assert (np.diff(first) >= 0).all()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("verb", VERBS)
def test_stages_lead_to_the_goal(kind: str, verb: str) -> None:
    success, rows = play(scene(kind, task__verb=verb))
    assert success
    check_stages(rows)


def test_stages_lead_to_the_goal_in_fresh_scenes() -> None:
    rng = np.random.default_rng(4)
    solved_ = 0
    for _ in range(40):
        success, rows = play(FAMILY.sample(rng, "generator"))
        if success:
            solved_ += 1
            check_stages(rows)
    assert solved_ >= 39


def test_fresh_scenes_are_valid_at_the_first_try() -> None:
    rng = np.random.default_rng(5)
    certificates = [validate(FAMILY.sample(rng, "generator")) for _ in range(40)]
    assert sum(c.passed for c in certificates) >= 38


@pytest.mark.slow
def test_every_interaction_is_rare_and_the_expert_solves_its_hard_end() -> None:
    rng = np.random.default_rng(6)
    interactions = load_interactions(FAMILY)
    draws = [FAMILY.sample(rng, "generator").values for _ in range(3000)]
    for interaction in interactions:
        share = np.mean([interaction.magnitude(v) is not None for v in draws])
        assert 0.005 < share < 0.03, interaction.name
        hard = [sample_interaction(FAMILY, interaction, rng, "generator", 2) for _ in range(12)]
        assert sum(play(at)[0] for at in hard) >= 11, interaction.name


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("height", [0.155, 0.20])
@pytest.mark.parametrize("mass", [0.2, 1.5])
def test_extremes_settle_and_do_not_overlap(kind: str, height: float, mass: float) -> None:
    loose = {"attributes__target__friction": 0.3, "attributes__target__damping": 2.0}
    sizes = {"attributes__cabinet__height": height, "attributes__target__mass": mass}
    assert validate(scene(kind, **loose, **sizes), solve_tries=0).passed
