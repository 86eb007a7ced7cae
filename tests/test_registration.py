"""Ids: built in, and one for every scene of a library, wherever and whenever they are used."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
from env_cases import ENV_ID, same, scene, tray_scene

from coda_envs import register_library
from coda_envs.env import ManipulationEnv
from coda_envs.errors import PluginError, SceneError
from coda_envs.family import family_names, get_family, register_family
from coda_envs.registration import BUILT_IN_IDS
from coda_envs.scene import Scene
from task_families.pick_place.family import PickPlace

SCENES = (scene(), tray_scene())


@pytest.fixture(autouse=True)
def registry() -> Iterator[None]:
    """What a test registers is gone after it."""
    before = dict(gym.registry)
    yield
    gym.registry.clear()
    gym.registry.update(before)


@pytest.fixture
def library(tmp_path: Path) -> Path:
    """A folder of two scene files and a file that is none."""
    folder = tmp_path / "library"
    folder.mkdir()
    (folder / "b.yaml").write_text(SCENES[0].to_yaml())
    (folder / "a.json").write_text(SCENES[1].canonical_json())
    (folder / "notes.txt").write_text("not a scene")
    return folder


def expected_id(at: Scene) -> str:
    return f"CoDA-PickPlace-{at.id[:8]}-v0"


def test_importing_the_package_registers_the_built_in_ids() -> None:
    code = "import gymnasium as gym, coda_envs; print([i for i in gym.registry if 'CoDA' in i])"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True,
        env={"PYTHONPATH": ":".join(p for p in sys.path if p)},
    )  # fmt: skip
    assert done.stdout.strip() == str(list(BUILT_IN_IDS.values()))
    assert ENV_ID in BUILT_IN_IDS.values()


def test_a_library_gives_an_id_a_scene_in_the_order_of_its_files(library: Path) -> None:
    ids = register_library(library)
    assert ids == [expected_id(SCENES[1]), expected_id(SCENES[0])]
    for env_id, at in zip(ids, reversed(SCENES), strict=True):
        env = gym.make(env_id)
        _, info = env.reset(seed=0)
        assert env.unwrapped.scene == at
        assert info["scene_id"] == at.id
    assert register_library(library) == ids


def test_json_lines_are_a_library_with_or_without_certificates(tmp_path: Path) -> None:
    path = tmp_path / "scenes.jsonl"
    told = SCENES[1].to_dict()
    # A separator that is a line break to str.splitlines, but not to JSON Lines.
    told["task"]["instruction"] = "put it\u2028in the tray"
    lines = [json.dumps({"scene": SCENES[0].to_dict(), "certificate": {}})]
    lines.append(json.dumps(told, ensure_ascii=False))
    path.write_text("\n".join(lines) + "\n\n", encoding="utf-8")
    ids = register_library(path)
    assert len(ids) == 2
    assert ids[0] == expected_id(SCENES[0])
    assert gym.make(ids[1]).reset(seed=0)[1]["instruction"] == "put it\u2028in the tray"


def test_ids_resolve_in_another_folder_and_when_the_files_are_gone(
    library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    ids = register_library("library")
    monkeypatch.chdir("/")
    for file in library.iterdir():
        file.unlink()
    assert gym.make(ids[0]).reset(seed=0)[1]["scene_id"] == SCENES[1].id


def test_a_spec_resolves_in_a_process_that_registered_nothing(library: Path) -> None:
    env_id = register_library(library)[0]
    code = (
        "import pickle, sys, gymnasium as gym\n"
        "spec = pickle.loads(sys.stdin.buffer.read())\n"
        "print(gym.make(spec).reset(seed=0)[1]['scene_id'])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        input=pickle.dumps(gym.spec(env_id)),
        env={"PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
        cwd="/",
        capture_output=True,
        check=True,
    )
    assert done.stdout.decode().strip() == SCENES[1].id


def test_spawned_workers_play_a_librarys_scene(library: Path) -> None:
    env_id = register_library(library)[1]
    vector = gym.make_vec(env_id, 2, vectorization_mode="async", vector_kwargs={"context": "spawn"})
    try:
        obs, info = vector.reset(seed=[1, 2])
        assert list(info["scene_id"]) == [SCENES[0].id] * 2
        single, _ = gym.make(env_id).reset(seed=2)
        assert same(np.asarray(obs["objects"])[1], single["objects"])
    finally:
        vector.close()


def test_two_scenes_with_one_id_are_refused(library: Path) -> None:
    other = tray_scene(attributes__target__color="green")
    gym.register(
        id=expected_id(SCENES[0]),
        entry_point="coda_envs.env:ManipulationEnv",
        kwargs={"family": "pick-place", "scene": other.to_dict()},
    )
    with pytest.raises(SceneError, match=f"two scenes share the id {expected_id(SCENES[0])}"):
        register_library(library)


@pytest.mark.parametrize(
    ("name", "content", "named"),
    [
        ("nowhere", None, "does not exist"),
        ("empty.jsonl", b"", "holds no scene"),
        ("broken.jsonl", b"{\n", "broken.jsonl, line 1 is not JSON"),
        ("deep.jsonl", b"[" * 100_000, "deep.jsonl, line 1 is not JSON"),
        ("number.jsonl", b"3\n", "number.jsonl, line 1 holds int"),
        ("bytes.jsonl", b"\xff\xfe", "cannot be read"),
        ("other.jsonl", b'{"scene": {"family": "x"}}', "line 1: task"),
    ],
)
def test_a_library_that_cannot_be_used_is_named(
    tmp_path: Path, name: str, content: bytes | None, named: str
) -> None:
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(SceneError, match=named) as caught:
        register_library(path)
    assert name in str(caught.value)


def test_an_empty_folder_is_no_library(tmp_path: Path) -> None:
    with pytest.raises(SceneError, match="holds no scene"):
        register_library(tmp_path)


def test_an_environment_walks_a_library_by_index_or_by_seed(library: Path) -> None:
    env = ManipulationEnv(library=str(library))
    for index, at in enumerate(reversed(SCENES)):
        env.reset(options={"index": index})
        assert env.scene == at
    with pytest.raises(SceneError, match="Allowed: 0 to 1"):
        env.reset(options={"index": 2})
    seen = set()
    for seed in range(10):
        env.reset(seed=seed)
        seen.add(env.scene.id)
    assert seen == {at.id for at in SCENES}


def test_a_built_in_family_cannot_be_replaced() -> None:
    with pytest.raises(PluginError, match="belongs to a built-in"):
        register_family(PickPlace())
    assert "pick-place" in family_names()
    with pytest.raises(SceneError, match="did you mean 'pick-place'"):
        get_family("pick_place")
