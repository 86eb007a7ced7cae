"""``none``: nothing is remembered; every round is wide."""

from __future__ import annotations

from coda_trainer.recall.base import Wide
from coda_trainer.rounds.context import RoundContext
from coda_trainer.rounds.diagnosing import DiagnosisPhase
from coda_trainer.rounds.refining import potential_in_force
from coda_trainer.strategies.base import RoundPlan


class Nothing:
    """The same episodes, and nothing comes of their failures."""

    diagnoses = False
    tests = False

    def plan(self, context: RoundContext, phase: DiagnosisPhase, wide: Wide) -> RoundPlan:
        """The wide part alone, and the potential of the family's own stages."""
        return wide.plan(potential_in_force(context, ()))

    def measure(self, context: RoundContext) -> None:
        """Nothing to measure: no modes."""
