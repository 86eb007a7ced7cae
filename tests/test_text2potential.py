"""Progress terms and staged potentials."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from program_cases import (
    SCHEMA,
    TEMPLATE,
    diagnosis,
    features,
)

from coda_envs.errors import ProgramError
from coda_envs.features import FeatureSchema
from coda_envs.programs.potential import PotentialProgram, Term
from coda_envs.text2potential import (
    compile_potential,
    compile_program,
)
from coda_envs.text2potential.terms import REGISTRY, resolve
from coda_envs.view import View

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
    Term(term="joint_fraction", roles=("target",)),
    Term(term="insertion_depth", roles=("target", "receptacle")),
    Term(term="contact", roles=("distractor_1", "target")),
]


def value(term: Term, row: np.ndarray) -> float:
    return float(resolve(term, SCHEMA)(View(SCHEMA, row)))


states = st.integers(0, 2**32 - 1).map(
    lambda seed: np.random.default_rng(seed).normal(
        0, np.random.default_rng(seed).choice([0.02, 0.1, 1.0, 1e3]), (12, SCHEMA.size)
    )
)


# Terms ------------------------------------------------------------------------------------------


@given(states)
@settings(max_examples=60, deadline=None)
def test_every_term_is_bounded_on_any_state_and_the_same_alone_as_in_a_batch(
    rows: np.ndarray,
) -> None:
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
        ({"term": "contact", "roles": ["distractor_1", "distractor_2"]}, "not recorded"),
        ({"term": "grasped", "roles": ["target"], "scale": 1.0}, "scale"),
        ({"term": "distance", "roles": ["gripper", "target"], "scale": 5.0}, "0.01 to 1 m"),
        ({"term": "height", "roles": ["target"], "scale": 0.001}, "0.01 to 0.5 m"),
        ({"term": "upright", "roles": ["target"], "scale": 57.0}, "0.05 to 3.14159 rad"),
        ({"term": "height", "roles": ["target", "receptacle", "target"]}, "1 or 2 roles"),
        ({"term": "inside_fraction", "roles": ["target", "recptacle"]}, "mean 'receptacle'"),
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
        ({"predicate": "over", "roles": ["target"]}, "over(role, receptacle)"),
        ({"predicate": "near", "roles": ["receptacel"]}, "did you mean 'receptacle'"),
        ({"any": [{"all": [{"predicate": "nope"}]}]}, "'nope'"),
    ],
)
def test_a_gate_with_unknown_names_is_refused(gate: dict[str, object], named: str) -> None:
    with pytest.raises(ProgramError, match="stage 'reach'") as caught:
        compile_potential(_with(gate=gate), SCHEMA)
    assert named in str(caught.value)


@pytest.mark.parametrize(
    ("node", "named"),
    [
        ({"term": "distnce", "roles": ["gripper", "target"]}, "did you mean 'distance'"),
        ({"op": "meen", "of": [{"term": "stable", "roles": ["target"]}]}, "did you mean 'mean'"),
        ({"op": "min", "of": [{"term": "uprigth", "roles": ["target"]}]}, "mean 'upright'"),
        ({"roles": ["target"]}, "term"),
        ({"op": "not", "of": [{"term": "stable"}, {"term": "stable"}]}, "exactly one"),
    ],
)
def test_a_misspelt_term_or_operation_is_refused_where_it_is(
    node: dict[str, object], named: str
) -> None:
    with pytest.raises(ProgramError, match=r"stages\.0\.progress") as caught:
        _with(progress=node)
    assert named in str(caught.value)


def test_every_scale_has_its_default_within_its_range() -> None:
    for spec in REGISTRY.values():
        low, high = spec.scales
        assert bool(spec.unit) == (0.0 < low < high)
        if spec.default_scale is not None:
            assert low <= spec.default_scale <= high


def test_every_term_of_the_schema_is_registered() -> None:
    names = set(Term.model_json_schema()["properties"]["term"]["enum"])
    assert names == set(REGISTRY)
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
    with pytest.raises(ProgramError, match="unknown role"):
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
    # One pad that loses touch for an instant is no drop.
    assert phi(features(target__z=0.15, gripper__z=0.15, target__left=1.0)) == phi(carried)
    hovering = features(**held, target__y=0.2, target__z=0.15, gripper__z=0.15)
    let_go_high = features(target__y=0.2, target__z=0.15, gripper__y=0.2, gripper__z=0.15)
    assert phi(let_go_high) <= phi(hovering)


def test_version_is_the_programs_content() -> None:
    phi = compile_potential(TEMPLATE, SCHEMA)
    again = PotentialProgram.parse(json.loads(TEMPLATE.canonical_json()))
    assert again == TEMPLATE
    assert phi.version == compile_potential(again, SCHEMA).version == TEMPLATE.hash
    changed = compile_program(TEMPLATE, [diagnosis("spatial.target.yaw", stage="grasp")])
    assert compile_potential(changed, SCHEMA).version != phi.version
