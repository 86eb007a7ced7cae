"""`coda envs`, `coda suites` and `coda scene strip`, as a user of the built-in families and the
author of one calls them."""

from __future__ import annotations

import importlib
import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest
from command_line import ROOT, Coda, process, strict

from coda_envs import family as families
from coda_envs.family import TaskFamily, get_family
from coda_envs.registration import BUILT_IN_IDS
from coda_envs.scene import load_scene
from coda_envs.suites import freeze

EXAMPLE = ROOT / "examples" / "new_family"


@pytest.fixture(autouse=True)
def registries() -> Iterator[None]:
    """What a test registers is gone after it."""
    ids, known = dict(gym.registry), dict(families._registered)
    yield
    for registry, before in ((gym.registry, ids), (families._registered, known)):
        registry.clear()
        registry.update(before)
    sys.modules.pop("lift", None)


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The example of a family of one's own, as a module that can be imported; its folder."""
    folder = tmp_path / "site"
    shutil.copytree(EXAMPLE, folder, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.syspath_prepend(folder)
    return folder


@pytest.fixture
def lift(module: Path) -> TaskFamily:
    """That family, registered."""
    importlib.import_module("lift")
    return get_family("lift")


def file_names(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


# coda envs list ---------------------------------------------------------------------------------


def test_every_environment_is_listed(coda: Coda, lift: TaskFamily) -> None:
    document = strict(coda("envs", "list", "--json").out)
    listed = {one["id"]: one for one in document["environments"]}
    assert listed.keys() == {*BUILT_IN_IDS.values(), "CoDA-Lift-v0"}
    for one in listed.values():
        family = get_family(one["family"])
        assert one["factors"] == len(family.space.factors)
        assert one["summary"].endswith(".")
    assert document["broken"] == {}
    told = coda("envs", "list")
    assert told.code == 0
    assert all(env_id in told.out for env_id in listed)


def test_a_family_that_does_not_load_is_listed_with_the_reason(tmp_path: Path) -> None:
    site = tmp_path / "site"
    info = site / "third-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: third\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[coda.families]\npour = third_pour:Pour\n")
    done = process(["envs", "list", "--json"], tmp_path, {"PYTHONPATH": f"{ROOT}:{site}"})
    out, err = done.communicate(timeout=60)
    assert done.returncode == 0, err
    document = strict(out)
    assert len(document["environments"]) == len(BUILT_IN_IDS)
    assert "third_pour" in document["broken"]["pour"]


# coda envs check --------------------------------------------------------------------------------


def checks_of(document: dict[str, Any], env_id: str) -> dict[str, dict[str, str]]:
    (one,) = (e for e in document["environments"] if e["id"] == env_id)
    return {check["name"]: check for check in one["checks"]}


@pytest.mark.slow
def test_a_family_of_ones_own_and_a_library_pass(coda: Coda, module: Path, tmp_path: Path) -> None:
    library = tmp_path / "library"
    library.mkdir()
    assert coda("scene", "new", "--family", "put-inside", "-o", library / "s.yaml").code == 0
    answer = coda("envs", "check", "lift:CoDA-Lift-v0", "--json")
    assert answer.code == 0, answer.out
    assert set(checks_of(strict(answer.out), "CoDA-Lift-v0")) >= {
        "gymnasium", "stable-baselines3", "spaces", "seeds", "state", "expert"
    }  # fmt: skip
    answer = coda("envs", "check", "--library", library, "--json")
    assert answer.code == 0, answer.out
    scene_id = load_scene(library / "s.yaml").id
    found = checks_of(strict(answer.out), f"CoDA-PutInside-{scene_id[:8]}-v0")
    assert {check["status"] for check in found.values()} == {"ok"}


#: What is changed in the example family's module, and the check that must notice.
FAULTS: dict[str, tuple[dict[str, str], str]] = {
    "an expert that does not grasp": (
        {"return hand.grasp(": "return hand.rise(); hand.grasp("},
        "expert",
    ),
    "an expert that breaks": ({"hand = Hand(env)": "hand = env.hand"}, "expert"),
    "a scene that depends on a counter": (
        {
            "\nSTAGES = [": "\nimport itertools\nCOUNT = itertools.count()\n\nSTAGES = [",
            'color=looks["color"]': 'color=looks["color"] if next(COUNT) % 5 < 2 else "pink"',
        },
        "seeds",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_found_by_name(coda: Coda, module: Path, fault: str) -> None:
    changes, check = FAULTS[fault]
    text = (module / "lift.py").read_text()
    for right, wrong in changes.items():
        assert text.count(right) == 1
        text = text.replace(right, wrong)
    (module / "lift.py").write_text(text)
    answer = coda("envs", "check", "lift:CoDA-Lift-v0", "--json")
    assert answer.code == 1
    document = strict(answer.out)
    assert document["ok"] is False
    assert checks_of(document, "CoDA-Lift-v0")[check]["status"] == "FAIL"
    assert f"CoDA-Lift-v0 fails {check}" in document["error"]["problem"]


BAD_IDS = {
    "no id": ((), 2, "no environment is named"),
    "misspelt id": (("CoDA-PickPlac-v0",), 2, "did you mean 'CoDA-PickPlace-v0'?"),
    "another's id": (("CartPole-v1",), 2, "not an environment of CoDA"),
    "no such module": (("nowhere:X-v0",), 4, "nowhere"),
    "no such library": (("--library", "nowhere"), 3, "nowhere"),
}


@pytest.mark.parametrize("case", BAD_IDS)
def test_an_unusable_id_is_one_clear_error(coda: Coda, case: str) -> None:
    words, code, named = BAD_IDS[case]
    answer = coda("envs", "check", *words)
    assert answer.code == code
    assert answer.out == ""
    assert answer.err.count("error: ") == 1
    assert named in answer.err
    assert "Traceback" not in answer.err


# coda envs bench --------------------------------------------------------------------------------


def test_figures_come_with_their_n_and_the_machine(coda: Coda) -> None:
    answer = coda("envs", "bench", "CoDA-PickPlace-v0", "--json")
    assert answer.code == 0
    document = strict(answer.out)
    assert document["machine"]["cores"] >= 1
    (one,) = document["environments"]
    # A step runs the physics that it is compared with.
    assert one["ratio"] > 1.0
    for name in ("steps_per_second", "reset_ms", "render_ms"):
        assert one[name] > 0.0
    assert min(one["n"].values()) >= 10


# coda envs gallery, coda scene strip ------------------------------------------------------------


@pytest.mark.slow
def test_a_gallery_is_the_same_for_the_same_seed(coda: Coda, tmp_path: Path) -> None:
    for folder in ("one", "two"):
        answer = coda("envs", "gallery", "--family", "articulated", "-o", folder)
        assert answer.code == 0, answer.err
        assert set(answer.out.splitlines()) == {f"{folder}/{n}" for n in file_names(Path(folder))}
    pictures = {f"articulated/{n}" for n in ("scene.png", "strip.png", "film.gif")}
    names = {"articulated.md", *pictures}
    assert file_names(tmp_path / "one") == names
    page = (tmp_path / "one" / "articulated.md").read_text()
    assert all(f"({name})" in page for name in pictures)
    for name in names:
        one, two = (tmp_path / folder / name for folder in ("one", "two"))
        assert one.read_bytes() == two.read_bytes()


def test_a_strip_says_what_it_edits(coda: Coda, tmp_path: Path) -> None:
    answer = coda("scene", "strip", "--seed", "3", "-o", "s.png", "--json")
    assert answer.code == 0
    panels = strict(answer.out)["panels"]
    assert len({panel["scene_id"] for panel in panels}) == 6
    assert [panel["factor"] is None for panel in panels] == [True] + [False] * 5
    assert (tmp_path / "s.png").read_bytes()[:4] == b"\x89PNG"


BAD_PLACES = {
    "strip, no png": (("scene", "strip", "-o", "s.jpg"), "use s.png"),
    "strip, no folder": (("scene", "strip", "-o", "nowhere/s.png"), "nowhere is not a folder"),
    "gallery, a file": (("envs", "gallery", "--all", "-o", "file"), "file is a file"),
    "gallery, no family": (("envs", "gallery", "-o", "g"), "no family is named"),
    "gallery, two ways": (("envs", "gallery", "--all", "--family", "x", "-o", "g"), "both given"),
    "gallery, unknown": (("envs", "gallery", "--family", "x", "-o", "g"), "unknown family 'x'"),
}


@pytest.mark.parametrize("case", BAD_PLACES)
def test_a_picture_that_cannot_be_written_is_refused_first(
    coda: Coda, tmp_path: Path, case: str
) -> None:
    words, named = BAD_PLACES[case]
    (tmp_path / "file").write_text("precious")
    answer = coda(*words)
    assert answer.code in (1, 2, 3)
    assert named in answer.err
    assert "drawing" not in answer.err
    assert file_names(tmp_path) == {"file"}


# coda suites ------------------------------------------------------------------------------------


@pytest.fixture
def frozen(lift: TaskFamily) -> Path:
    """A suite of three scenes of the family above; its file."""
    folder = lift.folder / "suites"
    folder.mkdir()
    file = folder / "seed.jsonl"
    file.write_text("".join(f"{entry.to_json()}\n" for entry in freeze(lift, "seed", 3)))
    return file


def test_suites_are_listed_with_what_certified_them(coda: Coda, frozen: Path) -> None:
    (one,) = strict(coda("suites", "list", "--family", "lift", "--json").out)["suites"]
    assert (one["family"], one["suite"], one["n"]) == ("lift", "seed", 3)
    assert one["region"] == "generator"
    assert one["strata"] == {"wide": 3}
    assert "mujoco" in one["engines"][0]


def test_verification_finds_drift_and_says_where(coda: Coda, frozen: Path) -> None:
    words = ("suites", "verify", "--family", "lift", "--suite", "seed", "--json")
    answer = coda(*words)
    assert answer.code == 0, answer.err
    assert strict(answer.out)["ok"] is True

    records = [json.loads(line) for line in frozen.read_text().splitlines()]
    records[1]["certificate"]["settled"][0] += 0.01
    records[2]["certificate"]["engine"] = "another engine"
    frozen.write_text("".join(f"{json.dumps(record)}\n" for record in records))
    answer = coda(*words)
    assert answer.code == 1
    document = strict(answer.out)
    problems = document["suites"][0]["problems"]
    assert any("seed[1]" in p and "settles" in p for p in problems)
    assert any("seed[2]" in p and "another engine" in p for p in problems)
    assert not any("seed[0]" in p for p in problems)
    assert "lift seed" in document["error"]["problem"]
    first = strict(coda(*words, "--first", "1").out)
    assert first["ok"] is True
    assert first["suites"][0]["n"] == 1


@pytest.mark.slow
def test_suites_are_verified_in_processes_of_their_own(coda: Coda) -> None:
    words = ("suites", "verify", "--family", "pick-place", "--first", "1", "--json")
    alone, shared = (strict(coda(*words, "--jobs", jobs).out) for jobs in ("1", "2"))
    assert alone["suites"] == shared["suites"]
    assert len(alone["suites"]) > 1


BAD_SUITES = {
    "unknown suite": (("--suite", "oood"), 3, "did you mean 'ood'?"),
    "unknown family": (("--family", "pick-plac"), 3, "did you mean 'pick-place'?"),
    "none at all": (("--first", "0"), 2, "--first is 0"),
    "no process": (("--jobs", "0"), 2, "--jobs is 0"),
}


@pytest.mark.parametrize("case", BAD_SUITES)
def test_a_suite_that_is_not_there_is_one_clear_error(coda: Coda, case: str) -> None:
    words, code, named = BAD_SUITES[case]
    answer = coda("suites", "verify", *words)
    assert answer.code == code
    assert answer.out == ""
    assert named in answer.err


# Documentation ----------------------------------------------------------------------------------


def test_every_command_is_in_the_manual(coda: Coda) -> None:
    manual = (ROOT / "docs" / "commands.md").read_text()
    for group in ("envs", "suites", "scene", "potential", "memory"):
        told = coda(group, "--help").out
        for name in told.partition("{")[2].partition("}")[0].split(","):
            assert f"`coda {group} {name}" in manual
