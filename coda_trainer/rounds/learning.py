"""The learning phase of a round: residual TD3 on rollouts, then distillation into the backbone."""

from __future__ import annotations

from collections.abc import Sequence

from coda_envs.errors import LearningError
from coda_trainer.episode import Episode
from coda_trainer.learning.behaviour_cloning import train_backbone
from coda_trainer.learning.chunk_critic import StatePotential
from coda_trainer.learning.distillation import distil_selection
from coda_trainer.learning.learner import LearnerConfig, ResidualLearner
from coda_trainer.learning.reader import Reader, backbone_reader
from coda_trainer.learning.relative import RelativeFeatures
from coda_trainer.learning.replay import Replay
from coda_trainer.learning.residual import ResidualConfig
from coda_trainer.rounds.context import RoundContext
from coda_trainer.strategies.base import RoundPlan

#: Standard deviation of the exploration noise, while learning and while collecting successes.
NOISE = 0.05
DISTIL_NOISE = 0.03


def improve(context: RoundContext, plan: RoundPlan) -> None:
    """Train the residual on the plan's scenes and distil it into the backbone.

    Episodes of controls and probes never come here. The distilled backbone is the base of the next
    round.
    """
    reader = backbone_reader(
        context.state.backbone, context.state.backbone.spec.execute, context.config.seed
    )
    replay = _replay(context, reader)
    replay.add(plan.episodes)
    learner = _learner(context, replay, plan.potential)
    _warm_up(context, plan, replay, learner)
    _blocks(context, plan, replay, learner)
    _distil(context, plan, learner, reader)


def demonstration_replay(context: RoundContext, episodes: Sequence[Episode]) -> None:
    """Put the demonstrations into the run's replay, once."""
    backbone = context.state.backbone
    reader = backbone_reader(backbone, backbone.spec.execute, context.config.seed)
    capacity = context.config.collect.replay_megabytes << 20
    context.state.replay = Replay(reader, backbone.spec.execute, capacity)
    context.state.replay.add(episodes, demonstrations=True)


def make_learner(
    context: RoundContext, encoding: int, potential: StatePotential
) -> ResidualLearner:
    """An untrained learner of the configuration."""
    config = context.config.learner
    return ResidualLearner(
        LearnerConfig(
            residual=ResidualConfig(execute=context.state.backbone.spec.execute),
            discount=config.discount,
            batch_size=config.batch_size,
            demo_share=config.demo_share,
        ),
        features=context.family.schema.size,
        encoding=encoding,
        potential=potential,
        seed=context.torch_seed("learner"),
        relative=RelativeFeatures(context.family.schema),
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
) -> None:
    config = context.config
    blocks = -(-config.collect.episodes // config.collect.episodes_per_block)
    with context.report.bar("training blocks", blocks) as progress:
        for block in range(blocks):
            jobs = plan.jobs(context, config.collect.episodes_per_block, f"block {block}")
            actor = context.actor(f"block_{block}", residual=True, noise=NOISE)
            episodes = context.pool.run(actor, jobs)
            context.count_steps("training", sum(e.length for e in episodes))
            replay.add(episodes)
            wide = [e for e in episodes if e.source in ("wide", "own")]
            learner.observe_rollouts(_success(wide or episodes) or 0.0)
            metrics = learner.train(replay, config.learner.updates_per_block, plan.replay_weights)
            context.log("block", block=block, success=_success(episodes), **metrics)
            progress(block + 1)


def _distil(
    context: RoundContext, plan: RoundPlan, learner: ResidualLearner, reader: Reader
) -> None:
    """The residual policy's successes become chunks that the backbone learns."""
    config = context.config.distil
    if config.episodes == 0 or config.updates == 0:
        return
    backbone = context.state.backbone
    jobs = plan.jobs(context, config.episodes, "distil")
    with context.report.bar("episodes to distil", len(jobs)) as progress:
        actor = context.actor("distil", residual=True, noise=DISTIL_NOISE)
        episodes = context.pool.run(actor, jobs, progress)
    context.count_steps("training", sum(e.length for e in episodes))
    try:
        chunks = distil_selection(episodes, learner.actor, reader, backbone.spec.horizon)
    except LearningError as error:
        context.report.line(f"nothing distilled: {error}")
        context.log("distil", episodes=len(episodes), success=_success(episodes), updates=0)
        return
    demonstrations = context.state.demonstrations
    assert demonstrations is not None
    with context.report.bar("distillation", config.updates) as progress:
        metrics = train_backbone(
            backbone,
            chunks,
            updates=config.updates,
            batch_size=context.config.sft.batch_size,
            rng=context.rng("distillation"),
            demonstrations=demonstrations,
            progress=lambda step, _: progress(step),
        )
    context.log(
        "distil", episodes=len(episodes), success=_success(episodes), chunks=len(chunks), **metrics
    )


def _success(episodes: Sequence[Episode]) -> float | None:
    """Share of successes; None where no episode was run."""
    return sum(e.success for e in episodes) / len(episodes) if episodes else None
