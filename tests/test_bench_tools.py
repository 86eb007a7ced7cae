"""The experiment with the learning tools: its cells, its figures, and a run of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from bench_cases import RUN, figures
from command_line import process, strict

from coda_envs.errors import ConfigError
from coda_envs.family import get_family
from coda_envs.programs.training import TOOLS
from coda_trainer.benchmarks.bench import make_bench
from coda_trainer.benchmarks.preset import load_preset
from coda_trainer.benchmarks.tables import NOT_MEASURED
from coda_trainer.benchmarks.tools import ARMS, ToolsPreset
from coda_trainer.evaluation import hard_cells

MODES = {"pick-place": {"wide_and_turned": "grasp", "over_a_high_rim": "transport"}}
#: Twice round the harder thirds of the five interactions.
EPISODES = 20


def preset(**changes: Any) -> ToolsPreset:
    smoke = load_preset(ToolsPreset, "tools", "smoke")
    run = {**smoke.run, "evaluation": {"suites": ["hard", "wide"], "episodes": EPISODES}}
    return smoke.model_copy(update={"run": run, "modes": MODES, **changes})


def hard(successes: dict[str, int]) -> list[int]:
    """Outcomes on ``hard`` of which each interaction's first so many are successes."""
    left, names = dict(successes), [i.name for i, _ in hard_cells(get_family("pick-place"))]
    outcomes = []
    for index in range(EPISODES):
        name = names[index % len(names)]
        outcomes.append(int(left.get(name, 0) > 0))
        left[name] = left.get(name, 0) - 1
    return outcomes


def test_arms_are_no_tool_each_alone_and_all_and_differ_in_nothing_else() -> None:
    assert set(ARMS) == {"none", "all", *(t.replace("_", "-") for t in TOOLS)}
    cells = make_bench("tools").cells(load_preset(ToolsPreset, "tools", "small"))
    assert len(cells) == 3 * 7
    of_arm = {c.arm: c.config for c in cells if (c.group, c.config.seed) == ("pick-place", 0)}
    assert of_arm.keys() == ARMS.keys()
    for arm, config in of_arm.items():
        assert config.coda.tools == ARMS[arm]
        same = config.coda.model_copy(update={"tools": ()})
        assert config.model_copy(update={"coda": same}) == of_arm["none"]
    assert len({c.start.to_yaml() for c in cells}) == 3


@pytest.mark.parametrize(
    ("modes", "episodes", "named"),
    [
        ({"pick-place": {"wide_and_turnd": "grasp"}}, EPISODES, "did you mean 'wide_and_turned'"),
        ({"pick-place": {"wide_and_turned": "gasp"}}, EPISODES, "did you mean 'grasp'"),
        (MODES, 9, "9 episodes.*at least 10"),
    ],
)
def test_what_cannot_be_measured_is_refused(
    modes: dict[str, Any], episodes: int, named: str
) -> None:
    asked = preset(modes=modes)
    asked.run["evaluation"]["episodes"] = episodes
    with pytest.raises(ConfigError, match=named):
        make_bench("tools").cells(asked)


def test_figures_are_of_the_given_modes_alone_and_paired_with_no_tool(
    tmp_path: Path,
) -> None:
    bench, asked = make_bench("tools"), preset()
    start = [0] * EPISODES
    # An interaction that is no mode here is lifted, which must not count.
    before = hard({"wide_and_turned": 1, "beside_a_neighbour": 4})
    after = hard({"wide_and_turned": 3, "over_a_high_rim": 1})
    wide = [1] * 10 + [0] * 10
    runs = [
        figures("none", {"hard": [start, before], "wide": [wide, wide]}, group="pick-place"),
        figures("stage-resets", {"hard": [start, after], "wide": [wide, wide]}, group="pick-place"),
    ]
    found = bench.combine(asked, runs)
    assert found["none"]["success"]["hard"]["n"] == 8
    assert found["none"]["success"]["hard"]["successes"] == 1
    gain = found["stage-resets"]["gain"]
    assert gain["hard"]["gain"] == pytest.approx(3 / 8)
    assert (gain["wide"]["gain"], gain["wide"]["tie"]) == (0.0, True)
    modes = found["stage-resets"]["modes"]
    assert modes["pick-place/wide_and_turned"]["gain"]["gain"] == pytest.approx(2 / 4)
    assert modes["pick-place/over_a_high_rim"]["gain"]["gain"] == pytest.approx(1 / 4)
    assert found["all"]["gain"]["hard"] is None

    # Where all or none succeed too.
    bench.draw(asked, bench.combine(asked, [
        figures(arm, {s: [start, [rate] * EPISODES] for s in ("hard", "wide")}, group="pick-place")
        for arm, rate in (("none", 0), ("all", 1))
    ]), tmp_path / "all.png")  # fmt: skip
    assert (tmp_path / "all.png").stat().st_size > 0

    every, by_mode, power = bench.tables(asked, found)
    rows = {row[0]: row for row in every.rows}
    assert rows["no tool"][2] == "reference"
    assert rows["stage resets"][2].startswith("+37.5 [")
    assert rows["all tools"][1] == NOT_MEASURED
    assert [len(r) for r in by_mode.rows] == [len(by_mode.columns)] * 2
    assert [row[0] for row in power.rows] == ["hard", "wide"]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_experiment_runs_and_is_drawn(tmp_path: Path) -> None:
    data = {
        "seeds": [0],
        "modes": {"pick-place": {"wide_and_turned": "grasp"}},
        "run": {
            **{k: v for k, v in RUN.items() if k != "strategy"},
            "coda": {"graded": False},
            "evaluation": {"suites": ["hard", "wide"], "episodes": 10},
        },
    }
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(data))
    words = ["tools", "--preset", "mine.yaml"]
    for arm in ("none", "all"):
        words += ["--only", arm]
    command = process(["bench", *words, "--json"], tmp_path)
    out, err = command.communicate(timeout=500)
    assert command.returncode == 0, err
    answer = strict(out)
    status = {c["arm"]: c["status"] for c in answer["cells"].values()}
    assert {a for a, s in status.items() if s == "complete"} == {"none", "all"}
    for arm in ("none", "all"):
        assert answer["figures"][arm]["success"]["hard"]["n"] == 2
        assert answer["figures"][arm]["success"]["wide"]["n"] == 10
    for ending in ("md", "png", "json"):
        assert (tmp_path / "results" / f"tools-mine.{ending}").stat().st_size > 0
