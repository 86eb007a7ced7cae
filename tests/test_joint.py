"""One policy over several families: what is each family's own, and what they share."""

from __future__ import annotations

import shutil
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import process, strict
from tiny_run import events, metrics, quiet, replayed, results, resume, tiny

from coda_envs.errors import RunError
from coda_envs.family import get_family
from coda_envs.scene import parse_scene
from coda_envs.scene_source import make_source
from coda_trainer.cli import main
from coda_trainer.config import RunConfig
from coda_trainer.evaluation import evaluate_run
from coda_trainer.learning import rollout
from coda_trainer.memory.store import MemoryStore
from coda_trainer.rounds.loop import train

FAMILIES = ["pick-place", "articulated"]


def joint(**changes: Any) -> RunConfig:
    """Two families, one of which the weak policy cannot do at all; no diagnosis."""
    return tiny(
        **{
            "families": FAMILIES,
            "strategy": "uniform",
            "demonstrations": {"episodes": 4},
            "collect": {"warm_up_episodes": 4, "episodes": 8, "episodes_per_block": 4},
            "distil": {"episodes": 12},
            "evaluation": {"suites": ["seed"], "episodes": 3},
            **changes,
        }
    )


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("joint") / "run"
    train(joint(), path, reporter=quiet())
    return path


def of(run: Path, event: str) -> dict[str, dict[str, Any]]:
    """The last record of an event by family."""
    return {r["family"]: r for r in metrics(run) if r["event"] == event}


# What a run leaves behind ------------------------------------------------------------------------


def test_the_policy_is_trained_on_all_families_together(run: Path) -> None:
    assert list(of(run, "sft")) == list(of(run, "distil")) == ["all"]
    # One chunk for every step that was shown.
    shown = []
    folder = run / "checkpoints" / "round_001" / "families"
    for name in FAMILIES:
        with np.load(folder / name / "demonstrations.npz") as arrays:
            shown.append(len(arrays["actions"]))
    assert all(shown)
    assert of(run, "sft")["all"]["chunks"] == sum(shown)
    selected = of(run, "selection")
    assert list(selected) == FAMILIES
    assert of(run, "distil")["all"]["chunks"] == sum(r["chunks"] for r in selected.values())


def test_a_family_that_never_succeeds_leaves_the_others_to_learn(run: Path) -> None:
    selected = of(run, "selection")
    assert selected["articulated"]["success"] == selected["articulated"]["chunks"] == 0
    assert selected["pick-place"]["chunks"] > 0
    assert of(run, "block").keys() == {*FAMILIES}


def test_a_learner_sees_the_episodes_of_its_own_family_alone(run: Path) -> None:
    for name in FAMILIES:
        scenes = replayed(run, name)["scenes"]
        assert len(scenes) > 4
        assert {parse_scene(s, i).family for i, s in scenes.items()} == {name}


def test_a_familys_scenes_are_a_library_for_its_environment(run: Path) -> None:
    for name in FAMILIES:
        file = run / "scenes" / name / "round_001.jsonl"
        source = make_source(get_family(name), library=str(file))
        assert len(source.fixed) == 8


def test_success_is_told_by_family_and_for_all_together(run: Path) -> None:
    suites = {s["family"]: s["rounds"] for s in results(run)["suites"]}
    assert list(suites) == [*FAMILIES, "all"]
    for number in (0, 1):
        pick, articulated, together = (suites[f][number] for f in suites)
        assert together["n"] == pick["n"] + articulated["n"] == 6
        assert together["successes"] == pick["successes"] + articulated["successes"]
    assert suites["pick-place"][1]["successes"] > suites["articulated"][1]["successes"] == 0
    shown = events(run)
    for name, rounds in suites.items():
        rates = [(100 * r["round"], pytest.approx(r["rate"])) for r in rounds]
        assert shown[f"evaluation/{name}/seed/rate"] == rates
    lines = (run / "report.txt").read_text().splitlines()
    rows = [line.split()[:2] for line in lines if line.startswith((*FAMILIES, "all", "family"))]
    assert rows[:4] == [["family", "suite"], *([name, "seed"] for name in suites)]


def test_a_family_draws_the_same_whatever_other_families_there_are(
    run: Path, tmp_path: Path
) -> None:
    alone = tmp_path / "alone"
    train(joint(families=["articulated"], rounds=0), alone, reporter=quiet())
    mine, other = (
        replayed(path, "articulated")["parts"]["demonstrations"]["records"] for path in (alone, run)
    )
    assert [(r["scene"], r["seed"]) for r in mine] == [(r["scene"], r["seed"]) for r in other]


def test_a_scene_of_ones_own_belongs_to_its_family(tmp_path: Path) -> None:
    family = get_family("articulated")
    scene = family.sample(np.random.default_rng(5))
    config = joint(rounds=0, demonstrations={"episodes": 2})
    train(config, tmp_path / "run", scene=scene, reporter=quiet())
    measured = [(s["family"], s["suite"]) for s in results(tmp_path / "run")["suites"]]
    assert measured == [
        ("pick-place", "seed"), ("articulated", "seed"), ("articulated", "own"), ("all", "seed"),
    ]  # fmt: skip
    assert scene.id in replayed(tmp_path / "run", "articulated")["scenes"]
    assert scene.id not in replayed(tmp_path / "run", "pick-place")["scenes"]


# The command line --------------------------------------------------------------------------------


def test_evaluate_measures_every_family_or_one(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["evaluate", str(run), "--suite", "seed", "--episodes", "3"]
    assert main([*words, "--json"]) == 0
    document = strict(capsys.readouterr().out)
    recorded = of(run, "evaluation")
    figures = ("family", "suite", "n", "successes", "rate", "interval95")
    assert {k: document[k] for k in figures} == {k: recorded["all"][k] for k in figures}
    assert document["families"] == [{k: recorded[f][k] for k in figures} for f in FAMILIES]
    assert main([*words, "--family", "articulated", "--json"]) == 0
    one = strict(capsys.readouterr().out)
    assert one["families"] == document["families"][1:]
    assert one["family"] == "articulated"
    assert main([*words]) == 0
    rows = [line.split()[0] for line in capsys.readouterr().out.splitlines()[-4:]]
    assert rows == ["family", *FAMILIES, "all"]
    assert main([*words, "--family", "articulate"]) == 3
    assert "did you mean 'articulated'" in capsys.readouterr().err


def test_a_policy_can_be_tried_on_a_family_that_it_was_not_trained_on(run: Path) -> None:
    found = evaluate_run(run, suite="ood-dev", episodes=1, family="stack-insert")
    assert (found["family"], found["n"]) == ("stack-insert", 1)


# Going on ----------------------------------------------------------------------------------------


def test_a_joint_run_goes_on_from_the_checkpoint_of_every_family(run: Path, tmp_path: Path) -> None:
    again = Path(shutil.copytree(run, tmp_path / "again"))
    (
        again / "checkpoints" / "round_001" / "families" / "articulated" / "demonstrations.npz"
    ).unlink()
    said = resume(again)
    assert "articulated/demonstrations.npz is missing" in said
    assert "Going on after round 0" in said
    assert results(again) == results(run)
    assert metrics(again) == metrics(run)
    assert events(again) == events(run)


@pytest.mark.slow
@pytest.mark.timeout(600)
# The second one: when one family has learnt, in the middle of the other.
@pytest.mark.parametrize("moment", [".draft_000", "round_001_articulated_block_1", ".draft_001"])
def test_a_killed_joint_run_ends_as_if_it_had_never_been_killed(
    run: Path, tmp_path: Path, moment: str
) -> None:
    again, file = tmp_path / "again", tmp_path / "joint.yaml"
    file.write_text(joint().to_yaml())
    words = ["train", "--config", str(file), "--out", str(again)]
    command = process(words, tmp_path, {"KILL_AT": moment})
    _, err = command.communicate(timeout=280)
    assert command.returncode == -signal.SIGKILL, err
    resume(again)
    assert results(again) == results(run)
    assert metrics(again) == metrics(run)
    assert events(again) == events(run)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_two_joint_rounds_end_the_same_after_a_kill(tmp_path: Path) -> None:
    """In the second round the learners are those of the checkpoint, not new ones."""
    straight, again = tmp_path / "straight", tmp_path / "again"
    config = joint(rounds=2)
    train(config, straight, reporter=quiet())
    (tmp_path / "joint.yaml").write_text(config.to_yaml())
    words = ["train", "--config", "joint.yaml", "--out", "again"]
    command = process(words, tmp_path, {"KILL_AT": "round_002_articulated_warm_up"})
    command.communicate(timeout=280)
    assert command.returncode == -signal.SIGKILL
    assert "Going on after round 1" in resume(again)
    assert results(again) == results(straight)
    assert metrics(again) == metrics(straight)


def test_a_checkpoint_of_other_families_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "run"
    train(joint(rounds=0, families=["pick-place"]), path, reporter=quiet())
    (path / "results.json").unlink()
    (path / "config.yaml").write_text(joint().to_yaml())
    with pytest.raises(RunError, match=r"holds the families pick-place\..*pick-place, articulated"):
        resume(path)


# The full loop -----------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_modes_stay_with_their_family(tmp_path: Path) -> None:
    """Pick-place finds its mode, articulated trains on wide scenes and is not aimed at it."""
    path = tmp_path / "run"
    train(tiny(families=FAMILIES), path, reporter=quiet())
    found = results(path)
    modes = [entry["mode"] for entry in found["modes"]]
    assert "pick-place" in {mode["family"] for mode in modes}
    plans = of(path, "plan")
    for name in FAMILIES:
        own = {mode["id"] for mode in modes if mode["family"] == name}
        assert set(plans[name]["aimed"]) <= own
    with MemoryStore.open_read_only(path / "memory.sqlite") as memory:
        kept = memory.modes()
        assert [m for name in FAMILIES for m in memory.modes(family=name)] == sorted(
            kept, key=lambda m: FAMILIES.index(m.family)
        )
    assert {c["family"] for c in found["controls"]} >= {"pick-place"}
    assert of(path, "diagnosis").keys() == {*FAMILIES}


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_built_in_policy_learns_two_families_whatever_the_number_of_workers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rollout, "UNIT", 3)
    found = []
    for workers in (1, 2):
        config = joint(
            workers=workers,
            backbone={"name": "flow_chunk", "options": {"width": 32}},
            sft={"updates": 20},
        )
        path = tmp_path / str(workers)
        train(config, path, reporter=quiet())
        result = results(path)
        assert result["config"].pop("workers") == workers
        found.append((result, metrics(path)))
    assert found[0] == found[1]
