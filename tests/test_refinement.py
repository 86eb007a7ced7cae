"""Refinement of potentials: planted faults are repaired, noise changes nothing."""

from __future__ import annotations

import functools
import json
from typing import Any, NamedTuple

import numpy as np
import pytest
from program_cases import FAMILY, SCHEMA, TEMPLATE, features

from coda_envs.env import ManipulationEnv
from coda_envs.errors import ProgramError
from coda_envs.features import FeatureSchema
from coda_envs.programs.potential import PotentialProgram
from coda_envs.text2potential import compile_potential
from coda_trainer.compile.outcome import scores, span, stage_evidence, wins
from coda_trainer.compile.refinement import FACTORS, LEAST, refine


class Run(NamedTuple):
    """An episode as refinement reads it."""

    features: np.ndarray
    success: bool


HELD = {"target__left": 1.0, "target__right": 1.0}
GOAL = features(
    target__y=0.2, target__z=0.03, target__supported=1.0, target__table=0.0, gripper__y=0.2
)


def approaching(rng: np.random.Generator, success: bool) -> Run:
    """A hand that comes near the target, or stays away; sideways at the target's height, so that
    only the distance counts. Successes then end at the goal."""
    near = 0.10 if success else 0.17
    gaps = np.linspace(0.3, near + 0.04 * rng.random(), 12)
    rows = [features(gripper__z=0.02, gripper__x=-gap) for gap in gaps]
    return Run(np.stack([*rows, GOAL] if success else [*rows, rows[-1]]), success)


def runs(count: int, seed: int = 0) -> list[Run]:
    """As many successes as failures."""
    rng = np.random.default_rng(seed)
    return [approaching(rng, bool(i % 2)) for i in range(count)]


def with_reach(progress: dict[str, Any]) -> PotentialProgram:
    """The template with another progress in its first stage."""
    data = TEMPLATE.to_dict()
    data["stages"][0]["progress"] = progress
    return PotentialProgram.parse(data)


def distance(scale: float) -> dict[str, Any]:
    return {"term": "distance", "roles": ["gripper", "target"], "scale": scale}


# Evidence ----------------------------------------------------------------------------------------


def test_the_end_state_of_a_success_does_not_count() -> None:
    """Two groups that differ in nothing but their last state: Φ tells nothing beforehand."""
    rows = [features(gripper__z=0.02, gripper__x=-0.2)] * 8
    same = [Run(np.stack([*rows, GOAL if i % 2 else rows[0]]), bool(i % 2)) for i in range(8)]
    potential = compile_potential(TEMPLATE, SCHEMA)
    values = scores(potential, same, states=20)
    assert np.ptp(values) < 1e-12
    success = np.array([run.success for run in same])
    assert (wins(values, success) == 0.5).all()


def test_scores_span_three_quarters_of_a_typical_success() -> None:
    long = Run(np.repeat(GOAL[None], 101, axis=0), False)
    short = [Run(np.repeat(GOAL[None], n + 1, axis=0), True) for n in (8, 16, 40)]
    assert span([long, *short]) == 12
    rows = np.stack([features(gripper__z=0.02, gripper__x=-0.1 * i) for i in range(4)])
    potential = compile_potential(TEMPLATE, SCHEMA)
    values = scores(potential, [Run(rows, False)], states=2)
    assert values == pytest.approx([potential(rows[:2]).mean()])


def test_wins_are_counted_pair_by_pair() -> None:
    values, success = np.array([0.1, 0.5, 0.5, 0.9]), np.array([False, True, False, True])
    assert wins(values, success).tolist() == [[1.0, 0.5], [1.0, 1.0]]


def test_reach_and_dwell_are_counted_by_hand() -> None:
    at, held = features(gripper__z=0.02), features(gripper__z=0.02, **HELD)
    away = features()
    failure = Run(np.stack([away, away, at, at, at]), False)
    success = Run(np.stack([away, at, held, GOAL]), True)
    found = stage_evidence(compile_potential(TEMPLATE, SCHEMA), [failure, success])
    reach, grasp, lift = found[:3]
    assert (reach.reached, reach.passed) == (1.0, 1.0)
    assert (reach.dwell_failure, reach.dwell_success) == (2.0, 1.0)
    assert (grasp.reached, grasp.passed) == (0.5, 0.5)
    assert (grasp.dwell_failure, grasp.dwell_success) == (2.0, 1.0)
    assert (lift.reached, lift.passed, lift.dwell_failure) == (0.5, 1.0, 0.0)
    assert stage_evidence(compile_potential(TEMPLATE, SCHEMA), [failure])[3].passed is None


# Refinement --------------------------------------------------------------------------------------


def test_a_scale_too_short_to_tell_is_doubled() -> None:
    planted = with_reach(distance(0.1))
    found = refine(planted, SCHEMA, runs(60), seed=0)
    assert found.change == "reach: scale of distance(gripper, target, 0.1) × 2"
    assert found.program.stages[0].progress.to_dict()["scale"] == 0.2
    assert found.program.stages[1:] == planted.stages[1:]
    assert found.held_out is not None
    assert found.held_out[0] == 0.5
    assert found.held_out[1] > 0.9


@functools.cache
def noisy_expert() -> list[Run]:
    """Episodes of the expert with more or less noise and bias on its actions."""
    env, rng = ManipulationEnv("pick-place", control_hz=10), np.random.default_rng(3)
    played = []
    for seed in range(64):
        env.reset(seed=seed, options={"scene": FAMILY.sample(rng, "generator")})
        expert, rows, over = FAMILY.expert(seed), [env.features.copy()], False
        spread = rng.uniform(0.02, 0.5)
        bias = rng.normal(0.0, 0.25 * spread, 7)
        while not over:
            noise = bias + rng.normal(0.0, 0.8 * spread, 7)
            _, _, terminated, truncated, info = env.step(expert.act(env) + noise)
            rows.append(env.features.copy())
            over = terminated or truncated
        played.append(Run(np.array(rows, dtype=np.float32), bool(info["success"])))
    return played


def test_real_episodes_unmask_a_reward_for_not_touching() -> None:
    touch = {"op": "not", "of": [{"term": "contact", "roles": ["gripper", "target"]}]}
    only = {
        "name": "place",
        "gate": {"predicate": "placed", "roles": ["target", "receptacle"]},
        "progress": {"op": "mean", "of": [distance(0.5), touch]},
    }
    planted = PotentialProgram.parse({"family": "pick-place", "stages": [only]})
    for seed in range(3):
        found = refine(planted, SCHEMA, noisy_expert(), seed)
        assert found.change == "place: without not contact(gripper, target)"
        assert found.held_out is not None
        assert found.held_out[1] > found.held_out[0] + 0.3


def test_what_is_kept_is_better_on_the_held_out_half_and_nothing_else_is() -> None:
    for seed in range(8):
        found = refine(TEMPLATE, SCHEMA, noisy_expert(), seed)
        assert found.fit is not None
        if found.change:
            assert found.held_out is not None
            assert found.held_out[1] > found.held_out[0]
        else:
            assert found.program == TEMPLATE


def test_outcomes_that_have_nothing_to_do_with_phi_change_nothing() -> None:
    """At the 5% level a change slips through now and then; not more often."""
    rng, kept = np.random.default_rng(0), 0
    success = np.array([run.success for run in noisy_expert()])
    for seed in range(20):
        shuffled = rng.permutation(success)
        played = [
            Run(run.features, bool(s)) for run, s in zip(noisy_expert(), shuffled, strict=True)
        ]
        kept += bool(refine(TEMPLATE, SCHEMA, played, seed).change)
    assert kept <= 2


@pytest.mark.parametrize("successes", [0, 2 * LEAST - 1])
def test_without_evidence_nothing_changes(successes: int) -> None:
    rng = np.random.default_rng(0)
    played = [approaching(rng, i < successes) for i in range(40)]
    found = refine(with_reach(distance(0.1)), SCHEMA, played, seed=0)
    assert found.program == with_reach(distance(0.1))
    assert (found.change, found.fit, found.held_out) == ("", None, None)
    assert str(successes) in found.reason
    assert refine(TEMPLATE, SCHEMA, [], seed=0).program == TEMPLATE


def test_the_record_names_the_parent_the_evidence_and_what_was_tried() -> None:
    planted = with_reach(distance(0.1))
    found = refine(planted, SCHEMA, runs(60), seed=0)
    record = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert record["parent"] == planted.hash
    assert record["version"] == found.program.hash != planted.hash
    assert planted.hash in found.program.note
    assert (record["successes"], record["failures"]) == (30, 30)
    assert [stage["name"] for stage in record["stages"]] == list(TEMPLATE.stage_names)
    tried = {one["change"]: one["auc"] for one in record["tried"]}
    assert tried[found.change] == max(tried.values()) == record["fit"][1]
    assert "weights by reach rate" in tried
    assert {f"reach: weight × {factor:g}" for factor in FACTORS} <= tried.keys()
    # The hand never got to the target: nothing is known of the stages from there on.
    assert not any(change.startswith("lift:") for change in tried)
    assert compile_potential(found.program, SCHEMA).version == record["version"]


def test_the_same_seed_gives_the_same_answer_and_scales_stay_in_range() -> None:
    first = refine(TEMPLATE, SCHEMA, noisy_expert(), seed=4)
    assert refine(TEMPLATE, SCHEMA, noisy_expert(), seed=4) == first
    edge = refine(with_reach(distance(1.0)), SCHEMA, runs(60), seed=0)
    assert not any("target, 1) × 2" in change for change, _ in edge.tried)
    assert any("target, 1) × 0.5" in change for change, _ in edge.tried)
    with pytest.raises(ProgramError, match="unknown role"):
        refine(TEMPLATE, FeatureSchema(("cup",)), runs(60), seed=0)
