"""Table 7: a memory collected around one backbone trains another, frozen and read-only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from coda_trainer.benchmarks import plots, summary
from coda_trainer.benchmarks.bench import Bench
from coda_trainer.benchmarks.cells import Cell
from coda_trainer.benchmarks.preset import Names, Preset
from coda_trainer.benchmarks.reading import RunFigures
from coda_trainer.benchmarks.tables import Table, percent, points, steps
from coda_trainer.config import Share
from coda_trainer.statistics import detectable_difference

#: The paper's Table 7, OOD success [%]. Its π0.5 has a flow head as flow_chunk has, OpenVLA-OFT
#: regresses chunks as regression_chunk does.
PAPER: Mapping[tuple[str, str], str] = {
    ("flow_chunk", "flow_chunk"): "27.6",
    ("flow_chunk", "regression_chunk"): "21.1",
    ("regression_chunk", "flow_chunk"): "25.8",
    ("regression_chunk", "regression_chunk"): "22.7",
    ("", "flow_chunk"): "5.3",
    ("", "regression_chunk"): "3.8",
}

#: The arm that collects the memory.
COLLECTS = "collects"


class Table7Preset(Preset):
    """Sizes of Table 7."""

    backbones: Names = ("flow_chunk", "regression_chunk")
    """Each collects a memory, and is trained with every one."""
    assumed_rate: Share = 0.25
    """Success about which the power is stated."""
    assumed_discordant: Share = 0.25
    """Share of episodes that two arms are assumed to end differently."""


class Table7(Bench[Table7Preset]):
    """By backbone: a run that collects, then a run of each backbone with each memory, and one
    without; the same fine-tuning of a backbone, the same episodes and updates."""

    name = "table7"
    heading = "Table 7: a memory for another backbone"
    preset_type = Table7Preset

    def cells(self, preset: Table7Preset) -> list[Cell]:
        """By seed: collecting runs, then a run for each pair, and those without a memory."""
        cells: list[Cell] = []
        for seed in preset.seeds:
            own = {
                name: Cell(COLLECTS, self._config(preset, seed, name), group=_word(name))
                for name in preset.backbones
            }
            cells += own.values()
            for name in preset.backbones:
                config, group = self._config(preset, seed, name), _word(name)
                for source in preset.backbones:
                    cells.append(Cell(_arm_name(source), config, group=group, memory=own[source]))
                without = self._config(preset, seed, name, {"coda": {"memory": "none"}})
                cells.append(Cell(_arm_name(""), without, group=group))
        return cells

    @staticmethod
    def _config(preset: Table7Preset, seed: int, backbone: str, *more: Mapping[str, Any]) -> Any:
        settings = {"strategy": "coda", "backbone": {"name": backbone}}
        return preset.config(seed, settings, *more)

    def expected(self, preset: Table7Preset) -> dict[str, Any]:
        """The paper's pattern, and the least difference that these sizes show with 80% power."""
        config = preset.config(preset.seeds[0])
        n = config.evaluation.episodes * len(config.families) * len(preset.seeds)
        power = {"rate": preset.assumed_rate, "discordant": preset.assumed_discordant}
        return {
            "ordering": "the paper's: with any memory far above without; the flow backbone's "
            "memory serves it best, the other backbone is served by either; after the pilot, which "
            "tied on pick-place, ties are likely",
            "assumed": power,
            "detectable": {"n": n, **detectable_difference(n, **power)},
        }

    def combine(self, preset: Table7Preset, runs: Sequence[RunFigures]) -> dict[str, Any]:
        """By backbone and arm: success, gain over no memory, modes trained on."""
        suites = preset.config(preset.seeds[0]).evaluation.suites
        told = {}
        for name in preset.backbones:
            arms = summary.by_arm([r for r in runs if r.cell.group == _word(name)])
            without = arms.get(_arm_name(""), {})
            names = (*map(_arm_name, ("", *preset.backbones)), COLLECTS)
            told[name] = {arm: _arm(arms.get(arm, {}), without, suites) for arm in names}
        return told

    def tables(self, preset: Table7Preset, figures: Mapping[str, Any]) -> list[Table]:
        """One row a pair."""
        suites = preset.config(preset.seeds[0]).evaluation.suites
        dev = preset.tuned_on
        columns = (
            "memory of",
            "trains",
            *(f"{suite} [%]" for suite in suites),
            f"gain over no memory, {dev}",
            "modes",
            "control steps",
            "paper: OOD",
        )
        rows = []
        for name in preset.backbones:
            arms = [(s or "no memory", _arm_name(s), PAPER.get((s, name), "–"))
                    for s in ("", *preset.backbones)]  # fmt: skip
            for label, arm, paper in (*arms, ("its own, while it collects", COLLECTS, "–")):
                found = figures[name][arm]
                gain = "reference" if arm == _arm_name("") else points(found["gain"][dev])
                cells = [percent(found["success"][suite]) for suite in suites]
                spent = (str(found["modes"]), steps(found["steps"]))
                rows.append((label, name, *cells, gain, *spent, paper))
        detectable = self.expected(preset)["detectable"]
        notes = [
            "Success of the backbone alone: mean ± standard error over seeds, [Wilson 95% interval "
            "over all episodes]. Gain: paired by suite episode and seed; a tie is a gain whose "
            "interval includes 0. Modes: trained on, over all seeds. A memory that is given is "
            "read-only, and nothing is diagnosed. The paper's without a memory is fine-tuning "
            "alone; here it has the same rounds, drawn widely. Its figures are of another "
            "benchmark, of π0.5 (flow) and OpenVLA-OFT (regression).",
            f"Stated before the runs: {detectable['n']} episodes an arm show a paired difference "
            f"of {100 * detectable['paired']:.1f} points with 80% power.",
        ]
        return [Table("Whose memory trains whom", columns, rows, notes)]

    def draw(self, preset: Table7Preset, figures: Mapping[str, Any], path: Path) -> None:
        """Success of every pair with its interval, one panel a backbone."""
        figure, axes = plots.canvas(len(preset.backbones))
        for axis, name in zip(axes, preset.backbones, strict=True):
            rows = [
                (
                    f"memory of {source}" if source else "no memory",
                    figures[name][_arm_name(source)]["success"][preset.tuned_on],
                )
                for source in ("", *preset.backbones)
            ]
            plots.draw_intervals(axis, rows, f"{name}, {preset.tuned_on}")
        plots.save(figure, path)


def _word(backbone: str) -> str:
    return backbone.lower().replace("_", "-")


def _arm_name(source: str) -> str:
    """The arm with the memory of that backbone, or with none."""
    return f"of-{_word(source)}" if source else "none"


def _arm(runs: summary.Runs, without: summary.Runs, suites: Sequence[str]) -> dict[str, Any]:
    modes = sum(len(run.modes) for run in runs.values())
    return {**summary.compared(runs, without, suites), "modes": modes}
