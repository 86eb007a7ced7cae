"""``skills``: a skill library: what got a stage done, rehearsed where that stage fails."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np

from coda_trainer.backbone import ChunkBatch
from coda_trainer.learning.behaviour_cloning import chunk_arrays
from coda_trainer.learning.update_rule import Lesson
from coda_trainer.recall.base import Wide
from coda_trainer.rounds.context import RoundContext
from coda_trainer.rounds.diagnosing import DiagnosisPhase
from coda_trainer.rounds.refining import potential_in_force
from coda_trainer.strategies.base import RoundPlan

#: Chunks kept of all rounds, and those of them that a round rehearses.
KEPT, REHEARSED = 16_384, 4_096


class Skills:
    """Chunks of successful episodes by the stage that they were in. The round's distillation also
    rehearses those of the stages in which the present policy fails."""

    diagnoses = False
    tests = False

    def plan(self, context: RoundContext, phase: DiagnosisPhase, wide: Wide) -> RoundPlan:
        """The wide part alone, and a lesson from the library."""
        self._learn(context, phase)
        lesson = self._lesson(context, phase)
        return replace(wide.plan(potential_in_force(context, ())), rehearsed=lesson)

    def measure(self, context: RoundContext) -> None:
        """Nothing to measure: no modes."""

    @staticmethod
    def _learn(context: RoundContext, phase: DiagnosisPhase) -> None:
        """Add the successes of the present policy to the library; the oldest chunks go first."""
        won = [e for e in phase.context.successes if e.length]
        if not won:
            return
        chunks = chunk_arrays(won, context.backbone.spec.horizon)
        at = [phase.context.potential.stage(e.features)[: e.length] for e in won]
        new = {
            **{f"obs/{key}": rows for key, rows in chunks.obs.items()},
            "actions": chunks.actions,
            "valid": chunks.valid,
            "stage": np.concatenate(at).astype(np.int64),
        }
        old = context.state.recalled
        context.state.recalled = {
            key: (np.concatenate([old[key], rows]) if old else rows)[-KEPT:]
            for key, rows in new.items()
        }

    @staticmethod
    def _lesson(context: RoundContext, phase: DiagnosisPhase) -> Lesson | None:
        """Chunks of the failing stages; None where the library has none of them."""
        library, failures = context.state.recalled, phase.context.failures
        if not library or not failures:
            return None
        failing = Counter(phase.context.failed_stage(e) for e in failures)
        weight = np.array([failing[int(stage)] for stage in library["stage"]], dtype=float)
        usable = int(np.count_nonzero(weight))
        if not usable:
            return None
        rng = context.rng("skills")
        count = min(REHEARSED, usable)
        picked = rng.choice(len(weight), count, replace=False, p=weight / weight.sum())
        names = context.family.template.stage_names
        told = {names[stage]: n for stage, n in sorted(failing.items())}
        context.log("skills", library=len(weight), rehearsed=count, failing=told)
        obs = {
            key.removeprefix("obs/"): rows[picked]
            for key, rows in library.items()
            if key.startswith("obs/")
        }
        chunks = ChunkBatch(obs, library["actions"][picked], library["valid"][picked])
        return Lesson(chunks, np.ones(count))
