"""``coda``: look where the policy fails, and train on what the memory makes of it."""

from __future__ import annotations

from dataclasses import replace

from coda_trainer.recall import make_recall
from coda_trainer.recall.base import Recall, Wide
from coda_trainer.rounds.context import RoundContext
from coda_trainer.rounds.diagnosing import find_difficulties
from coda_trainer.rounds.schedule import WIDE
from coda_trainer.strategies.base import OWN, RoundPlan, wide_scenes
from coda_trainer.strategies.graded import graded_scenes


class CoDA:
    """The full loop: failures are diagnosed, claims are controlled, and half of a round is aimed.

    At least half of it stays wide. The wide scenes reach from the seed range to the whole generator
    range, most of them where the policy succeeds about half of the time. What becomes of the
    failures is up to the memory (:mod:`coda_trainer.recall`): generation and training programs, or
    one of the alternatives to them.
    """

    learns = True

    def plan(self, context: RoundContext) -> RoundPlan:
        """Look, diagnose and control as the memory needs it; then wide scenes and aimed ones."""
        recall = _recall(context)
        phase = find_difficulties(context, diagnosed=recall.diagnoses, tested=recall.tests)
        if context.config.coda.graded:
            scenes, weights, tried = graded_scenes(context)
        else:
            scenes, weights = wide_scenes(context, context.config.collect.scenes)
            tried = []
        plan = recall.plan(context, phase, Wide(scenes, weights))
        aimed = [source for source in plan.weights if source not in (WIDE, OWN)]
        context.log("plan", shares=dict(plan.weights), aimed=aimed)
        return replace(plan, episodes=(*phase.episodes, *tried))

    def measure(self, context: RoundContext) -> None:
        """What the memory wants to know of the new policy."""
        _recall(context).measure(context)


def _recall(context: RoundContext) -> Recall:
    return make_recall(context.config, adopted=context.adopted is not None)
