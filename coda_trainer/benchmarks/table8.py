"""Table 8: what the engine makes of a policy's difficulties, with and without controls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from coda_envs.family import get_family
from coda_trainer.benchmarks import plots
from coda_trainer.benchmarks.engine_trials import EngineSize, run_engine_trial
from coda_trainer.benchmarks.preset import Names, Seeds, Settings
from coda_trainer.benchmarks.tables import NOT_MEASURED, Table, with_error
from coda_trainer.benchmarks.trials import Trial, TrialBench
from coda_trainer.config import Positive
from coda_trainer.learning.rollout import RolloutPool
from coda_trainer.statistics import mean_and_error, wilson

#: The arms in words, and the paper's figures: verified, coverage, targeting, refuted, agreement.
ARMS = {
    "uniform": ("uniform", ("71.3", "3.42", "24.6", "–", "–")),
    "uncontrolled": ("CoDA without controls", ("88.2", "3.21", "58.4", "–", "73.6")),
    "coda": ("CoDA", ("88.9", "3.18", "66.7", "18.2", "82.4")),
}


class Table8Preset(Settings):
    """Sizes of Table 8: one trial for each family and seed."""

    seeds: Seeds
    families: Names
    demonstrations: Positive = 100
    updates: Positive = 2000
    episodes: Positive = 256
    """Episodes in which the policy's failures are looked for."""
    claims: Positive = 6
    per_arm: Positive = 24
    variants: Positive = 48
    """Scenes of each arm."""
    rollouts: Positive = 16
    """Episodes in each of them."""


class Table8(TrialBench[Table8Preset]):
    """Families × seeds, three arms at one policy each."""

    name = "table8"
    heading = "Table 8: the engine"
    preset_type = Table8Preset

    def trials(self, preset: Table8Preset) -> dict[str, tuple[str, ...]]:
        """One for each family and seed; families are words."""
        return {
            f"{get_family(family).name}-seed{seed}": (family,)
            for family in preset.families
            for seed in preset.seeds
        }

    def settings(self, preset: Table8Preset) -> Mapping[str, Any]:
        """All sizes."""
        return preset.model_dump(mode="json", exclude={"seeds", "families"})

    def run(
        self, preset: Table8Preset, name: str, pool: RolloutPool, folder: Path
    ) -> dict[str, Any]:
        """See :func:`run_engine_trial`."""
        family, _, seed = name.rpartition("-seed")
        size = EngineSize(**preset.model_dump(exclude={"seeds", "families"}))
        return run_engine_trial(pool, family, int(seed), size, folder)

    def combine(self, preset: Table8Preset, trials: Sequence[Trial]) -> dict[str, Any]:
        """Each arm's figures; None where no trial had scenes of it."""
        verdicts = [v for t in trials for v in t["verdicts"]]
        decided = [v for v in verdicts if v in ("confirmed", "refuted")]
        refuted = decided.count("refuted")
        return {
            "trials": len(trials),
            "tested": len(verdicts),
            "refuted": {
                "n": len(decided),
                "rate": refuted / len(decided),
                "interval95": wilson(refuted, len(decided)),
            }
            if decided
            else None,
            "arms": {name: _arm([t["arms"][name] for t in trials]) for name in ARMS},
        }

    def tables(self, figures: Mapping[str, Any]) -> list[Table]:
        """The arms, the paper's figures beside them."""
        rows = []
        for name, (label, paper) in ARMS.items():
            arm = figures["arms"][name]
            refuted = figures["refuted"] if name == "coda" else None
            rows.append(
                (
                    label,
                    *(_cells(arm) if arm else [NOT_MEASURED] * 5),
                    _percent(refuted) if refuted else "–",
                    " / ".join(paper),
                )
            )
        columns = (
            "scenes",
            "verified at first try [%]",
            "coverage [bits]",
            "targeting [%]",
            "the same in [.1, .9]",
            "edits that survive [%]",
            "refuted [%]",
            "paper: verified / coverage / targeting / refuted / agreement",
        )
        notes = [
            f"{figures['trials']} trials, {figures['tested']} claims tested. Targeting: mean "
            "posterior probability that the exploring policy's success in a scene lies in "
            "[.2, .8], ± standard error over trials. Coverage: joint entropy of three axes of four "
            "bins, at equal numbers of scenes within a trial. Verified and refuted: [Wilson 95%] "
            "(n). Agreement with people is not measured: label episodes with coda annotate. The "
            "paper's "
            "figures are of other scenes and policies.",
        ]
        return [Table("Scenes for a policy's difficulties", columns, rows, notes)]

    def draw(self, figures: Mapping[str, Any], path: Path) -> None:
        """Targeting of the arms."""
        figure, (axis,) = plots.canvas(1)
        for place, (name, (label, _)) in enumerate(ARMS.items()):
            arm = figures["arms"][name]
            if arm:
                mean, error = arm["targeting"]
                axis.bar(place, 100 * mean, yerr=100 * (error or 0.0), color=plots.COLOURS[place])
            axis.text(place, 1.0, label, ha="center", va="bottom", fontsize=8)
        axis.set_xticks([])
        axis.set_ylabel("scenes in the band [%]")
        axis.set_title("Targeting; standard error over trials", loc="left", fontsize=10)
        axis.set_ylim(bottom=0)
        plots.save(figure, path)


def _arm(trials: Sequence[Mapping[str, Any] | None]) -> dict[str, Any] | None:
    own = [t for t in trials if t]
    if not own:
        return None
    first, proposals = (sum(t[k] for t in own) for k in ("first_try", "proposals"))
    survived = [t["edit_survival"] for t in own if t["edit_survival"] is not None]
    return {
        "scenes": sum(t["scenes"] for t in own),
        "trials": len(own),
        "verified": {
            "n": proposals,
            "rate": first / proposals,
            "interval95": wilson(first, proposals),
        },
        "coverage": mean_and_error([t["coverage"]["joint"] for t in own]),
        "targeting": mean_and_error([t["in_band"]["posterior"] for t in own]),
        "targeting_wide": mean_and_error([t["in_wide_band"]["posterior"] for t in own]),
        "edit_survival": mean_and_error(survived) if survived else None,
    }


def _cells(arm: Mapping[str, Any]) -> list[str]:
    survival = arm["edit_survival"]
    bits, error = arm["coverage"]
    return [
        _percent(arm["verified"]),
        with_error(bits, error, digits=2),
        _hundred(arm["targeting"]),
        _hundred(arm["targeting_wide"]),
        "–" if survival is None else _hundred(survival),
    ]


def _hundred(found: Sequence[float | None]) -> str:
    mean, error = found
    assert mean is not None
    return with_error(100 * mean, None if error is None else 100 * error)


def _percent(found: Mapping[str, Any]) -> str:
    low, high = found["interval95"]
    return f"{100 * found['rate']:.1f} [{100 * low:.1f}, {100 * high:.1f}] ({found['n']})"
