"""Declared difficulty interactions: magnitudes, volumes, and scenes drawn for a stratum."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from env_cases import FAMILY, tray_scene

from coda_envs.errors import SceneError
from coda_envs.family import BUILT_IN, TaskFamily, get_family
from coda_envs.interactions import Interaction, load_interactions, sample_interaction, third
from coda_envs.suites import Stratum, strata

FAMILIES = [get_family(name) for name in BUILT_IN]
ALL = [(family, one) for family in FAMILIES for one in load_interactions(family)]
names = [f"{family.name}-{one.name}" for family, one in ALL]


def interaction(*conditions: dict[str, Any]) -> Interaction:
    return Interaction.model_validate({"name": "x", "needs": "y", "conditions": list(conditions)})


def test_the_magnitude_is_the_mean_share_of_the_graded_conditions() -> None:
    one = interaction(
        {"factor": "task.receptacle", "equals": "tray"},
        {"factor": "attributes.receptacle.rim", "easy": 0.02, "hard": 0.06},
        {"factor": "spatial.target.yaw", "easy": 0.5, "hard": 1.5, "absolute": True},
    )
    at = tray_scene(attributes__receptacle__rim=0.03, spatial__target__yaw=-1.0)
    assert one.magnitude(at.values) == pytest.approx((0.25 + 0.5) / 2)
    assert one.magnitude(at.edit("spatial.target.yaw", 0.4).values) is None
    assert one.magnitude({**at.values, "task.receptacle": "plate"}) is None
    # Beyond the hard end it stays as hard as it gets.
    assert one.magnitude({**at.values, "spatial.target.yaw": 3.0}) == pytest.approx((0.25 + 1) / 2)


def test_a_gap_grows_harder_as_it_closes() -> None:
    one = interaction({"gap": ["target", "distractor_1"], "easy": 0.2, "hard": 0.1})
    place = {"spatial.target.x": 0.0, "spatial.target.y": 0.0, "spatial.distractor_1.y": 0.0}
    found = [one.magnitude({**place, "spatial.distractor_1.x": x}) for x in (0.25, 0.2, 0.15, 0.05)]
    assert found[0] is None
    assert found[1:] == pytest.approx([0.0, 0.5, 1.0])
    assert one.magnitude(place) is None


@pytest.mark.parametrize(("magnitude", "part"), [(0.0, 0), (0.3, 0), (0.34, 1), (0.67, 2), (1, 2)])
def test_thirds(magnitude: float, part: int) -> None:
    assert third(magnitude) == part


@pytest.mark.parametrize("family", FAMILIES, ids=[f.name for f in FAMILIES])
def test_every_family_declares_four_to_six(family: TaskFamily) -> None:
    declared = load_interactions(family)
    assert 4 <= len(declared) <= 6
    assert len({one.name for one in declared}) == len(declared)


@pytest.mark.parametrize("family", FAMILIES, ids=[f.name for f in FAMILIES])
def test_each_is_a_small_part_of_the_generator_range(family: TaskFamily) -> None:
    rng = np.random.default_rng(0)
    scenes = [family.sample(rng, "generator") for _ in range(1500)]
    for one in load_interactions(family):
        share = np.mean([one.magnitude(at.values) is not None for at in scenes])
        assert 0.001 <= share <= 0.045, (one.name, share)


@pytest.mark.parametrize(("family", "one"), ALL, ids=names)
@pytest.mark.parametrize("region", ["generator", "ood"])
def test_a_scene_of_each_third_can_be_drawn(
    family: TaskFamily, one: Interaction, region: Any
) -> None:
    rng = np.random.default_rng(1)
    for part in range(3):
        at = sample_interaction(family, one, rng, region, part)
        magnitude = one.magnitude(at.values)
        assert magnitude is not None
        assert third(magnitude) == part
        assert family.region(at) == region
        assert family.flaw(at.values) is None
        assert family.checked(at) == at


def test_drawing_is_deterministic() -> None:
    one = load_interactions(FAMILY)[0]
    first, second = (
        sample_interaction(FAMILY, one, np.random.default_rng(3), "ood", 1) for _ in range(2)
    )
    assert first == second


def test_half_of_a_stratified_suite_is_wide_and_the_rest_even() -> None:
    declared = load_interactions(FAMILY)
    found = strata(declared, 12 * 3 * len(declared))
    wide = [one for one in found if one.interaction == "wide"]
    assert len(wide) == len(found) // 2
    counts = {one: found.count(one) for one in set(found) - {Stratum()}}
    assert set(counts.values()) == {6}
    assert len(counts) == 3 * len(declared)


X = {"factor": "spatial.target.x", "easy": 0.0, "hard": 0.1}


@pytest.mark.parametrize(
    ("conditions", "named"),
    [
        ([X | {"factor": "spatial.target.q"}], "not a factor"),
        ([X | {"hard": 0.0}], "easy equal to hard"),
        ([{"factor": "task.receptacle", "equals": "tray"}], "no graded condition"),
        ([X, {"factor": "task.receptacle", "equals": "bucket"}], "not one of its choices"),
        ([X | {"factor": "task.receptacle"}], "is a choice, not a number"),
        ([X, {"gap": ["target", "nobody"], "easy": 1, "hard": 0}], "not a factor"),
        ([X | {"hardness": 3}], "Extra inputs"),
        ([], "at least 1"),
    ],
)
def test_a_wrong_declaration_is_named(tmp_path: Path, conditions: list[Any], named: str) -> None:
    class Elsewhere(type(FAMILY)):  # type: ignore[misc]
        folder = tmp_path

    for name in ("factors.yaml", "stages.yaml"):
        (tmp_path / name).write_text((FAMILY.folder / name).read_text())
    declared = {"name": "x", "needs": "y", "conditions": conditions}
    data = {"family": "pick-place", "interactions": [declared]}
    (tmp_path / "interactions.yaml").write_text(yaml.safe_dump(data))
    with pytest.raises(SceneError, match=named):
        load_interactions(Elsewhere())
