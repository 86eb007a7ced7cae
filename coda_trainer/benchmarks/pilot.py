"""Pilot of the effect: where scenes and potentials from diagnoses pay, and where they do not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import Field

from coda_envs.errors import ConfigError, suggest
from coda_trainer.benchmarks import plots, summary
from coda_trainer.benchmarks.bench import Bench
from coda_trainer.benchmarks.cells import Cell
from coda_trainer.benchmarks.preset import Names, Preset, Settings
from coda_trainer.benchmarks.reading import RunFigures
from coda_trainer.benchmarks.tables import Table, percent, points, steps
from coda_trainer.config import Share
from coda_trainer.statistics import detectable_difference

#: Stands for all families together.
EVERY = "all families"


class Arm(Settings):
    """One way to train: how it is called in tables, and its settings."""

    label: str
    run: dict[str, Any]


class PilotPreset(Preset):
    """Sizes and arms of the pilot."""

    families: Names
    """One run of each arm and seed for each family."""
    arms: dict[str, Arm] = Field(min_length=2)
    """By the name that `--only` knows."""
    reference: str
    """The arm that gains are measured over."""
    ordering: str
    """What is expected, and why; written into the result before the runs."""
    assumed_rate: Share = 0.3
    """Success about which the power is stated."""
    assumed_discordant: Share = 0.3
    """Share of episodes that two arms are assumed to end differently."""


class Pilot(Bench[PilotPreset]):
    """Families × seeds × arms at equal episodes and updates; steps are metered and reported."""

    name = "pilot"
    heading = "Pilot of the effect"
    preset_type = PilotPreset

    def cells(self, preset: PilotPreset) -> list[Cell]:
        """A run for each family, seed and arm. Raises :class:`ConfigError` without a reference."""
        if preset.reference not in preset.arms:
            raise ConfigError(
                f"the pilot's reference is {preset.reference!r}.",
                allowed=suggest(preset.reference, preset.arms),
            )
        return [
            Cell(name, preset.config(seed, {"families": [family]}, arm.run), group=family)
            for family in preset.families
            for seed in preset.seeds
            for name, arm in preset.arms.items()
        ]

    def expected(self, preset: PilotPreset) -> dict[str, Any]:
        """The ordering, and the least difference that these sizes show with 80% power."""
        episodes = preset.config(preset.seeds[0]).evaluation.episodes
        a_family = episodes * len(preset.seeds)
        power = {"rate": preset.assumed_rate, "discordant": preset.assumed_discordant}
        return {
            "ordering": preset.ordering,
            "assumed": power,
            "detectable": {
                "one family": {"n": a_family, **detectable_difference(a_family, **power)},
                EVERY: {
                    "n": a_family * len(preset.families),
                    **detectable_difference(a_family * len(preset.families), **power),
                },
            },
            "note": "over episodes; what seeds add to it is not known before the runs",
        }

    def combine(self, preset: PilotPreset, runs: Sequence[RunFigures]) -> dict[str, Any]:
        """By family and arm: success on every suite, gain over the reference, steps, curves."""
        told = {}
        suites = preset.config(preset.seeds[0]).evaluation.suites
        for family in (*preset.families, EVERY):
            mine = [r for r in runs if family in (EVERY, r.cell.group)]
            arms = summary.by_arm(mine)
            reference = arms.get(preset.reference, {})
            told[family] = {
                name: summary.compared(arms.get(name, {}), reference, suites)
                for name in preset.arms
            }
        return told

    def tables(self, preset: PilotPreset, figures: Mapping[str, Any]) -> list[Table]:
        """A table for each family and one for all, and what was expected."""
        suites = preset.config(preset.seeds[0]).evaluation.suites
        dev = preset.tuned_on
        columns = (
            "arm",
            *(f"{suite} [%]" for suite in suites),
            f"gain over {preset.arms[preset.reference].label}, {dev}",
            "control steps",
        )
        # Of one family alone it would be the same table twice.
        shown = [*preset.families, EVERY] if len(preset.families) > 1 else preset.families
        tables = []
        for family in shown:
            rows = []
            for name, arm in preset.arms.items():
                found, reference = figures[family][name], name == preset.reference
                rows.append(
                    (
                        arm.label,
                        *(percent(found["success"][suite]) for suite in suites),
                        "reference" if reference else points(found["gain"][dev]),
                        steps(found["steps"]),
                    )
                )
            tables.append(Table(family, columns, rows))
        return [*tables, self._power(preset)]

    def draw(self, preset: PilotPreset, figures: Mapping[str, Any], path: Path) -> None:
        """Success of every arm with its interval, family by family."""
        figure, axes = plots.canvas(len(preset.families))
        for axis, family in zip(axes, preset.families, strict=True):
            rows = [
                (arm.label, figures[family][name]["success"][preset.tuned_on])
                for name, arm in preset.arms.items()
            ]
            plots.draw_intervals(axis, rows, f"{family}, {preset.tuned_on}")
        plots.save(figure, path)

    def _power(self, preset: PilotPreset) -> Table:
        expected = self.expected(preset)
        rows = [
            (name, str(found["n"]), *(f"{100 * found[k]:.1f}" for k in ("unpaired", "paired")))
            for name, found in expected["detectable"].items()
        ]
        return Table(
            "Stated before the runs: least difference shown with 80% power [points]",
            ("", "episodes an arm", "unpaired", "paired"),
            rows,
            [
                f"Expected: {preset.ordering.strip()}",
                f"Assumed: success {preset.assumed_rate:g}; {preset.assumed_discordant:g} of the "
                "episodes end differently in two arms. Gains: [Agresti-Min 95% interval, paired by "
                "suite episode and seed]; a tie is a gain whose interval includes 0. Success: mean "
                "± standard error over seeds, [Wilson 95% interval]. Control steps: all that were "
                "simulated in a run, its evaluations left out, mean over runs.",
            ],
        )
