"""The engine: what it proposes, accepts, repairs and rejects, and that it always ends."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import numpy as np
import pytest
from env_cases import FAMILY
from faulty_families import Faulty

from coda_envs import family as family_module
from coda_envs.engine import proposals
from coda_envs.engine.proposals import BUDGET, PATIENCE, REPAIRS, explore, generate, propose
from coda_envs.engine.trace import Generated
from coda_envs.errors import HeldOutError, ProgramError, SceneError
from coda_envs.family import BUILT_IN, get_family, register_family
from coda_envs.programs import GenerationProgram
from coda_envs.scene import Scene
from coda_envs.validity import FAMILY_ERROR, REASONS, validate


def program(*edits: dict[str, Any], **more: Any) -> GenerationProgram:
    data = {"family": "pick-place", "roles": [], "edits": list(edits), **more}
    return GenerationProgram.parse(data)


FAR = program(
    {"edit": "sample", "factor": "spatial.target.x", "low": 0.1, "high": 0.16},
    {"edit": "set", "factor": "attributes.target.mass", "value": 0.35},
)
#: Target and receptacle in one place: no scene it makes can be laid out.
IMPOSSIBLE = program(
    *(
        {"edit": "set", "factor": f"spatial.{role}.{axis}", "value": 0.1}
        for role in ("target", "receptacle")
        for axis in "xy"
    )
)
#: No scene meets this guard.
NEVER = program(
    {"edit": "set", "factor": "attributes.target.mass", "value": 0.35},
    guards=[
        {"factor": "spatial.target.x", "low": 0.155},
        {"factor": "spatial.target.x", "high": -0.13},
    ],
)


def run(n: int, seed: int = 0, **options: Any) -> Generated:
    return generate(FAMILY, n, np.random.default_rng(seed), source="test", **options)


@pytest.mark.parametrize("name", list(BUILT_IN))
def test_wide_scenes_are_valid_lie_in_the_region_and_leave_a_full_trace(name: str) -> None:
    family = get_family(name)
    made = generate(family, 10, np.random.default_rng(0), source="test")
    assert len(made.scenes) == 10
    assert [t.scene_id for t in made.traces if t.accepted] == [s.id for s in made.scenes]
    for at in made.scenes:
        assert family.region(at) == "generator"
        assert validate(at, solve_tries=0).passed
    for trace in made.traces:
        assert trace.source == "test"
        assert trace.outcome in ("accepted", "no base", *REASONS)
        assert trace.accepted or trace.detail
        assert len(trace.repairs) <= REPAIRS
        assert len(trace.certificates) >= len(trace.repairs)
        assert not (trace.first_try and trace.repairs)
    valid = [c.passed for c in (t.certificates[0] for t in made.traces)]
    assert made.verified == sum(valid) / len(made.traces)
    assert made.verified_after_repair == 10 / len(made.traces)


def crowded(rng: np.random.Generator) -> Scene:
    """A scene whose distractor stands in the target."""
    at = FAMILY.sample(rng, "seed", fixed={"task.distractors": 1})
    return at.edit_many(
        {f"spatial.distractor_1.{a}": at.values[f"spatial.target.{a}"] for a in "xy"}
    )


def test_a_trace_tells_the_whole_construction_as_strict_json() -> None:
    made = run(4, program=FAR, base=crowded)
    trace = next(t for t in made.traces if t.accepted and t.repairs)
    data = json.loads(json.dumps(trace.to_dict(), allow_nan=False))
    assert data["outcome"] == "accepted"
    assert data["first_try"] is False
    assert data["program"] == FAR.hash
    assert data["edits"].keys() == {"spatial.target.x", "attributes.target.mass"}
    assert data["edits"]["attributes.target.mass"] == 0.35
    # The crowded scene, then one after each repair; the last is the one that came of it.
    assert len(data["checks"]) == 1 + len(data["repairs"])
    name, passed, detail = data["checks"][0]["checks"][-1]
    assert (name, passed) == ("layout", False)
    assert "distractor_1 too near target" in detail
    assert all(passed for _, passed, _ in data["checks"][-1]["checks"])
    assert data["scene_id"] == data["checks"][-1]["scene_id"]
    assert data["repairs"][0]["reason"] == "layout"
    assert data["repairs"][0]["changed"].keys() >= {"spatial.distractor_1.x", "spatial.target.y"}
    # One second of settling; the layout of the crowded scene was judged without physics.
    assert data["cost"]["simulated"] == 200
    assert data["cost"]["bases"] >= 1
    assert data["cost"]["redraws"] >= 1


def test_programmed_scenes_carry_the_edit_through_every_repair() -> None:
    made = run(12, program=FAR, base=crowded)
    assert len(made.scenes) == 12
    for at in made.scenes:
        assert 0.1 <= at.values["spatial.target.x"] <= 0.16
        assert at.values["attributes.target.mass"] == 0.35
        assert FAMILY.region(at) == "generator"
    kept = dict(zip((t.scene_id for t in made.traces if t.accepted), made.scenes, strict=True))
    for trace in made.traces:
        assert trace.program == FAR.hash
        changed = {path for record in trace.repairs for path in record.changed}
        assert not changed & trace.edits.keys()
        if trace.accepted:
            assert trace.edits.items() <= kept[trace.scene_id].values.items()


def test_an_impossible_program_ends_with_its_reasons() -> None:
    made = run(2, program=IMPOSSIBLE)
    assert made.scenes == ()
    assert len(made.traces) == 2 * BUDGET
    assert made.rejections.keys() <= {"layout", "no base"}
    assert sum(made.rejections.values()) == sum(made.reasons.values()) == 2 * BUDGET
    assert all(t.detail for t in made.traces)
    # Every place that the program left alone was tried.
    assert all("draws, at last" in t.repairs[-1].obstacle for t in made.traces if t.repairs)
    assert made.verified == made.verified_after_repair == made.edit_survival == 0.0


def test_the_engine_gives_up_where_nothing_comes_of_it() -> None:
    made = run(100, program=IMPOSSIBLE)
    assert len(made.traces) == PATIENCE < 100 * BUDGET


def test_a_guard_that_no_scene_meets_ends_with_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proposals, "BASES", 5)
    made = run(1, program=NEVER)
    assert made.scenes == ()
    assert len(made.traces) == BUDGET
    assert made.rejections == {"no base": BUDGET}
    assert all("spatial.target.x" in t.detail for t in made.traces)
    assert all(t.bases == 5 for t in made.traces)
    assert made.edit_survival is None


def test_a_search_for_a_base_that_failed_is_not_started_again() -> None:
    def searching(_: np.random.Generator) -> Scene:
        raise SceneError("no scene found in 20000 draws.")

    for omega in (None, FAR):
        scene, trace = propose(
            FAMILY, np.random.default_rng(0), source="test", program=omega, base=searching
        )
        assert scene is None
        assert (trace.outcome, trace.bases) == ("no base", 1)
        assert trace.detail == "no scene found in 20000 draws."


def test_a_program_for_another_family_is_refused_at_once() -> None:
    with pytest.raises(ProgramError, match="for the family 'other'"):
        run(1, program=FAR.model_copy(update={"family": "other"}))


def test_a_base_that_is_held_out_is_an_error() -> None:
    with pytest.raises(HeldOutError):
        run(1, base=lambda rng: FAMILY.sample(rng, "generator", "ood"))


@pytest.mark.parametrize("part", ["goal", "ambiguity", "describe", "problem", "props", "success"])
@pytest.mark.parametrize("calls", [0, 1, 2, 7])
def test_a_family_that_breaks_ends_a_proposal_not_the_caller(
    monkeypatch: pytest.MonkeyPatch, part: str, calls: int
) -> None:
    monkeypatch.setattr(family_module, "_registered", dict(family_module._registered))
    family = Faulty()
    register_family(family)
    at = family.faulty(part)
    family.patience = calls
    omega = GenerationProgram.parse(FAR.to_dict() | {"family": "faulty"})
    for program in (None, omega):
        made, trace = propose(
            family, np.random.default_rng(0), source="test", program=program, base=lambda _: at
        )
        assert made is None or calls
        if made is None:
            assert trace.outcome == FAMILY_ERROR
            assert f"ZeroDivisionError: {part} is broken" in trace.detail


def test_nothing_asked_for_is_nothing_proposed() -> None:
    made = run(0)
    assert made == Generated((), ())
    assert made.verified is made.verified_after_repair is made.edit_survival is None
    assert made.reasons == made.rejections == {}


@pytest.mark.parametrize("omega", [None, FAR], ids=["wide", "programmed"])
def test_equal_seeds_give_equal_scenes_and_traces(omega: GenerationProgram | None) -> None:
    assert run(4, seed=5, program=omega) == run(4, seed=5, program=omega)
    assert run(4, seed=5, program=omega).scenes != run(4, seed=6, program=omega).scenes


def test_a_program_edits_the_base_it_is_given() -> None:
    base = FAMILY.sample(np.random.default_rng(3), "seed")
    omega = program({"edit": "set", "factor": "attributes.target.mass", "value": 0.35})
    made = run(3, program=omega, base=lambda _: base)
    assert made.scenes
    wanted = base.edit("attributes.target.mass", 0.35)
    assert all(at == wanted for at in made.scenes)


def test_exploring_leaves_the_seed_range_in_at_most_three_factors() -> None:
    rng = np.random.default_rng(0)
    beyond = Counter()
    for _ in range(40):
        at = explore(FAMILY, rng)
        assert FAMILY.region(at) == "generator"
        assert FAMILY.flaw(at.values) is None
        outside = 0
        for path, value in at.values.items():
            factor = FAMILY.space[path]
            if factor.type == "discrete":
                outside += value not in factor.seed
            else:
                outside += not factor.seed[0] <= value <= factor.seed[1]
        assert outside <= 3
        beyond[outside] += 1
    assert len(beyond) > 1
    single = [explore(FAMILY, rng, most=1) for _ in range(5)]
    assert len({at.id for at in single}) == 5
