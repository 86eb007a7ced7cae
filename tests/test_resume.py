"""Runs that are killed or damaged end with the numbers of one that was not."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from command_line import process
from tiny_run import contents, events, metrics, quiet, results, resume, tiny

from coda_envs.errors import RunError
from coda_trainer.cli import main
from coda_trainer.config import RunConfig
from coda_trainer.rounds.loop import train
from coda_trainer.rounds.run_folder import RunFolder


def killed(config: RunConfig, run: Path, at: str) -> None:
    """Start ``coda train`` as a user does; the policy kills the process (see weak_policy)."""
    file = run.with_suffix(".yaml")
    file.write_text(config.to_yaml())
    words = ["train", "--config", str(file), "--out", str(run)]
    command = process(words, run.parent, {"KILL_AT": at})
    _, err = command.communicate(timeout=110)
    assert command.returncode == -signal.SIGKILL, err
    assert not (run / "results.json").exists()


def test_resuming_a_finished_run_changes_nothing_and_prints_it_again(
    copied: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = contents(copied)
    assert main(["train", "--resume", str(copied)]) == 0
    out, err = capsys.readouterr()
    assert out.startswith((copied / "report.txt").read_text())
    assert "Nothing is left to do" in err
    assert contents(copied) == before


#: Moments of a run of one round, most of them while a checkpoint is being written.
MOMENTS = [
    pytest.param("update:20.", marks=pytest.mark.slow),
    pytest.param(".draft_000", marks=pytest.mark.slow),
    pytest.param("round_001_pick-place_control", marks=pytest.mark.slow),
    pytest.param("round_001_pick-place_block_1", marks=pytest.mark.slow),
    pytest.param("round_001_pick-place_probes", marks=pytest.mark.slow),
    ".draft_001",
]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("moment", MOMENTS)
def test_a_killed_run_ends_as_if_it_had_never_been_killed(
    finished: Path, tmp_path: Path, moment: str
) -> None:
    run = tmp_path / "run"
    killed(tiny(), run, moment)
    said = resume(run)
    early = moment in ("update:20.", ".draft_000")
    assert ("starting with round 0" if early else "Going on after round 0") in said
    assert results(run) == results(finished)
    assert metrics(run) == metrics(finished)
    assert (run / "report.txt").read_text() == (finished / "report.txt").read_text()
    assert events(run) == events(finished)
    assert contents(run).keys() == contents(finished).keys() - _events(finished) | _events(run)


def _events(run: Path) -> set[str]:
    return {name for name in contents(run) if name.startswith("events/")}


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_run_killed_twice_in_its_second_round_ends_the_same(tmp_path: Path) -> None:
    straight, run = tmp_path / "straight", tmp_path / "run"
    train(tiny(rounds=2), straight, reporter=quiet())
    killed(tiny(rounds=2), run, "round_002_pick-place_block_0")
    command = process(["train", "--resume", str(run)], tmp_path, {"KILL_AT": ".draft_002"})
    command.communicate(timeout=110)
    assert command.returncode == -signal.SIGKILL
    assert "Going on after round 1" in resume(run)
    assert results(run) == results(straight)
    assert metrics(run) == metrics(straight)


def _cut(checkpoint: Path) -> None:
    file = max((p for p in checkpoint.rglob("*") if p.is_file()), key=lambda p: p.stat().st_size)
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def _empty(checkpoint: Path) -> None:
    shutil.rmtree(checkpoint)
    checkpoint.mkdir()


DAMAGE: dict[str, Callable[[Path], None]] = {
    "largest file cut in half": _cut,
    "replay deleted": lambda c: shutil.rmtree(c / "families" / "pick-place" / "replay"),
    "folder empty": _empty,
}


@pytest.mark.parametrize(
    "kind",
    [
        "largest file cut in half",
        pytest.param("replay deleted", marks=pytest.mark.slow),
        pytest.param("folder empty", marks=pytest.mark.slow),
    ],
)
def test_a_damaged_checkpoint_is_named_and_the_one_before_is_used(
    finished: Path, copied: Path, kind: str
) -> None:
    DAMAGE[kind](copied / "checkpoints" / "round_001")
    said = resume(copied)
    assert "round_001 is damaged" in said
    assert "Going on after round 0" in said
    assert results(copied) == results(finished)
    assert metrics(copied) == metrics(finished)
    assert events(copied) == events(finished)


@pytest.mark.slow
def test_without_any_complete_checkpoint_it_starts_with_round_0(
    finished: Path, copied: Path
) -> None:
    for checkpoint in (copied / "checkpoints").iterdir():
        _cut(checkpoint)
    said = resume(copied)
    assert "round_000 is damaged" in said
    assert "round_001 is damaged" in said
    assert results(copied) == results(finished)
    assert metrics(copied) == metrics(finished)


def test_killed_between_the_last_checkpoint_and_the_results(finished: Path, copied: Path) -> None:
    for name in ("results.json", "report.txt"):
        (copied / name).unlink()
    shutil.rmtree(copied / "events")
    resume(copied)
    assert results(copied) == results(finished)
    assert (copied / "report.txt").read_bytes() == (finished / "report.txt").read_bytes()
    assert events(copied) == events(finished)


def test_a_run_in_use_is_left_alone(copied: Path) -> None:
    (copied / "results.json").unlink()
    holder = RunFolder.open(copied)
    before = contents(copied)
    with pytest.raises(RunError, match="another process is training"):
        resume(copied)
    assert contents(copied) == before
    holder.close()


def test_a_memory_of_another_run_is_an_error(copied: Path) -> None:
    (copied / "results.json").unlink()
    for file in copied.glob("memory.sqlite*"):
        file.unlink()
    with pytest.raises(RunError, match=r"memory\.sqlite.*cannot go back"):
        resume(copied)


def test_a_worker_that_dies_ends_the_command_cleanly(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text(tiny(workers=2).to_yaml())
    words = ["train", "--config", "c.yaml", "--out", "run"]
    command = process(words, tmp_path, {"KILL_AT": "load:"})
    out, err = command.communicate(timeout=110)
    assert command.returncode == RunError.exit_code
    assert "worker died" in err
    assert "--resume" in err
    assert "Traceback" not in err
    assert out == ""
