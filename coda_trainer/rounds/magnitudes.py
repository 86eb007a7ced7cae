"""How far from the seed range the policy gets: success by magnitude of graded wide scenes."""

from __future__ import annotations

from coda_envs.engine.proposals import generate
from coda_envs.engine.widening import EDGES, graded, magnitude_weights
from coda_trainer.episode import Episode
from coda_trainer.learning.rollout import Job
from coda_trainer.rounds.context import RoundContext
from coda_trainer.rounds.schedule import WIDE
from coda_trainer.strategies.base import record

#: Episodes for each bin of magnitudes: enough to tell "always" and "never" from the rest.
EPISODES = 16


def measure_magnitudes(context: RoundContext) -> tuple[list[float], list[Episode]]:
    """Weights of the magnitude bins for this round's wide scenes, and the episodes run for them.

    The episodes are the present policy's and may serve as replay.
    """
    jobs: list[Job] = []
    trials: list[int] = []
    for index, edge in enumerate(EDGES):
        low = EDGES[index - 1] if index else 0.0
        generated = generate(
            context.family,
            EPISODES,
            context.rng(f"magnitude {index}"),
            source=WIDE,
            base=lambda rng, low=low, edge=edge: graded(  # type: ignore[misc]
                context.family, rng, float(rng.uniform(low, edge))
            ),
        )
        record(context, generated, WIDE)
        # The engine may give fewer than it was asked for.
        trials.append(len(generated.scenes))
        jobs += context.jobs(generated.scenes, WIDE, context.rng(f"magnitude seeds {index}"))
    with context.report.bar("episodes by magnitude", len(jobs)) as progress:
        episodes = context.pool.run(context.actor("magnitudes"), jobs, progress)
    context.count_steps("training", sum(e.length for e in episodes))
    outcomes = iter([e.success for e in episodes])
    successes = [sum(next(outcomes) for _ in range(count)) for count in trials]
    weights = magnitude_weights(successes, trials)
    context.log("magnitudes", edges=EDGES, successes=successes, trials=trials, weights=weights)
    return weights, episodes
