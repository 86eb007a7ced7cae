"""RoundContext: what every phase of a round works with, and the state that rounds hand on."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from coda_envs.family import TaskFamily
from coda_envs.scene import Scene
from coda_trainer.backbone import ChunkBatch, TrainableBackbone
from coda_trainer.config import RunConfig
from coda_trainer.learning.actor import ActorSpec
from coda_trainer.learning.exploration import ExplorationNoise
from coda_trainer.learning.learner import ResidualLearner
from coda_trainer.learning.replay import Replay
from coda_trainer.learning.rollout import Job, RolloutPool
from coda_trainer.memory.store import MemoryStore
from coda_trainer.report.progress import Reporter
from coda_trainer.rounds.run_folder import RunFolder

#: Simulated control steps of the training machinery, by what they were spent on.
Meter = dict[str, int]


@dataclass
class RunState:
    """What a checkpoint holds: the policy, its demonstrations, and what the learner knows."""

    backbone: TrainableBackbone
    demonstrations: ChunkBatch | None = None
    replay: Replay | None = None
    learner: ResidualLearner | None = None
    meter: Meter = field(default_factory=dict)


@dataclass
class RoundContext:
    """One round of a run. ``scene``: the user's own scene, if there is one."""

    config: RunConfig
    family: TaskFamily
    round: int
    run: RunFolder
    pool: RolloutPool
    memory: MemoryStore
    report: Reporter
    state: RunState
    scene: Scene | None = None

    def rng(self, purpose: str) -> np.random.Generator:
        """A generator for one purpose in one round: the same whatever ran before."""
        return np.random.default_rng((self.config.seed, self.round, zlib.crc32(purpose.encode())))

    def torch_seed(self, purpose: str) -> int:
        """A seed for torch, likewise."""
        return int(self.rng(purpose).integers(2**31))

    def actor(self, name: str, *, residual: bool = False, noise: float = 0.0) -> ActorSpec:
        """The policy as it stands, saved for the workers under ``name``."""
        folder = self.run.fresh_work_folder(f"round_{self.round:03d}_{name}")
        backbone = folder / "backbone"
        backbone.mkdir()
        self.state.backbone.save(backbone)
        residual_folder: Path | None = None
        if residual:
            assert self.state.learner is not None
            residual_folder = folder / "residual"
            residual_folder.mkdir()
            self.state.learner.actor.save(residual_folder)
        return ActorSpec(
            self.config.backbone.name,
            self.config.backbone.options,
            self.config.seed,
            backbone,
            residual_folder,
            ExplorationNoise(std=noise) if noise > 0 else None,
        )

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
        """Write one record into ``metrics.jsonl``."""
        self.run.append_metrics({"round": self.round, "event": event, **figures})
