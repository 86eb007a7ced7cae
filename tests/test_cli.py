"""The command line: one clear error for bad input, strict JSON, exit codes, nothing harmed."""

from __future__ import annotations

import resource
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from command_line import Coda, process, strict

from coda_envs.scene import load_scene


@pytest.fixture
def scene(coda: Coda, tmp_path: Path) -> dict[str, Any]:
    """A good scene as plain data, to be spoilt."""
    answer = coda("scene", "new", "--seed", "3")
    assert answer.code == 0
    loaded: dict[str, Any] = yaml.safe_load(answer.out)
    return loaded


# Scenes ----------------------------------------------------------------------------------------


def test_a_new_scene_is_the_same_for_the_same_seed(coda: Coda, tmp_path: Path) -> None:
    first = coda("scene", "new", "--seed", "5")
    assert first.code == 0
    assert first.err == ""
    assert coda("scene", "new", "--seed", "5").out == first.out
    assert coda("scene", "new", "--seed", "6").out != first.out
    written = coda("scene", "new", "--seed", "5", "-o", "s.yaml")
    assert written.out == "s.yaml\n"
    assert (tmp_path / "s.yaml").read_text() == first.out
    document = strict(coda("scene", "new", "--seed", "5", "--json").out)
    assert document["scene_id"] == load_scene(tmp_path / "s.yaml").id


def test_an_edit_changes_one_factor_and_leaves_the_file(coda: Coda, tmp_path: Path) -> None:
    coda("scene", "new", "-o", "s.yaml")
    before = (tmp_path / "s.yaml").read_text()
    answer = coda("scene", "edit", "s.yaml", "--set", "attributes.target.mass=0.3", "-o", "t.yaml")
    assert answer.code == 0
    assert (tmp_path / "s.yaml").read_text() == before
    old, new = load_scene(tmp_path / "s.yaml").values, load_scene(tmp_path / "t.yaml").values
    assert {k for k in old if old[k] != new[k]} == {"attributes.target.mass"}


def test_a_good_scene_is_valid_and_can_be_drawn(coda: Coda, tmp_path: Path) -> None:
    coda("scene", "new", "--seed", "3", "-o", "s.yaml")
    answer = coda("scene", "validate", "s.yaml", "--json")
    assert answer.code == 0
    document = strict(answer.out)
    assert document["passed"] is True
    assert [c["name"] for c in document["checks"]][-1] == "solvable"
    assert coda("scene", "render", "s.yaml", "-o", "s.png").code == 0
    assert (tmp_path / "s.png").read_bytes()[:4] == b"\x89PNG"


BAD_SCENES: dict[str, tuple[Callable[[dict[str, Any]], object], tuple[str, ...]]] = {
    "unknown factor": (
        lambda s: s["spatial"]["target"].update(xx=0.1),
        ("spatial.target.xx", "did you mean 'spatial.target.x'?"),
    ),
    "outside its range": (
        lambda s: s["spatial"]["target"].update(x=9.0),
        ("spatial.target.x", "9.0", "-0.16 to 0.18"),
    ),
    "type error": (
        lambda s: s["attributes"]["target"].update(mass=[1]),
        ("attributes.target.mass", "[1]"),
    ),
    "unknown family": (lambda s: s.update(family="pick-placed"), ("pick-placed", "'pick-place'")),
    "missing part": (lambda s: s.pop("spatial"), ("spatial",)),
}


@pytest.mark.parametrize("case", BAD_SCENES)
@pytest.mark.parametrize("command", ["validate", "edit"])
def test_a_bad_scene_file_is_one_clear_error(
    coda: Coda, tmp_path: Path, scene: dict[str, Any], command: str, case: str
) -> None:
    spoil, words = BAD_SCENES[case]
    spoil(scene)
    file = tmp_path / "bad.yaml"
    file.write_text(yaml.safe_dump(scene))
    answer = coda("scene", command, file)
    assert answer.code == 3
    assert answer.out == ""
    assert answer.err.count("error: ") == 1
    assert "Traceback" not in answer.err
    for word in ("bad.yaml", *words):
        assert word in answer.err

    document = strict(coda("scene", command, file, "--json").out)
    assert document["error"]["kind"] == "SceneError"
    assert document["error"]["exit_code"] == 3


def test_a_goal_out_of_reach_fails_validation_by_name(
    coda: Coda, tmp_path: Path, scene: dict[str, Any]
) -> None:
    # Both on one spot: the target cannot be put where it has to go.
    scene["spatial"]["receptacle"].update(
        x=scene["spatial"]["target"]["x"], y=scene["spatial"]["target"]["y"]
    )
    (tmp_path / "bad.yaml").write_text(yaml.safe_dump(scene))
    answer = coda("scene", "validate", "bad.yaml", "--json")
    assert answer.code == 3
    document = strict(answer.out)
    assert document["passed"] is False
    failed = document["checks"][-1]
    assert failed["passed"] is False
    assert failed["detail"] in document["error"]["problem"]
    assert document["error"]["remedy"]
    assert "error: bad.yaml is not valid" in coda("scene", "validate", "bad.yaml").err


def test_a_refused_write_leaves_the_old_file(coda: Coda, tmp_path: Path) -> None:
    (tmp_path / "old.yaml").write_text("old")

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))

    done = process(["scene", "new", "-o", "old.yaml", "--json"], tmp_path, preexec_fn=limit)
    out, err = done.communicate(timeout=60)
    assert done.returncode == 8, err
    assert strict(out)["error"]["kind"] == "SystemError"
    assert (tmp_path / "old.yaml").read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["old.yaml"]

    answer = coda("scene", "new", "-o", "missing/s.yaml")
    assert answer.code == 1
    assert "missing is not a folder" in answer.err


# Runs ------------------------------------------------------------------------------------------


@pytest.fixture
def config(tmp_path: Path) -> Path:
    file = tmp_path / "run.yaml"
    file.write_text("rounds: 1\n")
    return file


BAD_TRAINING: dict[str, tuple[tuple[str, ...], int, tuple[str, ...]]] = {
    "nothing given": ((), 2, ("--config", "--resume", "Remedy")),
    "misspelt override": (
        ("--config", "run.yaml", "--set", "learner.batch_sise=3"),
        2,
        ("batch_sise", "did you mean 'batch_size'?"),
    ),
    "wrong strategy": (("--config", "run.yaml", "--strategy", "codaa"), 2, ("'codaa'", "'coda'")),
    "missing file": (("--config", "nothing.yaml"), 2, ("nothing.yaml",)),
    "unknown backbone": (
        ("--config", "run.yaml", "--backbone", "flow_chunky"),
        2,
        ("flow_chunky", "'flow_chunk'"),
    ),
    "unknown family": (
        ("--config", "run.yaml", "--set", "families=[pick-placed]"),
        3,
        ("pick-placed", "'pick-place'"),
    ),
    "plugin raises": (
        ("--config", "run.yaml", "--plugin", "bad.py"),
        4,
        ("bad.py", "no lib"),
    ),
    "plugin leaves": (("--config", "run.yaml", "--plugin", "leaves.py"), 4, ("leaves.py", "bye")),
    "plugin missing": (("--config", "run.yaml", "--plugin", "no.py"), 4, ("no.py", "not exist")),
    "two policies": (
        ("--config", "run.yaml", "--plugin", "a.py", "--backbone", "b"),
        2,
        ("--plugin", "--backbone"),
    ),
    "bad scene": (("--config", "run.yaml", "--scene", "no.yaml"), 3, ("no.yaml",)),
    "folder in use": (("--config", "run.yaml", "--out", "used"), 5, ("used", "--resume used")),
    "not a run": (("--resume", "used"), 5, ("used", "config.yaml", "coda train")),
    "resume with settings": (("--resume", "used", "--set", "seed=1"), 2, ("--set", "--resume")),
}


@pytest.mark.parametrize("case", BAD_TRAINING)
def test_bad_training_input_is_one_clear_error_and_harms_nothing(
    coda: Coda, tmp_path: Path, config: Path, case: str
) -> None:
    words, code, expected = BAD_TRAINING[case]
    (tmp_path / "bad.py").write_text("raise ImportError('no lib')\n")
    (tmp_path / "leaves.py").write_text("print('noise')\nraise SystemExit('bye')\n")
    (tmp_path / "used").mkdir()
    (tmp_path / "used" / "mine.txt").write_text("precious")
    before = sorted(tmp_path.rglob("*"))
    answer = coda("train", *words)
    assert answer.code == code
    assert answer.out == ""
    assert answer.err.count("error: ") == 1
    assert "Traceback" not in answer.err
    for word in expected:
        assert word in answer.err
    assert [p for p in sorted(tmp_path.rglob("*")) if "__pycache__" not in p.parts] == before


@pytest.mark.parametrize(
    "words",
    [("evaluate", "here"), ("memory", "show", "here"), ("memory", "mode", "here", "abc")],
    ids=" ".join,
)
def test_a_folder_that_is_no_run_is_named(
    coda: Coda, tmp_path: Path, words: tuple[str, ...]
) -> None:
    (tmp_path / "here").mkdir()
    answer = coda(*words, "--json")
    assert answer.code == 5
    error = strict(answer.out)["error"]
    assert "here" in error["problem"]
    assert error["allowed"]
    assert error["remedy"]
    assert list((tmp_path / "here").iterdir()) == []


def test_a_secret_is_nowhere_in_the_output(coda: Coda, config: Path) -> None:
    for word in ("openai_api_key=canary-7", "backbone.options.url=http://u:canary-7@h/v1"):
        answer = coda("train", "--config", config, "--set", word)
        assert answer.code == 2
        assert "canary" not in answer.out + answer.err


def test_an_interrupted_command_says_how_to_go_on(tmp_path: Path, config: Path) -> None:
    (tmp_path / "slow.py").write_text(
        "import sys, time\nprint('ready', file=sys.stderr, flush=True)\ntime.sleep(60)\n"
    )
    words = ["train", "--config", "run.yaml", "--plugin", "slow.py", "--out", "out"]
    started = process(words, tmp_path)
    assert started.stderr is not None
    for line in started.stderr:
        if "ready" in line:
            break
    started.send_signal(signal.SIGINT)
    _, err = started.communicate(timeout=60)
    assert started.returncode == 130
    assert "interrupted" in err
    assert "--resume" in err
    assert "Traceback" not in err
    assert not (tmp_path / "out").exists()


# Standard output -------------------------------------------------------------------------------


def test_a_usage_error_is_json_too(coda: Coda) -> None:
    answer = coda("scene", "validate", "--json")
    assert answer.code == 2
    assert strict(answer.out)["error"]["kind"] == "UsageError"
    assert "FILE" in answer.err.upper()
    assert coda("scene", "vaildate").code == 2


def test_no_words_show_the_help(coda: Coda) -> None:
    answer = coda()
    assert answer.code == 0
    for command in ("doctor", "train", "evaluate", "scene", "memory"):
        assert command in answer.out


def test_a_reader_that_goes_away_is_no_crash(tmp_path: Path) -> None:
    with process(["scene", "new"], tmp_path) as started:
        assert started.stdout is not None
        assert started.stderr is not None
        started.stdout.close()
        assert started.stderr.read() == ""
    assert started.returncode == 141


def test_a_full_disk_behind_standard_output_is_an_error(tmp_path: Path) -> None:
    with open("/dev/full", "w") as full:
        started = process(["scene", "new", "--json"], tmp_path, stdout=full)
        _, err = started.communicate(timeout=60)
    assert started.returncode == 8
    assert err.startswith("error: ")
    assert len(err.splitlines()) == 1
