"""Figure 4: shaped against sparse over updates, agreement of their critics, memory snapshots."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from coda_trainer.benchmarks import plots, summary
from coda_trainer.benchmarks.bench import Bench
from coda_trainer.benchmarks.cells import Cell
from coda_trainer.benchmarks.preset import AgreementSettings, Preset
from coda_trainer.benchmarks.reading import RunFigures
from coda_trainer.benchmarks.tables import Table, percent, points, with_error
from coda_trainer.config import RunConfig, Suite

#: Shaped and sparse, as arms.
SHAPED, SPARSE = "text2potential", "sparse"
LABELS = {SHAPED: "shaped", SPARSE: "sparse"}


class Figure4Preset(Preset):
    """Sizes of Figure 4. With the settings of a preset of Table 4 its runs are those of that table,
    and are done once."""

    in_distribution: Suite = "wide"
    """The suite of panel (a)."""
    snapshots: Suite = "ood"
    """The suite of panel (c), which nothing is tuned on."""
    agreement: AgreementSettings = AgreementSettings()

    def config(self, seed: int, *overrides: Mapping[str, Any]) -> RunConfig:
        """As every preset's, and evaluated on the suites of the panels."""
        config = super().config(seed, *overrides)
        self.check_suites(config, (self.in_distribution, self.snapshots))
        return config


class Figure4(Bench[Figure4Preset]):
    """The two signals of Table 4 that the shaping theorem is about."""

    name = "figure4"
    heading = "Figure 4: shaped against sparse"
    preset_type = Figure4Preset

    def cells(self, preset: Figure4Preset) -> list[Cell]:
        """A run for each of the two signals and each seed."""
        return [
            Cell(
                signal,
                preset.config(seed, {"signal": signal}),
                # With itself the sparse critic need not be compared.
                agreement=preset.agreement if signal == SHAPED else None,
            )
            for seed in preset.seeds
            for signal in LABELS
        ]

    def expected(self, preset: Figure4Preset) -> dict[str, Any]:
        """The paper's reading of the figure."""
        return {
            "ordering": "shaped rises earlier than sparse and ends no lower; agreement rises "
            "towards the ceiling of two sparse critics; OOD success rises from round to round"
        }

    def combine(self, preset: Figure4Preset, runs: Sequence[RunFigures]) -> dict[str, Any]:
        """The three panels, and the last point of each arm."""
        arms = summary.by_arm(runs)
        suites = tuple(dict.fromkeys((preset.in_distribution, "seed", preset.snapshots)))
        evaluated = preset.config(preset.seeds[0]).evaluation.suites
        told: dict[str, Any] = {"success": {}, "gain": {}, "agreement": {}}
        for suite in (s for s in suites if s in evaluated):
            told["success"][suite] = {
                arm: summary.curve(arms.get(arm, {}), suite) for arm in LABELS
            }
            shaped, sparse = (
                summary.last_success(arms.get(arm, {}), suite) for arm in (SHAPED, SPARSE)
            )
            told["gain"][suite] = {
                "last": {arm: summary.success(last) for arm, last in
                         ((SHAPED, shaped), (SPARSE, sparse))},
                "shaped_over_sparse": summary.against(sparse, shaped),
            }  # fmt: skip
        told["agreement"] = summary.agreement_curve(arms.get(SHAPED, {}))
        return told

    def tables(self, preset: Figure4Preset, figures: Mapping[str, Any]) -> list[Table]:
        """The curves' last points."""
        rows = [
            (
                suite,
                *(percent(found["last"][arm]) for arm in LABELS),
                points(found["shaped_over_sparse"]),
            )
            for suite, found in figures["gain"].items()
        ]
        columns = ("suite", "shaped [%]", "sparse [%]", "shaped over sparse (paired)")
        notes = [
            "After the last round, backbone alone: mean ± standard error over seeds, [Wilson 95% "
            "interval]; a tie is a gain whose interval includes 0."
        ]
        agreed = [
            (
                str(point["updates"]),
                with_error(point["mean"], point["standard_error"]),
                f"{point['ceiling']:.1f}",
                f"{point['chance']:.1f}",
                str(point["informative"]),
                f"{100 * point['success']:.1f}",
            )
            for point in figures["agreement"]
        ]
        heads = ("updates", "agreement [%]", "ceiling", "chance", "states", "success there [%]")
        return [
            Table("Shaped against sparse", columns, rows, notes),
            Table(
                "Agreement of the two critics' choices",
                heads,
                agreed or [("not measured",) * len(heads)],
            ),
        ]

    def draw(self, preset: Figure4Preset, figures: Mapping[str, Any], path: Path) -> None:
        """The three panels side by side."""
        figure, (first, second, third) = plots.canvas(3)
        for suite, line in ((preset.in_distribution, "-"), ("seed", "--")):
            for number, (arm, curve) in enumerate(figures["success"].get(suite, {}).items()):
                plots.draw_curve(first, curve, f"{LABELS[arm]}, {suite}", number, line=line)
        first.set_xlabel("critic updates of a family")
        first.set_ylabel("success [%]")
        first.set_title("(a) In distribution; band: standard error", loc="left", fontsize=10)

        curve = figures["agreement"]
        plots.draw_curve(second, curve, "shaped and sparse", 0, scale=1.0)
        if curve:
            across = [point["updates"] for point in curve]
            ceiling = [point["ceiling"] for point in curve]
            second.plot(across, ceiling, color="#555555", ls="--", label="two sparse critics")
            second.axhline(curve[0]["chance"], color="#999999", ls=":", label="chance")
        second.set_ylim(top=102)
        second.set_xlabel("critic updates")
        second.set_ylabel("same best chunk [%]")
        second.set_title("(b) Agreement of the two critics", loc="left", fontsize=10)

        for number, (arm, snapshots) in enumerate(
            figures["success"].get(preset.snapshots, {}).items()
        ):
            plots.draw_curve(third, snapshots, LABELS[arm], number, x="round")
        third.set_xticks(range(preset.config(preset.seeds[0]).rounds + 1))
        third.set_xlabel("memory snapshot (round)")
        third.set_ylabel(f"success on {preset.snapshots} [%]")
        third.set_title("(c) Successive snapshots", loc="left", fontsize=10)
        for axis in (first, second, third):
            plots.finish(axis)
        plots.save(figure, path)
