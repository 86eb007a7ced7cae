"""Potential programs on experts' episodes, and the compiler from diagnoses."""

from __future__ import annotations

import functools
import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from program_cases import (
    FACTORS,
    FAMILY,
    SCHEMA,
    STAGES,
    TEMPLATE,
    diagnosis,
    features,
)

from coda_envs.env import ManipulationEnv
from coda_envs.errors import ProgramError
from coda_envs.programs.diagnosis import Diagnosis
from coda_envs.programs.potential import leaves
from coda_envs.text2potential import (
    compile_potential,
    compile_program,
)

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
    for stage, factor in itertools.product(STAGES, FACTORS):
        phi = compile_potential(compile_program(TEMPLATE, [diagnosis(factor, stage=stage)]), SCHEMA)
        for rows in expert_runs()[::4]:
            assert np.diff(phi(rows)).min() > -0.05, (stage, factor)


# The compiler -----------------------------------------------------------------------------------

claims = st.lists(
    st.builds(
        diagnosis,
        st.sampled_from(FACTORS),
        st.sampled_from(("high", "low", "other")),
        st.sampled_from(STAGES),
    ),
    max_size=12,
)


def test_every_factor_stage_and_direction_compiles_to_a_valid_program() -> None:
    for stage, factor, direction in itertools.product(STAGES, FACTORS, ("high", "low", "other")):
        program = compile_program(TEMPLATE, [diagnosis(factor, direction, stage)])
        compile_potential(program, SCHEMA)
        assert program.stage_names == STAGES
        assert [s.gate for s in program.stages] == [s.gate for s in TEMPLATE.stages]
        share = {s.name: s.weight for s in program.stages}
        assert share[stage] == 1.6
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
    program = compile_program(TEMPLATE, [diagnosis(factor, stage=stage)])
    added = set()
    for before, after in zip(TEMPLATE.stages, program.stages, strict=True):
        new = {*leaves(after.progress)} - {*leaves(before.progress)}
        added |= {(after.name, term.term) for term in new}
    assert added == expected


def test_a_diagnosed_yaw_makes_turning_the_hand_worth_something() -> None:
    plain = compile_potential(TEMPLATE, SCHEMA)
    turned = compile_potential(
        compile_program(TEMPLATE, [diagnosis("spatial.target.yaw", stage="grasp")]), SCHEMA
    )
    wrong, right = features(gripper__yaw=0.7), features(gripper__yaw=0.0)
    assert plain(wrong) == plain(right)
    assert turned(wrong) < turned(right)


@pytest.mark.parametrize(
    ("bad", "named"),
    [
        (diagnosis("spatial.target.x", stage="graps"), "did you mean 'grasp'"),
        (diagnosis("spatial.target.x", stage="grasp", family="stack"), "stack"),
        (diagnosis("", stage="grasp", abstain=True), "abstains"),
    ],
)
def test_a_diagnosis_that_does_not_fit_is_refused(bad: Diagnosis, named: str) -> None:
    with pytest.raises(ProgramError, match=named):
        compile_program(TEMPLATE, [bad])
