"""The frozen suites: sound records, the right regions, nothing that training may touch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from env_cases import FAMILY

from coda_envs import suites
from coda_envs.env import ManipulationEnv
from coda_envs.errors import HeldOutError, SceneError
from coda_envs.scene import Scene, parse_scene
from coda_envs.scene_source import load_suite, suite_names
from coda_envs.validity import accept_for_training

NAMES = tuple(suites.SUITES)
HELD_OUT = ("ood-dev", "ood")
RECORDS = {name: suites.read_records(FAMILY, name) for name in NAMES}
SCENES: dict[str, list[Scene]] = {
    name: [parse_scene(record["scene"], name) for record in records]
    for name, records in RECORDS.items()
}


def key(at: Scene, paths: tuple[str, ...]) -> tuple[int, ...]:
    return tuple(FAMILY.space[p].bin(at.values[p]) for p in paths)


def test_the_family_ships_every_suite() -> None:
    assert set(suite_names(FAMILY)) == set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_every_record_is_a_certified_scene(name: str) -> None:
    assert len(RECORDS[name]) == suites.SIZE
    for record, at in zip(RECORDS[name], SCENES[name], strict=True):
        certificate = record["certificate"]
        assert certificate["passed"] is True
        assert certificate["scene_id"] == at.id
        assert all(passed for _, passed, _ in certificate["checks"])
        assert certificate["checks"][-1][0] == "solvable"
        assert certificate["settled"]
        assert FAMILY.problem(at.values) is None
    assert len({at.id for at in SCENES[name]}) == suites.SIZE
    assert tuple(SCENES[name]) == load_suite(FAMILY, name)


@pytest.mark.parametrize("name", NAMES)
def test_every_scene_lies_in_its_suites_range_and_region(name: str) -> None:
    within, region, _ = suites.SUITES[name]
    for at in SCENES[name]:
        assert FAMILY.region(at) == region
        for path, value in at.values.items():
            bounds = getattr(FAMILY.space[path], within)
            if FAMILY.space[path].type == "discrete":
                assert value in bounds
            else:
                assert bounds[0] <= value <= bounds[1]


@pytest.mark.parametrize("name", HELD_OUT)
def test_no_held_out_scene_shares_a_cell_or_a_combination_with_training(name: str) -> None:
    space = FAMILY.space
    trained = {at.id for at in SCENES["seed"]}
    for paths in (space.cells, space.combinations):
        split = space._split(paths)
        for at in SCENES[name]:
            assert split[key(at, paths)] == name
    for at in SCENES[name]:
        assert at.id not in trained
        with pytest.raises(HeldOutError):
            accept_for_training(at)


def test_the_suites_share_no_scene() -> None:
    ids = [at.id for scenes in SCENES.values() for at in scenes]
    assert len(ids) == len(set(ids))


@pytest.mark.parametrize("name", NAMES)
def test_the_first_certificates_hold_on_this_engine(name: str) -> None:
    assert suites.verify(FAMILY, name, first=3) == []


def test_drift_of_a_stored_certificate_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    records: list[dict[str, Any]] = json.loads(json.dumps(RECORDS["seed"][:4]))
    records[0]["certificate"]["settled"][10] += 0.001
    records[1]["certificate"]["engine"] = "mujoco 1.0"
    records[2]["certificate"]["scene_id"] = "0" * 64
    records[3]["scene"] = RECORDS["ood"][0]["scene"]
    monkeypatch.setattr(suites, "read_records", lambda *_: records)
    problems = suites.verify(FAMILY, "seed")
    for number, words in enumerate(
        ("settles elsewhere now", "certified by mujoco 1.0", "id has changed", "lies in ood")
    ):
        assert any(f"seed[{number}]" in p and words in p for p in problems), words


def test_freezing_is_deterministic_and_is_read_back(tmp_path: Path) -> None:
    frozen = suites.freeze(FAMILY, "ood-dev", size=2)
    assert frozen == suites.freeze(FAMILY, "ood-dev", size=2)
    suites.write(tmp_path / "two.jsonl", frozen)
    lines = (tmp_path / "two.jsonl").read_text().splitlines()
    for line, (at, certificate) in zip(lines, frozen, strict=True):
        record = json.loads(line)
        assert parse_scene(record["scene"]) == at
        assert record["certificate"]["scene_id"] == certificate.scene_id == at.id


def test_an_environment_plays_a_suite_by_index() -> None:
    env = ManipulationEnv(suite="ood-dev")
    for index in (0, 7, suites.SIZE - 1):
        _, info = env.reset(seed=index, options={"index": index})
        assert info["scene_id"] == SCENES["ood-dev"][index].id
    with pytest.raises(SceneError, match=f"0 to {suites.SIZE - 1}"):
        env.reset(options={"index": suites.SIZE})
