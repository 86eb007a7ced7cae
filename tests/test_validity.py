"""Physical validity: every check fails with its own reason, repair is bounded, nothing leaks."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from env_cases import FAMILY, scene
from faulty_families import BROKEN, Faulty
from hypothesis import given, settings
from hypothesis import strategies as st

from coda_envs import family as family_module
from coda_envs.errors import HeldOutError, SceneError
from coda_envs.family import BUILT_IN, get_family, register_family
from coda_envs.scene import parse_scene
from coda_envs.validity import (
    CHECKS,
    FAMILY_ERROR,
    REASONS,
    REPAIRABLE,
    Certificate,
    accept_for_training,
    engine_fingerprint,
    repair,
    validate,
)
from coda_envs.validity.inspection import CheckFailedError
from coda_envs.validity.settling import DRIFT, MOVE, TURN, Resting


@pytest.fixture
def faulty(monkeypatch: pytest.MonkeyPatch) -> Faulty:
    """The family, known for one test."""
    monkeypatch.setattr(family_module, "_registered", dict(family_module._registered))
    found = Faulty()
    register_family(found)
    return found


DETAILS = {
    "factors": "spatial.target.x is 9.0, outside its range",
    "language": "the scene has two such cubes",
    "layout": "the scene has a fault",
    "compiles": "does not compile",
    "penetration": "overlap by",
    "not_solved": "holds before the robot moves",
    "settles": "target falls: in 1 s it moves 80",
    "workspace": "target stands over the table's edge",
    "reachable": "the gripper misses target",
    "visible": "the main camera sees 0% of target",
    "solvable": "the expert fails in 1 tries",
}


@pytest.mark.parametrize("check", CHECKS)
def test_each_check_fails_for_its_own_reason_and_says_what_is_wrong(
    faulty: Faulty, check: str
) -> None:
    certificate = validate(faulty.faulty(check), solve_tries=1)
    assert not certificate.passed
    assert certificate.reason == check
    assert [c.name for c in certificate.checks] == list(CHECKS[: CHECKS.index(check) + 1])
    assert all(c.passed for c in certificate.checks[:-1])
    assert DETAILS[check] in certificate.checks[-1].detail
    assert certificate.settled == ()


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("tips", "target tips"),
        ("drifts", "flap drifts: in 1 s its joint moves 50."),
        ("diverges", "physics diverged"),
    ],
)
def test_what_does_not_rest_is_told_apart(faulty: Faulty, fault: str, words: str) -> None:
    certificate = validate(faulty.faulty(fault), solve_tries=0)
    assert certificate.reason == "settles"
    assert words in certificate.checks[-1].detail


def resting(
    offset: tuple[float, float, float] = (0.0, 0.0, 0.0),
    turn: float = 0.0,
    lean: float = 0.0,
    joint: float = 0.0,
) -> Resting:
    """A thing and a drawer of 20 cm travel, moved (m), turned and leaning (rad)."""
    c, s, k, n = np.cos(turn), np.sin(turn), np.cos(lean), np.sin(lean)
    matrix = np.array([[c, -s, 0], [s, c, 0], [0, 0, 1]]) @ [[k, 0, n], [0, 1, 0], [-n, 0, k]]
    return Resting({"thing": (np.array(offset), matrix)}, {"drawer": (joint, 0.2)})


@pytest.mark.parametrize(
    ("after", "words"),
    [
        (resting((1.1 * MOVE, 0.0, 0.0)), "thing slides"),
        (resting((0.0, 0.0, -1.1 * MOVE)), "thing falls"),
        (resting((0.0, 0.0, 1.1 * MOVE)), "thing rises"),
        # Neither way alone is too far.
        (resting((0.8 * MOVE, 0.0, -0.7 * MOVE)), "thing slides"),
        (resting(turn=1.1 * TURN), "thing turns"),
        (resting(lean=1.1 * TURN), "thing tips"),
        (resting((0.03, 0.0, -0.02), lean=1.0), "thing tips"),
        (resting(joint=0.21 * DRIFT), "drawer drifts"),
    ],
)
def test_movement_beyond_a_limit_has_a_name(after: Resting, words: str) -> None:
    with pytest.raises(CheckFailedError, match=words):
        resting().compare(after)


def test_movement_within_the_limits_is_reported() -> None:
    after = resting((0.0, 0.0009, 0.0), turn=0.9 * TURN, joint=0.002)
    assert resting().compare(after) == "largest movement 0.90 mm, 0.045 rad, 1.0% of a joint"


@pytest.mark.parametrize("name", list(BUILT_IN))
def test_a_sound_scene_of_every_family_passes_them_all(name: str) -> None:
    family = get_family(name)
    rng = np.random.default_rng(5)
    certificates = [validate(family.sample(rng, "seed")) for _ in range(3)]
    found = next(c for c in certificates if c.passed)
    assert found.reason == ""
    assert [c.name for c in found.checks] == list(CHECKS)


def test_overlapping_objects_and_ambiguous_words_are_different_reasons() -> None:
    near = scene().edit_many({"spatial.distractor_1.x": 0.01, "spatial.distractor_1.y": -0.1})
    twin = scene().edit("attributes.distractor_1.color", "red")
    for at, reason, words in (
        (near, "layout", "distractor_1 too near target"),
        (twin, "language", "fits distractor_1 too"),
    ):
        certificate = validate(at)
        assert certificate.reason == reason
        assert words in certificate.checks[-1].detail


def test_words_of_ones_own_pass_unless_they_name_a_colour_that_is_not_there() -> None:
    def worded(text: str, *paraphrases: str) -> Certificate:
        data = scene().to_dict()
        data["task"] |= {"instruction": text, "paraphrases": list(paraphrases)}
        return validate(parse_scene(data), solve_tries=0)

    own = worded("tidy up the red one")
    assert own.passed
    assert "words of its own" in own.checks[1].detail
    # The file was edited from a green cube to a red one, the words forgotten.
    for stale in (worded("put the green cube on the plate"), worded("tidy up", "take the Green")):
        assert stale.reason == "language"
        assert "no thing is green" in stale.checks[-1].detail


def test_a_certificate_records_engine_cost_and_settled_state_as_strict_json() -> None:
    certificate = validate(scene())
    data = json.loads(json.dumps(certificate.to_dict(), allow_nan=False))
    assert data["scene_id"] == scene().id
    assert data["engine"] == engine_fingerprint()
    assert data["engine"].startswith("mujoco ")
    assert data["passed"] is True
    # Seven arm joints, two fingers, two free objects.
    assert len(data["settled"]) == 9 + 2 * 7
    assert data["simulated"] > validate(scene(), solve_tries=0).simulated == 200
    assert validate(scene()) == certificate


def test_solvability_can_be_left_out() -> None:
    names = [c.name for c in validate(scene(), solve_tries=0).checks]
    assert names == [c for c in CHECKS if c != "solvable"]


@settings(max_examples=30)
@given(st.sampled_from(list(BUILT_IN)), st.integers(0, 2**32 - 1))
def test_validate_judges_any_scene_without_raising(name: str, seed: int) -> None:
    family = get_family(name)
    at = family.scene(family.space.sample(np.random.default_rng(seed), "generator"))
    certificate = validate(at, solve_tries=0)
    assert certificate.passed == (certificate.reason == "")
    assert certificate.reason in ("", *CHECKS)


@pytest.mark.parametrize("name", list(BUILT_IN))
def test_most_laid_out_scenes_are_valid(name: str) -> None:
    family, rng = get_family(name), np.random.default_rng(0)
    valid = [validate(family.sample(rng, "generator"), solve_tries=0).passed for _ in range(20)]
    assert np.mean(valid) > 0.8


# A family whose code breaks --------------------------------------------------------------------


@pytest.mark.parametrize("part", BROKEN)
def test_a_family_that_breaks_is_named_and_takes_nobody_down(faulty: Faulty, part: str) -> None:
    certificate = validate(faulty.faulty(part), solve_tries=1)
    assert not certificate.passed
    assert certificate.reason == FAMILY_ERROR
    assert certificate.reason in REASONS
    detail = certificate.checks[-1].detail
    assert "of the family 'faulty' raises " in detail
    if part == "action":
        assert "ValueError: action[0] is nan" in detail
    else:
        assert f"ZeroDivisionError: {part} is broken (faulty_families.py, line " in detail
    json.dumps(certificate.to_dict(), allow_nan=False)


@pytest.mark.parametrize("part", [p for p in BROKEN if p != "action"])
@pytest.mark.parametrize("calls", range(1, 7))
def test_a_family_may_break_at_any_call(faulty: Faulty, part: str, calls: int) -> None:
    at = faulty.faulty(part)
    faulty.patience = calls
    certificate = validate(at, solve_tries=1)
    assert certificate.passed or certificate.reason == FAMILY_ERROR
    # A part that was called more often than that has broken.
    assert certificate.passed == (faulty.patience >= 0)


# Repair ----------------------------------------------------------------------------------------


@settings(max_examples=25)
@given(st.sampled_from(list(BUILT_IN)), st.integers(0, 2**32 - 1), st.data())
def test_repair_keeps_edited_factors_attributes_and_region(
    name: str, seed: int, data: st.DataObject
) -> None:
    family, rng = get_family(name), np.random.default_rng(seed)
    broken = family.sample(rng, "generator")
    edited = set(data.draw(st.lists(st.sampled_from(sorted(broken.values)), max_size=4)))
    after, record = repair(broken, "layout", edited, rng)
    assert record.reason == "layout"
    assert (after is None) == bool(record.obstacle)
    if after is None:
        assert record.changed == {}
        return
    changed = {p for p, v in after.values.items() if v != broken.values[p]}
    assert changed <= record.changed.keys()
    assert not edited & record.changed.keys()
    assert all(p.startswith("spatial.") for p in record.changed)
    assert {p: after.values[p] for p in record.changed} == record.changed
    assert family.region(after) == family.region(broken)
    assert family.flaw(after.values) is None


def test_a_scene_that_only_the_edit_makes_invalid_is_not_repaired() -> None:
    rng = np.random.default_rng(0)
    every = [p for p in scene().values if p.startswith("spatial.")]
    after, record = repair(scene(), "layout", every, rng)
    assert (after, record.obstacle) == (None, "every place was edited")
    places = [f"spatial.{role}.{axis}" for role in ("target", "distractor_1") for axis in "xy"]
    stacked = scene().edit_many(dict(zip(places, (0.0, -0.1, 0.0, -0.1), strict=True)))
    after, record = repair(stacked, "layout", places, rng)
    assert after is None
    assert record.draws > 0
    assert "distractor_1 too near target" in record.obstacle


@pytest.mark.parametrize("reason", sorted({*REASONS} - {*REPAIRABLE}))
def test_what_places_cannot_mend_is_not_repaired(reason: str) -> None:
    after, record = repair(scene(), reason, (), np.random.default_rng(0))
    assert after is None
    assert record.obstacle == "other places do not mend this"
    assert record.draws == 0


# Leakage ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("region", ["ood", "ood-dev", "ood-spatial", "ood-far"])
def test_a_held_out_scene_is_never_accepted_for_training(region: Any) -> None:
    held_out = FAMILY.sample(np.random.default_rng(0), "generator", region)
    with pytest.raises(HeldOutError, match=f"region '{region}'") as caught:
        accept_for_training(held_out)
    assert isinstance(caught.value, SceneError)
    allowed = FAMILY.sample(np.random.default_rng(0), "generator")
    assert accept_for_training(allowed) is allowed


def test_a_scene_between_the_regions_is_used_by_nobody() -> None:
    rng = np.random.default_rng(0)
    mixed = next(
        at
        for at in (FAMILY.scene(FAMILY.space.sample(rng, "generator")) for _ in range(500))
        if FAMILY.region(at) == "mixed"
    )
    with pytest.raises(HeldOutError, match="'mixed'"):
        accept_for_training(mixed)
