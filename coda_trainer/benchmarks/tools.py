"""Learning tools, each on and off: what every tool of Φ programs does to a mode, and to the rest.

The modes are handed over (:mod:`coda_trainer.strategies.given`), so that no diagnosis stands
between a tool and what it does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import Field

from coda_envs.errors import ConfigError
from coda_envs.family import get_family
from coda_envs.programs.training import TOOLS
from coda_trainer.benchmarks import plots, summary
from coda_trainer.benchmarks.bench import Bench
from coda_trainer.benchmarks.cells import Cell
from coda_trainer.benchmarks.preset import Preset
from coda_trainer.benchmarks.reading import RunFigures, Success
from coda_trainer.benchmarks.tables import Table, percent, points, steps
from coda_trainer.config import Share, Suite
from coda_trainer.evaluation import hard_cells
from coda_trainer.statistics import detectable_difference
from coda_trainer.strategies.given import Given

#: The arm that gains are measured over: the same modes, no tool.
REFERENCE = "none"
#: Every arm, by the name that `--only` knows, and the tools that it may use.
ARMS: Mapping[str, tuple[str, ...]] = {
    REFERENCE: (),
    **{tool.replace("_", "-"): (tool,) for tool in TOOLS},
    "all": TOOLS,
}
HARD: Suite = "hard"
WIDE: Suite = "wide"
SUITES = (HARD, WIDE)


class ToolsPreset(Preset):
    """Sizes of the experiment with the learning tools, and its modes."""

    modes: dict[str, dict[str, str]] = Field(min_length=1)
    """By family: its declared interactions that stand for modes, each with the stage that a
    diagnosis would name."""
    tuned_on: Suite = HARD
    assumed_rate: Share = 0.2
    """Success about which the power is stated."""
    assumed_discordant: Share = 0.25
    """Share of episodes that two arms are assumed to end differently."""


class ToolsBench(Bench[ToolsPreset]):
    """No tool, each alone, and all, with the same scenes, episodes and updates."""

    name = "tools"
    heading = "Learning tools of training programs"
    preset_type = ToolsPreset

    def cells(self, preset: ToolsPreset) -> list[Cell]:
        """A run for each family, seed and arm. Raises :class:`ConfigError` for a mode that the
        family does not declare, or suites that do not show every mode."""
        cells = []
        episodes = preset.config(preset.seeds[0]).evaluation.episodes
        for family, modes in preset.modes.items():
            needed = len(hard_cells(get_family(family)))
            if episodes < needed:
                raise ConfigError(
                    f"the preset's run is evaluated on {episodes} episodes a suite.",
                    allowed=f"at least {needed}: {family!r} has so many interactions and thirds",
                )
            own = {"families": [family], "strategy": "given"}
            for seed in preset.seeds:
                for arm, tools in ARMS.items():
                    coda = {"coda": {"given": modes, "tools": list(tools)}}
                    config = preset.config(seed, own, coda)
                    preset.check_suites(config, SUITES)
                    Given.check(config, [get_family(family)])
                    cells.append(Cell(arm, config, group=family))
        return cells

    def expected(self, preset: ToolsPreset) -> dict[str, Any]:
        """What each tool is for, and the least difference these sizes show with 80% power."""
        episodes = preset.config(preset.seeds[0]).evaluation.episodes
        n: dict[str, int] = {
            suite: len(preset.seeds) * len(preset.modes) * episodes for suite in SUITES
        }
        n[HARD] = len(preset.seeds) * sum(
            len(_places(family, modes, episodes)) for family, modes in preset.modes.items()
        )
        power = {"rate": preset.assumed_rate, "discordant": preset.assumed_discordant}
        return {
            "ordering": "no tool lowers success on wide scenes; stage resets and hindsight raise "
            "hard scenes of modes whose stage comes late, exploration noise those that need "
            "another motion, best of N those that need the same one exactly; replay weight the "
            "least",
            "assumed": power,
            "detectable": {s: {"n": k, **detectable_difference(k, **power)} for s, k in n.items()},
            "note": "over episodes; what seeds add to it is not known before the runs",
        }

    def combine(self, preset: ToolsPreset, runs: Sequence[RunFigures]) -> dict[str, Any]:
        """By arm: success on hard scenes of the modes and on wide scenes, gains over no tool, the
        same for every mode, and steps."""
        arms = summary.by_arm([_of_modes(preset, run) for run in runs])
        return {arm: _arm(preset, arms, arm) for arm in ARMS}

    def tables(self, preset: ToolsPreset, figures: Mapping[str, Any]) -> list[Table]:
        """All modes together, then the gain in each."""
        columns = ("tools", *(c for s in SUITES for c in (f"{s} [%]", f"gain, {s}")), "steps")
        rows = []
        for arm, found in figures.items():
            cells = [
                cell
                for suite in SUITES
                for cell in (percent(found["success"][suite]), _gain(arm, found["gain"][suite]))
            ]
            rows.append((_label(arm), *cells, steps(found["steps"])))
        others = [arm for arm in ARMS if arm != REFERENCE]
        by_mode = [
            (
                family,
                f"{name} ({stage})",
                percent(figures[REFERENCE]["modes"][f"{family}/{name}"]["success"]),
                *(points(figures[arm]["modes"][f"{family}/{name}"]["gain"]) for arm in others),
            )
            for family, modes in preset.modes.items()
            for name, stage in modes.items()
        ]
        return [
            Table("Each tool on and off, backbone alone", columns, rows, _notes(preset)),
            Table(
                "Gain over no tool in each mode [points]",
                ("family", "mode (stage)", "no tool [%]", *map(_label, others)),
                by_mode,
            ),
            self._power(preset),
        ]

    def draw(self, preset: ToolsPreset, figures: Mapping[str, Any], path: Path) -> None:
        """Success of every arm with its interval, on hard and on wide scenes."""
        figure, axes = plots.canvas(len(SUITES))
        for axis, suite in zip(axes, SUITES, strict=True):
            rows = [(_label(arm), figures[arm]["success"][suite]) for arm in ARMS]
            plots.draw_intervals(axis, rows, f"{suite} scenes")
        plots.save(figure, path)

    def _power(self, preset: ToolsPreset) -> Table:
        found = self.expected(preset)
        rows = [
            (suite, str(at["n"]), *(f"{100 * at[k]:.1f}" for k in ("unpaired", "paired")))
            for suite, at in found["detectable"].items()
        ]
        return Table(
            "Stated before the runs: least difference shown with 80% power [points]",
            ("scenes", "episodes an arm", "unpaired", "paired"),
            rows,
            [f"Expected: {found['ordering']}."],
        )


def _places(family: str, modes: Mapping[str, str], episodes: int) -> list[int]:
    """Which episodes of the suite ``hard`` are of the modes."""
    names = [interaction.name for interaction, _ in hard_cells(get_family(family))]
    return [i for i in range(episodes) if names[i % len(names)] in modes]


def _kept(run: RunFigures, places: Sequence[int]) -> RunFigures:
    """The figures with those episodes of ``hard`` alone."""
    hard = [Success(tuple(s.outcomes[i] for i in places)) for s in run.curves[HARD]]
    return replace(run, curves={**run.curves, HARD: hard})


def _of_modes(preset: ToolsPreset, run: RunFigures) -> RunFigures:
    """The figures of a run with the hard scenes of its family's modes alone."""
    modes = preset.modes[run.cell.group]
    episodes = len(run.curves[HARD][-1].outcomes)
    return _kept(run, _places(run.cell.group, modes, episodes))


def _arm(preset: ToolsPreset, arms: Mapping[str, summary.Runs], arm: str) -> dict[str, Any]:
    runs, reference = arms.get(arm, {}), arms.get(REFERENCE, {})
    last = {suite: summary.last_success(runs, suite) for suite in SUITES}
    before = {suite: summary.last_success(reference, suite) for suite in SUITES}
    told: dict[str, Any] = {
        "tools": list(ARMS[arm]),
        "success": {suite: summary.success(last[suite]) for suite in SUITES},
        "gain": {suite: summary.against(before[suite], last[suite]) for suite in SUITES},
        "modes": {},
        "curves": {suite: summary.curve(runs, suite) for suite in SUITES},
        "steps": summary.steps_of(runs),
    }
    episodes = preset.config(preset.seeds[0]).evaluation.episodes
    for family, modes in preset.modes.items():
        places = _places(family, modes, episodes)
        for name in modes:
            own = {p: i for i, p in enumerate(places)}
            of_mode = [own[p] for p in _places(family, {name: ""}, episodes)]
            mine, other = (
                summary.last_success(
                    {k: _kept(r, of_mode) for k, r in some.items() if k[0] == family}, HARD
                )
                for some in (runs, reference)
            )
            told["modes"][f"{family}/{name}"] = {
                "success": summary.success(mine),
                "gain": summary.against(other, mine),
            }
    return told


def _label(arm: str) -> str:
    if arm == REFERENCE:
        return "no tool"
    return "all tools" if arm == "all" else arm.replace("-", " ")


def _gain(arm: str, found: Mapping[str, Any] | None) -> str:
    return "reference" if arm == REFERENCE else points(found)


def _notes(preset: ToolsPreset) -> list[str]:
    modes = "; ".join(
        f"{family}: {', '.join(f'{name} ({stage})' for name, stage in given.items())}"
        for family, given in preset.modes.items()
    )
    return [
        f"Modes, given and not found: {modes}. Half of every round is wide, the rest is of the "
        "modes, easy to hard. hard: fresh scenes of the modes, middle and hardest third of their "
        "magnitude; wide: fresh scenes of the whole generator range; both are in the generator "
        "region, the same for every arm, and never trained on.",
        "Success: mean ± standard error over seeds, [Wilson 95% interval]. Gain over no tool: "
        "[Agresti-Min 95% interval], paired by scene, seed and family; a tie is a gain whose "
        "interval includes 0. Steps: control steps simulated in a run, evaluations left out.",
    ]
