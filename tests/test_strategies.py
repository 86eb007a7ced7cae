"""Strategies: what a round trains on, and what it pays for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import strict
from round_cases import round_context

from coda_envs.errors import ConfigError
from coda_envs.family import get_family
from coda_envs.programs.potential import PotentialProgram
from coda_envs.scene import Scene
from coda_envs.text2potential import Potential, compile_program
from coda_trainer.learning.chunk_critic import NoPotential
from coda_trainer.rounds.context import ProgramState, RoundContext
from coda_trainer.rounds.refining import potential_in_force
from coda_trainer.strategies import STRATEGIES, make_strategy
from coda_trainer.strategies.base import OWN, RoundPlan, wide_scenes
from coda_trainer.strategies.given import given_program

FAMILY = get_family("pick-place")
Make = Callable[..., RoundContext]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    """Makes a context for round 1 of a tiny run whose policy has had no lesson yet."""
    with ExitStack() as stack:
        yield partial(round_context, stack, tmp_path)


def own_scene() -> Scene:
    return FAMILY.sample(np.random.default_rng(3))


def test_a_misspelt_strategy_is_named_with_what_there_is() -> None:
    with pytest.raises(ConfigError, match="'uniform'"):
        make_strategy("unifrom")
    assert [n for n in STRATEGIES if not make_strategy(n).learns] == ["sft"]


def test_sft_has_no_rounds(make: Make) -> None:
    with pytest.raises(ConfigError, match="no rounds"):
        make_strategy("sft").plan(make(strategy="sft"))


def test_uniform_draws_from_the_whole_range_outside_the_held_out_regions(make: Make) -> None:
    context = make(strategy="uniform", collect={"scenes": 24})
    plan = make_strategy("uniform").plan(context)
    assert set(plan.scenes) == {"wide"}
    assert plan.weights == {"wide": 1.0}
    scenes = plan.scenes["wide"]
    assert len({s.id for s in scenes}) == len(scenes) == 24
    assert {FAMILY.region(s) for s in scenes} == {"generator"}
    sizes = [float(s.values["attributes.target.size"]) for s in scenes]
    assert min(sizes) < 0.018
    assert max(sizes) > 0.024
    assert plan.episodes == ()


def test_the_signal_decides_what_uniform_pays_for(make: Make) -> None:
    shaped = make_strategy("uniform").plan(make(signal="text2potential")).potential
    assert isinstance(shaped, Potential)
    assert shaped.program == FAMILY.template
    assert isinstance(make_strategy("uniform").plan(make(signal="sparse")).potential, NoPotential)


def test_every_accepted_scene_and_every_proposal_is_on_record(make: Make) -> None:
    context = make()
    plan = make_strategy("uniform").plan(context)
    file = context.run.path / "scenes" / "pick-place" / "round_001.jsonl"
    kept = [strict(line) for line in file.read_text().splitlines()]
    assert [k["scene"] for k in kept] == [s.to_dict() for s in plan.scenes["wide"]]
    traces = context.memory.records("traces")
    accepted = [t["scene_id"] for t in traces if t["outcome"] == "accepted"]
    assert accepted == [s.id for s in plan.scenes["wide"]]
    (logged,) = [r for r in context.run.metrics() if r["event"] == "generated"]
    assert (logged["proposals"], logged["accepted"]) == (len(traces), len(accepted))
    assert 0 < logged["coverage"]["joint"] <= 6.5
    assert 0 < logged["coverage"]["mean"] <= 2.5


def test_a_scene_of_ones_own_gets_its_share(make: Make) -> None:
    scene = own_scene()
    scenes, weights = wide_scenes(make(scene), 4)
    assert scenes[OWN] == (scene,)
    assert sum(weights.values()) == pytest.approx(1.0)
    plan = RoundPlan(scenes, weights, NoPotential())
    counts = Counter(j.source for j in plan.jobs(make(scene), 50, "x"))
    assert counts == {"wide": 40, "own": 10}


def test_jobs_follow_the_shares_and_repeat_exactly(make: Make) -> None:
    rng = np.random.default_rng(0)
    scenes = {name: [FAMILY.sample(rng) for _ in range(4)] for name in ("wide", "mode")}
    training = {"mode": given_program(FAMILY, "grasp", ["exploration_noise"])}
    plan = RoundPlan(scenes, {"wide": 0.75, "mode": 0.25}, NoPotential(), training)
    jobs = plan.jobs(make(), 40, "block 0")
    assert Counter(j.source for j in jobs) == {"wide": 30, "mode": 10}
    assert {j.noise_multiplier for j in jobs if j.source == "mode"} == {1.5}
    assert {j.noise_multiplier for j in jobs if j.source == "wide"} == {1.0}
    assert len({j.seed for j in jobs}) == len(jobs)
    # Mixed, so that a work unit does not hold one kind only.
    assert {j.source for j in jobs[:16]} == {"wide", "mode"}
    assert plan.jobs(make(), 40, "block 0") == jobs
    for other in (plan.jobs(make(), 40, "block 1"), plan.jobs(make(round=2), 40, "block 0")):
        assert {j.seed for j in other}.isdisjoint(j.seed for j in jobs)


def test_scenes_are_not_repeated_before_all_have_had_their_turn(make: Make) -> None:
    rng = np.random.default_rng(0)
    scenes = {"wide": [FAMILY.sample(rng) for _ in range(6)]}
    plan = RoundPlan(scenes, {"wide": 1.0}, NoPotential())
    assert len({j.scene.id for j in plan.jobs(make(), 6, "x")}) == 6


def test_coda_aims_half_of_the_round_at_the_mode_that_it_confirmed(make: Make) -> None:
    context = make()
    plan = make_strategy("coda").plan(context)
    (mode,) = context.memory.modes()
    assert mode.state == "selected"
    assert mode.factor == "attributes.target.size"
    assert mode.direction == "high"
    assert plan.weights == pytest.approx({"wide": 0.5, mode.id: 0.5})
    hard = [float(s.values["attributes.target.size"]) for s in plan.scenes[mode.id]]
    assert mode.interval is not None
    # Six decimals, as scenes keep them.
    assert min(hard) >= mode.interval[0] - 1e-6
    assert max(hard) <= mode.interval[1] + 1e-6
    assert {FAMILY.region(s) for found in plan.scenes.values() for s in found} == {"generator"}
    # What was looked at serves as replay; what was controlled does not.
    assert {e.source for e in plan.episodes} <= {"explore", "wide"}
    assert plan.training[mode.id].tools.stage_resets > 0
    # Φ is refined by the diagnoses, and probes were measured before training.
    assert isinstance(plan.potential, Potential)
    assert plan.potential.program != FAMILY.template
    assert plan.potential.program == compile_program(FAMILY.template, _confirmed(context))
    measured = context.memory.last_measurement(mode.id)
    assert measured is not None
    assert measured.progress is None
    assert len(mode.probes) == len(mode.controls) == measured.trials == 4


def _confirmed(context: RoundContext) -> list[Any]:
    from coda_envs.programs.diagnosis import Diagnosis

    (control,) = context.memory.records("controls")
    assert control["verdict"] == "confirmed"
    return [
        Diagnosis.parse(row["data"], "diagnosis")
        for row in context.memory.records("diagnoses")
        if row["sequence"] in control["diagnoses"]
    ]


def test_graded_is_wide_by_measured_magnitudes(make: Make) -> None:
    context = make(strategy="graded")
    plan = make_strategy("graded").plan(context)
    assert plan.weights == {"wide": 1.0}
    assert {FAMILY.region(s) for s in plan.scenes["wide"]} == {"generator"}
    assert {e.source for e in plan.episodes} == {"wide"}
    assert [r for r in context.run.metrics() if r["event"] == "magnitudes"]
    assert context.memory.modes() == []


def test_without_omega_the_scenes_stay_wide_and_the_tools_reach_those_that_show_the_mode(
    make: Make,
) -> None:
    context = make(
        coda={"omega": False, "graded": False, "tools": ["replay_weight"]}, collect={"scenes": 24}
    )
    plan = make_strategy("coda").plan(context)
    (mode,) = context.memory.modes()
    assert mode.interval is not None
    assert set(plan.scenes) == {"wide", mode.id}
    low, high = mode.interval
    for source, scenes in plan.scenes.items():
        for scene in scenes:
            inside = low <= float(scene.values["attributes.target.size"]) <= high
            assert inside == (source == mode.id)
    # As many of each as were drawn: the distribution is that of uniform.
    counts = {source: len(scenes) for source, scenes in plan.scenes.items()}
    assert sum(counts.values()) == 24
    assert plan.weights == pytest.approx({s: n / 24 for s, n in counts.items()})
    assert plan.replay_weights[mode.id] > 1
    assert isinstance(plan.potential, Potential)
    assert plan.potential.program == compile_program(FAMILY.template, _confirmed(context))


def test_without_phi_the_scenes_aim_at_the_mode_and_nothing_else_does(make: Make) -> None:
    context = make(coda={"phi": False, "graded": False})
    plan = make_strategy("coda").plan(context)
    (mode,) = context.memory.modes()
    assert plan.weights == pytest.approx({"wide": 0.5, mode.id: 0.5})
    assert plan.training == {}
    assert isinstance(plan.potential, Potential)
    assert plan.potential.program == FAMILY.template


def test_a_refined_potential_stays_while_the_diagnoses_are_the_same(make: Make) -> None:
    context = make(strategy="uniform")
    potential = potential_in_force(context, ())
    assert isinstance(potential, Potential)
    assert context.state.program == ProgramState(FAMILY.template, FAMILY.template)
    data = FAMILY.template.to_dict()
    data["stages"][0]["weight"] *= 2
    refined = PotentialProgram.parse(data)
    context.state.program = ProgramState(FAMILY.template, refined)
    again = potential_in_force(context, ())
    assert isinstance(again, Potential)
    assert again.program == refined
    # Where the diagnoses give another program than the one that was refined, it starts anew.
    context.state.program = ProgramState(refined, refined)
    anew = potential_in_force(context, ())
    assert isinstance(anew, Potential)
    assert anew.program == FAMILY.template


def test_coda_without_failures_is_wide(make: Make) -> None:
    context = make(backbone={"options": {"lessons": 0}}, diagnosis={"episodes": 6}, signal="sparse")
    plan = make_strategy("coda").plan(context)
    assert context.memory.modes() == []
    assert plan.weights == {"wide": 1.0}
    assert isinstance(plan.potential, NoPotential)
