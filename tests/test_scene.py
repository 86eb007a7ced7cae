"""Scenes: frozen data with a stable id, their edits, and files that cannot be one."""

from __future__ import annotations

import copy
import json
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from env_cases import FAMILY, VALUES, scene, tray_scene
from hypothesis import given, settings
from hypothesis import strategies as st

from coda_envs.errors import SceneError
from coda_envs.factor import ContinuousFactor
from coda_envs.scene import MAX_BYTES, Scene, load_scene, parse_scene

SPACE = FAMILY.space


@st.composite
def scenes(draw: st.DrawFn) -> Scene:
    """A scene of any values that the factors allow, laid out or not."""
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    return FAMILY.scene(SPACE.sample(rng, draw(st.sampled_from(["seed", "generator"]))))


def other_value(at: Scene, path: str, rng: np.random.Generator) -> Any:
    """A value of the factor that the scene does not have."""
    factor = SPACE[path]
    if isinstance(factor, ContinuousFactor):
        return round(factor.sample(rng, "generator"), 6)
    return next(c for c in factor.generator if c != at.values[path])


# Frozen data -----------------------------------------------------------------------------------


def test_a_scene_cannot_be_changed_in_place() -> None:
    at = scene()
    kept = at.canonical_json()
    attempts = [
        lambda: setattr(at, "family", "other"),
        lambda: setattr(at.task, "instruction", "other"),
        lambda: at.spatial["target"].update(x=1.0),
        lambda: at.spatial["target"].__setitem__("x", 1.0),
        lambda: at.spatial["target"].__ior__({"x": 1.0}),
        lambda: at.spatial["target"].setdefault("w", 1.0),
        lambda: at.attributes.pop("target"),
        lambda: at.attributes.clear(),
        lambda: at.task.choices.__delitem__("receptacle"),
        lambda: at.values.popitem(),
    ]
    for attempt in attempts:
        with pytest.raises((TypeError, ValueError), match="frozen"):
            attempt()
    assert at.canonical_json() == kept


def test_plain_data_of_a_scene_is_the_callers_to_change() -> None:
    at = scene()
    data = at.to_dict()
    data["spatial"]["target"]["x"] = 0.11
    assert at.values["spatial.target.x"] == 0.0
    assert parse_scene(data).values["spatial.target.x"] == 0.11


def test_copies_and_pickles_are_the_same_scene() -> None:
    at = tray_scene()
    for other in (copy.copy(at), copy.deepcopy(at), pickle.loads(pickle.dumps(at))):
        assert other == at
        assert other.id == at.id
        with pytest.raises(TypeError, match="frozen"):
            other.spatial["target"]["x"] = 1.0


@given(scenes())
def test_yaml_and_json_give_the_same_scene_with_the_same_id(at: Scene) -> None:
    for data in (yaml.safe_load(at.to_yaml()), json.loads(at.canonical_json()), at.to_dict()):
        again = parse_scene(data)
        assert again == at
        assert again.id == at.id


def test_the_id_is_the_same_in_every_process() -> None:
    code = "import sys, json; from coda_envs.scene import parse_scene; "
    code += "print(parse_scene(json.load(sys.stdin)).id)"
    for seed in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-c", code],
            input=scene().canonical_json(),
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(p for p in sys.path if p)},
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout.strip() == scene().id


def test_equal_poses_have_equal_ids_however_they_are_written() -> None:
    assert scene(spatial__target__x=0.1 + 0.2 - 0.3).id == scene(spatial__target__x=0.0).id
    assert scene(spatial__target__x=-0.0).id == scene(spatial__target__x=0.0).id
    assert scene(spatial__target__x=0).id == scene(spatial__target__x=0.0).id
    assert scene(task__distractors=1.0).id == scene(task__distractors=1).id
    assert scene(spatial__target__x=0.000001).id != scene(spatial__target__x=0.0).id


# Edits -----------------------------------------------------------------------------------------


@given(scenes(), st.integers(0, 10**6))
def test_an_edit_leaves_all_other_values_and_edited_back_it_is_the_same(
    at: Scene, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    path = list(at.values)[rng.integers(len(at.values))]
    value = other_value(at, path, rng)
    edited = at.edit(path, value)
    assert edited.values[path] == value
    left = {p: v for p, v in edited.values.items() if p in at.values and p != path}
    assert left.items() <= at.values.items()
    came_or_went = edited.values.keys() ^ at.values.keys()
    assert all(SPACE[p].when.factor == path for p in came_or_went)
    if not came_or_went:
        assert edited.edit(path, at.values[path]).id == at.id
    assert parse_scene(edited.to_dict()) == edited


def test_what_an_edit_brings_takes_the_middle_of_its_seed_range() -> None:
    edited = scene().edit("task.distractors", 2)
    factor = SPACE["spatial.distractor_2.x"]
    assert edited.values["spatial.distractor_2.x"] == round(sum(factor.seed) / 2, 6)
    gone = edited.edit("task.distractors", 0)
    assert not [p for p in gone.values if "distractor_" in p]


def test_many_edits_at_once_do_what_they_do_one_after_the_other() -> None:
    both = scene().edit_many({"spatial.target.x": 0.05, "attributes.target.color": "green"})
    assert both == scene().edit("attributes.target.color", "green").edit("spatial.target.x", 0.05)


def test_the_familys_own_instruction_follows_an_edit() -> None:
    at = scene()
    assert at.task.instruction == "put the red cube on the plate"
    edited = at.edit("attributes.target.color", "green")
    assert edited.task.instruction == "put the green cube on the plate"
    assert edited.task.paraphrases[0] == "place the green cube on the plate"
    assert "in the tray" in at.edit("task.receptacle", "tray").task.instruction


def test_a_users_words_survive_an_edit() -> None:
    data = scene().to_dict()
    data["task"] |= {"instruction": "tidy up", "paraphrases": ["clean the table"]}
    edited = parse_scene(data).edit("attributes.target.color", "green")
    assert edited.task.instruction == "tidy up"
    assert edited.task.paraphrases == ("clean the table",)


@pytest.mark.parametrize(
    ("path", "value", "named"),
    [
        ("spatial.target.xx", 0.1, "did you mean 'spatial.target.x'"),
        ("spatial.target.x", 9.0, r"spatial.target.x is 9.0, outside .* from -0.16 to 0.18 \(m\)"),
        ("spatial.target.x", "left", "spatial.target.x is 'left', not a number"),
        ("spatial.target.x", True, "True, not a number"),
        ("spatial.target.x", float("nan"), "outside its range"),
        ("attributes.target.color", "reddish", "did you mean 'red'"),
        ("task.distractors", 7, "Allowed: '0', '1', '2'"),
        ("task.distractors", True, "not one of its choices"),
        ("spatial.distractor_2.x", 0.1, "does not exist in this scene.*edit task.distractors"),
        ("attributes.receptacle.rim", 0.02, "edit task.receptacle first"),
    ],
)
def test_a_wrong_edit_is_named_with_what_is_allowed(path: str, value: Any, named: str) -> None:
    with pytest.raises(SceneError, match=named):
        scene().edit(path, value)


# Files -----------------------------------------------------------------------------------------


def change(**entries: Any) -> dict[str, Any]:
    """The scene's data with entries set by dotted path; an Ellipsis removes one."""
    data = scene().to_dict()
    for path, value in entries.items():
        *parents, last = path.split("__")
        part: Any = data
        for name in parents:
            part = part[name]
        if value is ...:
            del part[last]
        else:
            part[last] = value
    return data


@pytest.mark.parametrize(
    ("data", "named"),
    [
        ([1, 2], "holds list, not a scene"),
        (None, "holds NoneType"),
        ("a scene", "holds str"),
        ({}, "family"),
        (change(family="pick-plaice"), "did you mean 'pick-place'"),
        (change(task=...), "task .*Field required"),
        (change(extra=1), "extra .*not permitted"),
        (change(spatial__target__x=...), r"factor 'spatial.target.x' is missing"),
        (change(spatial__target__w=0.1), r"unknown factor 'spatial.target.w'"),
        (change(spatial__target__x="0.1"), "not a number"),
        (change(spatial__target__x=[0.1]), r"spatial\.target\.x"),
        (change(spatial__target__x=float("inf")), r"spatial\.target\.x"),
        (change(spatial__target__x=10**6000), "spatial.target.x is a number of 19932 bits"),
        (change(spatial__target=3), r"spatial\.target"),
        (change(attributes__target__color="crimson"), "attributes.target.color is 'crimson'"),
        (change(attributes__target__color=10**6000), "attributes.target.color is a number"),
        (change(attributes__receptacle__rim=0.02), "only where task.receptacle is 'tray'"),
        (change(task__goal__predicate="lifted"), r"task\.goal is 'lifted'"),
        (change(task__goal__roles=["target"]), "task.goal is"),
        (change(task__choices__distractors=2), "is missing"),
    ],
)
def test_a_wrong_scene_names_source_entry_and_remedy(data: Any, named: str) -> None:
    with pytest.raises(SceneError, match=named) as caught:
        parse_scene(data, "my.yaml")
    assert str(caught.value).startswith("my.yaml") or "pick-plaice" in str(caught.value)
    assert len(str(caught.value)) < 2000


def test_an_error_survives_the_way_between_processes() -> None:
    with pytest.raises(SceneError) as caught:
        scene().edit("spatial.target.x", 9.0)
    again = pickle.loads(pickle.dumps(caught.value))
    assert str(again) == str(caught.value)
    assert (again.problem, again.allowed, again.remedy) == (
        caught.value.problem,
        caught.value.allowed,
        caught.value.remedy,
    )


def nested(depth: int) -> Any:
    value: Any = 0.1
    for _ in range(depth):
        value = {"x": value}
    return value


def bomb() -> Any:
    """Lists that hold one another: small as YAML, beyond all memory when written out."""
    value: Any = ["lol"]
    for _ in range(30):
        value = [value] * 10
    return value


def wrong() -> list[Any]:
    """Values that fit nowhere; made anew, since what is put into a scene may be spoilt there."""
    return [
        None, True, -1, 0, 10**400, 10**6000, 1e308, float("nan"), float("-inf"), "", "x" * 5000,
        "\0", "\ud800", [], {}, [[]], {"x": 1.0}, b"bytes", nested(2000), bomb(),
    ]  # fmt: skip


@settings(max_examples=150)
@given(st.data())
def test_a_corrupted_scene_is_an_error_or_a_scene(data: st.DataObject) -> None:
    corrupt = data.draw(scenes()).to_dict()
    for _ in range(data.draw(st.integers(1, 3))):
        part: Any = corrupt
        while True:
            key = data.draw(st.sampled_from(sorted(part)))
            if not (isinstance(part[key], dict) and part[key]) or data.draw(st.booleans()):
                break
            part = part[key]
        how = data.draw(st.sampled_from(["drop", "replace", "add", "rename"]))
        if how == "drop":
            del part[key]
        elif how == "replace":
            values = wrong()
            part[key] = values[data.draw(st.integers(0, len(values) - 1))]
        elif how == "add":
            part[data.draw(st.sampled_from(["new", "", "x" * 3000, "\ud800"]))] = 1.0
        else:
            part[key + "_"] = part.pop(key)
        if not corrupt:
            break
    try:
        found = parse_scene(corrupt)
    except SceneError as error:
        message = str(error)
    else:
        message = ""
        assert parse_scene(json.loads(found.canonical_json())).id == found.id
    assert len(message) < 5000


@pytest.mark.parametrize(
    ("content", "named"),
    [
        ("{", "is not YAML"),
        ("a: b: c", "is not YAML"),
        ("", "holds NoneType, not a scene"),
        ("- 1\n- 2", "holds list"),
        ("family: !!python/object/apply:os.system [true]", "is not YAML"),
        ("[" * 20000, "is not YAML"),
        ("a: &a [*a]\nfamily: *a", "scene.yaml"),
        ("family: 0x" + "f" * 9000, "scene.yaml"),
        ("family: " + "9" * 9000, "scene.yaml"),
        ("x" * (MAX_BYTES + 1), "larger than"),
        (b"\xff\xfe\xfa", "is not YAML"),
    ],
)
def test_a_file_that_is_no_scene_is_named(tmp_path: Path, content: str | bytes, named: str) -> None:
    path = tmp_path / "scene.yaml"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    with pytest.raises(SceneError, match=named) as caught:
        load_scene(path)
    assert "scene.yaml" in str(caught.value)
    assert len(str(caught.value)) < 2000


def test_a_missing_file_and_a_folder_are_named_with_a_remedy(tmp_path: Path) -> None:
    with pytest.raises(SceneError, match=r"nowhere\.yaml cannot be read.*coda scene new"):
        load_scene(tmp_path / "nowhere.yaml")
    with pytest.raises(SceneError, match="cannot be read"):
        load_scene(tmp_path)


def test_a_scene_file_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "scene.yaml"
    path.write_text(tray_scene().to_yaml(), encoding="utf-8")
    assert load_scene(path) == tray_scene()
    path.write_text(json.dumps(scene().to_dict()), encoding="utf-8")
    assert load_scene(str(path)) == scene()


def test_the_values_make_the_scene() -> None:
    assert FAMILY.scene(VALUES) == scene()
    assert dict(scene().values) == VALUES
