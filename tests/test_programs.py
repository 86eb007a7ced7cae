"""Programs as data: schemas and checks that refuse nonsense."""

from __future__ import annotations

import contextlib
import copy
import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from program_cases import (
    FAMILY,
    SPACE,
    diagnosis,
    program,
    scene,
)

from coda_envs.engine.apply import AppliedEdit, apply_program
from coda_envs.engine.check import check_program
from coda_envs.errors import ProgramError
from coda_envs.programs import (
    Diagnosis,
    GenerationProgram,
    PotentialProgram,
    TrainingProgram,
)
from coda_envs.programs.base import ProgramData
from coda_envs.scene import parse_scene
from coda_envs.text2potential import compile_potential
from coda_trainer.compile.generation import compile_generation
from coda_trainer.compile.training import compile_training

GOOD: dict[type[ProgramData], dict[str, Any]] = {
    Diagnosis: diagnosis("spatial.target.yaw").to_dict(),
    PotentialProgram: FAMILY.template.to_dict(),
    TrainingProgram: compile_training(diagnosis("spatial.target.yaw"), FAMILY).to_dict(),
    GenerationProgram: program(
        {"edit": "set", "factor": "task.receptacle", "value": "tray"},
        {"edit": "shift", "factor": "spatial.target.x", "amount": 0.02},
        {"edit": "scale", "factor": "attributes.target.size", "by": 1.2},
        {"edit": "sample", "factor": "spatial.target.yaw", "low": 0.5, "high": 1.2, "easy": 0.0},
        {"edit": "sample", "factor": "attributes.target.shape", "choices": ["bar"]},
        {"edit": "swap", "role": "target", "other": "receptacle"},
        {"edit": "add_distractor", "near": "target"},
        guards=[{"factor": "task.distractors", "low": 0, "high": 1}],
    ).to_dict(),
}

# Hostile data -----------------------------------------------------------------------------------

hostile = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**400), 10**400)
    | st.floats()
    | st.text(max_size=12)
    | st.sampled_from(["target", "spatial.target.x", "set", "sample", "grasp", "mean", "not"]),
    lambda parts: (
        st.lists(parts, max_size=4)
        | st.dictionaries(st.text(max_size=8) | st.integers(), parts, max_size=4)
    ),
    max_leaves=8,
)


def _places(data: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    found = [at]
    if isinstance(data, (dict, list)):
        items = data.items() if isinstance(data, dict) else enumerate(data)
        for key, value in items:
            found += _places(value, (*at, key))
    return found


@st.composite
def mutants(draw: Callable[..., Any]) -> tuple[type[ProgramData], Any]:
    """A good program with a few entries replaced, removed or added."""
    kind = draw(st.sampled_from(list(GOOD)))
    data = copy.deepcopy(GOOD[kind])
    for _ in range(draw(st.integers(1, 3))):
        *parents, last = draw(st.sampled_from(_places(data)[1:]))
        holder = data
        for key in parents:
            holder = holder[key]
        how = draw(st.sampled_from(["replace", "remove", "add"]))
        if how == "replace":
            holder[last] = draw(hostile)
        elif how == "remove":
            del holder[last]
        elif isinstance(holder, dict):
            holder[draw(st.text(max_size=8))] = draw(hostile)
        if not data:
            break
    return kind, data


def _use(data: ProgramData) -> None:
    """What the rest of the project does with a program once it is parsed."""
    assert type(data).parse(json.loads(data.canonical_json())) == data
    if isinstance(data, PotentialProgram):
        phi = compile_potential(data, FAMILY.schema)(np.zeros((2, FAMILY.schema.size)))
        assert ((phi >= 0) & (phi <= 1)).all()
    elif isinstance(data, TrainingProgram):
        compile_potential(data.potential, FAMILY.schema)
        compile_training([diagnosis("spatial.target.x", stage=s) for s in data.subgoals], FAMILY)
    elif isinstance(data, GenerationProgram):
        outcome = apply_program(data, scene(1), np.random.default_rng(0))
        if isinstance(outcome, AppliedEdit):
            assert parse_scene(outcome.scene.to_dict()) == outcome.scene
    elif isinstance(data, Diagnosis):
        compile_training(data, FAMILY)
        compile_generation(data, SPACE, difficult=[0.1], successful=[0.0])


@given(mutants())
@settings(max_examples=400, deadline=None)
def test_malformed_programs_raise_program_errors_and_nothing_else(
    case: tuple[type[ProgramData], Any],
) -> None:
    kind, data = case
    with contextlib.suppress(ProgramError):
        _use(kind.parse(data))


@given(st.sampled_from(list(GOOD)), hostile)
@settings(max_examples=100, deadline=None)
def test_arbitrary_data_is_no_program(kind: type[ProgramData], data: Any) -> None:
    with pytest.raises(ProgramError):
        kind.parse(data)


@pytest.mark.parametrize("depth", [8, 200, 100_000])
def test_deep_nesting_is_refused(depth: int) -> None:
    node: dict[str, Any] = {"term": "grasped", "roles": ["target"]}
    for _ in range(depth):
        node = {"op": "not", "of": [node]}
    data = FAMILY.template.to_dict()
    data["stages"][0]["progress"] = node
    with pytest.raises(ProgramError):
        PotentialProgram.parse(data)


@pytest.mark.parametrize("kind", list(GOOD))
def test_programs_round_trip_through_json_with_a_stable_hash(kind: type[ProgramData]) -> None:
    first = kind.parse(GOOD[kind])
    again = kind.parse(json.loads(json.dumps(first.to_dict())))
    turned = kind.parse(dict(reversed(first.to_dict().items())))
    assert first == again == turned
    assert first.hash == again.hash == turned.hash
    assert first.hash == first.hash.lower()
    assert len(first.hash) == 16
    with pytest.raises((TypeError, ValueError)):
        first.family = "other"  # type: ignore[attr-defined]


def test_a_hash_does_not_change_between_versions_of_this_project() -> None:
    omega = program({"edit": "set", "factor": "spatial.target.x", "value": 0.1})
    assert omega.hash == "abf1e06e3ea0660d"


# Checking against a family ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("edit", "named"),
    [
        ({"edit": "set", "factor": "spatial.target.q", "value": 1.0}, "did you mean"),
        ({"edit": "set", "factor": "spatial.target.x", "value": 3.0}, "-0.14 to 0.16"),
        ({"edit": "set", "factor": "spatial.target.x", "value": "far"}, "not a number"),
        ({"edit": "set", "factor": "spatial.target.yaw", "value": 10**400}, "outside its range"),
        ({"edit": "set", "factor": "attributes.target.shape", "value": "ball"}, "'bar'"),
        # Only held-out scenes may have these.
        ({"edit": "set", "factor": "spatial.target.x", "value": 0.17}, "-0.14 to 0.16"),
        ({"edit": "set", "factor": "attributes.target.shape", "value": "disc"}, "'disc', not one"),
        ({"edit": "shift", "factor": "attributes.target.shape", "amount": 1}, "is a choice"),
        ({"edit": "scale", "factor": "task.distractors", "by": 2}, "is a choice"),
        ({"edit": "sample", "factor": "spatial.target.x", "choices": [1]}, "low and high"),
        ({"edit": "sample", "factor": "spatial.target.x", "low": 0, "high": 2}, "outside"),
        ({"edit": "sample", "factor": "spatial.target.x", "low": 0, "high": 0.1, "easy": -9},
         "outside"),
        ({"edit": "sample", "factor": "spatial.target.yaw", "low": -3, "high": 3}, "period"),
        ({"edit": "sample", "factor": "task.distractors", "low": 0, "high": 2}, "choices among"),
        ({"edit": "sample", "factor": "task.distractors", "choices": [7]}, "'2'"),
        ({"edit": "swap", "role": "target", "other": "recptacle"}, "did you mean 'receptacle'"),
        ({"edit": "swap", "role": "target", "other": "target"}, "itself"),
        ({"edit": "add_distractor", "near": "gripper"}, "gripper"),
    ],
)  # fmt: skip
def test_an_edit_that_does_not_fit_the_family_is_refused(edit: dict[str, Any], named: str) -> None:
    with pytest.raises(ProgramError) as caught:
        check_program(program(edit), SPACE)
    assert "edits[0]" in str(caught.value)
    assert named in str(caught.value)


@pytest.mark.parametrize(
    ("guard", "named"),
    [
        ({"factor": "task.distractors"}, "demands nothing"),
        ({"factor": "task.nothing", "equals": 1}, "not a factor"),
        ({"factor": "task.receptacle", "equals": "bowl"}, "'tray'"),
        ({"factor": "task.receptacle", "low": 1}, "word"),
        ({"factor": "spatial.target.x", "equals": 1}, "low and high"),
        ({"factor": "spatial.target.x", "low": 0.1, "high": 0.0}, "above"),
    ],
)
def test_a_guard_that_does_not_fit_is_refused(guard: dict[str, Any], named: str) -> None:
    edit = {"edit": "shift", "factor": "spatial.target.x", "amount": 0.0}
    with pytest.raises(ProgramError) as caught:
        check_program(program(edit, guards=[guard]), SPACE)
    assert named in str(caught.value)


def test_another_familys_program_and_unknown_roles_are_refused() -> None:
    edit = {"edit": "shift", "factor": "spatial.target.x", "amount": 0.0}
    with pytest.raises(ProgramError, match="stack"):
        check_program(program(edit, family="stack"), SPACE)
    with pytest.raises(ProgramError, match="handle"):
        check_program(program(edit, roles=["handle"]), SPACE)
