"""The learning phase of a round: rollouts and updates in turn, under any update rule."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from pathlib import Path

import numpy as np

from coda_envs.errors import LearningError
from coda_envs.family import TaskFamily
from coda_trainer.config import RunConfig
from coda_trainer.episode import Episode
from coda_trainer.learning.actor import ActorSpec
from coda_trainer.learning.chunk_critic import StatePotential
from coda_trainer.learning.chunk_ppo import REACH, ChunkPPO, PPOConfig
from coda_trainer.learning.distillation import distil_selection, residual_chunks
from coda_trainer.learning.exploration import ExplorationNoise
from coda_trainer.learning.learner import LearnerConfig, ResidualLearner
from coda_trainer.learning.reader import Reader, backbone_reader
from coda_trainer.learning.relative import RelativeFeatures
from coda_trainer.learning.replay import Replay
from coda_trainer.learning.residual import ResidualConfig
from coda_trainer.learning.signals import RULES, dense_reward
from coda_trainer.learning.update_rule import Lesson, UpdateRule
from coda_trainer.learning.weighted import WeightedConfig, WeightedLearner
from coda_trainer.rounds.collecting import Collection
from coda_trainer.rounds.context import RoundContext, RunContext
from coda_trainer.rounds.refining import refine_potential
from coda_trainer.rounds.schedule import WIDE
from coda_trainer.rounds.teaching import BackboneGuard, teach
from coda_trainer.strategies.base import OWN, RoundPlan

#: Exploration while the residual policy collects successes to be distilled.
DISTIL_NOISE = ExplorationNoise(std=0.03)
#: Sources whose scenes are drawn alike in every round, so that success on them compares.
WIDELY = (WIDE, OWN)

Learner = ResidualLearner | ChunkPPO | WeightedLearner


@dataclass
class _Part:
    """A family's part of the phase: its plan, replay and rule; the episodes of its ``last`` blocks,
    which are distilled too, and those of all blocks so far."""

    context: RoundContext
    plan: RoundPlan
    reader: Reader
    replay: Replay
    rule: UpdateRule
    collection: Collection
    last: deque[list[Episode]]
    kept: list[Episode] = field(default_factory=list)
    acted: Path | None = None

    def run(
        self,
        actor: ActorSpec,
        episodes: int,
        purpose: str,
        bar: str | None = None,
        *,
        choose: bool = False,
    ) -> list[Episode]:
        """Episodes of the plan's scenes, with its learning tools, metered. ``choose``: the critic
        may pick among samples, see :meth:`Collection.run`."""
        self.acted = actor.folder
        if bar is None:
            return self.collection.run(actor, episodes, purpose, choose=choose)
        with self.context.report.bar(bar, episodes) as progress:
            return self.collection.run(actor, episodes, purpose, progress, choose=choose)


def learn(context: RunContext, plans: Sequence[tuple[RoundContext, RoundPlan]]) -> list[Lesson]:
    """Train every family's rule on its plan's scenes; what is to be distilled at the round's end.

    Episodes of controls and probes never come here. A family gives nothing to distil where nothing
    succeeded, under a rule whose backbone learns itself, or a signal whose backbone is frozen; of
    that the critic alone learns. Families take turns block by block, because some rules change the
    backbone that they share; the others leave it as it is. Where the signal says so, a family's
    potential is refined by what the round's wide episodes showed.
    """
    frozen = RULES[context.config.signal].frozen
    parts = [_begin(part, plan) for part, plan in plans]
    guard = BackboneGuard(context)
    for part in parts:
        _warm_up(part)
    collect = context.config.collect
    blocks = -(-collect.episodes // collect.episodes_per_block)
    with context.report.bar("training blocks", blocks * len(parts)) as progress:
        for block in range(blocks):
            episodes = []
            for done, part in enumerate(parts, start=block * len(parts) + 1):
                episodes += _block(part, block, frozen)
                progress(done)
            if not frozen:
                _teach(context, parts, guard, episodes, block)
    if not frozen:
        _watch_last_lesson(context, parts, guard)
    selections: list[Lesson] = []
    for part in parts:
        refine_potential(part.context, [e for e in part.kept if e.source in WIDELY])
        if not frozen:
            selections += _selection(part)
    return selections


def demonstration_replay(context: RoundContext, episodes: Sequence[Episode]) -> None:
    """Put the family's demonstrations into its replay, once."""
    backbone = context.backbone
    reader = backbone_reader(backbone, backbone.spec.execute, context.config.seed)
    capacity = context.config.collect.replay_megabytes << 20
    context.state.replay = Replay(reader, backbone.spec.execute, capacity)
    context.state.replay.add(episodes, demonstrations=True)


def make_learner(context: RoundContext, encoding: int, potential: StatePotential) -> Learner:
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
) -> Learner:
    """An untrained learner of a configuration, for a backbone that executes ``execute`` actions and
    whose encoding has ``encoding`` numbers."""
    settings = run.learner
    residual = ResidualConfig(execute=execute)
    rule: Callable[..., Learner] = ResidualLearner
    if settings.update == "ppo":
        residual = ResidualConfig(execute=execute, scale=REACH, shift=False, basis=True)
        ppo = PPOConfig(trace=settings.trace, divergence=settings.divergence)
        rule = partial(ChunkPPO, ppo=ppo)
    elif settings.update == "weighted":
        weighted = WeightedConfig(settings.beta, settings.keep, settings.trace)
        rule = partial(WeightedLearner, weighted=weighted)
    config = LearnerConfig(
        residual=residual,
        discount=settings.discount,
        batch_size=settings.batch_size,
        demo_share=settings.demo_share,
    )
    return rule(
        config,
        features=family.schema.size,
        encoding=encoding,
        potential=potential,
        seed=seed,
        dense=dense_reward(run.signal, family, settings.discount),
        relative=RelativeFeatures(family.schema),
    )


def _begin(context: RoundContext, plan: RoundPlan) -> _Part:
    reader = backbone_reader(context.backbone, context.backbone.spec.execute, context.config.seed)
    replay = context.state.replay
    assert replay is not None
    # The base has changed since the stored episodes were read.
    replay.rebase(reader)
    replay.add(plan.episodes)
    rule = context.state.learner
    if rule is None:
        encoding = replay.stored("encoding").shape[1]
        rule = context.state.learner = make_learner(context, encoding, plan.potential)
    else:
        rule.set_potential(plan.potential)
        rule.reset_actor()
    last: deque[list[Episode]] = deque(maxlen=context.config.distil.blocks)
    return _Part(context, plan, reader, replay, rule, Collection(context, plan), last)


def _warm_up(part: _Part) -> None:
    """Rollouts of the backbone with noise; then what learns before anything that acts may."""
    context, config = part.context, part.context.config
    actor = context.actor("warm_up", noise=part.rule.noise)
    episodes = part.run(actor, config.collect.warm_up_episodes, "warm-up", "warm-up episodes")
    part.replay.add(episodes)
    # Without any rollout there is nothing yet to warm up on.
    updates = config.learner.warm_up_updates if part.replay.rollouts.records else 0
    metrics = part.rule.after_warm_up(part.replay, len(episodes), updates, part.plan.replay_weights)
    context.log("warm_up", success=_success(episodes), episodes=len(episodes), **metrics)


def _block(part: _Part, block: int, frozen: bool) -> list[Episode]:
    """A block's rollouts, and what the rule learns from them; the episodes on wide scenes."""
    context, rule, config = part.context, part.rule, part.context.config
    if frozen:
        # Its samples differ by themselves: no noise on top.
        actor = context.choosing_actor(f"block_{block}", best=False)
    else:
        actor = context.actor(f"block_{block}", residual=True, noise=rule.noise)
    episodes = part.run(actor, config.collect.episodes_per_block, f"block {block}", choose=True)
    part.replay.add(episodes)
    part.kept += episodes
    part.last.append(episodes)
    wide = [e for e in episodes if e.source in WIDELY] or episodes
    rule.observe_rollouts(_success(wide) or 0.0, len(wide))
    updates, weights = config.learner.updates_per_block, part.plan.replay_weights
    if frozen:
        metrics = rule.warm_up(part.replay, updates, weights)
    else:
        metrics = rule.after_block(part.replay, len(episodes), updates, weights)
    context.log("block", block=block, success=_success(episodes), **metrics)
    return wide


def _teach(
    context: RunContext,
    parts: Sequence[_Part],
    guard: BackboneGuard,
    episodes: Sequence[Episode],
    block: int,
) -> None:
    """What the backbone learns within the round, under a rule that has it learn."""
    horizon = context.state.backbone.spec.horizon
    lessons: list[Lesson] = []
    for part in parts:
        lesson = part.rule.lesson(part.replay, horizon)
        if lesson is not None:
            lessons.append(lesson)
    # A lesson from episodes of a policy that was just taken back would spoil the good one, too.
    if lessons and not guard.harmed(episodes, parts[0].acted, f"block {block}"):
        teach(context, lessons, block)


def _watch_last_lesson(context: RunContext, parts: Sequence[_Part], guard: BackboneGuard) -> None:
    """Rollouts after the last lesson, in place of those that other rules distil, so that a harmful
    one does not end the round; the next round learns from them."""
    episodes: list[Episode] = []
    for part in parts:
        if part.rule.residual is None:
            actor = part.context.actor("last", noise=part.rule.noise)
            found = part.run(
                actor, context.config.distil.episodes, "last", "last lesson's episodes"
            )
            part.replay.add(found)
            episodes += [e for e in found if e.source in WIDELY] or found
            part.context.log("last", success=_success(found), episodes=len(found))
    guard.harmed(episodes, parts[0].acted, "last")


def _selection(part: _Part) -> list[Lesson]:
    """The residual policy's successes as chunks for the backbone, and beside them what the plan has
    it rehearse and, where a learning tool says so, what failures show of a subgoal."""
    context, config, residual = part.context, part.context.config.distil, part.rule.residual
    if residual is None or config.episodes == 0 or config.updates == 0:
        return []
    actor = context.actor("distil", residual=True, noise=DISTIL_NOISE)
    episodes = part.run(actor, config.episodes, "distil", "episodes to distil")
    horizon = context.backbone.spec.horizon
    lessons: list[Lesson] = []
    chosen = shown = 0
    try:
        # What the blocks' policies did shows more scenes and more ways off; what is right there is
        # for the last policy to say.
        seen = [*episodes, *chain.from_iterable(part.last)]
        chunks = distil_selection(seen, residual, part.reader, horizon)
        chosen = len(chunks)
        lessons.append(Lesson(chunks, np.ones(chosen)))
        hindsight = part.collection.subgoal_parts(episodes)
        if hindsight:
            cut = [piece.episode for piece in hindsight]
            chunks = residual_chunks(cut, residual, part.reader, horizon)
            shown = len(chunks)
            lessons.append(Lesson(chunks, np.concatenate([piece.weight for piece in hindsight])))
    except LearningError as error:
        context.report.line(f"nothing to distil: {error}")
    rehearsed = part.plan.rehearsed
    if rehearsed is not None:
        lessons.append(rehearsed)
    context.log(
        "selection",
        episodes=len(episodes),
        success=_success(episodes),
        chunks=chosen,
        hindsight=shown,
        rehearsed=0 if rehearsed is None else len(rehearsed.chunks),
    )
    return lessons


def _success(episodes: Sequence[Episode]) -> float | None:
    """Share of successes; None where no episode was run."""
    return sum(e.success for e in episodes) / len(episodes) if episodes else None
