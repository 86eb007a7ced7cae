"""``given``: modes that are handed over, for experiments with the learning tools."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from round_cases import round_context
from tiny_run import tiny

from coda_envs.errors import ConfigError, SceneError
from coda_envs.family import get_family
from coda_envs.interactions import load_interactions, third
from coda_envs.programs import Tools
from coda_trainer.compile.training import STRENGTH
from coda_trainer.evaluation import hard_cells, suite_scenes
from coda_trainer.rounds.loop import train
from coda_trainer.strategies import make_strategy

FAMILY = get_family("pick-place")
INTERACTIONS = {i.name: i for i in load_interactions(FAMILY)}
GIVEN = {"wide_and_turned": "grasp", "over_a_high_rim": "transport"}


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Any]:
    with ExitStack() as stack:
        yield partial(round_context, stack, tmp_path, strategy="given")


def test_half_is_wide_and_the_rest_is_of_the_modes_easy_to_hard(make: Any) -> None:
    context = make(coda={"given": GIVEN, "graded": False}, collect={"scenes_per_mode": 18})
    plan = make_strategy("given").plan(context)
    assert plan.weights == pytest.approx(
        {"wide": 0.5, "wide_and_turned": 0.25, "over_a_high_rim": 0.25}
    )
    for name in GIVEN:
        magnitudes = [INTERACTIONS[name].magnitude(s.values) for s in plan.scenes[name]]
        assert all(m is not None for m in magnitudes)
        assert {third(m) for m in magnitudes if m is not None} == {0, 1, 2}
    # None of them is kept for testing, and all are on record as any accepted scene is.
    assert {FAMILY.region(s) for found in plan.scenes.values() for s in found} == {"generator"}
    accepted = [t for t in context.memory.records("traces") if t["outcome"] == "accepted"]
    assert len(accepted) == sum(len(found) for found in plan.scenes.values())


def test_the_tools_that_are_allowed_are_on_and_the_potential_is_the_family_s(make: Any) -> None:
    context = make(coda={"given": GIVEN, "graded": False, "tools": ["best_of_n"]})
    plan = make_strategy("given").plan(context)
    assert {name: p.subgoals for name, p in plan.training.items()} == {
        "wide_and_turned": ("grasp",),
        "over_a_high_rim": ("transport",),
    }
    assert {p.tools for p in plan.training.values()} == {Tools(best_of_n=STRENGTH.best_of_n)}
    assert {p.potential.hash for p in plan.training.values()} == {FAMILY.template.hash}
    assert plan.potential.version == FAMILY.template.hash


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({}, r"has no modes.*coda\.given"),
        ({"wide_and_turnd": "grasp"}, "did you mean 'wide_and_turned'"),
        ({"wide_and_turned": "graps"}, "did you mean 'grasp'"),
        ({"shut_and_stiff": "uncover"}, "interaction 'shut_and_stiff'"),
    ],
)
def test_a_mode_that_is_not_there_is_refused_before_anything_runs(
    given: dict[str, str], named: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=named):
        train(tiny(strategy="given", coda={"given": given}), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_hard_scenes_go_round_the_harder_thirds_and_stay_the_same() -> None:
    cells = hard_cells(FAMILY)
    assert len(cells) == 2 * len(INTERACTIONS)
    scenes = suite_scenes(FAMILY, "hard", 12)
    for scene, (interaction, part) in zip(scenes, [*cells, *cells], strict=False):
        magnitude = interaction.magnitude(scene.values)
        assert magnitude is not None
        assert third(magnitude) == part >= 1
    assert {FAMILY.region(s) for s in scenes} == {"generator"}
    assert [s.id for s in suite_scenes(FAMILY, "hard", 5)] == [s.id for s in scenes[:5]]


def test_a_family_that_declares_no_interactions_has_no_hard_scenes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(type(FAMILY), "folder", tmp_path)
    with pytest.raises(SceneError, match=r"declares no interactions.*another suite"):
        suite_scenes(FAMILY, "hard", 3)
