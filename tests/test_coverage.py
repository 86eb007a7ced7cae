"""Coverage: entropies of known distributions, and sets of different size made comparable."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coda_envs.engine.coverage import AXES, BINS, bin_of, coverage, entropy
from coda_envs.errors import SceneError
from coda_envs.family import family_names, get_family
from tests.program_cases import FAMILY, SPACE

WIDE = [FAMILY.sample(np.random.default_rng(i), "generator") for i in range(160)]
NARROW = [FAMILY.sample(np.random.default_rng(i), "seed") for i in range(160)]


def rng() -> np.random.Generator:
    return np.random.default_rng(0)


def test_the_entropy_of_a_known_sample() -> None:
    assert entropy("aaaa") == 0.0
    correction = 1 / (2 * 8 * math.log(2))
    assert entropy("abababab") == pytest.approx(1.0 + correction)
    assert entropy("aaaaaabb") == pytest.approx(
        -(0.75 * math.log2(0.75) + 0.25 * math.log2(0.25)) + correction
    )


@settings(max_examples=30, deadline=None)
@given(st.integers(2, 12), st.integers(0, 100))
def test_the_correction_comes_nearer_to_the_truth_than_the_plug_in_estimate(
    cells: int, seed: int
) -> None:
    draws = np.random.default_rng(seed).integers(cells, size=(200, 40))
    corrected = np.mean([entropy(row.tolist()) for row in draws])
    counts = [np.bincount(row, minlength=cells) / 40 for row in draws]
    plug_in = np.mean([-sum(p * math.log2(p) for p in c if p) for c in counts])
    truth = math.log2(cells)
    assert abs(corrected - truth) < abs(plug_in - truth)


@pytest.mark.parametrize("name", family_names())
def test_every_scene_has_a_bin_and_wide_scenes_use_all_of_them(name: str) -> None:
    family = get_family(name)
    scenes = [family.sample(np.random.default_rng(i), "generator") for i in range(120)]
    for axis in AXES:
        assert {bin_of(axis, s.values, family.space) for s in scenes} <= set(range(BINS))
    found = coverage(scenes, family.space, rng())
    assert 0.9 < found.mean <= 2.1
    assert max(found.axes.values()) <= found.joint <= 6.5


def test_one_scene_again_and_again_covers_nothing() -> None:
    assert coverage(WIDE[:1] * 30, SPACE, rng()).joint == 0.0


def test_sets_of_different_size_compare_at_equal_numbers() -> None:
    everything = coverage(WIDE, SPACE, rng(), n=40)
    half = coverage(WIDE[::2], SPACE, rng(), n=40)
    assert everything.joint == pytest.approx(half.joint, abs=0.35)
    # Without that the larger one looks richer for its size alone.
    assert coverage(WIDE, SPACE, rng()).n == 160
    assert everything.of == 160
    assert coverage(WIDE, SPACE, rng(), n=40) == everything


def test_scenes_in_one_corner_cover_less() -> None:
    corner = [s for s in WIDE if bin_of("spatial", s.values, SPACE) == 0]
    n = len(corner)
    assert n > 10
    assert coverage(corner, SPACE, rng()).joint < coverage(WIDE, SPACE, rng(), n=n).joint - 0.5
    assert coverage(NARROW, SPACE, rng()).axes["task"] > 0


@pytest.mark.parametrize("n", [0, 161])
def test_more_scenes_than_there_are_cannot_be_asked_for(n: int) -> None:
    with pytest.raises(SceneError, match="1 to 160"):
        coverage(WIDE, SPACE, rng(), n=n)
    with pytest.raises(SceneError, match="at least one"):
        coverage([], SPACE, rng())
