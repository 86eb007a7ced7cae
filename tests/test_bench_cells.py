"""Presets and cells: what a benchmark will run, checked before it runs."""

from __future__ import annotations

from pathlib import Path

import pytest
from bench_cases import RUN, write_preset

from coda_envs.errors import ConfigError
from coda_trainer.benchmarks.bench import BENCHES, make_bench
from coda_trainer.benchmarks.cells import Cell, check_cells, chosen, fingerprint
from coda_trainer.benchmarks.pilot import PilotPreset
from coda_trainer.benchmarks.preset import FOLDER, load_preset
from coda_trainer.benchmarks.table4 import Table4Preset
from coda_trainer.config import RunConfig

#: Benchmarks of trials train nothing, and have no cells.
PRESETS = sorted(p for p in FOLDER.glob("*.yaml") if p.stem.partition("-")[0] in BENCHES)


@pytest.mark.parametrize("path", PRESETS, ids=lambda p: p.stem)
def test_shipped_presets_load_and_give_cells_that_can_be_run(path: Path) -> None:
    name, _, preset_name = path.stem.partition("-")
    bench = make_bench(name)
    preset = load_preset(bench.preset_type, name, preset_name)
    cells = bench.cells(preset)
    check_cells(cells)
    assert {c.config.seed for c in cells} == set(preset.seeds)
    assert all(preset.tuned_on in c.config.evaluation.suites for c in cells)
    # Equal budgets: arms of one seed and group start from one fine-tuning, which is no arm's own.
    trained = [c for c in cells if c.config.strategy != "sft"]
    starts = {(c.group, c.config.seed): c.start for c in trained}
    assert all(starts[c.group, c.config.seed] == c.start for c in trained)


@pytest.mark.parametrize("preset", ["smoke", "small"])
def test_figure_4_shares_its_runs_and_measurements_with_table_4(preset: str) -> None:
    table, figure = make_bench("table4"), make_bench("figure4")
    theirs = table.cells(load_preset(table.preset_type, "table4", preset))
    own = figure.cells(load_preset(figure.preset_type, "figure4", preset))
    assert {(c.folder, c.agreement) for c in own} <= {(c.folder, c.agreement) for c in theirs}


def test_the_pilot_starts_from_the_fine_tunings_of_table_4() -> None:
    table, pilot = make_bench("table4"), make_bench("pilot")
    theirs = table.cells(load_preset(table.preset_type, "table4", "small"))
    own = pilot.cells(load_preset(pilot.preset_type, "pilot", "small"))
    shared = {fingerprint(c.start) for c in own} & {fingerprint(c.start) for c in theirs}
    assert len(shared) == 3


def test_small_presets_compare_three_seeds_and_all_six_signals() -> None:
    preset = load_preset(Table4Preset, "table4", "small")
    assert len(preset.seeds) == 3
    assert len(make_bench("table4").cells(preset)) == 18
    pilot = load_preset(PilotPreset, "pilot", "small")
    assert len(pilot.families) >= 2
    assert len(pilot.seeds) == 3


def test_a_folder_is_named_by_its_settings_but_for_the_workers() -> None:
    one = RunConfig()
    assert fingerprint(one) == fingerprint(one.model_copy(update={"workers": 2}))
    assert fingerprint(one) != fingerprint(one.model_copy(update={"rounds": 3}))
    assert Cell("sparse", one).folder == f"coda-text2potential-seed0-{fingerprint(one)}"
    assert Cell("wide", one, group="put-inside").folder == Cell("sparse", one).folder
    assert Cell("sparse", one, group="put-inside").name == "put-inside-sparse-seed0"


def test_cells_are_chosen_by_name_or_arm() -> None:
    cells = [Cell(a, RunConfig(seed=s)) for s in (0, 1) for a in ("sparse", "frozen")]
    assert [c.name for c in chosen(cells, ["sparse"])] == ["sparse-seed0", "sparse-seed1"]
    assert [c.name for c in chosen(cells, ["frozen-seed1"])] == ["frozen-seed1"]
    assert chosen(cells, []) == cells
    with pytest.raises(ConfigError, match="did you mean 'sparse'"):
        chosen(cells, ["sparce"])


def test_two_cells_of_one_name_are_refused() -> None:
    with pytest.raises(ConfigError, match="two cells"):
        check_cells([Cell("a", RunConfig()), Cell("a", RunConfig(rounds=5))])
    with pytest.raises(ConfigError, match="a-seed0 and b-seed0 are the same run"):
        check_cells([Cell("a", RunConfig()), Cell("b", RunConfig(workers=2))])
    with pytest.raises(ConfigError, match="hyphens"):
        check_cells([Cell("Ω alone", RunConfig())])


BAD = {
    "an unknown setting of the run": ({"run": {**RUN, "round": 3}}, "round is 3"),
    "a value of the run": ({"run": {**RUN, "rounds": "many"}}, "rounds is 'many'"),
    "an entry": ({"seed": [0]}, "line .*seed is"),
    "no seeds": ({"seeds": []}, "seeds is"),
    "a seed twice": ({"seeds": [1, 1]}, "seeds is.*without repeats"),
    "a signal": ({"signals": ["shaped"]}, "signals.0 is 'shaped'"),
    "a target": ({"target": 25}, "target is 25"),
    "a suite that is tuned on": ({"tuned_on": "ood-far"}, "not evaluated on 'ood-far'"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_preset_is_one_clear_error_before_anything_runs(tmp_path: Path, case: str) -> None:
    changes, words = BAD[case]
    path = write_preset(tmp_path / "mine.yaml", **changes)
    bench = make_bench("table4")
    with pytest.raises(ConfigError, match=words):
        bench.cells(load_preset(bench.preset_type, "table4", str(path)))


def test_misspelt_names_come_with_what_there_is(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="did you mean 'table4'"):
        make_bench("tabel4")
    with pytest.raises(ConfigError, match="did you mean 'small'"):
        load_preset(Table4Preset, "table4", "smal")
    (tmp_path / "x.yaml").write_text("like: nothing\n")
    with pytest.raises(ConfigError, match=r"nothing\.yaml cannot be read"):
        load_preset(Table4Preset, "table4", str(tmp_path / "x.yaml"))


def test_a_pilot_without_its_reference_is_refused() -> None:
    preset = load_preset(PilotPreset, "pilot", "smoke").model_copy(update={"reference": "both2"})
    with pytest.raises(ConfigError, match="did you mean 'both'"):
        make_bench("pilot").cells(preset)


def test_the_pilot_states_its_ordering_and_power_beforehand() -> None:
    bench = make_bench("pilot")
    preset = load_preset(PilotPreset, "pilot", "small")
    told = bench.expected(preset)
    assert told["ordering"] == preset.ordering
    family, every = told["detectable"]["one family"], told["detectable"]["all families"]
    assert family["n"] == 3 * preset.config(0).evaluation.episodes
    assert every["n"] == 2 * family["n"]
    assert 0 < every["paired"] < family["paired"] < 0.2


def test_every_benchmark_is_in_the_manual() -> None:
    page = (FOLDER.parents[1] / "docs" / "benchmarks.md").read_text()
    for name in BENCHES:
        assert f"coda bench {name}" in page
