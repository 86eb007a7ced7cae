"""The pictures and pages of families: what they show is true, valid and legible."""

from __future__ import annotations

import io

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from coda_envs.factor import ContinuousFactor
from coda_envs.family import BUILT_IN, get_family
from coda_envs.gallery import film as films
from coda_envs.gallery.facts import meaning
from coda_envs.gallery.film import shoot
from coda_envs.gallery.page import Gallery, overview, page
from coda_envs.gallery.panels import ARROW, GAP, Panel, broken, font, length, sheet
from coda_envs.gallery.strip import MAGNITUDES, find_variants
from coda_envs.gallery.views import crop
from coda_envs.predicates import LIFT
from coda_envs.validity import validate

# The strip --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", BUILT_IN)
def test_each_panel_is_valid_and_differs_in_one_factor(name: str) -> None:
    family = get_family(name)
    variants = find_variants(family, 5)
    assert variants == find_variants(family, 5)
    start = variants[0].scene
    assert len(variants) == 3 + len(MAGNITUDES)
    for variant in variants:
        certificate = validate(variant.scene, solve_tries=0)
        assert certificate.passed, certificate.checks[-1]
    for variant in variants[1:]:
        assert variant.scene == start.edit(variant.factor, variant.new)
        assert variant.old == start.values[variant.factor]
        assert variant.new != variant.old
    moved = variants[1 : 1 + len(MAGNITUDES)]
    factor = family.space[moved[0].factor]
    assert isinstance(factor, ContinuousFactor)
    assert factor.group == "spatial"
    assert moved[-1].new in factor.generator
    for variant, (share, _) in zip(moved, MAGNITUDES, strict=True):
        way = start.values[factor.path] + share * (moved[-1].new - start.values[factor.path])
        assert variant.new == pytest.approx(way, abs=1e-6)
    resized, replaced = (family.space[v.factor] for v in variants[-2:])
    assert (resized.group, resized.type) == ("attributes", "continuous")
    assert (replaced.group, replaced.type) == ("attributes", "discrete")


def test_the_crop_holds_all_that_is_seen() -> None:
    for top, left, height, width in ((100, 150, 5, 5), (0, 0, 240, 320), (200, 10, 30, 200)):
        seen = np.zeros((240, 320), dtype=bool)
        seen[top : top + height, left : left + width] = True
        x, y, size = crop(seen)
        assert 0.0 <= x <= x + size <= 1.0
        assert 0.0 <= y <= y + size <= 1.0
        assert x <= left / 320
        assert (left + width) / 320 <= x + size + 1e-9
        assert y <= top / 240
        assert (top + height) / 240 <= y + size + 1e-9
    assert crop(np.zeros((240, 320), dtype=bool)) == (0.0, 0.0, 1.0)


# Captions ---------------------------------------------------------------------------------------


@given(
    st.lists(st.text("abcdefgWMm._0123456789" + ARROW, min_size=1, max_size=40), max_size=12),
    st.integers(60, 480),
)
def test_no_line_of_a_caption_is_too_long_and_no_word_is_lost(words: list[str], width: int) -> None:
    letters = font(20)
    lines = broken(" ".join(words), letters, width)
    assert all(length(line, letters) <= width for line in lines)
    assert "".join(lines).replace(" ", "") == "".join(words)


def test_a_sheet_keeps_pictures_whole_and_captions_apart() -> None:
    colors = ["red", "green", "blue", "purple"]
    panels = [
        Panel(Image.new("RGB", (200, 150), color), "title " * 9, ("a line " * (1 + 9 * i),))
        for i, color in enumerate(colors)
    ]
    image = np.asarray(sheet(panels, 3).convert("RGB"))
    for number, color in enumerate(colors):
        row, column = divmod(number, 3)
        there = (image == np.asarray(Image.new("RGB", (1, 1), color))[0, 0]).all(axis=2)
        assert there.sum() == 200 * 150
        rows, columns = np.flatnonzero(there.any(axis=1)), np.flatnonzero(there.any(axis=0))
        assert columns[0] == GAP + column * (200 + GAP)
        assert (rows[0] == GAP) == (row == 0)
    gutters = image[:, [GAP // 2, GAP + 200 + GAP // 2, 2 * (GAP + 200) + GAP // 2]]
    assert (gutters == 255).all()


# The film and the page --------------------------------------------------------------------------


@pytest.mark.slow
def test_a_film_loops_and_fits_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    family = get_family("pick-place")
    film = shoot(family, 2)
    content = film.gif()
    assert len(content) <= films.MAX_BYTES
    with Image.open(io.BytesIO(content)) as read:
        assert read.info["loop"] == 0
        assert read.n_frames == len(film.frames)
        read.seek(read.n_frames - 1)
        shown = np.asarray(read.convert("RGB"), dtype=int)
    last = np.asarray(film.frames[-1], dtype=int)
    # A few hundred colours stand for all, near enough not to be seen.
    assert np.abs(shown - last).mean() < 4.0
    still = film.frames[0]
    panels = [Gallery({}, Panel(still, "pick-place", (film.instruction,)))] * 2
    with Image.open(io.BytesIO(overview(panels))) as read:
        assert read.width == 3 * GAP + 2 * still.width
    monkeypatch.setattr(films, "MAX_BYTES", len(content) // 3)
    assert len(film.gif()) <= len(content) // 3


@pytest.mark.parametrize("name", BUILT_IN)
def test_a_page_has_every_factor_stage_and_goal(name: str) -> None:
    family = get_family(name)
    text = page(family, "do it")
    for factor in family.space.factors:
        (row,) = (line for line in text.splitlines() if line.startswith(f"| `{factor.path}` |"))
        assert factor.meaning in row
        assert row.count(" | ") == 6
    assert all(f"| {stage} |" in text for stage in family.template.stage_names)
    goal = family.sample(np.random.default_rng(1)).task.goal
    assert f"`{goal.predicate}({', '.join(goal.roles)})`: {meaning(goal.predicate)}" in text


def test_constants_are_told_with_their_values() -> None:
    assert f"`LIFT` ({LIFT:g})" in meaning("lifted")
