"""``uniform``: scenes from the whole generator range, the same learner, no diagnosis."""

from __future__ import annotations

from coda_trainer.rounds.context import RoundContext
from coda_trainer.rounds.refining import potential_in_force
from coda_trainer.strategies.base import RoundPlan, wide_scenes


class Uniform:
    """Every scene is drawn widely; a signal that has a potential pays the family's own stages."""

    learns = True

    def plan(self, context: RoundContext) -> RoundPlan:
        """All scenes wide."""
        scenes, weights = wide_scenes(context, context.config.collect.scenes)
        return RoundPlan(scenes, weights, potential_in_force(context, ()))

    def measure(self, context: RoundContext) -> None:
        """Nothing to measure: no modes."""
