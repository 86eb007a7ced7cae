"""Strategy: how a round picks its scenes and what it pays for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from coda_envs.engine.coverage import coverage
from coda_envs.engine.proposals import generate
from coda_envs.engine.trace import Generated
from coda_envs.programs.generation import GenerationProgram
from coda_envs.programs.training import TrainingProgram
from coda_envs.scene import Scene
from coda_trainer.episode import Episode
from coda_trainer.learning.chunk_critic import StatePotential
from coda_trainer.learning.rollout import Job
from coda_trainer.learning.update_rule import Lesson
from coda_trainer.rounds.context import RoundContext
from coda_trainer.rounds.schedule import WIDE, allocate

#: Source of episodes in the user's own scene, and its share of the wide part.
OWN = "own"
OWN_SHARE = 0.2


@dataclass(frozen=True)
class RoundPlan:
    """What a round trains on.

    ``scenes``: accepted scenes by source. ``weights``: share of episodes by source, summing to 1.
    ``potential``: Φ in force. ``training``: by source, the training program whose learning tools
    its episodes get (none where absent). ``episodes``: rollouts of the present policy, made for the
    plan, that may serve as replay. ``rehearsed``: chunks that the round's distillation takes in
    beside its own selection.
    """

    scenes: Mapping[str, Sequence[Scene]]
    weights: Mapping[str, float]
    potential: StatePotential
    training: Mapping[str, TrainingProgram] = field(default_factory=dict)
    episodes: Sequence[Episode] = ()
    rehearsed: Lesson | None = None

    @property
    def replay_weights(self) -> dict[str, float]:
        """Factors on the weight of transitions in replay draws, by source (1 where absent)."""
        return {
            name: program.tools.replay_weight
            for source, program in self.training.items()
            for name in (source, reset_source(source))
        }

    def jobs(self, context: RoundContext, episodes: int, purpose: str) -> list[Job]:
        """``episodes`` jobs with fresh seeds, sources mixed; scenes of a source in random order."""
        rng = context.rng(f"jobs:{purpose}")
        jobs: list[Job] = []
        for source, count in allocate(episodes, self.weights).items():
            scenes = self.scenes.get(source, ())
            if not scenes or not count:
                continue
            picked = [int(i) for i in rng.choice(len(scenes), count, replace=count > len(scenes))]
            program = self.training.get(source)
            noise = 1.0 if program is None else program.tools.exploration_noise
            jobs += context.jobs([scenes[i] for i in picked], source, rng, noise)
        return [jobs[int(i)] for i in rng.permutation(len(jobs))]


def reset_source(source: str) -> str:
    """The source of a mode's episodes that start in the middle of the task."""
    return f"{source}:reset"


class Strategy(Protocol):
    """One file a strategy; ``strategies.make_strategy`` finds it by name."""

    #: Whether rounds follow the supervised fine-tuning.
    learns: bool

    def plan(self, context: RoundContext) -> RoundPlan:
        """The round's scenes and signal."""

    def measure(self, context: RoundContext) -> None:
        """After training: what the strategy wants to know of the new policy."""


def wide_scenes(
    context: RoundContext,
    count: int,
    base: Callable[[np.random.Generator], Scene] | None = None,
) -> tuple[dict[str, Sequence[Scene]], dict[str, float]]:
    """``count`` wide scenes and the user's own, and their shares.

    ``base`` draws them; by default they are uniform over the generator range.
    """
    rng = context.rng("wide scenes")
    generated = generate(context.family, count, rng, source=WIDE, base=base)
    record(context, generated, WIDE)
    scenes: dict[str, Sequence[Scene]] = {WIDE: generated.scenes}
    if context.scene is None:
        return scenes, {WIDE: 1.0}
    scenes[OWN] = (context.scene,)
    return scenes, {WIDE: 1.0 - OWN_SHARE, OWN: OWN_SHARE}


def mode_scenes(
    context: RoundContext,
    source: str,
    program: GenerationProgram,
    count: int,
    rng: np.random.Generator,
    base: Callable[[np.random.Generator], Scene],
) -> list[Scene]:
    """``count`` scenes that a generation program edits, fewer where it does not find them."""
    generated = generate(context.family, count, rng, source=source, program=program, base=base)
    record(context, generated, source)
    return list(generated.scenes)


def record(context: RoundContext, generated: Generated, source: str) -> None:
    """Keep the construction traces in the memory, the accepted scenes in the run folder."""
    with context.memory.transaction():
        for trace in generated.traces:
            context.memory.add_trace(context.round, trace.scene_id, trace.outcome, trace.to_dict())
    context.run.append_scenes(context.round, context.family.name, source, generated.scenes)
    context.log(
        "generated",
        source=source,
        proposals=len(generated.traces),
        accepted=len(generated.scenes),
        verified=generated.verified,
        verified_after_repair=generated.verified_after_repair,
        edit_survival=generated.edit_survival,
        coverage=_coverage(context, generated.scenes, source),
        reasons=generated.reasons,
        rejections=generated.rejections,
    )


def _coverage(
    context: RoundContext, scenes: Sequence[Scene], source: str
) -> dict[str, float] | None:
    """How much of the factor space the scenes cover (bits); None of no scene."""
    if not scenes:
        return None
    rng = context.rng(f"coverage {source}")
    spread = coverage(scenes, context.family.space, rng, n=len(scenes))
    return {"joint": spread.joint, "mean": spread.mean}
