"""Diagnosticians name the factor that makes episodes fail, or say that they cannot tell."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coda_envs.errors import ConfigError, PluginError, ProgramError
from coda_envs.programs.diagnosis import Diagnosis
from coda_envs.programs.potential import AllOf, AnyOf, Predicate
from coda_envs.scene import Scene
from coda_trainer.diagnosis import base
from coda_trainer.diagnosis.base import (
    DiagnosisContext,
    diagnose,
    gate_text,
    make_diagnostician,
    register_diagnostician,
)
from coda_trainer.diagnosis.evidence import MAX_STEPS, key_steps
from tests.program_cases import FAMILY, SCHEMA, SPACE, STAGES
from tests.synthetic_episodes import collected, episode, fails_at, number, scenes

TARGET = "attributes.target."
YAW = "spatial.target.yaw"
POPULATION = scenes(256)

CAUSES: dict[str, tuple[str, Callable[[Scene], bool]]] = {
    "size high": (TARGET + "size", lambda s: number(s, TARGET + "size") > 0.026),
    "mass high, rare": (TARGET + "mass", lambda s: number(s, TARGET + "mass") > 0.35),
    "friction low": (TARGET + "friction", lambda s: number(s, TARGET + "friction") < 0.6),
    "turned either way": (YAW, lambda s: abs(number(s, YAW)) > 1.0),
    "a choice": (TARGET + "shape", lambda s: s.values[TARGET + "shape"] == "bar"),
}


def trace(context: DiagnosisContext) -> list[Diagnosis]:
    return diagnose(make_diagnostician("trace"), context.failures, context)


@pytest.mark.parametrize("name", CAUSES)
def test_trace_names_the_one_factor_that_matters_among_innocent_ones(name: str) -> None:
    factor, where = CAUSES[name]
    context = collected(POPULATION, fails_at("lift", where))
    caused = [d for d, e in zip(trace(context), context.failures, strict=True) if where(e.scene)]
    named = [d for d in caused if not d.abstain]
    right = [d for d in named if d.factor == factor]
    assert len(right) >= 0.8 * len(caused)
    assert len(right) >= 0.95 * len(named)
    for diagnosis in right:
        assert diagnosis.stage == "lift"
        assert diagnosis.failed_predicate == "lifted(target)"
        assert diagnosis.role == "target"
        assert factor in diagnosis.sentence


def test_direction_says_on_which_side_of_the_successes_the_value_lies() -> None:
    context = collected(POPULATION, fails_at("grasp", CAUSES["turned either way"][1]))
    by_scene = {e.scene.id: e.scene for e in context.failures}
    seen = set()
    for d in trace(context):
        if d.factor == YAW and abs(number(by_scene[d.scene_id], YAW)) > 1.0:
            assert d.direction == ("high" if number(by_scene[d.scene_id], YAW) > 0 else "low")
            seen.add(d.direction)
        if d.factor in (TARGET + "shape", TARGET + "color"):
            assert d.direction == "other"
    assert seen == {"high", "low"}


def test_causes_at_two_stages_are_told_apart() -> None:
    size, heavy = CAUSES["size high"][1], CAUSES["friction low"][1]

    def done(scene: Scene, rng: np.random.Generator) -> int:
        grasp = fails_at("grasp", size, otherwise=0.05)(scene, rng)
        place = fails_at("place", heavy, otherwise=0.05)(scene, rng)
        return min(grasp, place)

    named = Counter((d.stage, d.factor) for d in trace(collected(POPULATION, done)) if d.factor)
    best = {stage: max(n for n in named if n[0] == stage and named[n] > 5) for stage, _ in named}
    assert best["grasp"][1] == TARGET + "size"
    assert best["place"][1] == TARGET + "friction"
    assert named.most_common(2)[0][0][1] != named.most_common(2)[1][0][1]


@pytest.mark.parametrize("rate", [0.3, 0.6])
def test_trace_abstains_where_no_factor_matters(rate: float) -> None:
    context = collected(POPULATION, fails_at("grasp", lambda s: True, chance=rate))
    answers = trace(context)
    assert sum(not d.abstain for d in answers) <= 0.12 * len(answers)


def test_trace_abstains_between_two_factors_that_always_come_together() -> None:
    rng = np.random.default_rng(1)
    twins = [
        s.edit_many({TARGET + "mass": 0.03 + 0.37 * u, TARGET + "friction": 0.3 + 1.2 * u})
        for s, u in zip(POPULATION, rng.random(len(POPULATION)), strict=True)
    ]
    where = CAUSES["mass high, rare"][1]
    context = collected(twins, fails_at("grasp", where, chance=1.0, otherwise=0.0))
    answers = trace(context)
    assert answers
    assert all(d.abstain and "equally well" in d.sentence for d in answers)


def test_trace_abstains_with_too_few_successes() -> None:
    context = collected(POPULATION[:40], fails_at("grasp", lambda s: True, chance=0.9))
    assert 0 < len(context.successes) < 12
    for diagnosis in trace(context):
        assert diagnosis.abstain
        assert "too few" in diagnosis.sentence


def test_what_an_episode_was_collected_for_changes_no_diagnosis() -> None:
    context = collected(POPULATION, fails_at("lift", CAUSES["size high"][1]))
    relabelled = DiagnosisContext(
        family=context.family,
        successes=tuple(dataclasses.replace(e, source="mode-7") for e in context.successes),
        failures=tuple(dataclasses.replace(e, source="mode-7") for e in context.failures),
        seed=context.seed,
    )
    assert trace(relabelled) == trace(context)


def test_the_order_of_the_episodes_changes_no_diagnosis() -> None:
    context = collected(POPULATION, fails_at("lift", CAUSES["size high"][1]))
    turned = dataclasses.replace(
        context, successes=context.successes[::-1], failures=context.failures[::-1]
    )
    assert trace(turned)[::-1] == trace(context)


def test_trace_is_labelled_privileged() -> None:
    context = collected(POPULATION[:60], fails_at("lift", CAUSES["size high"][1]))
    assert {d.diagnostician for d in trace(context)} == {"trace (privileged)"}


@pytest.mark.parametrize("done", range(len(STAGES)))
def test_the_stage_is_the_first_one_never_done(done: int) -> None:
    failed = episode(POPULATION[0], done)
    context = DiagnosisContext(FAMILY, (), (failed,), seed=0)
    assert trace(context)[0].stage == STAGES[done]


def test_a_stage_done_once_and_undone_again_counts_as_done() -> None:
    dropped = episode(POPULATION[0], STAGES.index("transport"))
    back = np.concatenate([dropped.features, dropped.features[:1]])
    dropped = dataclasses.replace(dropped, features=back, actions=np.zeros((len(back) - 1, 7)))
    context = DiagnosisContext(FAMILY, (), (dropped,), seed=0)
    assert trace(context)[0].stage == "transport"


@settings(max_examples=50, deadline=None)
@given(st.lists(st.booleans(), min_size=2, max_size=60))
def test_evidence_is_a_few_ascending_steps_with_start_and_end(held: list[bool]) -> None:
    shown = episode(POPULATION[0], 1)
    rows = np.repeat(shown.features[:1], len(held), axis=0)
    rows[:, [SCHEMA.index("target.left"), SCHEMA.index("target.right")]] = np.array(held)[:, None]
    actions = np.zeros((len(held) - 1, 7), dtype=np.float32)
    shown = dataclasses.replace(shown, features=rows, actions=actions)
    steps = key_steps(shown, SCHEMA)
    assert steps[0] == 0
    assert steps[-1] == shown.length
    assert list(steps) == sorted(set(steps))
    assert len(steps) <= MAX_STEPS
    changes = [i for i in range(1, len(held)) if held[i] != held[i - 1]]
    assert set(steps) >= set(changes[:4])


def test_gates_are_written_in_words() -> None:
    a, b = Predicate(predicate="at", roles=("x", "y")), Predicate(predicate="stable", roles=("x",))
    assert gate_text(AllOf(all=(a, AnyOf(any=(a, b))))) == "at(x, y) and (at(x, y) or stable(x))"


def test_random_factor_draws_every_factor_and_repeats_itself() -> None:
    context = collected(POPULATION, fails_at("lift", lambda s: True))
    baseline = make_diagnostician("random_factor")
    answers = diagnose(baseline, context.failures, context)
    assert answers == diagnose(baseline, context.failures, context)
    assert not any(d.abstain for d in answers)
    # The rarer ones exist in a third of the scenes only.
    assert len({d.factor for d in answers}) >= 0.75 * len(SPACE.by_path)
    other = dataclasses.replace(context, seed=context.seed + 1)
    assert answers != diagnose(baseline, context.failures, other)


class _Says:
    """A diagnostician that answers what it is told."""

    label = "says"

    def __init__(self, **fields: object) -> None:
        self.fields = fields

    def diagnose(self, failures, context):  # type: ignore[no-untyped-def]
        answers = trace(context)
        changed = {"factor": TARGET + "size", "abstain": False, **self.fields}
        return [Diagnosis.model_validate(d.to_dict() | changed) for d in answers]


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"factor": "attributes.target.sise"}, "did you mean 'attributes.target.size'"),
        (
            {"alternatives": [{"factor": "x", "direction": "high", "confidence": 0.1}]},
            "does not have",
        ),
        ({"stage": "gasp"}, "did you mean 'grasp'"),
        ({"scene_id": "0"}, "scene_id"),
        ({"episode_seed": 99}, "episode_seed"),
        ({"family": "stack"}, "family"),
        ({"evidence": (10_000,)}, "steps from 0"),
    ],
)
def test_a_claim_that_the_episode_does_not_bear_is_refused(
    fields: dict[str, object], named: str
) -> None:
    failed = episode(POPULATION[0], 1)
    context = DiagnosisContext(FAMILY, (), (failed,), seed=0)
    with pytest.raises(ProgramError) as error:
        diagnose(_Says(**fields), context.failures, context)
    assert named in str(error.value)


def test_a_success_cannot_be_diagnosed_and_no_failure_may_be_left_out() -> None:
    failed, solved = episode(POPULATION[0], 1), episode(POPULATION[0], len(STAGES))
    context = DiagnosisContext(FAMILY, (solved,), (failed,), seed=0)
    with pytest.raises(ProgramError, match="succeeded"):
        diagnose(make_diagnostician("trace"), [solved], context)
    with pytest.raises(ProgramError, match="1 diagnoses of 2 failures"):
        diagnose(_Says(), [failed, failed], context)


def test_a_diagnostician_is_found_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base, "REGISTERED", {})
    register_diagnostician("says", _Says)
    assert isinstance(make_diagnostician("says", factor="x"), _Says)
    register_diagnostician("number", lambda: 3)  # type: ignore[arg-type, return-value]
    with pytest.raises(PluginError, match="made a int"):
        make_diagnostician("number")
    register_diagnostician("broken", lambda: 1 / 0)  # type: ignore[arg-type, return-value]
    with pytest.raises(PluginError, match="ZeroDivisionError"):
        make_diagnostician("broken")
    with pytest.raises(PluginError, match="cannot be made"):
        make_diagnostician("trace", colour="red")
    with pytest.raises(ConfigError, match="did you mean 'trace'"):
        make_diagnostician("tracer")
    with pytest.raises(PluginError, match="belongs to a built-in"):
        register_diagnostician("trace", _Says)
