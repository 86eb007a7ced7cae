"""Table 8: the band, figures from counts, and one small trial with a real policy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from coda_trainer.benchmarks.engine_trials import BAND, in_band
from coda_trainer.benchmarks.preset import load_preset
from coda_trainer.benchmarks.table8 import Table8, Table8Preset
from coda_trainer.benchmarks.trials import run_trial_bench


@pytest.mark.parametrize("name", ["smoke", "small"])
def test_shipped_presets_load_and_give_trials(name: str) -> None:
    preset = load_preset(Table8Preset, "table8", name)
    assert len(Table8().trials(preset)) == len(preset.seeds) * len(preset.families)


def test_the_band_is_a_matter_of_probability_not_of_the_observed_rate_alone() -> None:
    never, always, half = (np.array([k]) for k in (0, 16, 8))
    assert in_band(half, 16, BAND)["posterior"] > 0.99
    assert in_band(half, 16, BAND)["observed"] == 1.0
    for extreme in (never, always):
        found = in_band(extreme, 16, BAND)
        assert found["observed"] == 0.0
        assert 0.0 < found["posterior"] < 0.05
    # At the edge of the band the rate says yes, and the probability "as likely as not".
    edge = in_band(np.array([2]), 10, BAND)
    assert edge["observed"] == 1.0
    assert 0.4 < edge["posterior"] < 0.75


def arm(first: int, proposals: int, bits: float, posterior: float) -> dict[str, Any]:
    return {
        "scenes": 8,
        "proposals": proposals,
        "first_try": first,
        "edit_survival": None,
        "coverage": {"joint": bits, "mean": 1.0, "n": 8},
        "in_band": {"observed": 1.0, "posterior": posterior},
        "in_wide_band": {"observed": 1.0, "posterior": posterior + 0.1},
    }


def test_figures_are_over_trials_and_what_no_trial_had_is_not_measured() -> None:
    trials = [
        {
            "verdicts": ["confirmed", "refuted", "untestable"],
            "arms": {
                "uniform": arm(6, 10, 3.0, 0.2),
                "uncontrolled": arm(9, 10, 2.0, 0.5),
                "coda": None,
            },
        },
        {
            "verdicts": ["confirmed"],
            "arms": {"uniform": arm(8, 10, 4.0, 0.4), "uncontrolled": None, "coda": None},
        },
    ]
    bench = Table8()
    preset = load_preset(Table8Preset, "table8", "smoke")
    figures = bench.combine(preset, trials)
    assert figures["tested"] == 4
    assert figures["refuted"]["rate"] == pytest.approx(1 / 3)
    uniform = figures["arms"]["uniform"]
    assert uniform["verified"]["rate"] == pytest.approx(0.7)
    assert uniform["targeting"] == pytest.approx((0.3, 0.1))
    assert figures["arms"]["uncontrolled"]["targeting"] == (0.5, None)
    (table,) = bench.tables(figures)
    assert table.rows[0][3] == "30.0 ± 10.0"
    assert "not measured" in table.rows[2]
    assert bench.combine(preset, [])["refuted"] is None


@pytest.mark.slow
def test_a_trial_measures_scenes_at_a_real_policys_difficulties(tmp_path: Path) -> None:
    sizes = {
        "seeds": [0],
        "families": ["pick-place"],
        "demonstrations": 40,
        "updates": 400,
        "episodes": 128,
        "claims": 3,
        "per_arm": 8,
        "variants": 6,
        "rollouts": 4,
    }
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(sizes), encoding="utf-8")
    where: dict[str, Any] = {"runs": tmp_path / "runs", "out": tmp_path / "out", "say": print}
    report = run_trial_bench("table8", str(tmp_path / "mine.yaml"), **where)
    (trial,) = report.result["trials"].values()
    assert trial["arms"]["uniform"]["scenes"] == 6
    assert len(trial["arms"]["uniform"]["successes"]) == 6
    made = trial["arms"]["uncontrolled"]
    if made is not None:
        assert made["edit_survival"] is not None
        assert made["coverage"]["n"] <= trial["compared"]
    for path in report.files:
        assert path.stat().st_size > 0
