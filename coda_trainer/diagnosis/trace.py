"""The trace diagnostician: reads state features and factors, no images, no language.

It sees simulator state that a real robot lacks, so its diagnoses are always labelled
``trace (privileged)``.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from coda_envs.factor import ContinuousFactor, Value
from coda_envs.programs.diagnosis import Alternative, Diagnosis
from coda_envs.scene import Scene
from coda_trainer.diagnosis.base import DiagnosisContext
from coda_trainer.diagnosis.evidence import observed
from coda_trainer.diagnosis.ranking import MIN_SUCCESSES, StageRanking, Suspect
from coda_trainer.episode import Episode

#: A factor is named from this confidence on. Under one half, because in an interaction of two
#: factors each takes a share, and naming either is right.
MIN_CONFIDENCE = 0.4
#: ... and where it leads the runner-up by this ratio.
MIN_LEAD = 1.1


class TraceDiagnostician:
    """First stage never done, then the factor that sets the scene apart from those that succeed.

    The evidence is in :mod:`coda_trainer.diagnosis.ranking`. It abstains with too few successes to
    compare with, where no factor stands out, and where two stand out alike.
    """

    label = "trace (privileged)"

    def diagnose(self, failures: Sequence[Episode], context: DiagnosisContext) -> list[Diagnosis]:
        """See :class:`~coda_trainer.diagnosis.base.Diagnostician`."""
        succeeded = [e.scene.values for e in context.successes]
        by_stage: dict[int, list[Scene]] = {}
        for episode in context.failures:
            by_stage.setdefault(context.failed_stage(episode), []).append(episode.scene)
        rankings = {
            stage: StageRanking(context.family.space, [s.values for s in scenes], succeeded)
            for stage, scenes in by_stage.items()
        }
        answers: list[Diagnosis] = []
        for episode in failures:
            ranking = rankings.get(context.failed_stage(episode))
            suspects = ranking.suspects(episode.scene.values) if ranking else []
            answers.append(self._answer(episode, suspects, context))
        return answers

    def _answer(
        self, episode: Episode, suspects: list[Suspect], context: DiagnosisContext
    ) -> Diagnosis:
        seen = observed(episode, context, self.label)
        happened = f"{seen['stage']} was not done ({seen['failed_predicate']} never held)"
        if episode.failure:
            happened += f" and the episode ended with: {episode.failure}"
        reason = _reason_to_abstain(suspects, len(context.successes))
        if reason:
            return Diagnosis(**seen, abstain=True, sentence=f"{happened}; {reason}."[:500])
        top = suspects[0]
        why = _comparison(top, episode.scene.values[top.factor], context)
        return Diagnosis(
            **seen,
            factor=top.factor,
            direction=top.direction,
            role=context.family.space[top.factor].role or "",
            confidence=top.confidence,
            alternatives=tuple(
                Alternative(factor=s.factor, direction=s.direction, confidence=s.confidence)
                for s in suspects[1:3]
            ),
            sentence=f"{happened}; {why}."[:500],
        )


def _reason_to_abstain(suspects: list[Suspect], successes: int) -> str:
    """Why no factor is named, or empty."""
    if successes < MIN_SUCCESSES:
        return f"{successes} successes are too few to compare with (at least {MIN_SUCCESSES})"
    if not suspects or suspects[0].confidence < MIN_CONFIDENCE:
        return "no factor sets the scene clearly apart from those that succeed"
    if len(suspects) > 1 and suspects[0].confidence < MIN_LEAD * suspects[1].confidence:
        return f"{suspects[0].factor} and {suspects[1].factor} explain it equally well"
    return ""


def _comparison(suspect: Suspect, value: Value, context: DiagnosisContext) -> str:
    """The named factor's value beside those of the successes, in plain English."""
    factor = context.family.space[suspect.factor]
    others = [
        e.scene.values[factor.path] for e in context.successes if factor.path in e.scene.values
    ]
    said = f"{factor.meaning} ({factor.path}) is "
    if isinstance(factor, ContinuousFactor):
        low, high = np.quantile(np.array(others, dtype=np.float64), (0.1, 0.9))
        unit = "" if factor.unit == "1" else f" {factor.unit}"
        return (
            f"{said}{suspect.direction} at {float(value):.4g}{unit}, while most successes lie "
            f"between {low:.4g} and {high:.4g}{unit}"
        )
    share = sum(v == value for v in others) / len(others)
    return f"{said}{value}, which {share:.0%} of the successes have"
