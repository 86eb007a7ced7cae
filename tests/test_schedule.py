"""Curriculum weights within a round, and whole scenes dealt out by them."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coda_envs.errors import ConfigError, RunError
from coda_envs.programs.diagnosis import Diagnosis
from coda_trainer.memory import lifecycle
from coda_trainer.memory.modes import mode_of
from coda_trainer.memory.progress import Measurement, ProgressEstimate
from coda_trainer.rounds.schedule import (
    WIDE,
    Standing,
    allocate,
    curriculum_weights,
    largest_remainder,
    standing,
)

N = 64


def test_weights_equal_a_hand_calculation() -> None:
    standings = [
        Standing("a", 1, 3, 0.5),  # Beta(1.5, 2.5): ab / ((a+b)(a+b+1)) = 3.75 / 20 = 0.1875
        Standing("b", 0, 3, 1.0),  # Beta(0.5, 3.5): 1.75 / 20 = 0.0875
        Standing("c", 3, 3, 0.0),  # no progress: only the floor
        Standing("d", 1, 3, 0.9, removed=True),
    ]
    weights = curriculum_weights(standings, wide_share=0.6, floor=0.3)
    claim = {"a": 0.1875 * 0.5, "b": 0.0875 * 1.0, "c": 0.0}
    for name, value in claim.items():
        expected = 0.4 * (0.7 * value / sum(claim.values()) + 0.3 / 3)
        assert weights[name] == pytest.approx(expected, rel=1e-12)
    assert (weights[WIDE], weights["d"]) == (0.6, 0.0)


rows = st.builds(
    lambda k, n, p, removed: (min(k, n), n, p, removed),
    st.integers(0, N),
    st.sampled_from([0, 1, N]),
    st.one_of(st.none(), st.sampled_from([0.0, 1.0]), st.floats(0, 1)),
    st.booleans(),
)


@settings(deadline=None)
@given(st.lists(rows, max_size=12), st.floats(0.5, 1), st.floats(0, 1), st.integers(0, 300))
def test_any_standing_gives_shares_and_whole_scenes(
    drawn: list[tuple[int, int, float | None, bool]], wide: float, floor: float, n: int
) -> None:
    standings = [Standing(f"m{i}", *row) for i, row in enumerate(drawn)]
    weights = curriculum_weights(standings, wide_share=wide, floor=floor)
    assert sum(weights.values()) == pytest.approx(1.0, abs=1e-9)
    assert all(math.isfinite(w) and 0 <= w <= 1 for w in weights.values())
    active = [s for s in standings if not s.removed]
    for s in standings:
        if s.removed:
            assert weights[s.mode_id] == 0
        else:
            least = (1 - wide) * floor / len(active)
            assert weights[s.mode_id] >= least * (1 - 1e-9)
    assert weights[WIDE] == (wide if active else 1.0)

    counts = allocate(n, weights)
    assert sum(counts.values()) == n
    assert counts.keys() == weights.keys()
    assert 2 * counts[WIDE] >= n
    assert all(type(c) is int and c >= 0 for c in counts.values())
    assert all(counts[name] == 0 for name, w in weights.items() if w == 0)
    assert allocate(n, dict(reversed(weights.items()))) == counts


@pytest.mark.parametrize(
    "standings",
    [
        [Standing(f"m{i}", 0, N, 0.0) for i in range(4)],
        [Standing(f"m{i}", N, N, 0.0) for i in range(4)],
        [Standing(f"m{i}", 0, 0, None) for i in range(4)],
        [Standing(f"m{i}", 20, N, 0.0) for i in range(4)],
        [Standing(f"m{i}", 20, N, 5e-324) for i in range(4)],
    ],
)
@pytest.mark.parametrize("floor", [0.0, 0.2, 1.0])
def test_equal_modes_share_alike(standings: list[Standing], floor: float) -> None:
    weights = curriculum_weights(standings, floor=floor)
    assert weights == pytest.approx({WIDE: 0.5, **dict.fromkeys(("m0", "m1", "m2", "m3"), 0.125)})


def test_an_unmeasured_mode_counts_as_the_best_one() -> None:
    learnable = Standing("known", 1, 1, 1.0)
    new = curriculum_weights([learnable, Standing("new", 1, 1, None)])
    assert new["new"] == new["known"]
    # Of two with equal progress, the one in the middle of its range is practised most.
    middle = curriculum_weights([Standing("m", 32, N, 0.5), Standing("edge", 62, N, 0.5)])
    assert middle["m"] > 3 * middle["edge"]


def test_a_mode_that_returns_has_a_share_again() -> None:
    others = [Standing("a", 10, N, 0.5), Standing("b", 40, N, 0.5)]
    gone = curriculum_weights([*others, Standing("c", 60, N, 0.1, removed=True)])
    back = curriculum_weights([*others, Standing("c", 40, N, 0.9)])
    assert gone["c"] == 0 < back["c"]
    assert gone == {**curriculum_weights(others), "c": 0.0}


def test_ten_thousand_modes() -> None:
    rng = np.random.default_rng(0)
    standings = [
        Standing(f"m{i}", int(k), N, None if i % 7 == 0 else float(p))
        for i, (k, p) in enumerate(
            zip(rng.integers(0, N + 1, 10_000), rng.random(10_000), strict=True)
        )
    ]
    weights = curriculum_weights(standings)
    assert sum(weights.values()) == pytest.approx(1.0, abs=1e-9)
    assert min(weights.values()) >= 0.5 * 0.2 / 10_000 * (1 - 1e-9)
    counts = allocate(50_000, weights)
    assert sum(counts.values()) == 50_000
    assert counts[WIDE] == 25_000


def test_standing_of_a_mode_and_its_last_measurement() -> None:
    claim = Diagnosis(
        diagnostician="trace (privileged)",
        family="pick-place",
        scene_id="s",
        episode_seed=0,
        stage="grasp",
        failed_predicate="grasped",
        factor="attributes.target.size",
        direction="high",
    )
    mode = mode_of(claim, 0, interval=(0.027, 0.031))
    assert standing(mode, None) == Standing(mode.id, 0, 0, None)
    first = Measurement((True, False, False), ())
    assert standing(mode, first) == Standing(mode.id, 1, 3, None)
    later = Measurement(first.probes, (), ProgressEstimate(0.1, 0.0, 0.2, 0.7))
    assert standing(mode, later) == Standing(mode.id, 1, 3, 0.7)
    removed = lifecycle.infeasible(mode, 1)
    assert curriculum_weights([standing(removed, later)]) == {WIDE: 1.0, mode.id: 0.0}


def test_no_mode_means_all_wide() -> None:
    assert curriculum_weights([]) == {WIDE: 1.0}
    assert allocate(7, {WIDE: 1.0}) == {WIDE: 7}


@pytest.mark.parametrize(
    ("name", "value"),
    [("wide_share", 0.49), ("wide_share", 1.1), ("floor", -0.1), ("floor", 2), ("floor", math.nan)],
)
def test_shares_outside_their_range_are_named(name: str, value: float) -> None:
    with pytest.raises(ConfigError, match=name):
        curriculum_weights([], **{name: value})


def test_impossible_standings_are_refused() -> None:
    with pytest.raises(RunError, match="3 successes of 2"):
        Standing("a", 3, 2, None)
    with pytest.raises(RunError, match="nan"):
        Standing("a", 1, 2, math.nan)
    with pytest.raises(RunError, match="twice"):
        curriculum_weights([Standing("a", 1, 2, None)] * 2)
    with pytest.raises(RunError, match="'wide'"):
        curriculum_weights([Standing(WIDE, 1, 2, None)])


def test_impossible_allocations_are_refused() -> None:
    for n, weights in (
        (-1, {WIDE: 1.0}),
        (4, {}),
        (4, {WIDE: 0.5}),
        (4, {WIDE: 1.5, "a": -0.5}),
        (4, {WIDE: math.nan, "a": 0.5}),
    ):
        with pytest.raises(RunError):
            allocate(n, weights)


def test_small_rounds_keep_half_wide() -> None:
    weights = curriculum_weights([Standing("a", 5, 10, None), Standing("b", 5, 10, None)])
    assert allocate(5, weights) == {WIDE: 3, "a": 1, "b": 1}
    assert allocate(3, weights) == {WIDE: 2, "a": 1, "b": 0}
    assert allocate(1, weights) == {WIDE: 1, "a": 0, "b": 0}
    # 0.6 · 5 is 3 whole scenes, not 4.
    assert allocate(5, {WIDE: 0.6, "a": 0.4}) == {WIDE: 3, "a": 2}


@settings(deadline=None)
@given(
    st.integers(0, 1000),
    st.lists(st.floats(0, 1e6), min_size=1, max_size=30).filter(lambda s: sum(s) > 1e-3),
)
def test_largest_remainder_stays_within_one_of_the_quota(n: int, share: list[float]) -> None:
    parts = np.array(share)
    counts = largest_remainder(n, parts)
    assert counts.sum() == n
    assert np.all(np.abs(counts - n * parts / parts.sum()) < 1 + 1e-6)


def test_largest_remainder_by_hand() -> None:
    # Quotas 3.29, 2.53, 1.18: whole parts 3, 2, 1, and the one left goes to .53.
    assert largest_remainder(7, np.array([0.47, 0.361, 0.169])).tolist() == [3, 3, 1]
    assert largest_remainder(2, np.array([1.0, 1.0, 1.0, 0.0])).tolist() == [1, 1, 0, 0]
