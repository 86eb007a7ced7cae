"""Figures of several runs together, against calculations by hand; what is not measured."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bench_cases import figures

from coda_trainer.benchmarks import summary
from coda_trainer.benchmarks.bench import make_bench
from coda_trainer.benchmarks.preset import load_preset
from coda_trainer.benchmarks.table4 import Table4Preset
from coda_trainer.benchmarks.tables import NOT_MEASURED, markdown, percent, points, with_error
from coda_trainer.statistics import detectable_difference, mean_and_error, wilson

SPARSE = [
    figures("sparse", {"ood-dev": [[0, 0, 0, 0], [1, 0, 0, 0]]}),
    figures("sparse", {"ood-dev": [[0, 0, 0, 1], [0, 0, 1, 1]]}, seed=1),
]
SHAPED = [
    figures("text2potential", {"ood-dev": [[0, 0, 0, 0], [1, 1, 0, 0]]}),
    figures("text2potential", {"ood-dev": [[0, 0, 0, 1], [1, 1, 1, 1]]}, seed=1),
]
ARMS = summary.by_arm([*SPARSE, *SHAPED])


def last(arm: str) -> Any:
    return summary.last_success(ARMS[arm], "ood-dev")


def test_success_is_the_mean_over_seeds_and_the_interval_over_episodes() -> None:
    found = summary.success(last("text2potential"))
    assert found is not None
    assert found["mean"] == pytest.approx(0.75)
    assert found["standard_error"] == pytest.approx(np.std([0.5, 1.0], ddof=1) / math.sqrt(2))
    assert (found["n"], found["successes"]) == (8, 6)
    assert found["interval95"] == wilson(6, 8)
    assert found["seeds"] == {"0": 0.5, "1": 1.0}


def test_families_of_one_seed_are_pooled_before_seeds_are_compared() -> None:
    runs = summary.by_arm(
        [
            figures("a", {"x": [[1, 1]]}, group="one", updates=[0]),
            figures("a", {"x": [[0, 0]]}, group="other", updates=[0]),
        ]
    )["a"]
    found = summary.success(summary.last_success(runs, "x"))
    assert found is not None
    assert (found["mean"], found["standard_error"], found["n"]) == (0.5, None, 4)


def test_a_gain_is_paired_by_episode_and_seed_and_may_be_a_tie() -> None:
    found = summary.against(last("sparse"), last("text2potential"))
    assert found is not None
    # Episodes won: one under seed 0, two under seed 1; none lost.
    assert found["gain"] == pytest.approx(3 / 8)
    assert (found["runs"], found["n"]) == (2, 8)
    same = summary.against(last("sparse"), last("sparse"))
    assert same is not None
    assert same["gain"] == 0.0
    assert same["tie"] is True
    assert points(same).endswith("tie")
    assert "tie" not in points({"gain": 0.2, "interval95": (0.1, 0.3), "tie": False})


def test_runs_that_only_one_arm_has_are_not_compared() -> None:
    found = summary.against(last("sparse"), summary.last_success(
        {k: v for k, v in ARMS["text2potential"].items() if k[1] == 1}, "ood-dev"
    ))  # fmt: skip
    assert found is not None
    assert (found["runs"], found["n"]) == (1, 4)
    assert summary.against(last("sparse"), {}) is None


def test_updates_to_the_target_are_read_at_round_ends_and_not_reached_is_no_number() -> None:
    found = summary.updates_to(ARMS["text2potential"], "ood-dev", 0.5)
    assert found["by_run"] == {"0": 100, "1": 100}
    assert found["mean"] == 100
    some = summary.updates_to(ARMS["sparse"], "ood-dev", 0.5)
    assert some["by_run"] == {"0": None, "1": 100}
    assert some["mean"] is None
    at_once = summary.updates_to(ARMS["sparse"], "ood-dev", 0.0)
    assert at_once["by_run"] == {"0": 0, "1": 0}


def test_a_curve_has_a_band_over_runs() -> None:
    first, second = summary.curve(ARMS["sparse"], "ood-dev")
    assert (first["round"], first["updates"], first["mean"]) == (0, 0, pytest.approx(0.125))
    assert (second["updates"], second["mean"], second["runs"]) == (100, pytest.approx(0.375), 2)
    assert second["standard_error"] == pytest.approx(0.125)


def agreed(percent: float | None, n: int = 10) -> dict[str, Any]:
    share = {"n": n, "percent": percent, "interval95": None if percent is None else [0.0, 100.0]}
    ceiling = {**share, "percent": None if percent is None else 90.0}
    return {
        "updates": 50, "compared": share, "ceiling": ceiling, "uninformative": 3, "chance": 25.0,
    }  # fmt: skip


def test_agreement_is_averaged_over_runs_that_measured_it() -> None:
    def run(seed: int, curve: Any) -> Any:
        families = [{"family": "f", "episodes": 4, "successes": 2, "curve": curve, "reason": ""}]
        return figures("a", {}, seed=seed, agreement={"families": families})

    runs = summary.by_arm([run(0, [agreed(80.0)]), run(1, [agreed(100.0)]), run(2, None)])["a"]
    (point,) = summary.agreement_curve(runs)
    assert (point["mean"], point["measured"], point["ceiling"]) == (90.0, 2, 90.0)
    assert (point["informative"], point["uninformative"], point["success"]) == (20, 6, 0.5)
    nothing = summary.by_arm([run(0, [agreed(None, 0)])])["a"]
    assert summary.agreement_curve(nothing) == []


def test_steps_are_means_over_runs_by_purpose() -> None:
    found = summary.steps_of(ARMS["sparse"])
    assert found == {"mean": 15.5, "by_purpose": {"training": 10.5, "control": 5.0}}


# Tables ------------------------------------------------------------------------------------------


def test_what_was_not_measured_is_not_a_zero(tmp_path: Path) -> None:
    assert percent(None) == points(None) == NOT_MEASURED == "not measured"
    assert with_error(27.64, None) == "27.6"
    assert with_error(27.64, 0.46) == "27.6 ± 0.5"
    assert with_error(8000.0, 1000.0, digits=0) == "8,000 ± 1,000"
    for name in ("table4", "figure4", "pilot", "tools"):
        bench = make_bench(name)
        preset = load_preset(bench.preset_type, name, "smoke")
        told = bench.combine(preset, [])
        tables = bench.tables(preset, told)
        assert all(NOT_MEASURED in " ".join(map(str, row)) for row in tables[0].rows)
        bench.draw(preset, told, tmp_path / f"{name}.png")
        assert (tmp_path / f"{name}.png").read_bytes().startswith(b"\x89PNG")


def test_table_4_says_what_the_runs_said_beside_the_paper() -> None:
    bench = make_bench("table4")
    preset = load_preset(Table4Preset, "table4", "smoke").model_copy(
        update={"signals": ("sparse", "frozen", "text2potential"), "target": 0.5}
    )
    suites = ("seed", "wide", "ood-dev", "ood")

    def everywhere(run: Any, arm: str, **more: Any) -> Any:
        outcomes = [list(s.outcomes) for s in run.curves["ood-dev"]]
        seed = run.cell.config.seed
        return figures(arm, dict.fromkeys(suites, outcomes), seed=seed, **more)

    runs = [
        *(everywhere(r, "sparse") for r in SPARSE),
        *(everywhere(r, "text2potential") for r in SHAPED),
        everywhere(SPARSE[0], "frozen", choice={"ood-dev": [1, 1, 1, 0]}),
    ]
    table, choice = bench.tables(preset, bench.combine(preset, runs))
    page = markdown([table, choice], "Table 4", ["x.png"])
    rows = {row[0]: row for row in table.rows}
    sparse, shaped = rows["sparse only"], rows["Text2potential"]
    assert "37.5 ± 12.5 [13.7, 69.4]" in sparse
    assert "reference" in sparse
    assert "not reached (1 of 2 runs did)" in sparse
    assert "22.3 / 31 / –" in sparse
    assert "75.0 ± 25.0 [40.9, 92.9]" in shaped
    assert any(cell.startswith("+37.5 [") for cell in shaped)
    assert "100 ± 0" in shaped
    # The frozen actor: the headline is the backbone alone, the critic's choice stands apart.
    frozen = rows["frozen actor, Q-weighted selection"]
    assert frozen[2].startswith("25.0 [")
    assert choice.title == "Critic at test time"
    assert ("frozen actor, Q-weighted selection", "ood-dev", "75.0 [30.1, 95.4]") in choice.rows
    assert "![Table 4](x.png)" in page
    assert "| 22.3 / 31 / – |" in page


# Statistics --------------------------------------------------------------------------------------


def test_one_seed_has_no_error() -> None:
    assert mean_and_error([0.4]) == (0.4, None)
    mean, error = mean_and_error([1.0, 2.0, 6.0])
    assert (mean, error) == (3.0, pytest.approx(np.std([1, 2, 6], ddof=1) / math.sqrt(3)))
    with pytest.raises(ValueError, match="nothing"):
        mean_and_error([])


def test_a_detectable_difference_is_detected_four_times_in_five() -> None:
    n, rate = 600, 0.3
    gap = detectable_difference(n, rate=rate, discordant=0.3)
    rng = np.random.default_rng(0)
    one = rng.binomial(n, rate - gap["unpaired"] / 2, 4000) / n
    two = rng.binomial(n, rate + gap["unpaired"] / 2, 4000) / n
    error = np.sqrt((one * (1 - one) + two * (1 - two)) / n)
    assert np.mean((two - one) / error > 1.96) == pytest.approx(0.8, abs=0.03)
    # Paired: gained and lost episodes differ by the gap, both together are ψ of all.
    up, down = (0.3 + gap["paired"]) / 2, (0.3 - gap["paired"]) / 2
    counts = rng.multinomial(n, [up, down, 1 - up - down], 4000) / n
    gain, both = counts[:, 0] - counts[:, 1], counts[:, 0] + counts[:, 1]
    assert np.mean(gain / np.sqrt((both - gain**2) / n) > 1.96) == pytest.approx(0.8, abs=0.03)
