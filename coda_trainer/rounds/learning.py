"""A family's learning phase of a round: residual TD3 on rollouts, then a selection to distil."""

from __future__ import annotations

from collections.abc import Sequence

from coda_envs.errors import LearningError
from coda_envs.family import TaskFamily
from coda_trainer.backbone import ChunkBatch
from coda_trainer.config import RunConfig
from coda_trainer.episode import Episode
from coda_trainer.learning.chunk_critic import StatePotential
from coda_trainer.learning.distillation import distil_selection
from coda_trainer.learning.learner import LearnerConfig, ResidualLearner
from coda_trainer.learning.reader import Reader, backbone_reader
from coda_trainer.learning.relative import RelativeFeatures
from coda_trainer.learning.replay import Replay
from coda_trainer.learning.residual import ResidualConfig
from coda_trainer.learning.signals import RULES, dense_reward
from coda_trainer.rounds.context import RoundContext
from coda_trainer.rounds.refining import refine_potential
from coda_trainer.rounds.schedule import WIDE
from coda_trainer.strategies.base import OWN, RoundPlan

#: Standard deviation of the exploration noise, while learning and while collecting successes.
NOISE = 0.05
DISTIL_NOISE = 0.03
#: Sources whose scenes are drawn alike in every round, so that success on them compares.
WIDELY = (WIDE, OWN)


def learn(context: RoundContext, plan: RoundPlan) -> ChunkBatch | None:
    """Train the family's residual on the plan's scenes; its successes, to be distilled.

    Episodes of controls and probes never come here. None where nothing is to be distilled: no
    success, no distillation in the configuration, or a frozen backbone, of which the critic alone
    learns. The backbone stays as it is. Where the signal says so, the potential is refined by what
    the round's wide episodes showed.
    """
    reader = backbone_reader(context.backbone, context.backbone.spec.execute, context.config.seed)
    replay = _replay(context, reader)
    replay.add(plan.episodes)
    learner = _learner(context, replay, plan.potential)
    _warm_up(context, plan, replay, learner)
    episodes = _blocks(context, plan, replay, learner)
    refine_potential(context, [e for e in episodes if e.source in WIDELY])
    if RULES[context.config.signal].frozen:
        return None
    return _selection(context, plan, learner, reader)


def demonstration_replay(context: RoundContext, episodes: Sequence[Episode]) -> None:
    """Put the family's demonstrations into its replay, once."""
    backbone = context.backbone
    reader = backbone_reader(backbone, backbone.spec.execute, context.config.seed)
    capacity = context.config.collect.replay_megabytes << 20
    context.state.replay = Replay(reader, backbone.spec.execute, capacity)
    context.state.replay.add(episodes, demonstrations=True)


def make_learner(
    context: RoundContext, encoding: int, potential: StatePotential
) -> ResidualLearner:
    """An untrained learner of the configuration, for the family of the context."""
    return new_learner(
        context.config,
        context.family,
        execute=context.backbone.spec.execute,
        encoding=encoding,
        potential=potential,
        seed=context.torch_seed("learner"),
    )


def new_learner(
    run: RunConfig,
    family: TaskFamily,
    *,
    execute: int,
    encoding: int,
    potential: StatePotential,
    seed: int,
) -> ResidualLearner:
    """An untrained learner of a configuration, for a backbone that executes ``execute`` actions and
    whose encoding has ``encoding`` numbers."""
    config = run.learner
    return ResidualLearner(
        LearnerConfig(
            residual=ResidualConfig(execute=execute),
            discount=config.discount,
            batch_size=config.batch_size,
            demo_share=config.demo_share,
        ),
        features=family.schema.size,
        encoding=encoding,
        potential=potential,
        seed=seed,
        dense=dense_reward(run.signal, family, config.discount),
        relative=RelativeFeatures(family.schema),
    )


def _replay(context: RoundContext, reader: Reader) -> Replay:
    replay = context.state.replay
    assert replay is not None
    # The base has changed since the stored episodes were read.
    replay.rebase(reader)
    return replay


def _learner(context: RoundContext, replay: Replay, potential: StatePotential) -> ResidualLearner:
    if context.state.learner is None:
        encoding = replay.stored("encoding").shape[1]
        context.state.learner = make_learner(context, encoding, potential)
    else:
        context.state.learner.set_potential(potential)
        context.state.learner.reset_actor()
    return context.state.learner


def _warm_up(
    context: RoundContext, plan: RoundPlan, replay: Replay, learner: ResidualLearner
) -> None:
    """Rollouts of the backbone with noise, then critic updates only."""
    config = context.config
    jobs = plan.jobs(context, config.collect.warm_up_episodes, "warm-up")
    with context.report.bar("warm-up episodes", len(jobs)) as progress:
        episodes = context.pool.run(context.actor("warm_up", noise=NOISE), jobs, progress)
    context.count_steps("training", sum(e.length for e in episodes))
    replay.add(episodes)
    # Without any rollout there is nothing yet to warm up on.
    updates = config.learner.warm_up_updates if replay.rollouts.records else 0
    metrics = learner.warm_up(replay, updates, plan.replay_weights) if updates else {}
    context.log("warm_up", success=_success(episodes), episodes=len(episodes), **metrics)


def _blocks(
    context: RoundContext, plan: RoundPlan, replay: Replay, learner: ResidualLearner
) -> list[Episode]:
    """Rollouts and updates in turn; the episodes of all blocks."""
    config = context.config
    frozen = RULES[config.signal].frozen
    update = learner.warm_up if frozen else learner.train
    kept: list[Episode] = []
    blocks = -(-config.collect.episodes // config.collect.episodes_per_block)
    with context.report.bar("training blocks", blocks) as progress:
        for block in range(blocks):
            jobs = plan.jobs(context, config.collect.episodes_per_block, f"block {block}")
            if frozen:
                # Its samples differ by themselves: no noise on top.
                actor = context.choosing_actor(f"block_{block}", best=False)
            else:
                actor = context.actor(f"block_{block}", residual=True, noise=NOISE)
            episodes = context.pool.run(actor, jobs)
            context.count_steps("training", sum(e.length for e in episodes))
            replay.add(episodes)
            kept += episodes
            wide = [e for e in episodes if e.source in WIDELY]
            learner.observe_rollouts(_success(wide or episodes) or 0.0)
            metrics = update(replay, config.learner.updates_per_block, plan.replay_weights)
            context.log("block", block=block, success=_success(episodes), **metrics)
            progress(block + 1)
    return kept


def _selection(
    context: RoundContext, plan: RoundPlan, learner: ResidualLearner, reader: Reader
) -> ChunkBatch | None:
    """The residual policy's successes as chunks for the backbone."""
    config = context.config.distil
    if config.episodes == 0 or config.updates == 0:
        return None
    jobs = plan.jobs(context, config.episodes, "distil")
    with context.report.bar("episodes to distil", len(jobs)) as progress:
        actor = context.actor("distil", residual=True, noise=DISTIL_NOISE)
        episodes = context.pool.run(actor, jobs, progress)
    context.count_steps("training", sum(e.length for e in episodes))
    chunks: ChunkBatch | None = None
    try:
        chunks = distil_selection(episodes, learner.actor, reader, context.backbone.spec.horizon)
    except LearningError as error:
        context.report.line(f"nothing to distil: {error}")
    context.log(
        "selection",
        episodes=len(episodes),
        success=_success(episodes),
        chunks=0 if chunks is None else len(chunks),
    )
    return chunks


def _success(episodes: Sequence[Episode]) -> float | None:
    """Share of successes; None where no episode was run."""
    return sum(e.success for e in episodes) / len(episodes) if episodes else None
