"""The diagnosis benchmark: diagnosticians on failures whose cause is known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import Field

from coda_envs.errors import ConfigError, suggest
from coda_envs.family import get_family
from coda_trainer.benchmarks import diagnosis_figures
from coda_trainer.benchmarks.preset import Names, Seeds, Settings
from coda_trainer.benchmarks.tables import Table
from coda_trainer.benchmarks.trials import Trial, TrialBench, number_of
from coda_trainer.config import Count, Option, Positive
from coda_trainer.diagnosis.base import make_diagnostician
from coda_trainer.diagnosis.fault_trials import TrialSize, run_trial
from coda_trainer.diagnosis.faults import FAULTS
from coda_trainer.learning.rollout import RolloutPool


class DiagnosisPreset(Settings):
    """Sizes of the benchmark: one trial for each family, fault and seed."""

    seeds: Seeds
    families: Names
    faults: Names = tuple(FAULTS)
    episodes: Positive = 256
    """Episodes of a trial's population."""
    claims: Count = 3
    """Claims of a diagnostician that are tested in each trial."""
    per_arm: Positive = 32
    """Most rollouts in each arm of a control evaluation."""
    diagnosticians: dict[str, dict[str, Option]] = Field(min_length=1)
    """By name, each with its options."""
    baseline: str = "random_factor"
    """The diagnostician that guesses: it stands in the tables, its confusions do not."""


class DiagnosisBench(TrialBench[DiagnosisPreset]):
    """Families × faults × seeds."""

    name = "diagnosis"
    heading = "Diagnoses of known causes"
    preset_type = DiagnosisPreset

    def trials(self, preset: DiagnosisPreset) -> dict[str, tuple[str, ...]]:
        """One for each family, fault and seed; families and faults are words."""
        for family in preset.families:
            get_family(family)
        for fault in preset.faults:
            if fault not in FAULTS:
                raise ConfigError(f"unknown fault {fault!r}.", allowed=suggest(fault, FAULTS))
        for name, options in preset.diagnosticians.items():
            make_diagnostician(name, **options)
        if preset.baseline not in preset.diagnosticians:
            raise ConfigError(
                f"the baseline is {preset.baseline!r}.",
                allowed=suggest(preset.baseline, preset.diagnosticians),
            )
        return {name: (family, fault) for name, (family, fault, _) in _places(preset).items()}

    def settings(self, preset: DiagnosisPreset) -> Mapping[str, Any]:
        """The sizes and the diagnosticians."""
        sizes = preset.model_dump(mode="json", include={"episodes", "claims", "per_arm"})
        return sizes | {"diagnosticians": preset.diagnosticians}

    def run(
        self, preset: DiagnosisPreset, name: str, pool: RolloutPool, folder: Path
    ) -> dict[str, Any]:
        """See :func:`run_trial`."""
        family, fault, seed = _places(preset)[name]
        size = TrialSize(preset.episodes, preset.claims, preset.per_arm)
        place = (seed, number_of(family), number_of(fault))
        return {"seed": seed} | run_trial(pool, family, fault, size, preset.diagnosticians, place)

    def combine(self, preset: DiagnosisPreset, trials: Sequence[Trial]) -> dict[str, Any]:
        """See :func:`diagnosis_figures.combine`."""
        return diagnosis_figures.combine(trials, preset.baseline)

    def tables(self, figures: Mapping[str, Any]) -> list[Table]:
        """See :func:`diagnosis_figures.tables`."""
        return diagnosis_figures.tables(figures)

    def draw(self, figures: Mapping[str, Any], path: Path) -> None:
        """See :func:`diagnosis_figures.draw`."""
        diagnosis_figures.draw(figures, path)


def _places(preset: DiagnosisPreset) -> dict[str, tuple[str, str, int]]:
    return {
        f"{family}-{fault.replace('_', '-')}-seed{seed}": (family, fault, seed)
        for family in preset.families
        for fault in preset.faults
        for seed in preset.seeds
    }
