"""``coda program``: programs as files, checked, applied and lifted."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from command_line import Coda, strict

from coda_envs.family import get_family
from coda_envs.programs import GenerationProgram
from coda_envs.scene import load_scene

WIDE: dict[str, Any] = {
    "family": "pick-place",
    "roles": ["target"],
    "edits": [{"edit": "sample", "factor": "attributes.target.size", "low": 0.025, "high": 0.028}],
}


@pytest.fixture
def wide(tmp_path: Path) -> str:
    path = tmp_path / "wide.yaml"
    path.write_text(yaml.safe_dump(WIDE), encoding="utf-8")
    return str(path)


def test_a_program_is_shown_with_its_version(coda: Coda, wide: str) -> None:
    answer = coda("program", "show", wide)
    assert answer.code == 0
    assert GenerationProgram.parse(yaml.safe_load(answer.out)) == GenerationProgram.parse(WIDE)
    (version,) = strict(coda("program", "show", wide, "--json").out)
    assert version == GenerationProgram.parse(WIDE).hash


def test_applying_a_program_gives_valid_scenes_with_its_edit(
    coda: Coda, wide: str, tmp_path: Path
) -> None:
    answer = coda("program", "apply", wide, "--count", "3", "--out", "made", "--json")
    assert answer.code == 0
    data = strict(answer.out)
    assert len(data["scenes"]) == 3
    family = get_family("pick-place")
    for name in data["scenes"]:
        scene = load_scene(tmp_path / name)
        assert 0.025 <= float(scene.values["attributes.target.size"]) <= 0.028
        assert family.region(scene) == "generator"


def test_a_lifted_program_is_written_and_can_be_applied(
    coda: Coda, wide: str, tmp_path: Path
) -> None:
    answer = coda("program", "lift", wide, "--to", "stack-insert", "-o", "lifted.yaml")
    assert (answer.code, answer.out) == (0, "Wrote lifted.yaml\n")
    lifted = GenerationProgram.parse(yaml.safe_load((tmp_path / "lifted.yaml").read_text()))
    assert lifted.family == "stack-insert"
    assert coda("program", "apply", "lifted.yaml", "--count", "1").code == 0


BAD: dict[str, tuple[Any, list[str], int, str]] = {
    "no file": (None, ["show"], 6, "cannot be read"),
    "no program": ([1, 2], ["show"], 6, "list"),
    "an unknown edit": (
        WIDE | {"edits": [{"edit": "explode"}]},
        ["show"],
        6,
        "edits.0",
    ),
    "an unknown factor": (
        WIDE | {"edits": [{"edit": "set", "factor": "attributes.target.weight", "value": 1}]},
        ["apply"],
        6,
        "attributes.target.weight",
    ),
    "an unknown family": (WIDE, ["lift", "--to", "stack"], 3, "unknown family 'stack'"),
    "nothing to lift": (
        WIDE | {"edits": [{"edit": "set", "factor": "spatial.target.yaw", "value": 0.1}]},
        ["lift", "--to", "articulated"],
        6,
        "no edit of .* can be lifted to articulated: edits.0.: .*spatial.target.yaw",
    ),
    "a wrong role": (WIDE, ["lift", "--to", "stack-insert", "--role", "lid=target"], 6, "'lid'"),
    "no scenes": (WIDE, ["apply", "--count", "0"], 2, "--count is 0"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_program_that_cannot_be_used_is_one_clear_error(
    coda: Coda, tmp_path: Path, case: str
) -> None:
    data, (command, *options), code, words = BAD[case]
    if data is not None:
        (tmp_path / "bad.yaml").write_text(yaml.safe_dump(data), encoding="utf-8")
    answer = coda("program", command, "bad.yaml", *options, "--json")
    assert answer.code == code
    told = strict(answer.out)["error"]
    assert re.search(words, told["problem"])
