"""What a round takes from the memory: the alternatives to programs, behind one interface."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from round_cases import round_context
from tiny_run import metrics, quiet, tiny

from coda_envs.errors import ConfigError, ProgramError
from coda_envs.family import get_family
from coda_trainer.config import Memory
from coda_trainer.learning.chunk_critic import NoPotential
from coda_trainer.learning.hindsight import cut
from coda_trainer.recall import RECALLS, make_recall
from coda_trainer.recall.base import Wide
from coda_trainer.recall.insights import Insight, insight_program
from coda_trainer.recall.skills import KEPT, REHEARSED
from coda_trainer.recall.trajectories import INSTANTS, nearest, outline
from coda_trainer.rounds.checkpoint import load_state, save_state
from coda_trainer.rounds.context import RoundContext
from coda_trainer.rounds.loop import train
from coda_trainer.rounds.schedule import WIDE
from coda_trainer.strategies import make_strategy
from coda_trainer.strategies.base import RoundPlan

FAMILY = get_family("pick-place")
SIZE = "attributes.target.size"
Make = Callable[..., RoundContext]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    """Makes a context for a round of a tiny run whose policy has had no lesson yet."""
    with ExitStack() as stack:
        yield partial(round_context, stack, tmp_path)


def plan_of(context: RoundContext) -> RoundPlan:
    return make_strategy("coda").plan(context)


def logged(context: RoundContext, event: str) -> Mapping[str, Any]:
    (record,) = [r for r in context.run.metrics() if r["event"] == event]
    return record


def test_the_setting_names_every_kind_and_no_other() -> None:
    assert set(RECALLS) == set(get_args(Memory))


@pytest.mark.parametrize("memory", [name for name in RECALLS if name != "programs"])
def test_alternatives_look_at_as_much_and_test_nothing(make: Make, memory: str) -> None:
    """The same failures and episodes for all; controls and probes are the programs' alone."""
    context = make(coda={"memory": memory, "graded": False})
    with_programs = make(coda={"graded": False})
    plan, other = plan_of(context), plan_of(with_programs)
    assert [(e.scene.id, e.seed) for e in plan.episodes] == [
        (e.scene.id, e.seed) for e in other.episodes
    ]
    assert context.state.meter["training"] == with_programs.state.meter["training"]
    assert {"control", "probes"} <= with_programs.state.meter.keys()
    assert not {"control", "probes"} & context.state.meter.keys()
    assert context.memory.records("controls") == []
    assert context.memory.modes() == []
    assert sum(plan.weights.values()) == pytest.approx(1.0)
    assert plan.weights[WIDE] >= context.config.collect.wide_share
    assert {FAMILY.region(s) for found in plan.scenes.values() for s in found} == {"generator"}


def test_no_memory_is_wide(make: Make) -> None:
    context = make(coda={"memory": "none", "graded": False})
    plan = plan_of(context)
    assert plan.weights == {WIDE: 1.0}
    assert plan.rehearsed is None
    assert context.memory.records("diagnoses") == []


def test_skills_need_a_distillation() -> None:
    for changes in (
        {"learner": {"update": "weighted"}},
        {"signal": "frozen"},
        {"distil": {"updates": 0}},
        {"distil": {"episodes": 0}},
    ):
        with pytest.raises(ConfigError, match="none can be rehearsed"):
            make_recall(tiny(coda={"memory": "skills"}, **changes))


# Trajectories ----------------------------------------------------------------------------------


def test_retrieved_scenes_are_those_of_failures_and_earlier_rounds_come_first(make: Make) -> None:
    context = make(coda={"memory": "trajectories", "graded": False})
    plan = plan_of(context)
    failed = {e.scene.id for e in plan.episodes if e.source == "explore" and not e.success}
    found = [s.id for s in plan.scenes["retrieved"]]
    assert found
    assert set(found) <= failed
    assert len(set(found)) == len(found)
    assert plan.weights["retrieved"] == 0.5
    kept = context.state.recalled
    assert set(kept["scene_ids"]) == failed
    # As the next round's: it asks with its own failures and gets those that were kept.
    last = make(round=2, coda={"memory": "trajectories", "graded": False})
    last.state.recalled = {"outlines": kept["outlines"], "scene_ids": kept["scene_ids"]}
    for scene in plan.scenes["retrieved"]:
        last.memory.add_scene(1, scene)
    for episode in plan.episodes:
        last.memory.add_scene(1, episode.scene)
    again = plan_of(last)
    assert {s.id for s in again.scenes["retrieved"]} <= failed
    assert len(last.state.recalled["scene_ids"]) > len(kept["scene_ids"])


@given(st.integers(2, 12), st.integers(1, 3), st.booleans(), st.integers(0, 10_000))
def test_nearest_is_what_a_plain_search_finds(n: int, k: int, own: bool, seed: int) -> None:
    """In float32 as outlines are, with columns that do not vary and columns that lie far away."""
    rng = np.random.default_rng(seed)
    past = rng.normal(size=(n, 7)).astype(np.float32)
    past[:, 0], past[:, 1] = 1.0, 0.0
    past[:, 2] += 1000.0
    now = past if own else rng.normal(size=(3, 7)).astype(np.float32) + past[:3].mean(0)
    used = past.astype(np.float64)[:, 2:]
    wanted: set[int] = set()
    for i, row in enumerate(now.astype(np.float64)[:, 2:]):
        far = (((row - used) / used.std(0)) ** 2).sum(1)
        order = [int(j) for j in np.argsort(far, kind="stable") if not (own and j == i)]
        wanted |= set(order[:k])
    found = nearest(now, past, k, own=own)
    assert set(found) == wanted
    assert len(found) == len(wanted)


def test_a_trajectory_alone_has_no_neighbour() -> None:
    assert nearest(np.ones((1, 3)), np.ones((1, 3)), 2, own=True) == []


def test_an_outline_has_one_length_whatever_the_episode_s(make: Make) -> None:
    plan = plan_of(make(coda={"memory": "none", "graded": False}))
    lengths = {e.length for e in plan.episodes}
    assert len(lengths) > 1
    size = INSTANTS * FAMILY.schema.size
    assert {outline(e).shape for e in plan.episodes} == {(size,)}
    short = cut(next(e for e in plan.episodes if e.length > 3), 2)
    assert outline(short).shape == (size,)


# Insights --------------------------------------------------------------------------------------


def test_insights_say_what_most_diagnoses_say_and_go_to_that_end(make: Make) -> None:
    context = make(coda={"memory": "insights", "graded": False})
    plan = plan_of(context)
    (sentence,) = logged(context, "insights")["sentences"]
    assert sentence.startswith(f"episodes fail where {SIZE} is high (")
    source = f"insight:{SIZE}:high"
    assert plan.weights == pytest.approx({WIDE: 0.5, source: 0.5})
    low, high = FAMILY.space[SIZE].generator  # type: ignore[misc]
    values = [float(s.values[SIZE]) for s in plan.scenes[source]]
    assert min(values) >= float(high) - (float(high) - float(low)) / 3 - 1e-6
    assert plan.training == {}


def test_an_insight_about_a_choice_is_that_choice() -> None:
    shape = "attributes.target.shape"
    choice = FAMILY.space[shape].choices[1]  # type: ignore[union-attr]
    program = insight_program(Insight(shape, "other", choice, ()), FAMILY.space)
    (edit,) = program.edits
    assert edit.choices == (choice,)  # type: ignore[union-attr]
    assert Insight(shape, "other", choice, ()).source == f"insight:{shape}:{choice}"
    with pytest.raises(ProgramError, match="high or low"):
        insight_program(Insight(SIZE, "other", None, ()), FAMILY.space)


def test_an_insight_keeps_the_conditions_under_which_its_factor_exists() -> None:
    path = "spatial.distractor_2.x"
    program = insight_program(Insight(path, "low", None, ()), FAMILY.space)
    assert [g.factor for g in program.guards] == ["task.distractors"]


# Skills ----------------------------------------------------------------------------------------


def test_skills_of_the_failing_stages_are_rehearsed(make: Make) -> None:
    context = make(coda={"memory": "skills", "graded": False})
    plan = plan_of(context)
    assert plan.weights == {WIDE: 1.0}
    assert plan.rehearsed is not None
    library = context.state.recalled
    assert set(library) >= {"actions", "valid", "stage"}
    steps = sum(e.length for e in plan.episodes if e.success and e.source == "explore")
    assert len(library["stage"]) == min(steps, KEPT)
    told = logged(context, "skills")
    names = FAMILY.template.stage_names
    usable = [int(s) for s in library["stage"] if names[int(s)] in told["failing"]]
    assert len(plan.rehearsed.chunks) == told["rehearsed"] == min(len(usable), REHEARSED)
    known = {row.tobytes() for row in library["actions"][np.isin(library["stage"], usable)]}
    assert {row.tobytes() for row in plan.rehearsed.chunks.actions} <= known


def test_without_failures_nothing_is_rehearsed_or_retrieved(make: Make) -> None:
    for memory in ("skills", "trajectories", "insights"):
        context = make(
            backbone={"options": {"lessons": 0}},
            diagnosis={"episodes": 6},
            coda={"memory": memory, "graded": False},
        )
        plan = plan_of(context)
        assert plan.weights == {WIDE: 1.0}
        assert plan.rehearsed is None


@pytest.mark.parametrize("memory", ["trajectories", "skills"])
def test_what_an_alternative_keeps_is_in_the_checkpoint(
    make: Make, memory: str, tmp_path: Path
) -> None:
    context = make(coda={"memory": memory, "graded": False})
    plan_of(context)
    kept = dict(context.state.recalled)
    folder = tmp_path / "checkpoint"
    folder.mkdir()
    save_state(context.shared, folder)
    context.state.recalled = {}
    load_state(context.shared, folder)
    assert context.state.recalled.keys() == kept.keys()
    for name, rows in kept.items():
        assert np.array_equal(context.state.recalled[name], rows)


def test_aimed_sources_share_alike_what_the_wide_part_leaves(make: Make) -> None:
    context = make(collect={"wide_share": 0.6})
    scenes = [FAMILY.sample(np.random.default_rng(0))]
    wide = Wide({WIDE: scenes, "own": scenes}, {WIDE: 0.8, "own": 0.2})
    assert wide.beside(context, {}, NoPotential()).weights == {WIDE: 0.8, "own": 0.2}
    plan = wide.beside(context, {"a": scenes, "b": scenes}, NoPotential())
    assert plan.weights == pytest.approx({WIDE: 0.48, "own": 0.12, "a": 0.2, "b": 0.2})
    assert set(plan.scenes) == set(plan.weights)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_skills_reach_the_distillation(tmp_path: Path) -> None:
    train(tiny(coda={"memory": "skills", "graded": False}), tmp_path / "run", reporter=quiet())
    (selection,) = [r for r in metrics(tmp_path / "run") if r["event"] == "selection"]
    assert selection["rehearsed"] > 0
