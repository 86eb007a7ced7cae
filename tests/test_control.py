"""Control evaluations: matched scenes, verdicts with known error rates, honest counts."""

from __future__ import annotations

import json
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coda_envs.errors import ConfigError, HeldOutError, ProgramError
from coda_envs.factor import ContinuousFactor
from coda_envs.scene import Scene
from coda_trainer.diagnosis import rule
from coda_trainer.diagnosis.base import DiagnosisContext
from coda_trainer.diagnosis.control import (
    Candidate,
    ControlPlan,
    ControlResult,
    evaluate_controls,
    plan_control,
    refuted_percent,
    select_candidates,
)
from coda_trainer.diagnosis.error_rates import simulate, worst_case
from coda_trainer.diagnosis.triples import MIN_MOVE, Triple, TripleMaker
from coda_trainer.episode import Episode
from tests.program_cases import FACTORS, FAMILY, SPACE, STAGES, diagnosis
from tests.synthetic_episodes import collected, episode, fails_at, number, scenes

SIZE = "attributes.target.size"
SHAPE = "attributes.target.shape"
POPULATION = scenes(160, seed=5)
SUCCEEDED = POPULATION[80:]


def triples(factor: str, seed: int = 0, most: int = 6) -> list[Triple]:
    failed = [s for s in POPULATION[:80] if factor in s.values]
    start = seed % len(failed)
    turned = failed[start : start + 4]
    rng = np.random.default_rng(seed)
    return TripleMaker(FAMILY, factor, turned, SUCCEEDED, rng).make(most)


def changed(before: Scene, after: Scene) -> set[str]:
    """Factors that differ, without those that an edit brings into being or takes away."""
    shared = before.values.keys() & after.values.keys()
    return {p for p in shared if before.values[p] != after.values[p]}


@settings(max_examples=60, deadline=None)
@given(factor=st.sampled_from(FACTORS), seed=st.integers(0, 10_000))
def test_control_and_other_scene_differ_from_the_condition_in_one_factor(
    factor: str, seed: int
) -> None:
    for triple in triples(factor, seed):
        t, c, p = triple.condition, triple.control, triple.other
        assert changed(t, c) == {factor}
        assert changed(t, p) == {triple.other_factor}
        assert triple.other_factor != factor
        assert p.values[factor] == t.values[factor]
        moved = SPACE.distance(factor, t.values[factor], c.values[factor])
        other = triple.other_factor
        as_far = SPACE.distance(other, t.values[other], p.values[other])
        assert moved == pytest.approx(as_far, abs=2e-3)
        assert moved >= MIN_MOVE - 1e-3
        for edited in (c, p):
            assert FAMILY.flaw(edited.values) is None
            assert FAMILY.region(edited) == "generator"
        # Factors appear or go only with the one that governs them.
        gone = t.values.keys() ^ c.values.keys()
        assert all(SPACE[path].when is not None for path in gone)


def test_triples_can_be_made_for_every_factor() -> None:
    made = {factor: len(triples(factor, seed=3)) for factor in FACTORS}
    assert all(made.values()), made


def test_a_number_is_reset_into_the_middle_of_the_successes_and_no_further_than_needed() -> None:
    low, high = np.quantile([s.values[SIZE] for s in SUCCEEDED], [0.2, 0.8])
    for triple in triples(SIZE, seed=1, most=8):
        before, after = triple.condition.values[SIZE], triple.control.values[SIZE]
        assert low - 1e-6 <= after <= high + 1e-6
        for value in np.linspace(low, high, 17):
            move = SPACE.distance(SIZE, before, float(value))
            if MIN_MOVE <= move < SPACE.distance(SIZE, before, after) - 1e-3:
                nearer = triple.condition.edit(SIZE, float(value))
                laid_out = FAMILY.flaw(nearer.values) is None
                assert not (laid_out and FAMILY.region(nearer) == "generator")


def test_a_choice_is_reset_to_the_most_frequent_successful_one() -> None:
    bars = [s for s in POPULATION[:80] if s.values[SHAPE] == "bar"]
    wins = [s for s in SUCCEEDED if s.values[SHAPE] == "cube"] + [
        s for s in SUCCEEDED if s.values[SHAPE] == "cylinder"
    ][:3]
    made = TripleMaker(FAMILY, SHAPE, bars, wins, np.random.default_rng(0)).make(16)
    allowed = [
        t
        for t in made
        if FAMILY.flaw((cube := t.condition.edit(SHAPE, "cube")).values) is None
        and FAMILY.region(cube) == "generator"
    ]
    assert allowed
    assert all(t.control.values[SHAPE] == "cube" for t in allowed)
    assert not any(t.control.values[SHAPE] == "bar" for t in made)


def test_a_failed_scene_that_is_kept_for_testing_is_an_error() -> None:
    held_out = FAMILY.sample(np.random.default_rng(0), "generator", region="ood")
    maker = TripleMaker(FAMILY, SIZE, [held_out], SUCCEEDED, np.random.default_rng(0))
    with pytest.raises(HeldOutError, match="'ood'"):
        maker.make(4)


# Plans and their evaluation --------------------------------------------------------------------


def wide(scene: Scene) -> bool:
    return number(scene, SIZE) > 0.026


def world(reaches: Callable[[Scene], float], stage: str = "lift") -> Callable[..., list[Episode]]:
    """A policy that gets ``stage`` done with a chance that depends on the scene."""
    index = STAGES.index(stage)

    def run(jobs: list[tuple[Scene, int]]) -> list[Episode]:
        return [
            # Past the stage it fails all the same: success must not decide.
            episode(
                scene,
                index + (np.random.default_rng(seed).random() < reaches(scene)),
                seed=seed,
            )
            for scene, seed in jobs
        ]

    return run


CONTEXT: DiagnosisContext = collected(POPULATION, fails_at("lift", wide, 0.9, 0.1))


def claim(factor: str, where: Callable[[Scene], bool] = wide, direction: str = "high") -> Candidate:
    """The claim that ``factor`` makes the failures ``where`` a condition holds fail at lifting."""
    said = [
        diagnosis(
            factor,
            direction,
            stage="lift",
            scene_id=e.scene.id,
            episode_seed=e.seed,
            failed_predicate="lifted(target)",
            role="target",
            confidence=0.6,
        )
        for e in CONTEXT.failures
        if where(e.scene)
    ]
    (candidate,) = select_candidates(said, 1)
    return candidate


def evaluated(plan: ControlPlan, reaches: Callable[[Scene], float]) -> ControlResult:
    (result,) = evaluate_controls([plan], world(reaches), CONTEXT)
    return result


def plan(factor: str, seed: int = 0, most: int = 32) -> ControlPlan:
    return plan_control(claim(factor), CONTEXT, np.random.default_rng(seed), most)


def test_a_true_cause_is_confirmed_although_nothing_ever_succeeds() -> None:
    result = evaluated(plan(SIZE), lambda s: 0.1 if wide(s) else 0.8)
    assert result.verdict == "confirmed"
    assert result.succeeded == (0, 0, 0)
    t, c, p = result.reached
    assert c > t
    assert c > p
    assert result.p_small[0] > 0.9
    assert result.steps > 3 * result.episodes


def test_an_innocent_factor_is_refuted() -> None:
    result = evaluated(plan("attributes.target.friction"), lambda s: 0.1 if wide(s) else 0.8)
    assert result.verdict in ("refuted", "untestable")
    friction = [evaluated(plan("attributes.target.friction", i), lambda s: 0.6) for i in range(8)]
    assert all(r.verdict in ("refuted", "inconclusive") for r in friction)
    assert any(r.verdict == "refuted" for r in friction)


def test_a_failure_that_any_edit_removes_is_refuted() -> None:
    made = plan(SIZE)
    conditions = {t.condition.id for t in made.triples}
    result = evaluated(made, lambda s: 0.05 if s.id in conditions else 0.95)
    assert result.verdict == "refuted"
    assert result.gain[2] > 0.5


def test_a_policy_that_never_gets_there_makes_a_diagnosis_untestable() -> None:
    result = evaluated(plan(SIZE), lambda s: 0.02)
    assert result.verdict == "untestable"
    assert result.episodes < 32


def test_too_few_triples_run_nothing_and_count_as_untested() -> None:
    made = plan(SIZE, most=rule.BATCH - 1)
    (result,) = evaluate_controls([made], lambda jobs: pytest.fail("ran"), CONTEXT)
    assert (result.verdict, result.episodes) == ("untestable", 0)
    assert refuted_percent([result]).of_tested is None
    assert refuted_percent([result]).of_decided is None


def test_arms_share_fresh_seeds_and_plans_do_not_influence_each_other() -> None:
    plans = [plan(SIZE), plan("attributes.target.friction", seed=1)]
    batches: list[list[tuple[Scene, int]]] = []

    def run(jobs: list[tuple[Scene, int]]) -> list[Episode]:
        batches.append(jobs)
        return world(lambda s: 0.3 if wide(s) else 0.7)(jobs)

    together = evaluate_controls(plans, run, CONTEXT)
    for jobs in batches:
        for i in range(0, len(jobs), 3):
            assert len({seed for _, seed in jobs[i : i + 3]}) == 1
    apart = [evaluated(p, lambda s: 0.3 if wide(s) else 0.7) for p in plans]
    assert [r.to_dict() for r in together] == [r.to_dict() for r in apart]
    assert len(set(plans[0].seeds)) == len(plans[0].seeds)
    assert plan(SIZE) == plans[0]


def test_a_result_is_plain_json_and_counts_what_its_pairs_say() -> None:
    result = evaluated(plan(SIZE), lambda s: 0.3 if wide(s) else 0.7)
    data = json.loads(json.dumps(result.to_dict(), allow_nan=False))
    assert data["verdict"] == result.verdict
    assert len(data["pairs"]) == data["episodes"] == result.episodes
    assert data["reached"] == [sum(p["reached"][arm] for p in data["pairs"]) for arm in range(3)]


def test_a_runner_that_mixes_up_episodes_is_noticed() -> None:
    honest = world(lambda s: 0.5)
    with pytest.raises(ValueError, match="in order"):
        evaluate_controls([plan(SIZE)], lambda jobs: honest(jobs)[::-1], CONTEXT)


def test_a_claim_about_another_family_or_scene_is_refused() -> None:
    stranger = claim(SIZE)
    other = Candidate("stack", stranger.signature, stranger.diagnoses)
    with pytest.raises(ProgramError, match="'stack'"):
        plan_control(other, CONTEXT, np.random.default_rng(0))
    unknown = diagnosis(SIZE, stage="lift", scene_id="0" * 64)
    (candidate,) = select_candidates([unknown], 1)
    with pytest.raises(ProgramError, match="did not fail"):
        plan_control(candidate, CONTEXT, np.random.default_rng(0))


@given(st.permutations(range(9)))
@settings(max_examples=20, deadline=None)
def test_candidates_are_ranked_by_support_times_confidence_whatever_the_order(
    order: list[int],
) -> None:
    said = [
        *(diagnosis(SIZE, confidence=0.5, scene_id=str(i)) for i in range(4)),
        *(diagnosis(SHAPE, "other", confidence=0.9, scene_id=str(i)) for i in range(3)),
        diagnosis("spatial.target.x", "low", confidence=0.95),
        diagnosis("", abstain=True),
    ]
    found = select_candidates([said[i] for i in order], 3)
    assert [c.factor for c in found] == [SHAPE, SIZE, "spatial.target.x"]
    assert found == select_candidates(said, 3)
    assert select_candidates(said, 2) == found[:2]


def test_refuted_percent_has_both_forms() -> None:
    sure = [evaluated(plan(SIZE, i), lambda s: 0.1 if wide(s) else 0.8) for i in range(2)]
    vain = evaluated(plan(SIZE), lambda s: 0.02)
    made = plan(SIZE)
    conditions = {t.condition.id for t in made.triples}
    wrong = evaluated(made, lambda s: 0.05 if s.id in conditions else 0.95)
    percent = refuted_percent([*sure, vain, wrong])
    assert percent.of_decided == pytest.approx(100 / 3)
    assert percent.of_tested == pytest.approx(25)


# The rule --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("n", "b", "a"), [(8, 3, 1), (16, 0, 0), (32, 14, 2), (32, 5, 9)])
@pytest.mark.parametrize("margin", [rule.SMALL, rule.MATERIAL])
def test_gain_probability_agrees_with_draws_from_the_posterior(
    n: int, b: int, a: int, margin: float
) -> None:
    weights = [b + rule.PRIOR, a + rule.PRIOR, n - a - b + 2 * rule.PRIOR]
    draws = np.random.default_rng(0).dirichlet(weights, size=200_000)
    expected = np.mean(draws[:, 0] - draws[:, 1] > margin)
    assert rule.gain_table(n, margin)[b, a] == pytest.approx(expected, abs=0.005)


@given(n=st.integers(1, 32), data=st.data())
@settings(max_examples=60, deadline=None)
def test_more_gains_are_never_less_evidence(n: int, data: st.DataObject) -> None:
    b = data.draw(st.integers(0, n - 1))
    a = data.draw(st.integers(0, n - 1 - b))
    table = rule.gain_table(n, rule.SMALL)
    assert table[b + 1, a] >= table[b, a] - 1e-9
    assert table[b, a + 1] <= table[b, a] + 1e-9
    even = rule.gain_table(n, 0.0)
    assert even[b, a] + even[a, b] == pytest.approx(1.0, abs=1e-6)


@given(st.integers(1, 100))
def test_looks_end_at_the_most_and_ascend(most: int) -> None:
    found = rule.looks(most)
    assert found[-1] == most
    assert list(found) == sorted(set(found))


def test_no_episodes_is_no_evaluation() -> None:
    with pytest.raises(ConfigError, match="at least 1"):
        rule.looks(0)


@pytest.mark.parametrize("shared", [0.0, 0.5])
def test_error_rates_keep_their_bounds(shared: float) -> None:
    worst = worst_case(shared=shared, runs=2000)
    assert worst.false_confirmation <= 0.05
    assert worst.power >= 0.85
    assert worst.false_refutation <= 0.02


def test_verdicts_come_earlier_the_larger_the_effect() -> None:
    small, large = simulate((0.3, 0.7, 0.3)), simulate((0.05, 0.95, 0.05))
    assert large.episodes < small.episodes < 32
    for rates in (small, large):
        total = rates.confirmed + rates.refuted + rates.untestable + rates.inconclusive
        assert total == pytest.approx(1.0)


def test_numbers_and_choices_are_told_apart_by_the_other_edit() -> None:
    for factor in (SIZE, SHAPE):
        for triple in triples(factor, seed=2):
            assert isinstance(SPACE[triple.other_factor], ContinuousFactor) == (factor == SIZE)
