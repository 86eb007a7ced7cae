"""Table 6: generation programs learned on one family and lifted to another, between all pairs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import Field

from coda_envs.family import get_family
from coda_trainer.benchmarks import plots, summary
from coda_trainer.benchmarks.bench import Bench
from coda_trainer.benchmarks.cells import Cell
from coda_trainer.benchmarks.preset import Names, Preset
from coda_trainer.benchmarks.reading import RunFigures
from coda_trainer.benchmarks.tables import NOT_MEASURED, Table, with_error
from coda_trainer.statistics import mean_and_error

#: The row of programs that the target family's own failures gave under a smaller budget.
ANEW = "anew"
#: Native modes whose progress can be a measure of others': the error of fewer is itself a guess.
LEAST_MODES = 4
FAMILIES = ("pick-place", "articulated", "put-inside", "stack-insert")
#: The paper's Table 6: variants in the success band [%] / progress relative to native [%].
PAPER: Mapping[str, tuple[str, ...]] = {
    "pick-place": ("72/100", "38/46", "61/79", "55/68"),
    "articulated": ("41/52", "69/100", "44/55", "37/48"),
    "put-inside": ("63/81", "40/50", "70/100", "52/64"),
    "stack-insert": ("57/70", "36/45", "54/66", "66/100"),
    ANEW: ("31/38", "28/35", "30/37", "27/33"),
}


class Table6Preset(Preset):
    """Sizes of Table 6."""

    families: Names = FAMILIES
    """Rows and columns."""
    anew: dict[str, Any] = Field(min_length=1)
    """Settings of the row of programs learned anew: what they may cost."""


class Table6(Bench[Table6Preset]):
    """Each family's memory, collected by one run, is given to a run in every family; that run
    starts from its own fine-tuning and diagnoses nothing."""

    name = "table6"
    heading = "Table 6: lifted generation programs"
    preset_type = Table6Preset

    def cells(self, preset: Table6Preset) -> list[Cell]:
        """By seed: a collecting run of each family, one for each pair, and one that learns anew."""
        cells: list[Cell] = []
        for seed in preset.seeds:
            own = {
                family: Cell("own", self._config(preset, seed, family), group=family)
                for family in (get_family(name).name for name in preset.families)
            }
            cells += own.values()
            for family in own:
                for source in own:
                    config = self._config(preset, seed, family)
                    cells.append(Cell(f"from-{source}", config, group=family, memory=own[source]))
                anew = preset.config(seed, {"families": [family], "strategy": "coda"}, preset.anew)
                cells.append(Cell(ANEW, anew, group=family))
        return cells

    @staticmethod
    def _config(preset: Table6Preset, seed: int, family: str) -> Any:
        return preset.config(seed, {"families": [family], "strategy": "coda"})

    def expected(self, preset: Table6Preset) -> dict[str, Any]:
        """The paper's pattern."""
        return {
            "ordering": "the paper's: native > lifted between families with like objects "
            "(pick-place, put-inside, stack-insert) > lifted from or to articulated > learned "
            "anew; progress follows the share in the band"
        }

    def combine(self, preset: Table6Preset, runs: Sequence[RunFigures]) -> dict[str, Any]:
        """By row and column: modes, share in the band, progress, progress relative to native, and
        success on every suite; None where no mode was trained on."""
        arms = summary.by_arm(runs)
        rows = [*(f"from-{name}" for name in preset.families), ANEW]
        suites = preset.config(preset.seeds[0]).evaluation.suites
        told: dict[str, Any] = {}
        for row in rows:
            told[row] = {}
            for family in preset.families:
                mine = {k: r for k, r in arms.get(row, {}).items() if k[0] == family}
                told[row][family] = _pair(mine, suites)
        for row in rows:
            for family in preset.families:
                pair, native = told[row][family], told[f"from-{family}"][family]
                if pair is not None:
                    pair["relative"] = _relative(pair["progress"], native and native["progress"])
        return told

    def tables(self, preset: Table6Preset, figures: Mapping[str, Any]) -> list[Table]:
        """The pairs, and the paper's."""
        rows, beside = [], []
        for name in (*preset.families, ANEW):
            row = figures[name if name == ANEW else f"from-{name}"]
            label = "learned anew on the target" if name == ANEW else name
            rows.append((label, *(_cell(row[family]) for family in preset.families)))
            own = dict(zip(FAMILIES, PAPER.get(name, ()), strict=False))
            paper = [own.get(family, "–") for family in preset.families]
            beside.append((label, *paper))
        columns = ("learned on (row), used in (column)", *preset.families)
        notes = [
            "In the band: mean posterior probability that the success of the fine-tuned policy, "
            "exploring, lies in [.2, .8] in a scene, ± standard error over modes (n modes over "
            "seeds). Progress: change of success on the modes' own probes over the round, less the "
            "change on the same scenes without the difficulty, in points; in parentheses per cent "
            f"of the family's own programs, where at least {LEAST_MODES} of these show a progress "
            "above 0 by two standard errors.",
            "Learned anew: the target's own run under the smaller budget of the preset (anew). A "
            "dash: no confirmed mode, none that has a counterpart there, or no run; the last table "
            "counts those.",
        ]
        paper_columns = ("learned on (row), used in (column)", *preset.families)
        return [
            Table("In the band [%] / learning progress", columns, rows, notes),
            Table("The paper's: in the band [%] / progress, % of native", paper_columns, beside),
        ]

    def draw(self, preset: Table6Preset, figures: Mapping[str, Any], path: Path) -> None:
        """The share in the band by pair."""
        figure, (axis,) = plots.canvas(1)
        names = [*preset.families, ANEW]
        pairs = [
            [figures[n if n == ANEW else f"from-{n}"][f] for f in preset.families] for n in names
        ]
        shares = [
            [p["targeting"]["mean"] if p and p["targeting"] else None for p in row] for row in pairs
        ]
        plots.draw_shares(axis, shares, names, preset.families, "Scenes in the success band [%]")
        axis.set_xlabel("used in")
        axis.set_ylabel("learned on")
        plots.save(figure, path)


def _pair(runs: summary.Runs, suites: Sequence[str]) -> dict[str, Any] | None:
    modes = [mode for run in runs.values() for mode in run.modes]
    if not modes:
        return None
    return {
        "runs": len(runs),
        "modes": len(modes),
        "targeting": _mean([m["targeting"] for m in modes]),
        "progress": _mean([m["progress"] for m in modes]),
        "success": {s: summary.success(summary.last_success(runs, s)) for s in suites},
    }


def _mean(values: Sequence[float | None]) -> dict[str, Any] | None:
    kept = [v for v in values if v is not None]
    if not kept:
        return None
    mean, error = mean_and_error(kept)
    return {"mean": mean, "standard_error": error, "n": len(kept)}


def _relative(progress: Mapping[str, Any] | None, native: Mapping[str, Any] | None) -> float | None:
    """Progress over that of the family's own programs; None where the latter may be nothing."""
    if progress is None or native is None or native["standard_error"] is None:
        return None
    if native["n"] < LEAST_MODES or native["mean"] <= 2.0 * native["standard_error"]:
        return None
    return float(progress["mean"] / native["mean"])


def _cell(pair: Mapping[str, Any] | None) -> str:
    if pair is None:
        return "–"
    band, progress = (_percent(pair[name]) for name in ("targeting", "progress"))
    relative = "" if pair["relative"] is None else f" ({100 * pair['relative']:.0f}%)"
    return f"{band} / {progress}{relative}, n {pair['modes']}"


def _percent(found: Mapping[str, Any] | None) -> str:
    if found is None:
        return NOT_MEASURED
    error = found["standard_error"]
    return with_error(100 * found["mean"], None if error is None else 100 * error, digits=0)
