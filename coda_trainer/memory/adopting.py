"""Adopting: the modes of one memory as modes of another, with what confirmed them and their Ω."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from coda_envs.programs.diagnosis import Diagnosis
from coda_envs.programs.generation import GenerationProgram
from coda_trainer.memory import lifecycle
from coda_trainer.memory.evidence import confirming, generation_program, last_confirmation
from coda_trainer.memory.modes import Mode, mode_of
from coda_trainer.memory.store import MemoryStore

#: Removed modes of these reasons are worth nothing to anybody; what one policy has mastered, or
#: stalled at, another one may learn.
WORTHLESS = ("refuted", "infeasible")


def transferable(memory: MemoryStore, family: str) -> list[Mode]:
    """The family's modes that a control evaluation confirmed and that have a generation program."""
    return [
        mode
        for mode in memory.modes(family=family)
        if mode.state != "candidate"
        and (mode.tombstone is None or mode.tombstone.reason not in WORTHLESS)
        and confirming(memory, mode)
        and generation_program(memory, mode) is not None
    ]


def adopt(source: MemoryStore, target: MemoryStore, family: str, round: int) -> list[Mode]:
    """Write the transferable modes of ``source`` into ``target`` as validated ones, with their
    confirming diagnoses and generation programs; those that ``target`` knows stay as they are.

    ``source`` is only read. Returns the new modes.
    """
    known = {m.id for m in target.modes(family=family)}
    new = []
    for mode in transferable(source, family):
        if mode.id in known:
            continue
        program = generation_program(source, mode)
        assert program is not None
        control = last_confirmation(source, mode)
        said = confirming(source, mode)
        # Under its own id, which a merge has parted from its values: it is known by that.
        new.append(write_mode(target, mode, said, program, control, round, id=mode.id))
    return new


def write_mode(
    target: MemoryStore,
    like: Mode,
    diagnoses: Sequence[Diagnosis],
    program: GenerationProgram,
    control: Mapping[str, Any],
    round: int,
    *,
    id: str | None = None,
) -> Mode:
    """A validated mode of ``target`` with the values of ``like``, these diagnoses and this Ω.

    ``control``: data of the evaluation that confirmed it elsewhere. It is kept with
    ``"adopted": true``: ``target`` has not made it. ``id``: the mode's, by default that of the
    first diagnosis with those values.
    """
    fresh = mode_of(diagnoses[0], round, interval=like.interval, choices=like.choices)
    if id is not None:
        fresh = fresh.replaced(id=id)
    mode = lifecycle.judge(fresh, round, "confirmed")
    with target.transaction():
        sequence = [target.add_diagnosis(round, d) for d in diagnoses]
        told = {**control, "adopted": True}
        target.add_control(round, mode.id, "confirmed", sequence, told)
        target.add_program(round, mode.id, program)
        target.save_mode(round, mode)
    return mode
