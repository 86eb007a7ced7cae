"""The run folder: one trainer at a time, checkpoints complete or not there, strict files."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from command_line import ROOT, strict
from tiny_run import tiny

from coda_envs.errors import RunError
from coda_envs.family import get_family
from coda_envs.scene_source import load_library
from coda_trainer.config_file import load_run_config
from coda_trainer.rounds.run_folder import RunFolder


@pytest.fixture
def run(tmp_path: Path) -> Iterator[RunFolder]:
    made = RunFolder.create(tmp_path / "run", tiny(seed=7), {"scene": None})
    yield made
    made.close()


def fill(run: RunFolder, round: int) -> Path:
    with run.new_checkpoint(round) as folder:
        (folder / "part").mkdir()
        (folder / "part" / "weights.bin").write_bytes(bytes([round]) * 1000)
        (folder / "state.json").write_text("{}")
    return run.checkpoints / f"round_{round:03d}"


def test_a_new_run_says_what_it_was_made_of(run: RunFolder) -> None:
    assert load_run_config(run.path) == tiny(seed=7)
    manifest = strict((run.path / "manifest.json").read_text())
    assert manifest["seed"] == 7
    assert manifest["families"] == ["pick-place"]
    assert set(manifest["versions"]) >= {"python", "coda-robotics", "mujoco", "numpy", "torch"}
    assert manifest["commit"]
    assert "mujoco" in manifest["engine"]
    assert run.drift() == []


def test_what_changed_since_the_run_began_is_named(run: RunFolder) -> None:
    path = run.path / "manifest.json"
    manifest = run.manifest()
    manifest["versions"]["mujoco"] = "1.2.3"
    path.write_text(json.dumps(manifest))
    (line,) = run.drift()
    assert "mujoco was 1.2.3" in line


def test_a_run_is_never_overwritten(run: RunFolder) -> None:
    run.close()
    before = (run.path / "config.yaml").read_bytes()
    with pytest.raises(RunError, match=r"holds a run already.*--resume"):
        RunFolder.create(run.path, tiny(seed=8), {})
    assert (run.path / "config.yaml").read_bytes() == before
    RunFolder.open(run.path).close()


def test_a_folder_that_is_no_run_is_refused(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "nothing"):
        with pytest.raises(RunError, match="not a run"):
            RunFolder.open(path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("content", ["", "{", "[]"])
def test_a_damaged_manifest_is_named(run: RunFolder, content: str) -> None:
    (run.path / "manifest.json").write_text(content)
    with pytest.raises(RunError, match=r"manifest\.json"):
        run.manifest()


def test_only_one_process_trains_in_a_folder(run: RunFolder) -> None:
    code = (
        "import sys; from pathlib import Path\n"
        "from coda_trainer.rounds.run_folder import RunFolder\n"
        "RunFolder.open(Path(sys.argv[1]))"
    )
    command = [sys.executable, "-c", code, str(run.path)]
    other = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert other.returncode != 0
    assert "another process is training in" in other.stderr
    with pytest.raises(RunError, match="another process is training"):
        RunFolder.open(run.path)
    run.close()
    subprocess.run(command, cwd=ROOT, check=True)


# Metrics and scenes ------------------------------------------------------------------------------


def test_metrics_are_strict_json_and_survive_a_line_that_was_cut(run: RunFolder) -> None:
    run.append_metrics({"round": 0, "event": "a", "figure": float("nan")})
    run.append_metrics({"round": 1, "event": "b", "figure": np.float32(0.5)})
    file = run.path / "metrics.jsonl"
    records = [strict(line) for line in file.read_text().splitlines()]
    assert records == run.metrics()
    assert [r["figure"] for r in records] == [None, 0.5]
    file.write_text(file.read_text() + '{"round": 1, "ev')
    assert run.metrics() == records
    run.forget_after(1)
    run.append_metrics({"round": 2, "event": "c"})
    assert [r["event"] for r in run.metrics()] == ["a", "b", "c"]


def test_a_round_that_is_done_again_leaves_no_trace_of_the_first_time(run: RunFolder) -> None:
    rng = np.random.default_rng(0)
    scenes = [get_family("pick-place").sample(rng) for _ in range(3)]
    for round in (1, 2):
        run.append_metrics({"round": round, "event": "x"})
        run.append_scenes(round, "pick-place", "wide", scenes[:round])
        run.append_scenes(round, "pick-place", "own", scenes[2:])
    for name in ("results.json", "report.txt"):
        (run.path / name).write_text("old")
    kept = load_library(run.path / "scenes" / "pick-place" / "round_001.jsonl")
    assert [s.id for s in kept] == [scenes[0].id, scenes[2].id]
    run.forget_after(1)
    assert [r["round"] for r in run.metrics()] == [1]
    assert [p.name for p in (run.path / "scenes").glob("*/*")] == ["round_001.jsonl"]
    assert not (run.path / "results.json").exists()
    assert not (run.path / "report.txt").exists()


# Checkpoints -------------------------------------------------------------------------------------


def test_the_last_two_checkpoints_are_kept(run: RunFolder) -> None:
    for round in range(4):
        fill(run, round)
    assert sorted(p.name for p in run.checkpoints.iterdir()) == ["round_002", "round_003"]
    assert run.last_checkpoint() == (3, run.checkpoints / "round_003", [])


def test_a_checkpoint_gets_its_name_only_when_it_is_complete(run: RunFolder) -> None:
    fill(run, 0)

    def half() -> None:
        with run.new_checkpoint(1) as folder:
            (folder / "state.json").write_text("{}")
            raise OSError("the disk is full")

    with pytest.raises(OSError, match="full"):
        half()
    assert run.last_checkpoint()[0] == 0
    assert not (run.checkpoints / "round_001").exists()
    # What was left of the first try does not get into the second.
    with run.new_checkpoint(1) as folder:
        assert list(folder.iterdir()) == []
    assert run.last_checkpoint()[0] == 1


def _cut(folder: Path) -> None:
    file = folder / "part" / "weights.bin"
    file.write_bytes(file.read_bytes()[:500])


def _flip(folder: Path) -> None:
    file = folder / "part" / "weights.bin"
    file.write_bytes(b"\xff" + file.read_bytes()[1:])


def _empty(folder: Path) -> None:
    shutil.rmtree(folder)
    folder.mkdir()


DAMAGE: dict[str, tuple[Callable[[Path], object], str]] = {
    "cut": (_cut, "500 bytes instead of 1000"),
    "changed": (_flip, "has changed"),
    "file missing": (lambda f: (f / "state.json").unlink(), "state.json is missing"),
    "part missing": (lambda f: shutil.rmtree(f / "part"), "is missing"),
    "folder empty": (_empty, "complete.json"),
    "seal is not JSON": (lambda f: (f / "complete.json").write_text("{"), "complete.json"),
    "seal of another kind": (lambda f: (f / "complete.json").write_text("[1]"), "complete.json"),
    "seal lists nonsense": (
        lambda f: (f / "complete.json").write_text('{"files": {"state.json": 3}}'),
        "complete.json",
    ),
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_a_damaged_checkpoint_is_named_and_the_one_before_is_used(
    run: RunFolder, kind: str
) -> None:
    damage, words = DAMAGE[kind]
    first, second = fill(run, 4), fill(run, 5)
    before = {p: p.read_bytes() for p in first.rglob("*") if p.is_file()}
    damage(second)
    round, folder, problems = run.last_checkpoint()
    assert (round, folder) == (4, first)
    (problem,) = problems
    assert "round_005" in problem
    assert words in problem
    assert {p: p.read_bytes() for p in first.rglob("*") if p.is_file()} == before


def test_without_a_complete_checkpoint_the_error_says_what_to_do(run: RunFolder) -> None:
    with pytest.raises(RunError, match=r"no complete checkpoint.*Remedy: .*--resume"):
        run.last_checkpoint()
    _cut(fill(run, 0))
    with pytest.raises(RunError, match=r"round_000 is damaged"):
        run.last_checkpoint()
    assert run.find_checkpoint()[0] is None


def test_a_run_is_finished_with_its_last_round_and_its_results(run: RunFolder) -> None:
    fill(run, 0)
    assert not run.finished(0)
    (run.path / "results.json").write_text("{}")
    assert run.finished(0)
    assert not run.finished(1)
    _cut(fill(run, 1))
    assert not run.finished(1)
