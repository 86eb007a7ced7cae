"""What the phases of a round work with, and the state that rounds hand on.

A run has one policy and one memory. Everything else belongs to a family: its scenes, replay and
learner. :class:`RunContext` is a round over all families, :class:`RoundContext` one family's part.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from coda_envs.family import TaskFamily
from coda_envs.programs.potential import PotentialProgram
from coda_envs.scene import Scene
from coda_trainer.backbone import ChunkBatch, TrainableBackbone
from coda_trainer.config import ALL, RunConfig
from coda_trainer.learning.actor import ActorSpec
from coda_trainer.learning.choice import ChoiceSpec, save_critic
from coda_trainer.learning.exploration import Noise
from coda_trainer.learning.replay import Replay
from coda_trainer.learning.residual import ResidualActor
from coda_trainer.learning.rollout import Job, RolloutPool
from coda_trainer.learning.update_rule import UpdateRule
from coda_trainer.memory.store import MemoryStore
from coda_trainer.report.progress import Reporter
from coda_trainer.rounds.run_folder import RunFolder

#: Simulated control steps of the training machinery, by what they were spent on.
Meter = dict[str, int]


@dataclass(frozen=True)
class ProgramState:
    """A family's potential program: as compiled from its diagnoses, and as refined since."""

    compiled: PotentialProgram
    refined: PotentialProgram


@dataclass
class FamilyState:
    """What a checkpoint holds of one family: demonstrations, replay, learner, the potential's
    program, steps spent, and the arrays that an alternative memory keeps (:mod:`..recall`)."""

    demonstrations: ChunkBatch | None = None
    replay: Replay | None = None
    learner: UpdateRule | None = None
    program: ProgramState | None = None
    meter: Meter = field(default_factory=dict)
    recalled: dict[str, np.ndarray] = field(default_factory=dict)


@dataclass
class RunState:
    """What a checkpoint holds: the one policy, and each family's state by its name."""

    backbone: TrainableBackbone
    families: dict[str, FamilyState] = field(default_factory=dict)


@dataclass
class RunContext:
    """One round of a run, over all its families. ``scene``: the user's own, if there is one;
    ``adopted``: another run's memory that this one was given, read-only."""

    config: RunConfig
    families: tuple[TaskFamily, ...]
    round: int
    run: RunFolder
    pool: RolloutPool
    memory: MemoryStore
    report: Reporter
    state: RunState
    scene: Scene | None = None
    adopted: MemoryStore | None = None

    def of(self, family: TaskFamily) -> RoundContext:
        """The part of this round that belongs to a family."""
        return RoundContext(
            self, family, self.state.families.setdefault(family.name, FamilyState())
        )

    def parts(self) -> list[RoundContext]:
        """Every family's part, in the order of the configuration."""
        return [self.of(family) for family in self.families]

    def demonstrations(self) -> list[ChunkBatch]:
        """The demonstrations of every family that has some, in order."""
        kept = [part.state.demonstrations for part in self.parts()]
        return [chunks for chunks in kept if chunks is not None]

    def rng(self, purpose: str) -> np.random.Generator:
        """A generator for what is done for all families at once, for one purpose in one round."""
        return np.random.default_rng((self.config.seed, self.round, _number(purpose)))

    def actor(
        self, name: str, *, residual: ResidualActor | None = None, noise: Noise | None = None
    ) -> ActorSpec:
        """The policy as it stands, saved for the workers under ``name``."""
        folder = self.run.fresh_work_folder(f"round_{self.round:03d}_{name}")
        backbone = folder / "backbone"
        backbone.mkdir()
        self.state.backbone.save(backbone)
        residual_folder: Path | None = None
        if residual is not None:
            residual_folder = folder / "residual"
            residual_folder.mkdir()
            residual.save(residual_folder)
        return ActorSpec(
            self.config.backbone.name,
            self.config.backbone.options,
            self.config.seed,
            backbone,
            residual_folder,
            noise,
        )

    def log(self, event: str, *, family: str = ALL, **figures: Any) -> None:
        """Write one record into ``metrics.jsonl``; by default it is about all families together."""
        record = {"round": self.round, "event": event, "family": family, **figures}
        self.run.append_metrics(record)


@dataclass(frozen=True)
class RoundContext:
    """One family's part of a round: its own state and random streams; all else is the run's."""

    shared: RunContext
    family: TaskFamily
    state: FamilyState

    @property
    def config(self) -> RunConfig:
        """The run's settings."""
        return self.shared.config

    @property
    def round(self) -> int:
        """The round's number."""
        return self.shared.round

    @property
    def run(self) -> RunFolder:
        """The run's folder."""
        return self.shared.run

    @property
    def pool(self) -> RolloutPool:
        """Runs the rollouts of every family."""
        return self.shared.pool

    @property
    def memory(self) -> MemoryStore:
        """The run's memory: its modes carry their family."""
        return self.shared.memory

    @property
    def adopted(self) -> MemoryStore | None:
        """Another run's memory that this one was given, read-only."""
        return self.shared.adopted

    @property
    def report(self) -> Reporter:
        """Says what the run is doing."""
        return self.shared.report

    @property
    def backbone(self) -> TrainableBackbone:
        """The run's one policy."""
        return self.shared.state.backbone

    @property
    def scene(self) -> Scene | None:
        """The user's own scene, where it is of this family."""
        own = self.shared.scene
        return own if own is not None and own.family == self.family.name else None

    def rng(self, purpose: str) -> np.random.Generator:
        """A generator for one purpose of this family in one round: the same whatever ran before,
        and whatever other families the run has."""
        named = _number(self.family.name), _number(purpose)
        return np.random.default_rng((self.config.seed, self.round, *named))

    def torch_seed(self, purpose: str) -> int:
        """A seed for torch, likewise."""
        return int(self.rng(purpose).integers(2**31))

    def actor(self, name: str, *, residual: bool = False, noise: Noise | None = None) -> ActorSpec:
        """The policy as it stands, saved for the workers under ``name``; with ``residual``, as
        this family's learner corrects it, if it does."""
        actor: ResidualActor | None = None
        if residual:
            assert self.state.learner is not None
            actor = self.state.learner.residual
        return self.shared.actor(f"{self.family.name}_{name}", residual=actor, noise=noise)

    def choosing_actor(self, name: str, *, best: bool) -> ActorSpec:
        """The backbone as it stands, among whose samples this family's critic picks: the ``best``
        one, or else one by weight."""
        actor = self.shared.actor(f"{self.family.name}_{name}")
        return self.with_choice(actor, candidates=self.config.learner.candidates, best=best)

    def with_choice(self, actor: ActorSpec, *, candidates: int, best: bool) -> ActorSpec:
        """An actor of :meth:`actor` among whose samples this family's critic, as it stands, picks
        one of ``candidates``."""
        assert self.state.learner is not None
        assert actor.folder is not None
        folder = actor.folder.parent / "critic"
        folder.mkdir()
        save_critic(self.state.learner.critic, self.family.name, folder)
        return replace(actor, choice=ChoiceSpec(folder, candidates, best))

    def jobs(
        self,
        scenes: Sequence[Scene],
        source: str,
        rng: np.random.Generator,
        noise_multiplier: float = 1.0,
    ) -> list[Job]:
        """One job a scene, each with a fresh seed."""
        return [Job(s, int(rng.integers(2**31)), source, noise_multiplier) for s in scenes]

    def count_steps(self, what: str, steps: int) -> None:
        """Meter simulated control steps."""
        self.state.meter[what] = self.state.meter.get(what, 0) + steps

    def log(self, event: str, **figures: Any) -> None:
        """Write one record of this family into ``metrics.jsonl``."""
        self.shared.log(event, **{"family": self.family.name, **figures})


def _number(name: str) -> int:
    return zlib.crc32(name.encode())
