"""Learning progress: posteriors of success and of its paired change."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coda_envs.errors import CodaError, RunError
from coda_trainer.memory.progress import (
    Measurement,
    ProgressEstimate,
    SuccessPosterior,
    measurement,
)
from coda_trainer.statistics import wilson

N = 64


def paired(gained: int, lost: int, kept: int, failed: int) -> tuple[list[bool], list[bool]]:
    before = [False] * gained + [True] * lost + [True] * kept + [False] * failed
    after = [True] * gained + [False] * lost + [True] * kept + [False] * failed
    return before, after


def lp(
    probes: tuple[list[bool], list[bool]],
    controls: tuple[list[bool], list[bool]] = ([], []),
    seed: int = 0,
) -> ProgressEstimate:
    rng = np.random.default_rng(seed)
    before = measurement(probes[0], controls[0], None, rng)
    progress = measurement(probes[1], controls[1], before, rng).progress
    assert progress is not None
    return progress


def test_progress_has_the_posterior_mean_of_the_paired_change() -> None:
    estimate = lp(paired(gained=20, lost=2, kept=10, failed=32))
    assert estimate.mean == pytest.approx((20 - 2) / (N + 2), abs=0.005)
    assert estimate.low < estimate.mean < estimate.high
    assert estimate.p_material > 0.99


def test_nothing_changed_is_no_progress_and_noise_is_not_either() -> None:
    assert lp(paired(0, 0, 5, 59)).p_material < 0.05
    # A plain difference of 2/64 with many changed pairs stays open.
    open_ = lp(paired(gained=8, lost=6, kept=20, failed=30))
    assert 0.2 < open_.p_material < 0.8


def test_forgetting_is_material_too() -> None:
    estimate = lp(paired(gained=0, lost=20, kept=40, failed=4))
    assert estimate.high < -0.05
    assert estimate.p_material > 0.99


def test_what_the_controls_gained_as_well_is_subtracted() -> None:
    same = paired(gained=20, lost=2, kept=10, failed=32)
    estimate = lp(same, same)
    assert estimate.mean == pytest.approx(0.0, abs=0.01)
    alone = lp(same, paired(0, 0, 32, 32))
    assert alone.mean == pytest.approx(18 / 66, abs=0.01)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=80), st.integers(0))
def test_progress_is_determined_finite_and_antisymmetric(
    pairs: list[tuple[bool, bool]], seed: int
) -> None:
    before, after = [a for a, _ in pairs], [b for _, b in pairs]
    one = lp((before, after), seed=seed)
    assert one == lp((before, after), seed=seed)
    assert -1 <= one.low <= one.high <= 1
    assert 0 <= one.p_material <= 1
    assert one.mean == pytest.approx(-lp((after, before), seed=seed + 1).mean, abs=0.08)


def test_progress_pairs_the_same_probes_or_refuses() -> None:
    rng = np.random.default_rng(0)
    first = measurement([True, False], [True], None, rng)
    assert first.progress is None
    with pytest.raises(RunError, match="3 probes now and 2 before"):
        measurement([True] * 3, [True], first, rng)
    with pytest.raises(RunError, match="control scenes"):
        measurement([True] * 2, [], first, rng)
    with pytest.raises(RunError, match="without probes"):
        measurement([], [], None, rng)


@pytest.mark.parametrize(
    "data",
    [
        {},
        {"probes": [1], "controls": [], "progress": None},
        {"probes": True, "controls": [], "progress": None},
        {"probes": [True], "controls": [], "progress": 3},
        {"probes": [True], "controls": [], "progress": {"mean": 0.0}},
    ],
)
def test_a_measurement_from_outside_is_checked(data: dict[str, object]) -> None:
    with pytest.raises(CodaError):
        Measurement.from_dict(data)


def test_measurements_survive_as_plain_data() -> None:
    first = Measurement((True, False), (True,))
    for kept in (first, Measurement((), (), ProgressEstimate(0.1, -0.1, 0.3, 0.7))):
        assert Measurement.from_dict(kept.to_dict()) == kept


def test_success_posterior_by_hand() -> None:
    # Jeffreys: Beta(1/2, 1/2) has its median at 1/2; Beta(3/2, 1/2) has the mean 3/4.
    assert SuccessPosterior(0, 0).lower_bound(0.5) == pytest.approx(0.5)
    assert SuccessPosterior(1, 1).mean == pytest.approx(0.75)
    with pytest.raises(RunError, match="5 successes of 4"):
        SuccessPosterior(5, 4)


def test_wilson_by_hand() -> None:
    # n = 4, p = 1: z²/(n + z²) below 1.
    low, high = wilson(4, 4) or (0, 0)
    assert low == pytest.approx(4 / (4 + 1.959963985**2))
    assert high == 1.0
    assert wilson(0, 0) is None
