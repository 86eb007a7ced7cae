"""Every update rule through the ordinary loop: what it leaves behind, kills, faults, falls."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest
from command_line import process
from test_training_faults import FAULTS
from tiny_run import metrics, quiet, results, resume, tiny

from coda_envs.errors import LearningError
from coda_trainer.config import RunConfig
from coda_trainer.evaluation import evaluate_run
from coda_trainer.rounds.loop import train

RULES = ["ppo", "weighted"]
FORGETFUL = str(Path(__file__).with_name("forgetful_policy.py"))


def small(update: str, **changes: Any) -> RunConfig:
    """A run without diagnosis under an update rule."""
    learner = {"update": update, "backbone_updates": 50, **changes.pop("learner", {})}
    evaluation = {"suites": ["seed"], "episodes": 3}
    return tiny(**{"strategy": "uniform", "learner": learner, "evaluation": evaluation, **changes})


def of(run: Path, event: str) -> list[dict[str, Any]]:
    return [r for r in metrics(run) if r["event"] == event]


@pytest.mark.parametrize("update", RULES)
def test_a_round_trains_critic_and_policy_by_the_rule(tmp_path: Path, update: str) -> None:
    run = tmp_path / "run"
    train(small(update), run, reporter=quiet())
    assert of(run, "warm_up")[0]["value_loss"] > 0
    blocks = of(run, "block")
    assert len(blocks) == 2
    assert all(b["critic_loss"] > 0 and b["value_loss"] > 0 for b in blocks)
    lessons = of(run, "lesson")
    if update == "weighted":
        # The backbone learns within the round, and nothing is distilled.
        assert [lesson["block"] for lesson in lessons] == [0, 1]
        assert all(0 < lesson["effective_size"] < 1 for lesson in lessons)
        assert not of(run, "selection")
        assert not of(run, "distil")
    else:
        assert not lessons
        assert all(b["policy_updates"] > 0 and b["kl"] >= 0 for b in blocks)
        assert len(of(run, "selection")) == len(of(run, "distil")) == 1
    assert results(run)["rounds"] == 1


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("update", RULES)
def test_a_run_killed_in_its_second_round_ends_as_if_it_had_not_been(
    tmp_path: Path, update: str
) -> None:
    """Round 2 goes on from a checkpoint of the rule's networks, optimisers and alarm."""
    config = small(update, rounds=2)
    straight, run = tmp_path / "straight", tmp_path / "run"
    train(config, straight, reporter=quiet())
    file = tmp_path / "run.yaml"
    file.write_text(config.to_yaml())
    words = ["train", "--config", str(file), "--out", str(run)]
    command = process(words, tmp_path, {"KILL_AT": "round_002_pick-place_block_1"})
    _, err = command.communicate(timeout=200)
    assert command.returncode == -signal.SIGKILL, err
    assert "Going on after round 1" in resume(run)
    assert results(run) == results(straight)
    assert metrics(run) == metrics(straight)


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("update", RULES)
def test_the_number_of_workers_changes_nothing(tmp_path: Path, update: str) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    train(small(update), one, reporter=quiet())
    train(small(update, workers=2), two, reporter=quiet())
    assert metrics(one) == metrics(two)


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("update", RULES)
def test_families_take_turns_and_share_one_policy(tmp_path: Path, update: str) -> None:
    run = tmp_path / "run"
    families = ["pick-place", "articulated"]
    train(
        small(
            update,
            families=families,
            demonstrations={"episodes": 4},
            collect={"warm_up_episodes": 4, "episodes": 8, "episodes_per_block": 4},
        ),
        run,
        reporter=quiet(),
    )
    order = [(r["event"], r["family"]) for r in metrics(run) if r["event"] in ("block", "lesson")]
    taught = [("lesson", "all")] if update == "weighted" else []
    assert order == 2 * ([("block", name) for name in families] + taught)


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("update", RULES)
def test_a_fault_names_itself_and_leaves_a_usable_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, update: str, fault: str
) -> None:
    damage, words = FAULTS[fault]
    run = tmp_path / "run"
    with monkeypatch.context() as patch:
        damage(patch)
        with pytest.raises(LearningError, match=words) as caught:
            train(small(update), run, reporter=quiet())
    assert caught.value.exit_code == 7
    assert evaluate_run(run, suite="seed", episodes=2)["round"] == 0
    assert "Going on after round 0" in resume(run)
    assert results(run)["rounds"] == 1


@pytest.mark.slow
def test_a_lesson_that_spoils_the_policy_is_taken_back(tmp_path: Path) -> None:
    """The policy stops acting after 60 updates; the lessons are 40 updates each."""
    run = tmp_path / "run"
    config = small(
        "weighted",
        backbone={"name": FORGETFUL},
        sft={"updates": 0},
        collect={"episodes": 80, "episodes_per_block": 20, "warm_up_episodes": 4},
        learner={"backbone_updates": 40},
    )
    train(config, run, reporter=quiet())
    success = [b["success"] for b in of(run, "block")]
    # The second lesson spoils it; the policy of the best block, after one lesson at most, comes
    # back, is not taught from the bad episodes, and has to be brought back again at the end.
    assert min(success[0], success[1], success[3]) > 0.5
    assert success[2] == 0.0
    assert [r["when"] for r in of(run, "reverted")] == ["block 2", "last"]
    assert [r["block"] for r in of(run, "lesson")] == [0, 1, 3]
    assert of(run, "evaluation")[-1]["rate"] > 0.5
