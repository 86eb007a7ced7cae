"""``graded``: wide scenes from the seed range outwards, the same learner, no diagnosis."""

from __future__ import annotations

from collections.abc import Sequence

from coda_envs.engine.widening import draw_magnitude, graded
from coda_envs.scene import Scene
from coda_trainer.episode import Episode
from coda_trainer.rounds.context import RoundContext
from coda_trainer.rounds.magnitudes import measure_magnitudes
from coda_trainer.rounds.refining import potential_in_force
from coda_trainer.strategies.base import RoundPlan, wide_scenes


class Graded:
    """Every scene is wide, most of them where the policy succeeds about half of the time."""

    learns = True

    def plan(self, context: RoundContext) -> RoundPlan:
        """All scenes wide, by measured magnitudes."""
        scenes, weights, tried = graded_scenes(context)
        return RoundPlan(scenes, weights, potential_in_force(context, ()), episodes=tried)

    def measure(self, context: RoundContext) -> None:
        """Nothing to measure: no modes."""


def graded_scenes(
    context: RoundContext,
) -> tuple[dict[str, Sequence[Scene]], dict[str, float], list[Episode]]:
    """The round's wide scenes between the seed range and the whole generator range, and the user's
    own; their shares; and the episodes that measured how far the policy gets."""
    magnitudes, tried = measure_magnitudes(context)
    scenes, weights = wide_scenes(
        context,
        context.config.collect.scenes,
        lambda rng: graded(context.family, rng, draw_magnitude(rng, magnitudes)),
    )
    return scenes, weights, tried
