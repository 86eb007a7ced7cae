"""Physical validity: every check fails with its own reason, repair is bounded, nothing leaks."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cached_property
from typing import Any, ClassVar

import mujoco
import numpy as np
import pytest
from env_cases import FAMILY, VALUES, scene
from hypothesis import given, settings
from hypothesis import strategies as st

from coda_envs import family as family_module
from coda_envs.arena import SceneBuilder
from coda_envs.errors import HeldOutError, SceneError
from coda_envs.factor import Value
from coda_envs.factors import FactorSpace
from coda_envs.family import register_family
from coda_envs.scene import Scene
from coda_envs.validity import (
    CHECKS,
    Certificate,
    accept_for_training,
    engine_fingerprint,
    repair,
    validate,
)
from task_families.pick_place.family import PickPlace

FAULTS = ("none", *CHECKS)


class Faulty(PickPlace):
    """Pick-place with one fault more than the scene's values show, named by the check it breaks."""

    name: ClassVar[str] = "faulty"
    env_id: ClassVar[str] = "CoDA-Faulty-v0"

    @cached_property
    def space(self) -> FactorSpace:
        data = FAMILY.space.model_dump(mode="json")
        fault = {"path": "task.fault", "type": "discrete", "meaning": "what is wrong"}
        data["factors"].append(fault | {"seed": FAULTS, "generator": FAULTS})
        return FactorSpace.model_validate(data | {"family": self.name})

    def problem(self, values: Mapping[str, Value]) -> str | None:
        return "has a fault" if values["task.fault"] == "layout" else None

    def build(self, builder: SceneBuilder, scene: Scene) -> None:
        super().build(builder, scene)
        target = builder.spec.body("target")
        plate = builder.spec.body("receptacle").pos
        fault = scene.task.choices["fault"]
        if fault == "compiles":
            target.geoms[0].size = (0, 0, 0)
        elif fault == "penetration":
            x, y, z = builder.spec.body("distractor_1").pos
            target.pos = (x + 0.01, y, z)
        elif fault == "not_solved":
            # A hair into the surface, so that it touches.
            target.pos = (*plate[:2], 0.0299)
        elif fault == "settles":
            target.pos = (0.0, -0.1, 0.1)
        elif fault == "workspace":
            target.pos = (0.0, -0.49, 0.02)
        elif fault == "reachable":
            target.pos = (0.34, -0.45, 0.02)
        elif fault == "visible":
            # A canopy that nothing touches.
            canopy = builder.spec.worldbody.add_geom(type=mujoco.mjtGeom.mjGEOM_BOX)
            canopy.pos, canopy.size = (0, -0.1, 0.12), (0.2, 0.2, 0.002)
            canopy.contype = canopy.conaffinity = 0
        elif fault == "solvable":
            target.geoms[0].mass = 60.0


@pytest.fixture
def faulty(monkeypatch: pytest.MonkeyPatch) -> Faulty:
    """The family, known for one test."""
    monkeypatch.setattr(family_module, "_registered", dict(family_module._registered))
    found = Faulty()
    register_family(found)
    return found


@pytest.mark.parametrize("check", CHECKS)
def test_each_check_fails_for_its_own_reason(faulty: Faulty, check: str) -> None:
    at = faulty.scene(VALUES | {"task.fault": check})
    certificate = validate(at, solve_tries=1)
    assert not certificate.passed
    assert certificate.reason == check
    assert [c.name for c in certificate.checks] == list(CHECKS[: CHECKS.index(check) + 1])
    assert all(c.passed for c in certificate.checks[:-1])
    assert certificate.checks[-1].detail
    assert certificate.settled == ()


DETAILS = {
    "layout": "the scene has a fault",
    "compiles": "does not compile",
    "penetration": "overlap by",
    "not_solved": "holds before the robot moves",
    "settles": "target moves 80",
    "workspace": "target stands over the table's edge",
    "reachable": "the gripper misses target",
    "visible": "the main camera sees 0% of target",
    "solvable": "the expert fails in 1 tries",
}


@pytest.mark.parametrize("check", CHECKS)
def test_the_detail_says_what_is_wrong(faulty: Faulty, check: str) -> None:
    certificate = validate(faulty.scene(VALUES | {"task.fault": check}), solve_tries=1)
    assert DETAILS[check] in certificate.checks[-1].detail


def test_a_sound_scene_passes_them_all(faulty: Faulty) -> None:
    certificate = validate(faulty.scene(VALUES | {"task.fault": "none"}))
    assert certificate.passed
    assert certificate.reason == ""
    assert [c.name for c in certificate.checks] == list(CHECKS)


def test_overlapping_objects_and_ambiguous_words_fail_the_layout() -> None:
    near = scene().edit_many({"spatial.distractor_1.x": 0.01, "spatial.distractor_1.y": -0.1})
    twin = scene().edit("attributes.distractor_1.color", "red")
    for at, words in ((near, "distractor_1 too near target"), (twin, "fits distractor_1 too")):
        certificate = validate(at)
        assert certificate.reason == "layout"
        assert words in certificate.checks[0].detail


def test_a_certificate_records_engine_and_settled_state_as_strict_json() -> None:
    certificate = validate(scene())
    data = json.loads(json.dumps(certificate.to_dict(), allow_nan=False))
    assert data["scene_id"] == scene().id
    assert data["engine"] == engine_fingerprint()
    assert data["engine"].startswith("mujoco ")
    assert data["passed"] is True
    # Seven arm joints, two fingers, two free objects.
    assert len(data["settled"]) == 9 + 2 * 7
    assert validate(scene()) == certificate


def test_solvability_can_be_left_out() -> None:
    names = [c.name for c in validate(scene(), solve_tries=0).checks]
    assert names == [c for c in CHECKS if c != "solvable"]


@settings(max_examples=30)
@given(st.integers(0, 2**32 - 1))
def test_validate_judges_any_scene_without_raising(seed: int) -> None:
    at = FAMILY.scene(FAMILY.space.sample(np.random.default_rng(seed), "generator"))
    certificate = validate(at, solve_tries=0)
    assert isinstance(certificate, Certificate)
    assert certificate.passed == (certificate.reason == "")
    assert certificate.reason in ("", *CHECKS)


def test_most_laid_out_scenes_are_valid() -> None:
    rng = np.random.default_rng(0)
    valid = [validate(FAMILY.sample(rng, "generator"), solve_tries=0).passed for _ in range(30)]
    assert np.mean(valid) > 0.8


# Repair ----------------------------------------------------------------------------------------


@settings(max_examples=25)
@given(st.integers(0, 2**32 - 1), st.data())
def test_repair_keeps_edited_factors_attributes_and_region(seed: int, data: st.DataObject) -> None:
    rng = np.random.default_rng(seed)
    broken = FAMILY.sample(rng, "generator")
    edited = set(data.draw(st.lists(st.sampled_from(sorted(broken.values)), max_size=4)))
    mended = repair(broken, "layout", edited, rng)
    if mended is None:
        return
    after, record = mended
    changed = {p for p, v in after.values.items() if v != broken.values[p]}
    assert changed <= record.changed.keys()
    assert not edited & record.changed.keys()
    assert all(p.startswith("spatial.") for p in record.changed)
    assert {p: after.values[p] for p in record.changed} == record.changed
    assert FAMILY.region(after) == FAMILY.region(broken)
    assert FAMILY.problem(after.values) is None
    assert record.reason == "layout"


def test_a_scene_that_only_the_edit_makes_invalid_is_not_repaired() -> None:
    rng = np.random.default_rng(0)
    every = [p for p in scene().values if p.startswith("spatial.")]
    assert repair(scene(), "settles", every, rng) is None
    places = [
        "spatial.target.x",
        "spatial.target.y",
        "spatial.distractor_1.x",
        "spatial.distractor_1.y",
    ]
    stacked = scene().edit_many(dict(zip(places, (0.0, -0.1, 0.0, -0.1), strict=True)))
    assert repair(stacked, "layout", places, rng) is None


# Leakage ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("region", ["ood", "ood-dev"])
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
