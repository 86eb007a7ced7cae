"""What a checkpoint of a run holds, written and read back so that a run goes on bit for bit."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from coda_envs.errors import RunError
from coda_envs.programs.potential import PotentialProgram
from coda_envs.text2potential import Potential, compile_potential
from coda_trainer.backbone import ChunkBatch
from coda_trainer.learning.chunk_critic import NoPotential, StatePotential
from coda_trainer.learning.reader import backbone_reader
from coda_trainer.learning.replay import Replay
from coda_trainer.rounds.context import FamilyState, ProgramState, RoundContext, RunContext
from coda_trainer.rounds.learning import make_learner
from coda_trainer.strict_json import dumps


def save_state(context: RunContext, folder: Path) -> None:
    """Write the run's state after a round: the policy, every family's state, the memory's mark."""
    (folder / "backbone").mkdir()
    context.state.backbone.save(folder / "backbone")
    described: dict[str, object] = {
        "round": context.round,
        "memory_mark": context.memory.mark(),
        "families": {
            part.family.name: _save_family(part.state, folder / "families" / part.family.name)
            for part in context.parts()
        },
    }
    (folder / "state.json").write_text(dumps(described, indent=1), encoding="utf-8")


def load_state(context: RunContext, folder: Path) -> None:
    """Restore what :func:`save_state` wrote into ``context`` and go back to its memory mark.

    Raises :class:`RunError` where the checkpoint is of other families than the configuration.
    """
    described = json.loads((folder / "state.json").read_text(encoding="utf-8"))
    saved = described.get("families", {})
    if set(saved) != set(context.config.families):
        raise RunError(
            f"{folder} holds the families {', '.join(sorted(saved)) or 'none'}.",
            allowed=f"those of the run's config.yaml: {', '.join(context.config.families)}",
            remedy="start a new run to change the families",
        )
    context.state.backbone.load(folder / "backbone")
    context.memory.rewind(int(described["memory_mark"]))
    for part in context.parts():
        name = part.family.name
        _load_family(part, folder / "families" / name, saved[name])


def _save_family(state: FamilyState, folder: Path) -> dict[str, object]:
    """Write demonstrations, replay and learner; what ``state.json`` says of them."""
    folder.mkdir(parents=True)
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
    if state.recalled:
        # No pickles: whatever an alternative memory keeps is plain arrays.
        np.savez(folder / "recalled.npz", allow_pickle=False, **state.recalled)
    described: dict[str, object] = {"meter": state.meter, "learner": None, "program": None}
    if state.program is not None:
        described["program"] = {
            "compiled": state.program.compiled.to_dict(),
            "refined": state.program.refined.to_dict(),
        }
    if state.learner is not None:
        (folder / "learner").mkdir()
        state.learner.save(folder / "learner")
        critic = state.learner.critic
        described["learner"] = {
            "encoding": state.learner.encoding_size,
            "first": _program(critic.first_potential),
            "now": _program(critic.potential),
        }
    return described


def _load_family(context: RoundContext, folder: Path, described: Mapping[str, Any]) -> None:
    state = context.state
    state.meter = dict(described["meter"])
    demonstrations = folder / "demonstrations.npz"
    if demonstrations.is_file():
        with np.load(demonstrations, allow_pickle=False) as arrays:
            obs = {k.removeprefix("obs/"): arrays[k] for k in arrays.files if k.startswith("obs/")}
            state.demonstrations = ChunkBatch(obs, arrays["actions"], arrays["valid"])
    if (folder / "recalled.npz").is_file():
        with np.load(folder / "recalled.npz", allow_pickle=False) as arrays:
            state.recalled = {name: arrays[name] for name in arrays.files}
    if (folder / "replay").is_dir():
        execute = context.backbone.spec.execute
        reader = backbone_reader(context.backbone, execute, context.config.seed)
        state.replay = Replay.load(folder / "replay", reader)
    program = described["program"]
    if program is not None:
        state.program = ProgramState(
            *(PotentialProgram.parse(program[k], "checkpoint") for k in ("compiled", "refined"))
        )
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
