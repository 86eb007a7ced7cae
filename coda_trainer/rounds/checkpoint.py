"""What a checkpoint of a run holds, written and read back so that a run goes on bit for bit."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from coda_envs.errors import RunError
from coda_envs.programs.potential import PotentialProgram
from coda_envs.text2potential import Potential, compile_potential
from coda_trainer.backbone import ChunkBatch
from coda_trainer.learning.chunk_critic import NoPotential, StatePotential
from coda_trainer.learning.reader import backbone_reader
from coda_trainer.learning.replay import Replay
from coda_trainer.rounds.context import RoundContext
from coda_trainer.rounds.learning import make_learner
from coda_trainer.strict_json import dumps


def save_state(context: RoundContext, folder: Path) -> None:
    """Write the run's state after a round: policy, demonstrations, replay, learner, memory mark."""
    state = context.state
    (folder / "backbone").mkdir()
    state.backbone.save(folder / "backbone")
    described: dict[str, object] = {
        "round": context.round,
        "memory_mark": context.memory.mark(),
        "meter": state.meter,
        "learner": None,
    }
    if state.demonstrations is not None:
        chunks = state.demonstrations
        arrays = {f"obs/{key}": value for key, value in chunks.obs.items()}
        np.savez(
            folder / "demonstrations.npz",
            allow_pickle=False,
            actions=chunks.actions,
            valid=chunks.valid,
            **arrays,
        )
    if state.replay is not None:
        (folder / "replay").mkdir()
        state.replay.save(folder / "replay")
    if state.learner is not None:
        (folder / "learner").mkdir()
        state.learner.save(folder / "learner")
        critic = state.learner.critic
        described["learner"] = {
            "encoding": state.learner.actor.encoding_size,
            "first": _program(critic.first_potential),
            "now": _program(critic.potential),
        }
    (folder / "state.json").write_text(dumps(described, indent=1), encoding="utf-8")


def load_state(context: RoundContext, folder: Path) -> None:
    """Restore what :func:`save_state` wrote into ``context`` and go back to its memory mark."""
    described = json.loads((folder / "state.json").read_text(encoding="utf-8"))
    state = context.state
    state.backbone.load(folder / "backbone")
    state.meter = dict(described["meter"])
    context.memory.rewind(int(described["memory_mark"]))
    demonstrations = folder / "demonstrations.npz"
    if demonstrations.is_file():
        with np.load(demonstrations, allow_pickle=False) as arrays:
            obs = {k.removeprefix("obs/"): arrays[k] for k in arrays.files if k.startswith("obs/")}
            state.demonstrations = ChunkBatch(obs, arrays["actions"], arrays["valid"])
    if (folder / "replay").is_dir():
        reader = backbone_reader(state.backbone, state.backbone.spec.execute, context.config.seed)
        state.replay = Replay.load(folder / "replay", reader)
    saved = described["learner"]
    if saved is not None:
        first = _potential(context, saved["first"])
        now = _potential(context, saved["now"])
        state.learner = make_learner(context, int(saved["encoding"]), now)
        state.learner.load(folder / "learner", first=first, potential=now)


def _program(potential: StatePotential) -> Mapping[str, object] | None:
    """The program a potential was compiled from; None for Φ ≡ 0."""
    return potential.program.to_dict() if isinstance(potential, Potential) else None


def _potential(context: RoundContext, program: Mapping[str, object] | None) -> StatePotential:
    if program is None:
        return NoPotential()
    try:
        parsed = PotentialProgram.parse(program, "checkpoint")
        return compile_potential(parsed, context.family.schema)
    except ValueError as error:
        raise RunError(
            f"the checkpoint's potential does not compile: {error}",
            remedy="resume with the version of coda-robotics that wrote it",
        ) from error
