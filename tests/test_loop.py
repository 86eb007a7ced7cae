"""The loop for real: what a run leaves behind, from a failure to the progress made on it."""

from __future__ import annotations

from pathlib import Path

import pytest
from command_line import process
from tiny_run import WEAK, contents, events, metrics, quiet, replayed, results, tiny

from coda_envs.family import get_family
from coda_envs.scene import parse_scene
from coda_trainer.config_file import load_run_config
from coda_trainer.evaluation import SEEDS
from coda_trainer.learning import rollout
from coda_trainer.memory.store import MemoryStore
from coda_trainer.rounds.loop import train
from coda_trainer.strategies.base import reset_source

FAMILY = get_family("pick-place")

# What a run leaves behind ------------------------------------------------------------------------


def test_a_run_folder_holds_what_the_documentation_says(finished: Path) -> None:
    names = {p.name for p in finished.iterdir() if not p.name.startswith((".", "memory.sqlite-"))}
    assert names == {
        "checkpoints", "config.yaml", "events", "frames", "manifest.json", "memory.sqlite",
        "metrics.jsonl", "report.txt", "results.json", "scenes",
    }  # fmt: skip
    page = (Path(__file__).parents[1] / "docs" / "run_folder.md").read_text()
    assert [n for n in names if n not in page] == []
    assert load_run_config(finished) == tiny()
    rounds = sorted(p.name for p in (finished / "checkpoints").iterdir())
    assert rounds == ["round_000", "round_001"]
    assert (finished / "frames" / "pick-place_success.png").read_bytes().startswith(b"\x89PNG")


def test_a_weakness_becomes_a_mode_and_training_removes_it(finished: Path) -> None:
    found = results(finished)
    (control,) = found["controls"]
    assert control["verdict"] == "confirmed"
    assert control["signature"][2:4] == ["attributes.target.size", "high"]
    (entry,) = found["modes"]
    mode = entry["mode"]
    assert [e["event"] for e in mode["history"]][:3] == ["created", "confirmed", "selected"]
    assert mode["state"] == "retained"
    (edit,) = entry["omega"]["edits"]
    assert edit["factor"] == "attributes.target.size"
    assert entry["phi"]["subgoals"] == [mode["stage"]]
    # Measured before its lessons and after them: it fails in some probes, then in none.
    with MemoryStore.open_read_only(finished / "memory.sqlite") as memory:
        first, last = memory.records("progress", mode_id=mode["id"])
    assert sum(first["data"]["probes"]) < sum(last["data"]["probes"]) == 4
    assert last["data"]["progress"]["mean"] > 0
    text = (finished / "report.txt").read_text()
    assert "attributes.target.size" in text
    assert "[low, high]: 95% interval" in text


def test_success_has_n_an_interval_and_a_paired_gain(finished: Path) -> None:
    for suite in results(finished)["suites"]:
        assert [r["round"] for r in suite["rounds"]] == [0, 1]
        for measured in suite["rounds"]:
            low, high = measured["interval95"]
            assert measured["n"] == 4
            assert low <= measured["rate"] <= high
        mean, low, high = suite["gain"]
        first, last = suite["rounds"]
        assert mean == pytest.approx(last["rate"] - first["rate"])
        assert low <= mean <= high


def test_training_never_sees_controls_probes_tests_or_held_out_scenes(finished: Path) -> None:
    found = results(finished)
    (entry,) = found["modes"]
    replay = replayed(finished, "pick-place")
    records = [r for part in replay["parts"].values() for r in part["records"]]
    mode = entry["mode"]["id"]
    # A mode whose stage was entered also has episodes that start there.
    assert {r["source"] for r in records} - {reset_source(mode)} == {
        "demonstration", "explore", "wide", mode,
    }  # fmt: skip
    seen = {(r["scene"], r["seed"]) for r in records}
    (control,) = found["controls"]
    tested = {(s, p["seed"]) for p in control["pairs"] for s in p["scenes"]}
    probes = {
        (p["scene_id"], p["seed"]) for p in (*entry["mode"]["probes"], *entry["mode"]["controls"])
    }
    assert len(tested) >= 12
    assert len(probes) == 8
    assert seen.isdisjoint(tested | probes)
    assert max(r["seed"] for r in records) < SEEDS
    scenes = {i: parse_scene(s, i) for i, s in replay["scenes"].items()}
    assert {FAMILY.region(s) for s in scenes.values()} == {"generator"}
    # Nor do controls and probes themselves touch what is kept for testing.
    with MemoryStore.open_read_only(finished / "memory.sqlite") as memory:
        kept = [parse_scene(row["data"], "scene") for row in memory.records("scenes")]
    assert {FAMILY.region(s) for s in kept} == {"generator"}


def test_events_say_what_the_metrics_say(finished: Path) -> None:
    shown = events(finished)
    rates = [r["rate"] for r in metrics(finished) if r.get("suite") == "ood-dev"]
    assert shown["evaluation/pick-place/ood-dev/rate"] == [
        (0, pytest.approx(rates[0])), (100, pytest.approx(rates[1])),
    ]  # fmt: skip
    losses = [r["critic_loss"] for r in metrics(finished) if r["event"] == "block"]
    assert shown["block/pick-place/critic_loss"] == [
        (100, pytest.approx(losses[0])), (101, pytest.approx(losses[1])),
    ]  # fmt: skip


def test_a_run_says_what_it_does_on_standard_error_alone(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text(tiny(strategy="sft").to_yaml())
    command = process(["train", "--config", "c.yaml", "--out", "run"], tmp_path)
    out, err = command.communicate(timeout=110)
    assert command.returncode == 0, err
    assert out.startswith((tmp_path / "run" / "report.txt").read_text())
    assert "\x1b" not in err
    assert "  fine-tuning: 40" in err.splitlines()
    assert WEAK not in out


# The same numbers --------------------------------------------------------------------------------


@pytest.mark.slow
def test_equal_settings_give_equal_runs(finished: Path, tmp_path: Path) -> None:
    again = tmp_path / "again"
    train(tiny(), again, reporter=quiet())
    one, other = contents(finished), contents(again)
    exact = {n for n in one if n.startswith(("scenes", "frames", "checkpoints"))}
    exact |= {"metrics.jsonl", "report.txt", "config.yaml"}
    assert {n for n in exact if one[n] != other.get(n)} == set()
    assert results(finished) == results(again)


@pytest.mark.slow
def test_the_number_of_workers_changes_no_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Small units, so that both workers get some; and the built-in policy, whose numbers depend on
    # every bit that torch computes.
    monkeypatch.setattr(rollout, "UNIT", 3)
    found = []
    for workers in (1, 2):
        config = tiny(
            strategy="uniform",
            workers=workers,
            backbone={"name": "flow_chunk", "options": {"width": 32}},
            sft={"updates": 20},
        )
        train(config, tmp_path / str(workers), reporter=quiet())
        result = results(tmp_path / str(workers))
        assert result["config"].pop("workers") == workers
        found.append((result, metrics(tmp_path / str(workers))))
    assert found[0] == found[1]


@pytest.mark.parametrize("strategy", ["sft", "uniform"])
def test_the_other_strategies_leave_a_run_too(tmp_path: Path, strategy: str) -> None:
    run = tmp_path / "run"
    train(tiny(strategy=strategy), run, reporter=quiet())
    found = results(run)
    assert found["controls"] == found["modes"] == []
    rounds = {"sft": [0], "uniform": [0, 1]}[strategy]
    assert [r["round"] for r in found["suites"][0]["rounds"]] == rounds
    assert (found["suites"][0]["gain"] is None) == (strategy == "sft")
    assert ("not measured" in (run / "report.txt").read_text()) == (strategy == "sft")
    assert {r["event"] for r in metrics(run)} >= {"sft", "evaluation"}


def test_a_round_may_be_without_warm_up_and_distillation(tmp_path: Path) -> None:
    config = tiny(
        strategy="uniform",
        sft={"updates": 0},
        collect={"warm_up_episodes": 0},
        distil={"episodes": 0},
        backbone={"name": "flow_chunk", "options": {"width": 16}},
        evaluation={"suites": ["seed"], "episodes": 1},
    )
    train(config, tmp_path / "run", reporter=quiet())
    (warm_up,) = [r for r in metrics(tmp_path / "run") if r["event"] == "warm_up"]
    assert warm_up["success"] is None
    assert [r["block"] for r in metrics(tmp_path / "run") if r["event"] == "block"] == [0, 1]
