"""Difficulty modes: identity, merging and lifecycle."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coda_envs.errors import ProgramError, RunError
from coda_envs.programs.diagnosis import Diagnosis
from coda_trainer.memory import lifecycle
from coda_trainer.memory.modes import (
    Mode,
    Probe,
    belong_together,
    merge,
    merge_all,
    mode_of,
    overlap,
)
from coda_trainer.memory.progress import (
    Measurement,
    ProgressEstimate,
    SuccessPosterior,
)

N = 64


def diagnosis(**changes: object) -> Diagnosis:
    claim = {
        "diagnostician": "trace (privileged)",
        "family": "pick-place",
        "scene_id": "s",
        "episode_seed": 1,
        "stage": "grasp",
        "failed_predicate": "grasped",
        "factor": "attributes.target.size",
        "direction": "high",
        "role": "target",
    }
    return Diagnosis.parse({**claim, **changes})


def candidate(low: float = 0.02, high: float = 0.03, round: int = 0, **changes: object) -> Mode:
    return mode_of(diagnosis(**changes), round, interval=(low, high))


def outcomes(successes: int, p_material: float | None = 0.9, n: int = N) -> Measurement:
    progress = None if p_material is None else ProgressEstimate(0.0, -0.1, 0.1, p_material)
    return Measurement((True,) * successes + (False,) * (n - successes), (), progress)


def trained(round: int = 0) -> Mode:
    """A mode that was confirmed and selected in ``round``."""
    mode = lifecycle.judge(candidate(round=round), round, "confirmed")
    probes = tuple(Probe(scene_id=f"s{i}", seed=i) for i in range(3))
    return lifecycle.select(mode, round, omega_hash="o", phi_hash="p", probes=probes)


def run(mode: Mode, *measured: Measurement) -> Mode:
    for m in measured:
        start = 0 if mode.round_measured is None else mode.round_measured + 1
        mode = lifecycle.measure(mode, start, m)
    return mode


# Identity and merging --------------------------------------------------------------------------


def test_id_depends_on_the_claim_alone() -> None:
    a = candidate(round=0, scene_id="one", sentence="it is too wide", confidence=0.3)
    b = candidate(round=7, scene_id="two", episode_seed=9)
    assert a.id == b.id == "feda978b7fff"
    others = [
        candidate(high=0.031),
        candidate(stage="lift"),
        candidate(direction="low"),
        candidate(family="stack-insert"),
        mode_of(diagnosis(), 0, choices=("bar",)),
    ]
    assert len({a.id, *(m.id for m in others)}) == 6


def test_choices_come_in_any_order() -> None:
    a = mode_of(diagnosis(), 0, choices=("cube", 2, "bar"))
    b = mode_of(diagnosis(), 0, choices=("bar", "cube", 2))
    assert a == b
    assert a.choices == (2, "bar", "cube")


@pytest.mark.parametrize(
    "broken",
    [
        {"interval": None},
        {"choices": ["cube"]},
        {"interval": [0.03, 0.02]},
        {"interval": [0.02, math.nan]},
        {"state": "removed"},
        {"state": "mastered"},
        {"id": "not an id"},
        {"magnitude": 0.0},
        {"direction": "sideways"},
        {"probes": [{"scene_id": "s"}]},
        {"extra": 1},
    ],
)
def test_a_mode_that_makes_no_sense_is_refused(broken: dict[str, object]) -> None:
    data = candidate().to_dict()
    assert Mode.parse(data) == candidate()
    with pytest.raises(ProgramError):
        Mode.parse({**data, **broken})


def test_an_abstention_makes_no_mode() -> None:
    with pytest.raises(ValueError, match="factor"):
        mode_of(diagnosis(abstain=True, factor=""), 0, interval=(0.0, 1.0))


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        ((0, 2), (1, 3), 1 / 3),
        ((0, 1), (1, 2), 0),
        ((0, 1), (2, 3), 0),
        ((0, 10), (4, 5), 0.1),
        ((1, 1), (1, 1), 1),
        ((1, 1), (2, 2), 0),
        ((1, 1), (0, 2), 0),
    ],
)
def test_overlap_of_intervals(
    a: tuple[float, float], b: tuple[float, float], expected: float
) -> None:
    found = overlap(candidate(*a), candidate(*b))
    assert found == pytest.approx(expected)


def test_overlap_of_choices() -> None:
    a, b = (mode_of(diagnosis(), 0, choices=c) for c in (("x", "y", "z"), ("y", "z", "w")))
    assert overlap(a, b) == pytest.approx(0.5)
    assert overlap(a, candidate()) == overlap(candidate(), a) == 0


def test_only_the_same_claim_merges() -> None:
    assert belong_together(candidate(0, 2), candidate(1, 3))
    assert not belong_together(candidate(0, 2), candidate(1.2, 3.2))
    for entry, value in (("family", "x"), ("stage", "lift"), ("direction", "low"), ("role", "r")):
        other = mode_of(diagnosis(**{entry: value}), 0, interval=(0, 2))
        assert not belong_together(candidate(0, 2), other)


@st.composite
def any_mode(draw: st.DrawFn) -> Mode:
    round = draw(st.integers(0, 3))
    changes = {"stage": draw(st.sampled_from(["grasp", "lift"]))}
    if draw(st.booleans()):
        words = draw(st.lists(st.sampled_from(["a", "b", "c", "d"]), min_size=1, unique=True))
        mode = mode_of(diagnosis(**changes), round, choices=words)
    else:
        ends = sorted(draw(st.lists(st.integers(0, 10), min_size=2, max_size=2)))
        mode = candidate(ends[0], ends[1], round, **changes)
    for verdict in draw(st.lists(st.sampled_from(["confirmed", "refuted"]), max_size=1)):
        mode = lifecycle.judge(mode, round, verdict)
    return mode


@settings(deadline=None)
@given(any_mode(), any_mode())
def test_merging_is_symmetric_and_keeps_one_of_the_two(a: Mode, b: Mode) -> None:
    assert overlap(a, b) == overlap(b, a)
    assert 0 <= overlap(a, b) <= 1
    assert belong_together(a, b) == belong_together(b, a)
    if not belong_together(a, b):
        return
    one = merge(a, b, 5)
    assert one == merge(b, a, 5)
    assert (one.id, one.tombstone) in [(m.id, m.tombstone) for m in (a, b)]
    assert one.state == max((a.state, b.state), key=["candidate", "validated", "removed"].index)
    assert one.signature == a.signature
    for part in (a, b):
        assert part.id == one.id or part.id in one.merged
        assert {*part.choices} <= {*one.choices}
        if part.interval is not None and one.interval is not None:
            assert one.interval[0] <= part.interval[0]
            assert one.interval[1] >= part.interval[1]


@settings(deadline=None)
@given(st.lists(any_mode(), max_size=8), st.randoms(use_true_random=False))
def test_merge_all_ends_apart_and_ignores_order(modes: list[Mode], random: object) -> None:
    merged = merge_all(modes, 5)
    assert all(not belong_together(a, b) for i, a in enumerate(merged) for b in merged[i + 1 :])
    shuffled = list(modes)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert merge_all(shuffled, 5) == merged
    assert merge_all(merged, 5) == merged


def test_a_tombstone_swallows_what_it_was_made_for() -> None:
    removed = lifecycle.judge(candidate(0, 2), 1, "refuted")
    again = lifecycle.judge(candidate(0, 3, round=4), 4, "confirmed")
    (one,) = merge_all([again, removed], 4)
    assert one.id == removed.id
    assert one.state == "removed"
    assert one.interval == (0, 3)
    assert one.history[-1].event == "merged"


# Lifecycle -------------------------------------------------------------------------------------


def test_the_usual_life() -> None:
    mode = lifecycle.judge(candidate(), 0, "inconclusive")
    assert mode.state == "candidate"
    mode = lifecycle.judge(mode, 1, "confirmed")
    assert mode.state == "validated"
    mode = lifecycle.measure(mode, 1, outcomes(5, None))
    assert mode.state == "validated"
    mode = lifecycle.select(mode, 2, omega_hash="o", phi_hash="p")
    assert (mode.state, mode.omega_hash, mode.phi_hash) == ("selected", "o", "p")
    mode = lifecycle.measure(mode, 2, outcomes(30))
    assert mode.state == "retained"
    mode = lifecycle.measure(mode, 3, outcomes(60))
    assert mode.state == "retained"
    mode = lifecycle.measure(mode, 4, outcomes(60))
    assert mode.state == "removed"
    assert mode.tombstone is not None
    assert (mode.tombstone.reason, mode.tombstone.round) == ("mastered", 4)
    assert [e.state for e in mode.history] == [
        "candidate", "candidate", "validated", "validated", "selected", "retained", "retained",
        "removed",
    ]  # fmt: skip


def test_mastery_needs_two_measurements_in_a_row_above_the_bound() -> None:
    # 10% quantile of Beta(k + 1/2, 64 - k + 1/2): 0.796 at 55 successes, 0.814 at 56.
    assert SuccessPosterior(55, N).lower_bound(0.9) < 0.8 < SuccessPosterior(56, N).lower_bound(0.9)
    assert run(trained(), outcomes(55), outcomes(64), outcomes(55)).state == "retained"
    assert run(trained(), outcomes(56), outcomes(55), outcomes(56)).state == "retained"
    assert run(trained(), outcomes(56), outcomes(56)).state == "removed"
    # A perfect score on four probes says little.
    assert run(trained(), outcomes(4, n=4), outcomes(4, n=4)).state == "retained"


def test_a_stall_reduces_the_magnitude_once_and_then_removes() -> None:
    stall, first = outcomes(3, 0.2), outcomes(3, None)
    mode = run(trained(), first, stall, stall)
    assert (mode.state, mode.magnitude) == ("retained", 1.0)
    mode = run(mode, stall)
    assert (mode.state, mode.magnitude, mode.reductions) == ("retained", 0.5, 1)
    assert mode.history[-1].event == "magnitude reduced"
    mode = run(mode, stall, stall)
    assert mode.state == "retained"
    mode = run(mode, stall)
    assert mode.tombstone is not None
    assert mode.tombstone.reason == "stalled"


@pytest.mark.parametrize("relief", [outcomes(3, 0.5), outcomes(20, 0.2), outcomes(3, None)])
def test_progress_success_or_no_estimate_ends_a_stall(relief: Measurement) -> None:
    stall = outcomes(3, 0.2)
    mode = run(trained(), stall, stall, relief, stall, stall)
    assert mode.magnitude == 1.0
    assert run(mode, stall).magnitude == 0.5


def test_what_is_not_trained_on_cannot_stall() -> None:
    mode = run(lifecycle.judge(candidate(), 0, "confirmed"), *[outcomes(0, 0.0)] * 8)
    assert (mode.state, mode.magnitude) == ("validated", 1.0)


def test_a_removed_mode_comes_back_when_success_drops() -> None:
    # Posterior means at n = 99: (k + 1/2) / 100.
    mode = run(trained(), outcomes(95, n=99), outcomes(95, n=99))
    assert mode.tombstone is not None
    assert mode.tombstone.success == pytest.approx(0.955)
    mode = run(mode, outcomes(76, n=99))
    assert mode.state == "removed"
    mode = run(mode, outcomes(75, n=99))
    assert (mode.state, mode.tombstone, mode.mastered_count) == ("validated", None, 0)
    assert mode.history[-1].event == "returned"
    again = lifecycle.select(mode, mode.history[-1].round, omega_hash="o2")
    assert again.probes == mode.probes != ()


def test_a_refuted_mode_is_measured_first_and_comes_back_as_a_candidate() -> None:
    mode = lifecycle.judge(candidate(), 0, "refuted")
    assert mode.tombstone is not None
    assert mode.tombstone.success is None
    mode = run(mode, outcomes(40, None))
    assert mode.state == "removed"
    assert run(mode, outcomes(30)).state == "removed"
    assert run(mode, outcomes(20)).state == "candidate"


def test_infeasible_from_every_live_state() -> None:
    for mode in (candidate(), trained(), run(trained(), outcomes(9))):
        gone = lifecycle.infeasible(mode, 3)
        assert gone.tombstone is not None
        assert gone.tombstone.reason == "infeasible"


def test_illegal_events_are_refused_by_name() -> None:
    removed = lifecycle.infeasible(trained(), 1)
    wrongs: tuple[Callable[[], object], ...] = (
        lambda: lifecycle.select(candidate(), 1, omega_hash="o"),
        lambda: lifecycle.select(trained(), 1, omega_hash="o"),
        lambda: lifecycle.select(removed, 1, omega_hash="o"),
        lambda: lifecycle.judge(removed, 1, "confirmed"),
        lambda: lifecycle.infeasible(removed, 1),
    )
    for wrong in wrongs:
        with pytest.raises(RunError, match=candidate().id):
            wrong()
    with pytest.raises(RunError, match=r"'proven'.*'confirmed'"):
        lifecycle.judge(candidate(), 0, "proven")
    with pytest.raises(RunError, match="one measurement a round"):
        lifecycle.measure(lifecycle.measure(trained(), 3, outcomes(1)), 3, outcomes(1))
    with pytest.raises(RunError, match="in the order of their rounds"):
        lifecycle.judge(trained(round=4), 3, "confirmed")


EVENTS = st.one_of(
    st.tuples(st.just("judge"), st.sampled_from(lifecycle.VERDICTS)),
    st.tuples(st.just("select"), st.just("")),
    st.tuples(st.just("infeasible"), st.just("")),
    st.tuples(
        st.just("measure"),
        st.builds(
            outcomes,
            st.sampled_from([0, 5, 30, 58, 64]),
            st.sampled_from([None, 0.1, 0.9]),
        ),
    ),
)


@settings(max_examples=60, deadline=None)
@given(st.lists(EVENTS, max_size=20))
def test_no_chain_of_events_makes_an_illegal_move(events: list[tuple[str, object]]) -> None:
    mode = candidate()
    for round, (event, value) in enumerate(events):
        before = mode
        try:
            if event == "judge":
                mode = lifecycle.judge(mode, round, str(value))
            elif event == "select":
                mode = lifecycle.select(mode, round, omega_hash="o")
            elif event == "infeasible":
                mode = lifecycle.infeasible(mode, round)
            else:
                assert isinstance(value, Measurement)
                mode = lifecycle.measure(mode, round, value)
        except RunError:
            assert mode is before
            continue
        assert mode.state == before.state or mode.state in lifecycle.TRANSITIONS[before.state]
        assert (mode.id, mode.signature, mode.interval) == (
            before.id,
            before.signature,
            before.interval,
        )
        assert mode.history[:-1] == before.history
        assert mode.history[-1].state == mode.state
        assert mode.reductions <= 1
        assert Mode.parse(mode.to_dict()) == mode
