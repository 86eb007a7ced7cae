"""Stack-insert as a family: expert, stages, language, layout, parts, interactions."""

from __future__ import annotations

import functools

import mujoco
import numpy as np
import pytest
from env_cases import column
from stack_cases import FAMILY, KINDS, make, play, scene

from coda_envs import language, predicates
from coda_envs.arena import compile_scene
from coda_envs.env import ManipulationEnv
from coda_envs.family import get_family
from coda_envs.interactions import load_interactions, sample_interaction
from coda_envs.registration import BUILT_IN_IDS
from coda_envs.scene import Scene
from coda_envs.socket_props import FLOOR, SHAFT, SHAFT_LENGTH, peg
from coda_envs.text2potential import compile_potential
from coda_envs.validity import validate
from task_families.stack_insert.family import MAX_FREE
from task_families.stack_insert.parts import referent

RATES = (10, 20)


@functools.cache
def scenes(count: int = 24) -> list[Scene]:
    """Scenes of the generator range, as many of each kind."""
    rng = np.random.default_rng(0)
    kinds = [KINDS[i % len(KINDS)] for i in range(count)]
    return [FAMILY.sample(rng, "generator", fixed={"task.kind": kind}) for kind in kinds]


@functools.cache
def runs() -> list[tuple[Scene, bool, np.ndarray]]:
    """Expert episodes in these scenes at both rates: scene, success, features ``[T+1, F]``."""
    found = []
    for hz in RATES:
        env = ManipulationEnv("stack-insert", control_hz=hz)
        found += [(at, *play(env, at, seed)) for seed, at in enumerate(scenes())]
    return found


# Expert and stages ------------------------------------------------------------------------------


def test_the_family_is_built_in() -> None:
    assert get_family("stack-insert").env_id == BUILT_IN_IDS["stack-insert"] == FAMILY.env_id


def test_the_expert_solves_fresh_scenes() -> None:
    assert sum(success for _, success, _ in runs()) >= len(runs()) - 1


@pytest.mark.slow
@pytest.mark.parametrize("region", ["generator", "ood"])
@pytest.mark.parametrize("control_hz", RATES)
def test_the_expert_solves_many_scenes(region: str, control_hz: int) -> None:
    env = ManipulationEnv("stack-insert", control_hz=control_hz)
    rng = np.random.default_rng(5)
    kept = [play(env, FAMILY.sample(rng, "generator", region), seed)[0] for seed in range(100)]
    assert np.mean(kept) >= 0.97


def test_phi_never_drops_on_an_experts_success() -> None:
    phi = compile_potential(FAMILY.template, FAMILY.schema)
    kept = [rows for _, success, rows in runs() if success]
    assert len(kept) >= 40
    for rows in kept:
        values = phi(rows)
        assert values[-1] == 1.0
        assert np.diff(values).min() > -0.05


def test_the_gates_are_reached_in_order_on_an_experts_success() -> None:
    phi = compile_potential(FAMILY.template, FAMILY.schema)
    for at, success, rows in runs():
        if not success:
            continue
        gates = phi.gates(rows)
        if at.values["task.kind"] != "stack_three":
            # Without a second block the goal holds when the target is in place.
            gates = gates[:, [0, 1, 2, 3, 4, -1]]
        assert gates.any(axis=0).all()
        assert (np.diff(gates.argmax(axis=0)) >= 0).all()


def test_fetching_counts_only_after_the_target_is_in_place() -> None:
    phi = compile_potential(FAMILY.template, FAMILY.schema)
    early, late = FAMILY.template.stage_names.index("place"), len(FAMILY.template.stages)
    for at, _, rows in runs():
        if at.values["task.kind"] == "stack_three":
            stage = phi.stage(rows)
            held = predicates.grasped(predicates.View(FAMILY.schema, rows), "second")
            assert held.any()
            assert ((stage[held] > early) & (stage[held] <= late)).all()


def test_predicates_of_many_states_are_those_of_each() -> None:
    for name, roles in (
        ("on_top", ("target", "receptacle")),
        ("stacked", ("second", "target")),
        ("inserted", ("target", "receptacle")),
        ("assembled", ("target", "receptacle", "second")),
    ):
        seen = set()
        for _, _, rows in runs()[:12]:
            together = predicates.evaluate(FAMILY.schema, rows, name, roles)
            each = [bool(predicates.evaluate(FAMILY.schema, row, name, roles)) for row in rows]
            assert together.tolist() == each
            seen |= set(each)
        assert seen == {False, True}


# Language ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("region", ["generator", "ood", "ood-far"])
def test_every_name_in_the_instruction_is_true_of_one_thing(region: str) -> None:
    rng = np.random.default_rng(1)
    for _ in range(60):
        at = FAMILY.sample(rng, "generator", region)
        values = at.values
        things = [referent(r, values) for r in FAMILY.roles if f"spatial.{r}.x" in values]
        texts = [at.task.instruction, *at.task.paraphrases, FAMILY.unseen_wording(values)]
        assert len(set(texts)) == (4 if region != "ood-far" else 1)
        for text in texts:
            assert text is not None
            assert len(text) <= 120
            for thing in things[:3]:
                if thing.role in ("target", "receptacle", "second"):
                    assert language.check_instruction(text, thing, things) is None, text


def test_a_name_that_fits_two_things_is_refused() -> None:
    def why(**changes: object) -> str | None:
        return FAMILY.ambiguity(dict(scene("stack_two").values) | changes)

    assert why() is None
    assert "fits distractor_1 too" in str(why(**{"attributes.distractor_1.color": "red"}))
    both = {"attributes.receptacle.color": "green"}
    assert "'green block'" in str(why(**both))
    assert "does not fit target" in str(why(**{"task.reference": "size_shape"}))
    assert why(**{"task.reference": "size_shape", "attributes.target.size": 0.015}) is None


# Layout and parts -------------------------------------------------------------------------------


def test_the_hand_has_room_beside_the_tower() -> None:
    values = dict(scene("stack_three").values)
    assert FAMILY.problem(values) is None
    # A face towards the tower: the hand can come down across. An edge towards it: no way does.
    for yaw, problem in ((0.0, None), (0.7853, "has second too near the tower")):
        at = {"spatial.second.x": -0.09, "spatial.second.y": 0.12, "spatial.second.yaw": yaw}
        assert FAMILY.problem(values | at) == problem


def test_a_tower_of_three_leaves_room_for_one_distractor() -> None:
    values = dict(scene("stack_three").values) | {
        "task.distractors": 2,
        "spatial.distractor_2.x": -0.1,
        "spatial.distractor_2.y": 0.28,
        "attributes.distractor_2.size": 0.02,
        "attributes.distractor_2.color": "purple",
    }
    assert f"more than {MAX_FREE}" in str(FAMILY.problem(values))


@pytest.mark.parametrize("kind", KINDS)
def test_fresh_scenes_pass_every_check(kind: str) -> None:
    rng = np.random.default_rng(2)
    for _ in range(3):
        certificate = validate(FAMILY.sample(rng, "generator", fixed={"task.kind": kind}))
        assert certificate.passed, certificate


@pytest.mark.parametrize("round_", [False, True])
@pytest.mark.parametrize("grip", [(0.014, 0.014, 0.014), (0.02, 0.02, 0.03)])
def test_a_peg_is_as_heavy_everywhere_as_one_of_solid_matter(
    round_: bool, grip: tuple[float, float, float]
) -> None:
    made = peg("p", grip, (0.0, 0.0), 0.0, round_=round_, mass=0.3, friction=1.0, color="red")
    spec = mujoco.MjSpec()
    body = spec.worldbody.add_body(name="p")
    body.add_freejoint()
    kind = mujoco.mjtGeom.mjGEOM_CYLINDER if round_ else mujoco.mjtGeom.mjGEOM_BOX
    for geom in made.body.geoms:
        body.add_geom(type=kind, size=geom.size, pos=geom.pos, density=1000.0)
    model = spec.compile()
    scale = 0.3 / model.body("p").mass[0]
    assert made.body.com == pytest.approx(model.body("p").ipos, abs=1e-9)
    mine = sorted(made.body.inertia)
    assert mine == pytest.approx(sorted(scale * model.body("p").inertia), rel=1e-6)


def test_a_peg_in_a_socket_keeps_its_grip_above_it() -> None:
    deepest = float(FAMILY.space["attributes.receptacle.depth"].limits[1])  # type: ignore[union-attr]
    assert deepest < SHAFT_LENGTH
    env = make("insert", {"attributes__receptacle__depth": deepest})
    assert column(env, "receptacle.surface_z") == FLOOR
    assert column(env, "receptacle.inner") > SHAFT


def test_a_factor_of_one_thing_leaves_the_others_alone() -> None:
    before = scene("insert")
    edited = before.edit("attributes.target.size", 0.024).edit("attributes.target.height", 0.03)
    one, two = compile_scene(before).model, compile_scene(edited).model
    changed = {
        str(one.body(int(one.geom_bodyid[row])).name)
        for row in np.unique(np.nonzero(one.geom_size != two.geom_size)[0])
    }
    assert changed == {"target"}


# Interactions -----------------------------------------------------------------------------------


@pytest.mark.slow
def test_each_interaction_is_a_small_part_of_the_generators_range() -> None:
    rng = np.random.default_rng(0)
    values = [FAMILY.sample(rng, "generator").values for _ in range(3000)]
    for interaction in load_interactions(FAMILY):
        share = np.mean([interaction.magnitude(v) is not None for v in values])
        assert 0.005 <= share <= 0.03, interaction.name


@pytest.mark.slow
@pytest.mark.parametrize("number", range(5))
def test_the_expert_solves_the_hardest_third_of_each_interaction(number: int) -> None:
    interaction = load_interactions(FAMILY)[number]
    env, rng = ManipulationEnv("stack-insert"), np.random.default_rng(3)
    kept = [
        play(env, sample_interaction(FAMILY, interaction, rng, "generator", 2), seed)[0]
        for seed in range(40)
    ]
    assert np.mean(kept) >= 0.95
