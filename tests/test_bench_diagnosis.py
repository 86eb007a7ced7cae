"""The diagnosis benchmark: trials are resumed, figures are counts of what was said."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from coda_envs.errors import CodaError, RunError
from coda_trainer.benchmarks.diagnosis import DiagnosisPreset
from coda_trainer.benchmarks.diagnosis_figures import combine, tables
from coda_trainer.benchmarks.preset import FOLDER, load_preset
from coda_trainer.benchmarks.trials import run_trial_bench

PRESET: dict[str, Any] = {
    "seeds": [0],
    "families": ["pick-place"],
    "faults": ["no_grasp", "slip"],
    "episodes": 64,
    "claims": 1,
    "per_arm": 4,
    "diagnosticians": {"trace": {}, "random_factor": {}},
}


def preset(path: Path, **changes: Any) -> str:
    path.write_text(yaml.safe_dump(PRESET | changes), encoding="utf-8")
    return str(path)


@pytest.mark.parametrize("name", ["smoke", "small"])
def test_shipped_presets_load(name: str) -> None:
    loaded = load_preset(DiagnosisPreset, "diagnosis", name)
    assert loaded.baseline in loaded.diagnosticians
    assert FOLDER.is_dir()


def test_a_benchmark_that_was_stopped_goes_on_where_it_was(tmp_path: Path) -> None:
    mine = preset(tmp_path / "mine.yaml")
    where: dict[str, Any] = {"runs": tmp_path / "runs", "out": tmp_path / "out"}
    said: list[str] = []
    first = run_trial_bench("diagnosis", mine, only=["slip"], say=said.append, **where)
    assert not first.result["complete"]
    assert first.result["figures"]["trials"] == 1
    second = run_trial_bench("diagnosis", mine, say=said.append, **where)
    assert second.result["complete"]
    assert [line.split(":")[0] for line in said] == [
        "pick-place-slip-seed0",
        "pick-place-no-grasp-seed0",
    ]
    for path in second.files:
        assert path.stat().st_size > 0
    written = json.loads(second.files[0].read_text())
    assert written["figures"]["diagnosticians"]["trace"]["factor"]["rate"] > 0.5
    (file,) = (tmp_path / "runs").glob("diagnosis-*/pick-place-slip-seed0.json")
    file.write_text("{")
    with pytest.raises(RunError, match="remove that file"):
        run_trial_bench("diagnosis", mine, say=said.append, **where)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"faults": ["slipp"]}, "unknown fault 'slipp'.*did you mean 'slip'"),
        ({"families": ["pick"]}, "unknown.*'pick'"),
        ({"diagnosticians": {"trace": {}}}, "baseline is 'random_factor'"),
        ({"diagnosticians": {"vlm": {}, "random_factor": {}}}, "base_url"),
        ({"episodes": 0}, "episodes is 0"),
    ],
)
def test_a_bad_preset_is_refused_before_anything_runs(
    tmp_path: Path, changes: Mapping[str, Any], words: str
) -> None:
    mine = preset(tmp_path / "mine.yaml", **changes)
    with pytest.raises(CodaError, match=words):
        run_trial_bench("diagnosis", mine, runs=tmp_path / "runs", out=tmp_path / "out", say=print)
    assert not (tmp_path / "out").exists()


def trial(factor: str, said: str, *, right: int, named: int, verdict: str) -> dict[str, Any]:
    """A trial with 10 failures of which ``named`` got a claim, ``right`` of these a true one."""
    one = {
        "diagnosed": 10,
        "abstained": 10 - named,
        "stage_right": 9,
        "factor_right": right,
        "factor_or_second": named,
        "direction_right": right,
        "stages": {"grasp": 9, "reach": 1},
        "factors": {factor: right, said: named - right},
        "confidence": [[0.9, True]] * right + [[0.5, False]] * (named - right),
        "other_failures": 4,
        "other_claims": 1,
        "controls": [
            {
                "verdict": verdict,
                "true": False,
                "factor": factor,
                "direction": "high",
                "episodes": 8,
            }
        ],
        "usage": None,
    }
    return {
        "family": "pick-place",
        "fault": "slip",
        "seed": 0,
        "left_out": "",
        "stage": "grasp",
        "caused": 10,
        "cause": {"factor": factor, "direction": "high"},
        "said": {"trace": one},
    }


def test_figures_are_shares_of_the_counts() -> None:
    trials = [
        trial("a", "b", right=6, named=8, verdict="confirmed"),
        trial("a", "b", right=8, named=8, verdict="refuted"),
        {**trial("a", "b", right=0, named=0, verdict="refuted"), "left_out": "why", "said": {}},
    ]
    figures = combine(trials, "random_factor")
    one = figures["diagnosticians"]["trace"]
    assert figures["trials"] == 2
    assert one["factor"]["rate"] == pytest.approx(14 / 16)
    assert one["factor"]["n"] == 16
    low, high = one["factor"]["interval95"]
    assert low == pytest.approx(6 / 8)
    assert high == pytest.approx(1.0)
    assert one["abstention"]["rate"] == pytest.approx(4 / 20)
    assert one["claims_about_others"]["rate"] == pytest.approx(2 / 8)
    assert one["refuted_percent"]["rate"] == pytest.approx(0.5)
    # Both claims name the cause, at another stage: to refute one is right there, and wrong here.
    assert one["agreement"]["rate"] == pytest.approx(0.5)
    assert one["agreement_on_cause"]["rate"] == pytest.approx(0.5)
    assert figures["majority_class"]["rate"] == pytest.approx(1.0)
    assert one["factor_confusion"] == {"a": {"a": 14, "b": 2}}
    assert sum(b["n"] for b in one["calibration"]) == 16
    text = "\n".join(note for table in tables(figures) for note in table.notes)
    assert "why" in text


def test_what_was_not_measured_is_said_so() -> None:
    figures = combine([], "random_factor")
    assert figures["majority_class"] is None
    (main, *_) = tables(figures)
    assert "not measured" in main.rows[0]
