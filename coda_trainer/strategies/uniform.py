"""``uniform``: scenes from the whole generator range, the same learner, no diagnosis."""

from __future__ import annotations

from coda_envs.text2potential import compile_potential
from coda_trainer.learning.chunk_critic import NoPotential, StatePotential
from coda_trainer.rounds.context import RoundContext
from coda_trainer.strategies.base import RoundPlan, wide_scenes


class Uniform:
    """Every scene is drawn widely; with ``signal: shaped`` the family's own stages are paid."""

    learns = True

    def plan(self, context: RoundContext) -> RoundPlan:
        """All scenes wide."""
        scenes, weights = wide_scenes(context, context.config.collect.scenes)
        potential: StatePotential = NoPotential()
        if context.config.signal == "shaped":
            potential = compile_potential(context.family.template, context.family.schema)
        return RoundPlan(scenes=scenes, weights=weights, potential=potential)

    def measure(self, context: RoundContext) -> None:
        """Nothing to measure: no modes."""
