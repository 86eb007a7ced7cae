"""A round's context for tests of what a round does in parts."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any

from tiny_run import quiet, tiny

from coda_envs.family import get_family
from coda_envs.scene import Scene
from coda_trainer.learning.rollout import EnvSpec, RolloutPool
from coda_trainer.memory.store import MemoryStore
from coda_trainer.rounds.context import RoundContext, RunContext, RunState
from coda_trainer.rounds.policy import make_policy
from coda_trainer.rounds.run_folder import RunFolder


def round_context(
    stack: ExitStack, folder: Path, scene: Scene | None = None, round: int = 1, **changes: Any
) -> RoundContext:
    """Round 1 of a tiny run of pick-place whose policy has had no lesson yet, in a new run folder
    within ``folder``; what it opens is closed with ``stack``."""
    family = get_family("pick-place")
    config = tiny(**changes)
    run = RunFolder.create(folder / f"run_{len(list(folder.iterdir()))}", config, {})
    stack.callback(run.close)
    pool = stack.enter_context(RolloutPool(EnvSpec(config.control_hz)))
    memory = stack.enter_context(MemoryStore(run.memory))
    state = RunState(make_policy(config.backbone, config.seed, learns=True))
    parts = (run, pool, memory, quiet(), state, scene)
    return RunContext(config, (family,), round, *parts).of(family)
