"""Lifting a generation program: what two families share is carried over, the rest is listed."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coda_envs.engine.apply import AppliedEdit, apply_program
from coda_envs.engine.check import check_program
from coda_envs.errors import ProgramError
from coda_envs.factor import ContinuousFactor
from coda_envs.family import family_names, get_family
from coda_envs.programs import GenerationProgram
from coda_envs.programs.lifting import lift, lift_path

PAIRS = list(itertools.permutations(family_names(), 2))
PICK, STACK, ARTICULATED = (get_family(n) for n in ("pick-place", "stack-insert", "articulated"))
SIZE, YAW = "attributes.target.size", "spatial.target.yaw"


def omega(family: str, *edits: dict[str, Any], **more: Any) -> GenerationProgram:
    return GenerationProgram.parse({"family": family, "roles": [], "edits": list(edits), **more})


def sample(factor: ContinuousFactor, a: float, b: float) -> dict[str, Any]:
    """An edit over a part of the generator range, given by shares of it."""
    low, high = factor.generator
    ends = sorted(round(low + share * (high - low), 6) for share in (a, b))
    return {"edit": "sample", "factor": factor.path, "low": ends[0], "high": ends[1]}


def roomy(factor: Any) -> bool:
    """Whether the generator range goes beyond the seed range on both sides."""
    return bool(factor.generator[0] < factor.seed[0] < factor.seed[1] < factor.generator[1])


@settings(max_examples=150, deadline=None)
@given(pair=st.sampled_from(PAIRS), data=st.data())
def test_what_is_lifted_fits_the_family_and_comes_back_the_same(
    pair: tuple[str, str], data: st.DataObject
) -> None:
    mine, theirs = (get_family(name).space for name in pair)
    shared = [p for p in mine.by_path if lift_path(p, mine, theirs)]
    factor = mine[data.draw(st.sampled_from(shared))]
    if isinstance(factor, ContinuousFactor):
        a, b = data.draw(st.tuples(st.floats(0, 1), st.floats(0, 1)))
        edit = sample(factor, a, b)
    else:
        edit = {"edit": "sample", "factor": factor.path, "choices": [factor.generator[0]]}
    program = omega(pair[0], edit, magnitude=0.5)
    there = lift(program, mine, theirs)
    if there.program is None:
        # A choice that the other family never has.
        assert not isinstance(factor, ContinuousFactor)
        assert list(there.left_out) == ["edits[0]"]
        return
    check_program(there.program, theirs)
    assert there.program.magnitude == 0.5
    assert there.program.provenance == (f"lifted:{program.hash}",)
    back = lift(there.program, theirs, mine).program
    assert back is not None
    (first,), (last,) = program.edits, back.edits
    assert last.factor == first.factor
    if isinstance(factor, ContinuousFactor):
        if not (roomy(factor) and roomy(theirs[there.program.edits[0].factor])):
            return
        span = factor.generator[1] - factor.generator[0]
        assert last.low == pytest.approx(first.low, abs=1e-3 * span)
        assert last.high == pytest.approx(first.high, abs=1e-3 * span)
    else:
        assert last == first


@pytest.mark.parametrize("pair", PAIRS, ids=" to ".join)
def test_the_edges_of_the_seed_range_become_those_of_the_other_family(
    pair: tuple[str, str],
) -> None:
    mine, theirs = (get_family(name).space for name in pair)
    factor, other = mine[SIZE], theirs[SIZE]
    assert isinstance(factor, ContinuousFactor)
    assert isinstance(other, ContinuousFactor)
    low, high = factor.seed[1], factor.generator[1]
    beyond = {"edit": "sample", "factor": SIZE, "low": low, "high": high, "easy": factor.seed[0]}
    program = lift(omega(pair[0], beyond), mine, theirs).program
    assert program is not None
    (edit,) = program.edits
    assert edit.low == pytest.approx(other.seed[1], abs=1e-6)
    assert edit.high == pytest.approx(other.generator[1], abs=1e-6)
    assert edit.easy == pytest.approx(other.seed[0], abs=1e-6)


def test_a_lifted_difficulty_is_one_of_scenes_of_the_other_family() -> None:
    size = PICK.space[SIZE]
    assert isinstance(size, ContinuousFactor)
    program = lift(omega("pick-place", sample(size, 0.9, 1.0)), PICK.space, STACK.space).program
    assert program is not None
    rng = np.random.default_rng(0)
    for _ in range(20):
        found = apply_program(program, STACK.sample(rng, "seed"), rng)
        if isinstance(found, AppliedEdit):
            assert program.edits[0].low - 1e-6 <= found.scene.values[SIZE]


def test_what_has_no_counterpart_is_listed_and_the_rest_is_lifted() -> None:
    program = omega(
        "pick-place",
        {"edit": "set", "factor": YAW, "value": 0.5},
        {"edit": "set", "factor": SIZE, "value": 0.02},
        {"edit": "swap", "role": "target", "other": "receptacle"},
        {"edit": "add_distractor", "near": "target"},
        {"edit": "shift", "factor": "attributes.target.friction", "amount": 0.1},
        roles=["target", "receptacle"],
        guards=[{"factor": "attributes.target.shape", "equals": "bar"}],
    )
    lifted = lift(program, PICK.space, ARTICULATED.space)
    assert set(lifted.left_out) == {"guards[0]", "edits[0]", "edits[3]", "edits[4]"}
    assert "no factor spatial.target.yaw" in lifted.left_out["edits[0]"]
    assert "not in" in lifted.left_out["edits[4]"]
    assert lifted.roles == {"target": "target", "receptacle": "cabinet"}
    assert lifted.program is not None
    assert [edit.edit for edit in lifted.program.edits] == ["set", "swap"]


def test_nothing_to_lift_gives_no_program() -> None:
    edit = {"edit": "set", "factor": YAW, "value": 0.5}
    lifted = lift(omega("pick-place", edit), PICK.space, ARTICULATED.space)
    assert lifted.program is None
    assert list(lifted.left_out) == ["edits[0]"]


def test_roles_may_be_given_and_must_exist() -> None:
    edit = {"edit": "set", "factor": "attributes.distractor_1.size", "value": 0.02}
    program = omega("pick-place", edit)
    lifted = lift(program, PICK.space, STACK.space, {"distractor_1": "second"}).program
    assert lifted is not None
    assert lifted.edits[0].factor == "attributes.second.size"
    with pytest.raises(ProgramError, match="no role 'lid'"):
        lift(program, PICK.space, STACK.space, {"distractor_1": "lid"})
    with pytest.raises(ProgramError, match="for the family 'pick-place'"):
        lift(program, STACK.space, PICK.space)
