"""Collection: a round's rollouts of one family, with the learning tools of the plan's programs.

What each tool does here:

- stage resets: a share of a mode's episodes starts where an earlier one of this round entered a
  subgoal's stage. Their source is the mode's with ``:reset``, and the stage is kept with them. The
  scenes are those of the earlier episodes, which were accepted for training as a whole.
- exploration noise: a factor on the noise of a mode's episodes (:meth:`RoundPlan.jobs`).
- best of N: in a mode's episodes the chunk critic picks among N samples, by weight.

Replay weight is for the learner's draws, hindsight subgoals are for the distillation. A tool that
cannot be used in this run is ignored, and the log says why.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import replace

from coda_envs.programs.training import TOOLS, Tools, TrainingProgram
from coda_envs.text2potential import compile_potential
from coda_trainer.backbone import BackboneSpec
from coda_trainer.config import RunConfig
from coda_trainer.episode import Episode
from coda_trainer.learning.actor import ActorSpec
from coda_trainer.learning.hindsight import Part, subgoal_parts
from coda_trainer.learning.rollout import Job, Progress
from coda_trainer.learning.signals import RULES
from coda_trainer.learning.start_states import StageStart, start_states
from coda_trainer.rounds.context import RoundContext
from coda_trainer.strategies.base import RoundPlan, reset_source

#: A mode's latest episodes of the round, whose stage entries resets are drawn from.
REMEMBERED = 256


class Collection:
    """Runs a plan's episodes; remembers those of modes whose tools reset to a stage."""

    def __init__(self, context: RoundContext, plan: RoundPlan) -> None:
        self._context = context
        self._plan = _usable(context, plan)
        schema = context.family.schema
        self._potentials = {
            source: compile_potential(program.potential, schema)
            for source, program in self._plan.training.items()
        }
        self._seen: dict[str, deque[Episode]] = {
            source: deque(maxlen=REMEMBERED)
            for source, program in self._plan.training.items()
            if program.tools.stage_resets > 0 and self._enterable(source, program)
        }
        self._widths = {
            name: program.tools.best_of_n
            for source, program in self._plan.training.items()
            if program.tools.best_of_n > 1
            for name in (source, reset_source(source))
        }

    def run(
        self,
        actor: ActorSpec,
        episodes: int,
        purpose: str,
        progress: Progress | None = None,
        *,
        choose: bool = False,
    ) -> list[Episode]:
        """``episodes`` episodes with fresh seeds, metered as training.

        ``choose``: the critic has been trained, and may pick among samples where a tool says so.
        """
        jobs = self._with_resets(self._plan.jobs(self._context, episodes, purpose), purpose)
        if choose and self._widths:
            # Rows that no tool is for run the one sample that they would have run.
            actor = self._context.with_choice(actor, candidates=1, best=False)
            jobs = [replace(job, candidates=self._widths.get(job.source)) for job in jobs]
        found = self._context.pool.run(actor, jobs, progress, keep_states=bool(self._seen))
        self._context.count_steps("training", sum(e.length for e in found))
        for episode in found:
            if episode.source in self._seen:
                # Without what was seen, which may be pictures.
                self._seen[episode.source].append(replace(episode, observations={}))
        # The states serve here alone, and they are large.
        return [replace(episode, states=None) for episode in found]

    def subgoal_parts(self, episodes: Sequence[Episode]) -> list[Part]:
        """What failed episodes of modes show of their subgoals, where the tool is on."""
        parts: list[Part] = []
        for source, program in self._plan.training.items():
            if program.tools.hindsight_subgoals:
                own = [e for e in episodes if e.source in (source, reset_source(source))]
                discount = self._context.config.learner.discount
                parts += subgoal_parts(own, self._potentials[source], program.subgoals, discount)
        return parts

    def _with_resets(self, jobs: list[Job], purpose: str) -> list[Job]:
        """The jobs, of which each mode's share of resets starts at the entry of a subgoal."""
        for source, past in self._seen.items():
            own = [i for i, job in enumerate(jobs) if job.source == source]
            share = self._plan.training[source].tools.stage_resets
            # They come in random order, so that the first ones are any.
            wanted = own[: round(share * len(own))]
            starts = self._starts(source, past, len(wanted), purpose)
            for i, start in zip(wanted, starts, strict=False):
                jobs[i] = replace(
                    jobs[i],
                    scene=start.scene,
                    source=reset_source(source),
                    start=start.state,
                    stage=self._potentials[source].stage_names[start.stage],
                )
            if wanted and past:
                self._context.log("resets", source=source, purpose=purpose, episodes=len(starts))
        return jobs

    def _starts(
        self, source: str, past: Sequence[Episode], count: int, purpose: str
    ) -> list[StageStart]:
        """``count`` entries of the mode's subgoals, dealt out evenly over those that were entered;
        none where none was."""
        if not count:
            return []
        potential = self._potentials[source]
        rng = self._context.rng(f"resets:{source}:{purpose}")
        found = [
            start_states(past, potential, rng, count, stage)
            for stage in self._enterable(source, self._plan.training[source])
        ]
        entered = [starts for starts in found if starts]
        return [entered[i % len(entered)][i] for i in range(count)] if entered else []

    def _enterable(self, source: str, program: TrainingProgram) -> list[int]:
        """The subgoals' stages but the first, where every episode begins."""
        names = self._potentials[source].stage_names
        return [stage for name in program.subgoals if (stage := names.index(name)) > 0]


def unusable(config: RunConfig, spec: BackboneSpec) -> dict[str, str]:
    """The tools that a run with such a backbone cannot use, each with the reason."""
    reasons = {}
    if not spec.multi_sample:
        reasons["best_of_n"] = "the backbone has one chunk for an observation"
    if config.learner.update == "ppo":
        why = "ppo learns from samples of its own policy alone"
        reasons |= {"best_of_n": why, "exploration_noise": why}
    if config.learner.update == "weighted":
        reasons["hindsight_subgoals"] = "weighted learns from blocks, and distils nothing"
    if RULES[config.signal].frozen:
        reasons["best_of_n"] = "with the signal frozen the critic picks in every episode"
        reasons["exploration_noise"] = "with the signal frozen no noise is added"
        reasons["hindsight_subgoals"] = "with the signal frozen nothing is imitated"
    return reasons


def _usable(context: RoundContext, plan: RoundPlan) -> RoundPlan:
    """The plan without the tools that this run cannot use; those that were on are logged."""
    reasons = unusable(context.config, context.backbone.spec)
    off = Tools()
    for tool, reason in reasons.items():
        if any(getattr(p.tools, tool) != getattr(off, tool) for p in plan.training.values()):
            context.report.line(f"the learning tool {tool} is ignored: {reason}")
            context.log("tool ignored", tool=tool, reason=reason)
    kept = [tool for tool in TOOLS if tool not in reasons]
    return replace(plan, training={s: p.with_tools(kept) for s, p in plan.training.items()})
