"""A run that starts from the fine-tuning of another is the run that did its own."""

from __future__ import annotations

from pathlib import Path

import pytest
from tiny_run import contents, events, metrics, quiet, results, resume, tiny

from coda_envs.errors import RunError
from coda_trainer.rounds.branching import branch, round_zero
from coda_trainer.rounds.loop import train

SMALL = {"strategy": "uniform", "evaluation": {"suites": ["seed"], "episodes": 2}}


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The fine-tuning that the runs share."""
    out = tmp_path_factory.mktemp("branch") / "start"
    train(round_zero(tiny(**SMALL)), out, reporter=quiet())
    return out


def test_runs_that_differ_in_their_rounds_share_round_zero() -> None:
    first = round_zero(tiny(**SMALL))
    for changes in (
        {"signal": "sparse", "strategy": "coda"},
        {"learner": {"batch_size": 8}, "rounds": 5},
        {"collect": {"episodes": 4}, "distil": {"updates": 0}},
    ):
        assert round_zero(tiny(**{**SMALL, **changes})) == first
    for changes in ({"seed": 1}, {"sft": {"updates": 41}}, {"demonstrations": {"episodes": 9}}):
        assert round_zero(tiny(**{**SMALL, **changes})) != first


@pytest.mark.slow
def test_a_branched_run_ends_as_one_that_did_its_own_round_zero(
    start: Path, tmp_path: Path
) -> None:
    config = tiny(**SMALL, signal="sparse")
    straight, branched = tmp_path / "straight", tmp_path / "branched"
    train(config, straight, reporter=quiet())
    before = contents(start)
    branch(start, branched, config)
    assert "Going on after round 0" in resume(branched)
    assert results(branched) == results(straight)
    assert metrics(branched) == metrics(straight)
    assert events(branched) == events(straight)
    assert contents(start) == before


def test_sft_is_the_shared_fine_tuning_and_costs_nothing_more(start: Path, tmp_path: Path) -> None:
    sft = tmp_path / "sft"
    branch(start, sft, tiny(**{**SMALL, "strategy": "sft"}))
    resume(sft)
    assert results(sft)["suites"] == results(start)["suites"]


def test_a_fine_tuning_of_other_settings_is_refused_by_name(start: Path, tmp_path: Path) -> None:
    with pytest.raises(RunError, match="differ in sft, evaluation"):
        branch(
            start,
            tmp_path / "run",
            tiny(strategy="uniform", sft={"updates": 1}, evaluation={"episodes": 1}),
        )
    assert list(tmp_path.iterdir()) == []


def test_an_existing_folder_is_left_alone(start: Path, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    with pytest.raises(RunError, match="exists"):
        branch(start, tmp_path / "run", tiny(**SMALL))


def test_a_copy_that_was_cut_short_is_made_anew(start: Path, tmp_path: Path) -> None:
    (tmp_path / ".run.draft" / "checkpoints").mkdir(parents=True)
    (tmp_path / ".run.draft" / "config.yaml").write_text("half")
    branch(start, tmp_path / "run", tiny(**SMALL))
    assert [p.name for p in tmp_path.iterdir()] == ["run"]
