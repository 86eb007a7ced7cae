"""Table 5: what a run remembers of its failures: CoDA's programs, and alternatives to them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from coda_trainer.benchmarks import plots, summary
from coda_trainer.benchmarks.bench import Bench
from coda_trainer.benchmarks.cells import Cell
from coda_trainer.benchmarks.preset import Preset
from coda_trainer.benchmarks.reading import RunFigures
from coda_trainer.benchmarks.tables import Table, percent, points, reached, steps
from coda_trainer.config import Share
from coda_trainer.statistics import detectable_difference

#: The arm that all others are compared with.
REFERENCE = "none"
#: The arms: label, the settings of ``coda`` that make them, and the paper's OOD success [%] and
#: rounds to 25%. The paper's Table 5 has no row for both programs; Table 1 has its success.
ARMS: Mapping[str, tuple[str, Mapping[str, Any], tuple[str, str]]] = {
    "none": ("no memory", {"memory": "none"}, ("19.2", "14")),
    "omega": ("Ω programs alone", {"phi": False}, ("22.8", "9")),
    "phi": ("Φ programs alone", {"omega": False}, ("22.1", "11")),
    "trajectories": ("raw trajectory retrieval", {"memory": "trajectories"}, ("20.1", "13")),
    "insights": ("distilled insights", {"memory": "insights"}, ("21.6", "12")),
    "skills": ("skill library", {"memory": "skills"}, ("21.0", "12")),
    "programs": ("Ω and Φ programs (CoDA)", {"memory": "programs"}, ("27.6", "–")),
}


class Table5Preset(Preset):
    """Sizes of Table 5."""

    target: Share
    """Success on ``tuned_on`` that rounds are counted to; fixed before the runs."""
    assumed_rate: Share = 0.25
    """Success about which the power is stated."""
    assumed_discordant: Share = 0.25
    """Share of episodes that two arms are assumed to end differently."""


class Table5(Bench[Table5Preset]):
    """Every kind of memory, same fine-tuning, same episodes and updates. Controls and probes, which
    the programs alone need, come on top; the steps show them."""

    name = "table5"
    heading = "Table 5: kinds of memory"
    preset_type = Table5Preset

    def cells(self, preset: Table5Preset) -> list[Cell]:
        """A run for each kind and seed."""
        return [
            Cell(arm, preset.config(seed, {"strategy": "coda", "coda": dict(settings)}))
            for seed in preset.seeds
            for arm, (_, settings, _) in ARMS.items()
        ]

    def expected(self, preset: Table5Preset) -> dict[str, Any]:
        """The paper's ordering, and the least difference that these sizes show with 80% power."""
        config = preset.config(preset.seeds[0])
        n = config.evaluation.episodes * len(config.families) * len(preset.seeds)
        power = {"rate": preset.assumed_rate, "discordant": preset.assumed_discordant}
        return {
            "ordering": "the paper's: Ω and Φ > Ω > Φ > insights > skills > trajectories > none; "
            "after the pilot, which tied on pick-place, ties are likely",
            "target": preset.target,
            "assumed": power,
            "detectable": {"n": n, **detectable_difference(n, **power)},
        }

    def combine(self, preset: Table5Preset, runs: Sequence[RunFigures]) -> dict[str, Any]:
        """By kind: success, gain over no memory, rounds to the target, curves, steps."""
        arms = summary.by_arm(runs)
        return {arm: _arm(preset, arms, arm) for arm in ARMS}

    def tables(self, preset: Table5Preset, figures: Mapping[str, Any]) -> list[Table]:
        """One row a kind."""
        suites = preset.config(preset.seeds[0]).evaluation.suites
        dev = preset.tuned_on
        columns = (
            "memory",
            *(f"{suite} [%]" for suite in suites),
            f"gain over no memory, {dev}",
            f"rounds to {100 * preset.target:.0f}% {dev}",
            "control steps",
            "paper: OOD / rounds to 25%",
        )
        rows = [
            (
                label,
                *(percent(figures[arm]["success"][suite]) for suite in suites),
                "reference" if arm == REFERENCE else points(figures[arm]["gain"][dev]),
                reached(figures[arm]["rounds_to_target"], digits=1),
                steps(figures[arm]["steps"]),
                " / ".join(paper),
            )
            for arm, (label, _, paper) in ARMS.items()
        ]
        found = self.expected(preset)["detectable"]
        notes = [
            "Success of the backbone alone: mean ± standard error over seeds, [Wilson 95% interval "
            "over all episodes]. Gain: paired by suite episode and seed; a tie is a gain whose "
            "interval includes 0. Control steps: all that a run simulated, its evaluations left "
            "out; the programs' controls and probes are among them. The paper's figures are of "
            "another benchmark, policy and scale.",
            f"Stated before the runs: {found['n']} episodes an arm show a paired difference of "
            f"{100 * found['paired']:.1f} points with 80% power.",
        ]
        return [Table("Seven kinds of memory, backbone alone", columns, rows, notes)]

    def draw(self, preset: Table5Preset, figures: Mapping[str, Any], path: Path) -> None:
        """Success of every kind with its interval."""
        figure, (axis,) = plots.canvas(1)
        rows = [
            (label, figures[arm]["success"][preset.tuned_on]) for arm, (label, _, _) in ARMS.items()
        ]
        plots.draw_intervals(axis, rows, f"Success on {preset.tuned_on}")
        plots.save(figure, path)


def _arm(preset: Table5Preset, arms: Mapping[str, summary.Runs], arm: str) -> dict[str, Any]:
    runs = arms.get(arm, {})
    suites = preset.config(preset.seeds[0]).evaluation.suites
    found = summary.compared(runs, arms.get(REFERENCE, {}), suites)
    rounds = summary.rounds_to(runs, preset.tuned_on, preset.target) if runs else None
    return {**found, "rounds_to_target": rounds}
