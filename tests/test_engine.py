"""The engine: what it proposes, accepts, repairs and rejects, and that it always ends."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import numpy as np
import pytest
from env_cases import FAMILY, scene

from coda_envs.engine import proposals
from coda_envs.engine.proposals import BUDGET, REPAIRS, Generated, explore, generate
from coda_envs.programs import GenerationProgram
from coda_envs.validity import CHECKS, validate


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


def test_wide_scenes_are_valid_lie_in_the_region_and_leave_a_full_trace() -> None:
    made = run(20)
    assert len(made.scenes) == 20
    accepted = [t for t in made.traces if t.outcome == "accepted"]
    assert [t.scene_id for t in accepted] == [s.id for s in made.scenes]
    for at in made.scenes:
        assert FAMILY.region(at) == "generator"
        assert validate(at, solve_tries=0).passed
    for trace in made.traces:
        assert trace.source == "test"
        assert trace.outcome in ("accepted", "no base", *CHECKS)
        assert trace.outcome == "accepted" or trace.detail
        assert len(trace.repairs) <= REPAIRS
        assert not (trace.first_try and trace.repairs)
        json.dumps(trace.to_dict(), allow_nan=False)
    first_try = sum(t.outcome == "accepted" and not t.repairs for t in made.traces)
    assert made.verified == first_try / len(made.traces)


def test_programmed_scenes_carry_the_edit_through_every_repair() -> None:
    made = run(12, program=FAR)
    assert len(made.scenes) == 12
    for at in made.scenes:
        assert 0.1 <= at.values["spatial.target.x"] <= 0.16
        assert at.values["attributes.target.mass"] == 0.35
        assert FAMILY.region(at) == "generator"
    for trace in made.traces:
        assert trace.program == FAR.hash
        if trace.outcome != "no base":
            assert set(trace.edited) == {"spatial.target.x", "attributes.target.mass"}
        changed = {path for record in trace.repairs for path in record["changed"]}
        assert not changed & set(trace.edited)


def test_an_impossible_program_ends_with_its_reasons() -> None:
    made = run(2, program=IMPOSSIBLE)
    assert made.scenes == ()
    assert len(made.traces) == 2 * BUDGET
    outcomes = Counter(t.outcome for t in made.traces)
    assert outcomes.keys() <= {"layout", "no base"}
    assert all(t.detail for t in made.traces)
    assert made.verified == 0.0


def test_a_guard_that_no_scene_meets_ends_with_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proposals, "BASES", 5)
    made = run(1, program=NEVER)
    assert made.scenes == ()
    assert len(made.traces) == BUDGET
    assert {t.outcome for t in made.traces} == {"no base"}
    assert all("spatial.target.x" in t.detail for t in made.traces)


def test_nothing_asked_for_is_nothing_proposed() -> None:
    made = run(0)
    assert made == Generated((), ())
    assert made.verified is None


@pytest.mark.parametrize("omega", [None, FAR], ids=["wide", "programmed"])
def test_equal_seeds_give_equal_scenes_and_traces(omega: GenerationProgram | None) -> None:
    assert run(4, seed=5, program=omega) == run(4, seed=5, program=omega)
    assert run(4, seed=5, program=omega).scenes != run(4, seed=6, program=omega).scenes


def test_a_program_edits_the_base_it_is_given() -> None:
    base = scene(attributes__target__color="green")
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
        assert FAMILY.problem(at.values) is None
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
