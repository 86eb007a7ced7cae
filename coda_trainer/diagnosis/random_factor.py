"""The baseline beside every diagnostician: the right stage, and a factor drawn at random."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from coda_envs.factor import ContinuousFactor, Value
from coda_envs.programs.diagnosis import Diagnosis, Direction
from coda_trainer.diagnosis.base import DiagnosisContext
from coda_trainer.diagnosis.evidence import observed
from coda_trainer.diagnosis.ranking import middle_and_deviation, side
from coda_trainer.episode import Episode


class RandomFactorDiagnostician:
    """Names any factor of the scene with the same chance; never abstains.

    What share of its claims control evaluations refute says how hard they test.
    """

    label = "random factor"

    def diagnose(self, failures: Sequence[Episode], context: DiagnosisContext) -> list[Diagnosis]:
        """See :class:`~coda_trainer.diagnosis.base.Diagnostician`."""
        rng = np.random.default_rng(context.seed)
        answers: list[Diagnosis] = []
        for episode in failures:
            paths = sorted(episode.scene.values)
            factor = paths[int(rng.integers(len(paths)))]
            answers.append(
                Diagnosis(
                    **observed(episode, context, self.label),
                    factor=factor,
                    direction=_side(factor, episode.scene.values[factor], context),
                    role=context.family.space[factor].role or "",
                    confidence=1 / len(paths),
                    sentence=f"{factor} was drawn at random.",
                )
            )
        return answers


def _side(path: str, value: Value, context: DiagnosisContext) -> Direction:
    """The side of the successes' middle that a number lies on; of the seed range's, without any."""
    factor = context.family.space[path]
    if not isinstance(factor, ContinuousFactor):
        return "other"
    others = [e.scene.values[path] for e in context.successes if path in e.scene.values]
    reference = np.array(others or factor.seed, dtype=np.float64)
    middle, _ = middle_and_deviation(factor, reference, reference)
    return side(value, middle)
