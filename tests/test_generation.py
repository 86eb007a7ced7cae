"""Generation programs applied to scenes, and compiled, like training programs, from diagnoses."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from program_cases import (
    CHOICES,
    FAMILY,
    NUMBERS,
    SPACE,
    applied,
    diagnosis,
    program,
    scene,
)

from coda_envs.engine.apply import AppliedEdit, GuardNotMet, apply_program
from coda_envs.engine.check import check_program
from coda_envs.errors import ProgramError
from coda_envs.factor import Value
from coda_envs.programs import (
    Diagnosis,
    GenerationProgram,
)
from coda_envs.scene import Scene, parse_scene
from coda_trainer.compile.generation import compile_generation
from coda_trainer.compile.training import compile_training

# Applying ---------------------------------------------------------------------------------------


@st.composite
def edits(draw: Callable[..., Any]) -> dict[str, Any]:
    """An edit that fits the family, of any type."""
    kind = draw(st.sampled_from(["set", "shift", "scale", "sample", "choose", "swap", "add"]))
    factor = draw(st.sampled_from(CHOICES if kind == "choose" else NUMBERS))
    declared = SPACE[factor]
    if kind == "choose":
        some = draw(st.lists(st.sampled_from(declared.generator), min_size=1, max_size=3))
        return {"edit": "sample", "factor": factor, "choices": some}
    if kind == "swap":
        pair = draw(st.permutations(FAMILY.roles))
        return {"edit": "swap", "role": pair[0], "other": pair[1]}
    if kind == "add":
        return {"edit": "add_distractor", "near": draw(st.sampled_from(FAMILY.roles))}
    if kind == "shift":
        return {"edit": "shift", "factor": factor, "amount": draw(st.floats(-9, 9))}
    if kind == "scale":
        return {"edit": "scale", "factor": factor, "by": draw(st.floats(0.1, 10))}
    values = st.floats(*declared.generator)
    if kind == "set":
        return {"edit": "set", "factor": factor, "value": draw(values)}
    low, high = sorted((draw(values), draw(values)))
    easy = draw(st.none() | values)
    return {"edit": "sample", "factor": factor, "low": low, "high": high, "easy": easy}


@given(st.lists(edits(), min_size=1, max_size=5), st.integers(0, 30), st.floats(0, 1))
@settings(max_examples=150, deadline=None)
def test_an_applied_program_changes_its_own_paths_only_and_stays_in_range(
    chosen: list[dict[str, Any]], seed: int, magnitude: float
) -> None:
    omega = program(*chosen, magnitude=magnitude)
    before = scene(seed)
    outcome = apply_program(omega, before, np.random.default_rng(seed))
    again = apply_program(omega, before, np.random.default_rng(seed))
    assert outcome == again
    if isinstance(outcome, GuardNotMet):
        assert outcome.reason
        return
    after = outcome.scene
    assert parse_scene(after.to_dict()) == after
    common = before.values.keys() & after.values.keys()
    changed = {p for p in common if before.values[p] != after.values[p]}
    assert changed <= set(outcome.edited_paths)
    assert set(outcome.edited_paths) <= after.values.keys()
    assert SPACE.check(after.values) == dict(after.values)


def test_what_one_edit_takes_away_and_another_brings_back_is_as_it_was() -> None:
    before = next(s for s in map(scene, range(50)) if s.values["task.distractors"] == 1)
    away = {"edit": "sample", "factor": "task.distractors", "choices": [0]}
    outcome = apply_program(
        program(away, {**away, "choices": [1]}), before, np.random.default_rng(0)
    )
    assert isinstance(outcome, AppliedEdit)
    assert outcome.scene.id == before.id


@given(
    st.sampled_from([p for p in NUMBERS if SPACE[p].when is None]),
    st.integers(0, 10),
    st.floats(0, 1),
    st.floats(0, 1),
    st.floats(0, 1),
)
@settings(max_examples=80, deadline=None)
def test_magnitude_leads_from_easy_to_the_full_interval(
    factor: str, seed: int, a: float, b: float, c: float
) -> None:
    bottom, top = SPACE[factor].generator  # type: ignore[misc]
    low, high, easy = (bottom + share * (top - bottom) for share in (min(a, b), max(a, b), c))
    edit = {"edit": "sample", "factor": factor, "low": low, "high": high, "easy": easy}
    omega, before = program(edit), scene(seed)

    def value(magnitude: float) -> float:
        after = applied(omega, before, seed, magnitude).scene
        return float(after.values[factor])

    assert value(0.0) == pytest.approx(easy, abs=1e-6)
    full = value(1.0)
    assert low - 1e-6 <= full <= high + 1e-6
    # The same draw, nearer to easy as m falls.
    gaps = [SPACE.distance(factor, value(m), easy) for m in (0.25, 0.5, 1.0)]
    assert gaps[0] <= gaps[1] + 1e-4
    assert gaps[1] <= gaps[2] + 1e-4


def test_without_easy_a_magnitude_of_zero_changes_nothing() -> None:
    before = scene(2)
    for edit in (
        {"edit": "sample", "factor": "spatial.target.x", "low": 0.1, "high": 0.15},
        {"edit": "shift", "factor": "spatial.target.x", "amount": 0.1},
        {"edit": "scale", "factor": "attributes.target.size", "by": 1.5},
    ):
        assert applied(program(edit), before, magnitude=0.0).scene == before


def test_each_edit_does_what_it_says() -> None:
    before = scene(3, task__receptacle="plate", task__distractors=1, spatial__target__x=0.0,
                   attributes__target__size=0.02)  # fmt: skip
    was = before.values

    def values(*some: dict[str, Any], magnitude: float = 1.0) -> Any:
        return applied(program(*some), before, magnitude=magnitude).scene.values

    shift = {"edit": "shift", "factor": "spatial.target.x", "amount": 0.1}
    assert values(shift)["spatial.target.x"] == pytest.approx(0.1)
    assert values(shift, magnitude=0.5)["spatial.target.x"] == pytest.approx(0.05)
    assert values(shift, shift)["spatial.target.x"] == 0.16
    scale = {"edit": "scale", "factor": "attributes.target.size", "by": 1.5}
    assert values(scale)["attributes.target.size"] == pytest.approx(0.03)
    assert values(scale, magnitude=0.5)["attributes.target.size"] == pytest.approx(0.025)
    swapped = values({"edit": "swap", "role": "receptacle", "other": "target"})
    for name, other in (("target", "receptacle"), ("receptacle", "target")):
        for axis in ("x", "y"):
            low, high = SPACE[f"spatial.{name}.{axis}"].generator  # type: ignore[misc]
            expected = min(max(float(was[f"spatial.{other}.{axis}"]), low), high)
            assert swapped[f"spatial.{name}.{axis}"] == expected
    assert swapped["spatial.target.yaw"] == was["spatial.target.yaw"]
    added = values({"edit": "add_distractor", "near": "receptacle"})
    assert added["task.distractors"] == 2
    gap = math.hypot(
        added["spatial.distractor_2.x"] - was["spatial.receptacle.x"],
        added["spatial.distractor_2.y"] - was["spatial.receptacle.y"],
    )
    assert gap < 0.13
    tray = {"edit": "set", "factor": "task.receptacle", "value": "tray"}
    rim = {"edit": "set", "factor": "attributes.receptacle.rim", "value": 0.06}
    assert values(tray, rim)["attributes.receptacle.rim"] == 0.06
    assert "tray" in applied(program(tray), before).scene.task.instruction


def test_angles_wrap_into_their_range() -> None:
    before = scene(0)
    yaw = "spatial.target.yaw"
    turned = applied(program({"edit": "set", "factor": yaw, "value": 2.0}), before)
    assert turned.scene.values[yaw] == pytest.approx(2.0 - 3.141593, abs=1e-5)
    across = {"edit": "sample", "factor": yaw, "low": 1.4, "high": 1.9, "easy": 1.2}
    low, high = SPACE[yaw].generator  # type: ignore[misc]
    for seed in range(20):
        value = float(applied(program(across), before, seed).scene.values[yaw])
        assert low <= value <= high
        assert SPACE.distance(yaw, value, 1.65) * (high - low) <= 0.26


def test_guards_and_missing_factors_are_outcomes() -> None:
    def outcome(omega: GenerationProgram, to: Scene) -> AppliedEdit | GuardNotMet:
        return apply_program(omega, to, np.random.default_rng(0))

    plate = scene(0, task__receptacle="plate", task__distractors=0)
    full = scene(1, task__receptacle="tray", task__distractors=2)
    rim = {"edit": "set", "factor": "attributes.receptacle.rim", "value": 0.05}
    guard = {"factor": "task.receptacle", "equals": "tray"}
    add = {"edit": "add_distractor"}
    swap = {"edit": "swap", "role": "target", "other": "distractor_1"}
    to_plate = {"edit": "set", "factor": "task.receptacle", "value": "plate"}
    for omega, to, named in (
        (program(rim, guards=[guard]), plate, "not 'tray'"),
        (program(rim), plate, "rim does not exist"),
        (program(rim, to_plate), full, "rim does not exist"),
        (program(add), full, "most there can be"),
        (program(swap), plate, "distractor_1"),
        (program(add, guards=[{"factor": "task.distractors", "low": 1}]), plate, "below 1"),
        (program(add, guards=[{"factor": "task.distractors", "high": 1}]), full, "above 1"),
    ):
        found = outcome(omega, to)
        assert isinstance(found, GuardNotMet)
        assert named in found.reason
    assert isinstance(outcome(program(rim, guards=[guard]), full), AppliedEdit)
    with pytest.raises(ProgramError, match="stack"):
        outcome(program(rim, family="stack"), plate)


# From diagnoses ---------------------------------------------------------------------------------


@given(
    st.sampled_from(NUMBERS),
    st.sampled_from(["high", "low", "other"]),
    st.lists(st.floats(0, 1), min_size=1, max_size=12),
    st.lists(st.floats(0, 1), max_size=12),
    st.randoms(use_true_random=False),
)
@settings(max_examples=150, deadline=None)
def test_a_compiled_interval_fits_its_family_and_its_side(
    factor: str, direction: str, hard: list[float], easy: list[float], random: Any
) -> None:
    bottom, top = SPACE[factor].generator  # type: ignore[misc]
    difficult = [bottom + share * (top - bottom) for share in hard]
    successful = [bottom + share * (top - bottom) for share in easy]
    claim = diagnosis(factor, direction)
    centre = float(np.median(successful or SPACE[factor].seed))  # type: ignore[arg-type]
    above = {"high": 1, "low": -1, "other": 0}[direction]
    if above and not any((v - centre) * above > 0 for v in difficult):
        with pytest.raises(ProgramError, match="no failure lies"):
            compile_generation(claim, SPACE, difficult=difficult, successful=successful)
        return
    omega = compile_generation(claim, SPACE, difficult=difficult, successful=successful)
    check_program(omega, SPACE)
    edit = omega.edits[0].to_dict()
    assert bottom <= edit["low"] < edit["high"] <= top
    assert edit["high"] - edit["low"] >= 0.0999 * (top - bottom)
    if successful:
        assert any(edit["easy"] == pytest.approx(v, abs=1e-6) for v in successful)
    random.shuffle(difficult)
    random.shuffle(successful)
    assert compile_generation(claim, SPACE, difficult=difficult, successful=successful) == omega


def test_an_interval_covers_the_diagnosed_side_and_trims_its_ends() -> None:
    factor = "spatial.target.y"
    successful = [-0.1, -0.05, 0.0, 0.02]
    difficult = [-0.2, *np.linspace(0.1, 0.2, 11), 0.15]
    omega = compile_generation(
        diagnosis(factor), SPACE, difficult=list(difficult), successful=successful
    )
    edit = omega.edits[0].to_dict()
    assert 0.1 < edit["low"] < 0.12
    assert 0.18 < edit["high"] < 0.2
    assert edit["easy"] == 0.02
    assert omega.roles == ("target",)
    assert omega.provenance == (f"diagnosis:{diagnosis(factor).hash}",)
    low = compile_generation(
        diagnosis(factor, "low"), SPACE, difficult=list(difficult), successful=successful
    )
    assert low.edits[0].to_dict()["easy"] == -0.1
    alone = compile_generation(diagnosis(factor), SPACE, difficult=[0.26], successful=[])
    assert alone.edits[0].to_dict()["high"] == 0.26
    assert alone.edits[0].to_dict()["easy"] == SPACE[factor].seed[1]


def test_choices_are_those_that_fail_more_than_they_succeed() -> None:
    omega = compile_generation(
        diagnosis("attributes.target.shape", "other"),
        SPACE,
        difficult=["bar", "bar", "cube", "cylinder"],
        successful=["cube", "cube", "cylinder", "cube"],
    )
    assert omega.edits[0].to_dict()["choices"] == ["bar", "cylinder"]


def test_conditional_factors_bring_their_conditions_along() -> None:
    rim = compile_generation(
        diagnosis("attributes.receptacle.rim"), SPACE, difficult=[0.05], successful=[0.02]
    )
    assert [g.to_dict() for g in rim.guards] == [
        {"factor": "task.receptacle", "equals": "tray", "low": None, "high": None}
    ]
    second = compile_generation(
        diagnosis("spatial.distractor_2.x"), SPACE, difficult=[0.1], successful=[0.0]
    )
    assert second.guards[0].low == 2.0
    plate = scene(0, task__receptacle="plate")
    assert isinstance(apply_program(rim, plate, np.random.default_rng(0)), GuardNotMet)
    tray = scene(0, task__receptacle="tray")
    assert float(applied(rim, tray).scene.values["attributes.receptacle.rim"]) > 0.04
    assert applied(rim, tray, magnitude=0.0).scene.values["attributes.receptacle.rim"] == 0.02


@pytest.mark.parametrize(
    ("claim", "difficult", "named"),
    [
        (diagnosis("spatial.target.z"), [0.1], "spatial.target"),
        (diagnosis("spatial.target.x"), [], "at least one"),
        (diagnosis("spatial.target.x"), [5.0], "outside"),
        (diagnosis("spatial.target.x"), [-0.1], "no failure lies"),
        (diagnosis("spatial.target.x").model_copy(update={"family": "stack"}), [0.1], "stack"),
    ],
)
def test_a_diagnosis_that_cannot_be_compiled_is_refused(
    claim: Diagnosis, difficult: list[Value], named: str
) -> None:
    with pytest.raises(ProgramError, match=named):
        compile_generation(claim, SPACE, difficult=difficult, successful=[0.0])


def test_a_training_program_aims_at_the_diagnosed_stages() -> None:
    claims = [
        diagnosis("attributes.receptacle.rim", stage="transport"),
        diagnosis("spatial.target.yaw", stage="grasp"),
    ]
    phi = compile_training(claims, FAMILY)
    assert phi.subgoals == ("grasp", "transport")
    assert phi == compile_training([*reversed(claims), claims[0]], FAMILY)
    assert phi.potential != FAMILY.template
    assert phi.tools.replay_weight > 1.0
    assert phi.tools.exploration_noise > 1.0
    heavy = compile_training(diagnosis("attributes.target.mass", stage="lift"), FAMILY)
    assert heavy.subgoals == ("lift",)
    assert heavy.tools.exploration_noise == 1.0
    with pytest.raises(ProgramError, match="at least one"):
        compile_training([], FAMILY)
