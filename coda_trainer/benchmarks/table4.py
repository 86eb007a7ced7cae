"""Table 4: six training signals at equal budgets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field

from coda_trainer.benchmarks import plots, summary
from coda_trainer.benchmarks.bench import Bench
from coda_trainer.benchmarks.cells import Cell
from coda_trainer.benchmarks.preset import AgreementSettings, Preset, as_tuple, distinct
from coda_trainer.benchmarks.reading import RunFigures
from coda_trainer.benchmarks.tables import NOT_MEASURED, Table, percent, points, reached, with_error
from coda_trainer.config import Share, Signal
from coda_trainer.learning.signals import RULES

#: The arm that all others are compared with.
REFERENCE = "sparse"
#: The paper's Table 4: OOD success [%], thousand updates to 25% OOD, agreement [%].
PAPER: Mapping[str, tuple[str, str, str]] = {
    "sparse": ("22.3", "31", "–"),
    "description": ("24.6", "29", "95.3"),
    "free-form": ("23.5", "33", "72.4"),
    "frozen": ("21.4", "–", "96.8"),
    "unrefined": ("26.1", "27", "95.9"),
    "text2potential": ("27.6", "21", "97.2"),
}


class Table4Preset(Preset):
    """Sizes of Table 4."""

    signals: Annotated[
        tuple[Signal, ...],
        BeforeValidator(as_tuple),
        Field(min_length=1),
        AfterValidator(distinct),
    ] = tuple(RULES)
    """The rows."""
    target: Share
    """Success on ``tuned_on`` that updates are counted to; fixed before the runs."""
    agreement: AgreementSettings = AgreementSettings()


class Table4(Bench[Table4Preset]):
    """Every signal, same fine-tuning, same episodes and updates; only what is paid differs."""

    name = "table4"
    heading = "Table 4: training signals"
    preset_type = Table4Preset

    def cells(self, preset: Table4Preset) -> list[Cell]:
        """A run for each signal and seed."""
        return [
            Cell(
                signal,
                preset.config(seed, {"signal": signal}),
                # With itself the sparse critic need not be compared.
                agreement=None if signal == REFERENCE else preset.agreement,
            )
            for seed in preset.seeds
            for signal in preset.signals
        ]

    def expected(self, preset: Table4Preset) -> dict[str, Any]:
        """The paper's ordering."""
        return {
            "ordering": "the paper's: text2potential > unrefined > description > free-form > "
            "sparse > frozen in OOD success; potentials agree with the sparse critic, the "
            "free-form reward does not",
            "target": preset.target,
        }

    def combine(self, preset: Table4Preset, runs: Sequence[RunFigures]) -> dict[str, Any]:
        """Per signal: success, gain over sparse, updates to the target, agreement, curves."""
        arms = summary.by_arm(runs)
        return {signal: _arm(preset, arms, signal) for signal in preset.signals}

    def tables(self, preset: Table4Preset, figures: Mapping[str, Any]) -> list[Table]:
        """One row a signal."""
        suites = [s for s in preset.config(preset.seeds[0]).evaluation.suites if s != "seed"]
        columns = (
            "signal",
            *(f"{suite} [%]" for suite in suites),
            f"gain over sparse, {preset.tuned_on}",
            f"updates to {100 * preset.target:.0f}% {preset.tuned_on}",
            "agreement with the sparse critic [%]",
            "paper: OOD / 1,000 updates to 25% / agreement",
        )
        rows = [
            (
                RULES[signal].label,
                *(percent(figures[signal]["success"].get(suite)) for suite in suites),
                "reference" if signal == REFERENCE else points(figures[signal]["gain"]),
                _updates(figures[signal]["updates_to_target"], RULES[signal].frozen),
                _agreement(signal, figures[signal]["agreement"]),
                " / ".join(PAPER[signal]),
            )
            for signal in preset.signals
        ]
        return [
            Table("Six training signals, backbone alone", columns, rows, _notes(preset)),
            *_choice(preset, figures),
        ]

    def draw(self, preset: Table4Preset, figures: Mapping[str, Any], path: Path) -> None:
        """Success over updates of every signal."""
        figure, (axis,) = plots.canvas(1)
        for number, signal in enumerate(preset.signals):
            curve = figures[signal]["curves"].get(preset.tuned_on, [])
            plots.draw_curve(axis, curve, signal, number)
        axis.axhline(100 * preset.target, color="#888888", lw=1, ls="--")
        axis.set_xlabel("critic updates of a family")
        axis.set_ylabel(f"success on {preset.tuned_on} [%]")
        axis.set_title("Backbone alone; band: standard error over seeds", loc="left", fontsize=10)
        plots.finish(axis)
        plots.save(figure, path)


def _arm(preset: Table4Preset, arms: Mapping[str, summary.Runs], signal: str) -> dict[str, Any]:
    runs, reference = arms.get(signal, {}), arms.get(REFERENCE, {})
    suites = preset.config(preset.seeds[0]).evaluation.suites
    dev = preset.tuned_on
    found = {suite: summary.success(summary.last_success(runs, suite)) for suite in suites}
    start = {suite: {k: r.curves[suite][0] for k, r in runs.items()} for suite in suites}
    choice = {suite: {k: r.choice[suite] for k, r in runs.items() if suite in r.choice}
              for suite in suites}  # fmt: skip
    return {
        "success": found,
        "fine_tuned": {suite: summary.success(start[suite]) for suite in suites},
        "critic_at_test_time": {suite: summary.success(choice[suite]) for suite in suites},
        "gain": summary.against(
            summary.last_success(reference, dev), summary.last_success(runs, dev)
        ),
        "updates_to_target": summary.updates_to(runs, dev, preset.target) if runs else None,
        "agreement": summary.agreement_curve(runs),
        "curves": {suite: summary.curve(runs, suite) for suite in suites},
        "steps": summary.steps_of(runs),
    }


def _updates(found: Mapping[str, Any] | None, frozen: bool) -> str:
    return "the actor never changes" if frozen else reached(found)


def _agreement(signal: str, curve: Sequence[Mapping[str, Any]]) -> str:
    if signal == REFERENCE:
        return "–"
    if not curve:
        return NOT_MEASURED
    last = curve[-1]
    told = with_error(last["mean"], last["standard_error"])
    if last["interval95"] is not None:
        told += " [{:.1f}, {:.1f}]".format(*last["interval95"])
    return f"{told} (n {last['informative']}; ceiling {last['ceiling']:.1f})"


def _notes(preset: Table4Preset) -> list[str]:
    settings = preset.agreement
    return [
        "Success: mean ± standard error over seeds, [Wilson 95% interval over all episodes]. Gain: "
        "paired by suite episode and seed; a tie is a gain whose interval includes 0. Updates: "
        "critic updates of a family until a round's end at which the target was reached.",
        f"Agreement: same best chunk of {settings.candidates} as a critic of the sparse reward "
        f"trained on the same data in the same order for {settings.updates} updates, in held-out "
        f"states (n) whose chunks differ in value by more than {settings.epsilon:g}; chance "
        f"{100 / settings.candidates:.1f}; ceiling: two sparse critics. The paper's figures are of "
        "another benchmark, policy and scale.",
    ]


def _choice(preset: Table4Preset, figures: Mapping[str, Any]) -> list[Table]:
    """The frozen actor's figures with the critic at test time, apart from the headline."""
    suites = preset.config(preset.seeds[0]).evaluation.suites
    rows = [
        (RULES[signal].label, suite, percent(figures[signal]["critic_at_test_time"][suite]))
        for signal in preset.signals
        for suite in suites
        if RULES[signal].frozen
    ]
    if not rows:
        return []
    note = "The critic reads the simulator's state: no figure of a policy that a robot could run."
    return [Table("Critic at test time", ("signal", "suite", "success [%]"), rows, [note])]
