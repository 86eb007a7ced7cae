"""Another run's memory, read-only: its programs are used, and nothing is diagnosed."""

from __future__ import annotations

from coda_trainer.memory.adopting import adopt
from coda_trainer.recall.base import Wide
from coda_trainer.recall.programs import plan_of_modes
from coda_trainer.rounds import modes
from coda_trainer.rounds.context import RoundContext
from coda_trainer.rounds.diagnosing import DiagnosisPhase
from coda_trainer.strategies.base import RoundPlan


class Adopted:
    """The difficulties that another policy had, as this run's own modes from its first round on.

    They get their own probes here, are measured with this policy, and are mastered or stall by its
    success. The memory that they come from stays as it was.
    """

    diagnoses = False
    tests = False

    def plan(self, context: RoundContext, phase: DiagnosisPhase, wide: Wide) -> RoundPlan:
        """Take over what is not known yet; then scenes and tools for every active mode."""
        assert context.adopted is not None
        new = adopt(context.adopted, context.memory, context.family.name, context.round)
        context.log("adopted", modes=[m.id for m in new])
        return plan_of_modes(context, wide)

    def measure(self, context: RoundContext) -> None:
        """Probes of every mode, and what follows for its life."""
        modes.measure_modes(context)
