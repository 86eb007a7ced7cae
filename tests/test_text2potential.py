"""Text2potential: terms, staged potentials, the compiler, shaping and the reward wrapper."""

from __future__ import annotations

import functools
import itertools
import json

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from hypothesis import given, settings
from hypothesis import strategies as st

from coda_envs.env import ManipulationEnv
from coda_envs.errors import ProgramError
from coda_envs.family import get_family
from coda_envs.features import FeatureSchema
from coda_envs.predicates import View
from coda_envs.programs.diagnosis import Diagnosis
from coda_envs.programs.potential import PotentialProgram, Term
from coda_envs.text2potential import (
    PotentialReward,
    compile_potential,
    compile_program,
    shaping,
)
from coda_envs.text2potential.terms import REGISTRY, UNMEASURED, resolve

FAMILY = get_family("pick-place")
SCHEMA = FAMILY.schema
TEMPLATE = FAMILY.template
STAGES = TEMPLATE.stage_names

TERMS = [
    Term(term="distance", roles=("gripper", "target"), scale=0.1),
    Term(term="distance", roles=("target", "gripper")),
    Term(term="distance", roles=("target", "receptacle")),
    Term(term="height", roles=("target",)),
    Term(term="height", roles=("target", "receptacle"), scale=0.05),
    Term(term="alignment", roles=("target",)),
    Term(term="alignment", roles=("target",), scale=0.3),
    Term(term="upright", roles=("target",)),
    Term(term="contact", roles=("gripper", "target")),
    Term(term="contact", roles=("target", "table")),
    Term(term="contact", roles=("receptacle", "target")),
    Term(term="grasped", roles=("target",)),
    Term(term="released", roles=("target",)),
    Term(term="stable", roles=("target",)),
    Term(term="inside_fraction", roles=("target", "receptacle")),
]


def features(**columns: float) -> np.ndarray:
    """One state ``[F]``: a 4 cm cube beside a plate at rest, with the columns given by name
    (``target__x`` for ``target.x``)."""
    row = np.zeros(SCHEMA.size)
    base = {
        "gripper.z": 0.3,
        "target.present": 1.0,
        "target.z": 0.02,
        "target.upright": 1.0,
        "target.half_x": 0.02,
        "target.half_y": 0.02,
        "target.half_z": 0.02,
        "target.yaw_period": np.pi / 2,
        "target.table": 1.0,
        "receptacle.present": 1.0,
        "receptacle.y": 0.2,
        "receptacle.z": 0.005,
        "receptacle.inner": 0.08,
        "receptacle.surface_z": 0.01,
    }
    for name, value in (base | {k.replace("__", "."): v for k, v in columns.items()}).items():
        row[SCHEMA.index(name)] = value
    return row


def value(term: Term, row: np.ndarray) -> float:
    return float(resolve(term, SCHEMA)(View(SCHEMA, row)))


def diagnosis(stage: str, factor: str, direction: str = "high", **more: object) -> Diagnosis:
    data = {
        "diagnostician": "test",
        "family": "pick-place",
        "scene_id": "0",
        "episode_seed": 0,
        "stage": stage,
        "failed_predicate": "grasped",
        "factor": factor,
        "direction": direction,
    }
    return Diagnosis.model_validate(data | more)


states = st.integers(0, 2**32 - 1).map(
    lambda seed: np.random.default_rng(seed).normal(
        0, np.random.default_rng(seed).choice([0.02, 0.1, 1.0, 1e3]), (12, SCHEMA.size)
    )
)


# Terms ------------------------------------------------------------------------------------------


@given(states)
@settings(max_examples=60, deadline=None)
def test_every_term_is_bounded_on_any_state_and_the_same_alone_as_in_a_batch(rows: np.ndarray) -> None:
    rows[:, [SCHEMA.index("target.present"), SCHEMA.index("receptacle.present")]] = 1.0
    for term in TERMS:
        function = resolve(term, SCHEMA)
        batch = function(View(SCHEMA, rows))
        assert batch.shape == (12,)
        assert ((batch >= 0) & (batch <= 1)).all(), term
        assert batch[3] == function(View(SCHEMA, rows[3]))


def test_terms_measure_what_they_say() -> None:
    reach = Term(term="distance", roles=("gripper", "target"), scale=0.1)
    assert value(reach, features(gripper__z=0.02)) == 1.0
    assert value(reach, features(gripper__z=0.02, gripper__x=0.05)) == pytest.approx(0.5)
    carry = Term(term="distance", roles=("target", "receptacle"), scale=0.4)
    assert value(carry, features()) == pytest.approx(0.5)
    assert value(carry, features(target__z=0.3)) == pytest.approx(0.5)
    lift = Term(term="height", roles=("target",), scale=0.1)
    assert value(lift, features()) == pytest.approx(0.0)
    assert value(lift, features(target__z=0.07)) == pytest.approx(0.5)
    above = Term(term="height", roles=("target", "receptacle"), scale=0.1)
    assert value(above, features(target__z=0.08)) == pytest.approx(0.5)
    turn = Term(term="alignment", roles=("target",))
    assert value(turn, features()) == 1.0
    assert value(turn, features(gripper__yaw=np.pi / 2)) == pytest.approx(1.0)
    assert value(turn, features(gripper__yaw=np.pi / 4)) == pytest.approx(0.0)
    assert value(turn, features(gripper__yaw=0.7, target__yaw_period=0.0)) == 1.0
    tip = Term(term="upright", roles=("target",))
    assert value(tip, features()) == 1.0
    assert value(tip, features(target__upright=0.0)) == pytest.approx(0.0)
    touch = Term(term="contact", roles=("gripper", "target"))
    assert value(touch, features(target__left=1.0)) == 0.5
    assert value(Term(term="contact", roles=("target", "table")), features()) == 1.0
    assert value(Term(term="contact", roles=("target", "receptacle")), features()) == 0.0
    rest = Term(term="stable", roles=("target",))
    assert value(rest, features()) == 1.0
    assert value(rest, features(target__speed=1.0)) == 0.0
    inside = Term(term="inside_fraction", roles=("target", "receptacle"))
    assert value(inside, features()) == 0.0
    assert value(inside, features(target__y=0.16)) == pytest.approx(0.5)


def test_a_role_that_the_scene_lacks_gives_nothing() -> None:
    for term in TERMS:
        assert value(term, np.zeros(SCHEMA.size)) == 0.0


@pytest.mark.parametrize(
    ("data", "named"),
    [
        ({"term": "distance", "roles": ["gripper", "targte"]}, "did you mean 'target'"),
        ({"term": "distance", "roles": ["target"]}, "2 role"),
        ({"term": "distance", "roles": ["target", "target"]}, "different roles"),
        ({"term": "height", "roles": ["gripper"]}, "'gripper'"),
        ({"term": "contact", "roles": ["gripper", "table"]}, "at least one of them an object"),
        ({"term": "contact", "roles": ["target", "distractor_1"]}, "not recorded"),
        ({"term": "grasped", "roles": ["target"], "scale": 1.0}, "scale"),
        ({"term": "joint_fraction", "roles": ["target"]}, "joint's opening"),
        ({"term": "insertion_depth", "roles": ["target", "receptacle"]}, "inserted part"),
    ],
)
def test_a_term_that_cannot_be_measured_is_refused(data: dict[str, object], named: str) -> None:
    with pytest.raises(ProgramError, match="stage 'reach'") as caught:
        compile_potential(_with(progress=data), SCHEMA)
    assert named in str(caught.value)


@pytest.mark.parametrize(
    ("gate", "named"),
    [
        ({"predicate": "graspd", "roles": ["target"]}, "did you mean 'grasped'"),
        ({"predicate": "over", "roles": ["target"]}, "2 role"),
        ({"predicate": "near", "roles": ["receptacel"]}, "did you mean 'receptacle'"),
        ({"any": [{"all": [{"predicate": "nope"}]}]}, "'nope'"),
    ],
)
def test_a_gate_with_unknown_names_is_refused(gate: dict[str, object], named: str) -> None:
    with pytest.raises(ProgramError, match="stage 'reach'") as caught:
        compile_potential(_with(gate=gate), SCHEMA)
    assert named in str(caught.value)


def test_every_term_of_the_schema_is_registered_or_declared_unmeasured() -> None:
    names = set(Term.model_json_schema()["properties"]["term"]["enum"])
    assert names == set(REGISTRY) | set(UNMEASURED)
    assert {t.term for t in TERMS} == set(REGISTRY)


def _with(**first_stage: object) -> PotentialProgram:
    data = TEMPLATE.to_dict()
    data["stages"][0] |= first_stage
    return PotentialProgram.parse(data)


# Potentials -------------------------------------------------------------------------------------


@given(states, st.lists(st.floats(0.1, 50), min_size=5, max_size=5))
@settings(max_examples=40, deadline=None)
def test_phi_is_what_the_stages_definition_says(rows: np.ndarray, weights: list[float]) -> None:
    data = TEMPLATE.to_dict()
    for stage, weight in zip(data["stages"], weights, strict=True):
        stage["weight"] = weight
    program = PotentialProgram.parse(data)
    phi = compile_potential(program, SCHEMA)
    # Flags near 0 or 1, so that every stage occurs.
    for name in ("present", "left", "right", "supported"):
        rows[:, SCHEMA.index(f"target.{name}")] = np.arange(12) % 3 > 0
        rows[:, SCHEMA.index(f"receptacle.{name}")] = 1.0
    found, gates, stages = phi(rows), phi.gates(rows), phi.stage(rows)
    assert ((found >= 0) & (found <= 1)).all()
    for i, row in enumerate(rows):
        done = [k for k in range(5) if gates[i, k]]
        current = done[-1] + 1 if done else 0
        assert stages[i] == current
        expected = sum(weights[:current])
        if current < 5:
            part = compile_potential(
                PotentialProgram.parse(
                    {
                        "family": "pick-place",
                        "stages": [
                            {
                                "name": "only",
                                "gate": {
                                    "all": [
                                        {"predicate": "grasped", "roles": ["target"]},
                                        {"predicate": "released", "roles": ["target"]},
                                    ]
                                },
                                "progress": data["stages"][current]["progress"],
                            }
                        ],
                    }
                ),
                SCHEMA,
            )
            expected += weights[current] * float(part(row))
        assert found[i] == pytest.approx(expected / sum(weights))
        assert found[i] == phi(row)


def test_phi_keeps_leading_shapes_and_refuses_other_features() -> None:
    phi = compile_potential(TEMPLATE, SCHEMA)
    rows = np.stack([features(), features(target__z=0.1)])
    assert phi(rows[None].repeat(3, axis=0)).shape == (3, 2)
    assert phi(rows[0]).shape == ()
    assert phi.gates(rows).shape == (2, 5)
    assert phi(rows[:0]).shape == (0,)
    assert phi(rows.astype(np.float32)) == pytest.approx(phi(rows), abs=1e-6)
    with pytest.raises(ProgramError, match=str(SCHEMA.size)):
        phi(np.zeros(SCHEMA.size - 1))
    with pytest.raises(ProgramError, match="distractor_9|unknown role|names the role"):
        compile_potential(TEMPLATE, FeatureSchema(("cup", "saucer")))


def test_letting_go_at_the_goal_ends_at_one_and_letting_go_on_the_way_costs() -> None:
    phi = compile_potential(TEMPLATE, SCHEMA)
    held = {"target__left": 1.0, "target__right": 1.0, "target__table": 0.0, "gripper__y": 0.2}
    there = {"target__y": 0.2, "target__z": 0.03}
    on = features(**held, **there, target__supported=1.0, gripper__z=0.03)
    open_ = features(**there, target__supported=1.0, gripper__y=0.2, gripper__z=0.03)
    assert phi(on) < phi(open_) == 1.0
    assert phi.stage(open_) == 5
    carried = features(**held | {"gripper__y": 0.0}, target__z=0.15, gripper__z=0.15)
    dropped = features(target__z=0.15, gripper__z=0.15)
    assert phi(dropped) < phi(carried) - 0.2
    hovering = features(**held, target__y=0.2, target__z=0.15, gripper__z=0.15)
    let_go_high = features(target__y=0.2, target__z=0.15, gripper__y=0.2, gripper__z=0.15)
    assert phi(let_go_high) <= phi(hovering)


def test_version_is_the_programs_content() -> None:
    phi = compile_potential(TEMPLATE, SCHEMA)
    again = PotentialProgram.parse(json.loads(TEMPLATE.canonical_json()))
    assert again == TEMPLATE
    assert phi.version == compile_potential(again, SCHEMA).version == TEMPLATE.hash
    changed = compile_program(TEMPLATE, [diagnosis("grasp", "spatial.target.yaw")])
    assert compile_potential(changed, SCHEMA).version != phi.version


# Expert episodes --------------------------------------------------------------------------------


@functools.cache
def expert_runs() -> list[np.ndarray]:
    """Features ``[T+1, F]`` of successful expert episodes over the generator range, both rates."""
    runs = []
    for hz in (10, 20):
        env = ManipulationEnv("pick-place", control_hz=hz)
        rng = np.random.default_rng(hz)
        for seed in range(8):
            scene = FAMILY.sample(rng, "generator")
            env.reset(seed=seed, options={"scene": scene})
            expert = FAMILY.expert(seed)
            rows, over = [env.features.copy()], False
            while not over:
                _, _, terminated, truncated, info = env.step(expert.act(env))
                rows.append(env.features.copy())
                over = terminated or truncated
            if info["success"]:
                runs.append(np.array(rows))
    return runs


def test_phi_never_drops_on_an_experts_success() -> None:
    runs = expert_runs()
    assert len(runs) >= 12, "the expert fails too often for this test to mean anything"
    phi = compile_potential(TEMPLATE, SCHEMA)
    for rows in runs:
        values = phi(rows)
        assert values[-1] == 1.0
        assert values[0] < 0.2
        assert np.diff(values).min() > -0.05
        assert set(phi.stage(rows)) >= {0, 1, 2, 3, 4, 5}


def test_compiled_programs_do_not_drop_either() -> None:
    for stage, factor in itertools.product(STAGES, FAMILY.space.by_path):
        phi = compile_potential(compile_program(TEMPLATE, [diagnosis(stage, factor)]), SCHEMA)
        for rows in expert_runs()[::4]:
            assert np.diff(phi(rows)).min() > -0.05, (stage, factor)


# The compiler -----------------------------------------------------------------------------------

claims = st.lists(
    st.builds(
        diagnosis,
        st.sampled_from(STAGES),
        st.sampled_from(tuple(FAMILY.space.by_path)),
        st.sampled_from(("high", "low", "other")),
    ),
    max_size=12,
)


def test_every_factor_stage_and_direction_compiles_to_a_valid_program() -> None:
    for stage, factor, direction in itertools.product(
        STAGES, FAMILY.space.by_path, ("high", "low", "other")
    ):
        program = compile_program(TEMPLATE, [diagnosis(stage, factor, direction)])
        compile_potential(program, SCHEMA)
        assert program.stage_names == STAGES
        assert [s.gate for s in program.stages] == [s.gate for s in TEMPLATE.stages]
        share = {s.name: s.weight for s in program.stages}
        assert share[stage] == 2.0
        assert all(w == 1.0 for name, w in share.items() if name != stage)


@given(claims, st.randoms(use_true_random=False))
@settings(max_examples=60, deadline=None)
def test_compiling_ignores_order_and_repetition_and_is_idempotent(
    given_claims: list[Diagnosis], random: object
) -> None:
    program = compile_program(TEMPLATE, given_claims)
    compile_potential(program, SCHEMA)
    shuffled = [*given_claims, *given_claims]
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert compile_program(TEMPLATE, shuffled) == program
    assert compile_program(program, given_claims) == program
    assert (program == TEMPLATE) == (not given_claims)


@pytest.mark.parametrize(
    ("stage", "factor", "expected"),
    [
        ("grasp", "spatial.target.yaw", {("reach", "alignment"), ("grasp", "alignment")}),
        ("reach", "spatial.target.x", {("reach", "distance")}),
        ("grasp", "attributes.target.size", {("reach", "alignment"), ("grasp", "alignment"),
                                             ("grasp", "distance")}),
        ("transport", "attributes.receptacle.rim", {("transport", "height")}),
        ("place", "attributes.receptacle.size", {("place", "distance")}),
        ("lift", "attributes.target.mass", {("grasp", "distance"), ("lift", "upright")}),
        ("reach", "attributes.target.color", set()),
    ],
)  # fmt: skip
def test_a_diagnosed_factor_is_measured_on_the_way_to_its_stage(
    stage: str, factor: str, expected: set[tuple[str, str]]
) -> None:
    program = compile_program(TEMPLATE, [diagnosis(stage, factor)])
    added = set()
    for before, after in zip(TEMPLATE.stages, program.stages, strict=True):
        old, new = before.progress.to_dict(), after.progress.to_dict()
        for part in new.get("of", [new]):
            if part != old and part not in old.get("of", []):
                added.add((after.name, part["term"]))
    assert added == expected


def test_a_diagnosed_yaw_makes_turning_the_hand_worth_something() -> None:
    plain = compile_potential(TEMPLATE, SCHEMA)
    turned = compile_potential(
        compile_program(TEMPLATE, [diagnosis("grasp", "spatial.target.yaw")]), SCHEMA
    )
    wrong, right = features(gripper__yaw=0.7), features(gripper__yaw=0.0)
    assert plain(wrong) == plain(right)
    assert turned(wrong) < turned(right)


@pytest.mark.parametrize(
    ("bad", "named"),
    [
        (diagnosis("graps", "spatial.target.x"), "did you mean 'grasp'"),
        (diagnosis("grasp", "spatial.target.x", family="stack"), "stack"),
        (diagnosis("grasp", "", abstain=True), "abstains"),
    ],
)
def test_a_diagnosis_that_does_not_fit_is_refused(bad: Diagnosis, named: str) -> None:
    with pytest.raises(ProgramError, match=named):
        compile_program(TEMPLATE, [bad])


# Shaping and the wrapper ------------------------------------------------------------------------


@given(
    st.lists(st.floats(0, 1), min_size=2, max_size=12),
    st.floats(0.5, 1.0),
    st.booleans(),
)
def test_the_discounted_shaped_return_of_an_episode_is_minus_phi_of_its_start(
    phis: list[float], gamma: float, terminated: bool
) -> None:
    """Whatever the way, so a loop without success never pays."""
    steps = len(phis) - 1
    done = np.arange(steps) == (steps - 1 if terminated else steps)
    extra = shaping(phis[:-1], phis[1:], gamma, np.ones(steps), done)
    tail = 0.0 if terminated else gamma**steps * phis[-1]
    assert float(gamma ** np.arange(steps) @ extra) == pytest.approx(tail - phis[0], abs=1e-9)
    loop = np.array([*phis, phis[0]])
    around = shaping(loop[:-1], loop[1:], gamma, 1, False)
    assert float(gamma ** np.arange(len(around)) @ around) <= 1e-9


@given(st.lists(st.floats(0, 1), min_size=2, max_size=8), st.floats(0.5, 1.0), st.booleans())
def test_a_chunk_is_shaped_like_its_steps_together(
    phis: list[float], gamma: float, terminated: bool
) -> None:
    k = len(phis) - 1
    done = np.arange(k) == (k - 1 if terminated else k)
    steps = shaping(phis[:-1], phis[1:], gamma, 1, done)
    chunk = shaping(phis[0], phis[-1], gamma, k, terminated)
    assert float(gamma ** np.arange(k) @ steps) == pytest.approx(float(chunk), abs=1e-9)


def _scene() -> dict[str, object]:
    return FAMILY.sample(np.random.default_rng(5), "seed").to_dict()


def test_the_wrapper_pays_the_difference_of_phi_and_zero_at_termination() -> None:
    env = PotentialReward(ManipulationEnv("pick-place", scene=_scene(), control_hz=10), gamma=0.9)
    inner = env.unwrapped
    assert isinstance(inner, ManipulationEnv)
    phi = compile_potential(TEMPLATE, SCHEMA)
    _, info = env.reset(seed=0)
    assert info["potential"] == float(phi(inner.features))
    assert info["stage"] == 0
    expert, terminated = FAMILY.expert(0), False
    while not terminated:
        before = float(phi(inner.features))
        _, reward, terminated, truncated, info = env.step(expert.act(inner))
        assert not truncated
        after = float(phi(inner.features))
        assert info["potential"] == after
        assert info["stage"] == int(phi.stage(inner.features))
        sparse = info["sparse_reward"]
        assert sparse == float(terminated)
        assert reward == pytest.approx(sparse + (0.0 if terminated else 0.9 * after) - before)
    assert info["success"]
    assert info["potential"] == 1.0


def test_truncation_keeps_phi() -> None:
    env = PotentialReward(
        ManipulationEnv("pick-place", scene=_scene(), control_hz=10, max_steps=3), gamma=0.9
    )
    _, info = env.reset(seed=0)
    truncated = False
    while not truncated:
        before = info["potential"]
        _, reward, terminated, truncated, info = env.step(np.zeros(7))
        assert not terminated
        assert reward == pytest.approx(0.9 * info["potential"] - before)


def test_a_restored_state_is_paid_like_the_first_time() -> None:
    env = PotentialReward(ManipulationEnv("pick-place", scene=_scene(), control_hz=10))
    env.reset(seed=0)
    inner = env.unwrapped
    assert isinstance(inner, ManipulationEnv)
    down = np.array([0, 0, -1, 0, 0, 0, -1], dtype=float)
    state = inner.get_state()
    first = env.step(down)[1]
    env.step(down)
    inner.set_state(state)
    assert env.step(down)[1] == first


def test_the_wrapper_makes_a_proper_environment_that_its_spec_rebuilds() -> None:
    program = compile_program(TEMPLATE, [diagnosis("grasp", "spatial.target.yaw")]).to_dict()
    env = PotentialReward(gym.make("CoDA-PickPlace-v0", scene=_scene()), program, gamma=0.97)
    check_env(env.unwrapped, skip_render_check=True)
    spec = env.spec
    assert spec is not None
    again = gym.make(gym.envs.registration.EnvSpec.from_json(spec.to_json()))
    rewards = []
    for each in (env, again):
        each.reset(seed=1)
        rewards.append([each.step(np.full(7, -0.3, np.float32))[1] for _ in range(3)])
    assert rewards[0] == rewards[1]


def test_the_wrapper_refuses_what_it_cannot_shape() -> None:
    scene = _scene()
    with pytest.raises(ProgramError, match="already"):
        PotentialReward(ManipulationEnv("pick-place", scene=scene, reward_mode="shaped"))
    plain = ManipulationEnv("pick-place", scene=scene)
    with pytest.raises(ProgramError, match="gamma"):
        PotentialReward(plain, gamma=1.5)
    with pytest.raises(ProgramError, match="stack"):
        PotentialReward(plain, {**TEMPLATE.to_dict(), "family": "stack"})
    with pytest.raises(ProgramError, match="stages"):
        PotentialReward(plain, {"family": "pick-place"})
