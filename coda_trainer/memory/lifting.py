"""Lifting a memory: what one family's failures say of another one, as a memory of its own.

A lifted mode is a claim, not a finding: it was confirmed in the family that it comes from. A run
that is given the lifted memory gets probes of its own in every mode, and measures what they are
worth.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from coda_envs.errors import ConfigError, RunError
from coda_envs.family import TaskFamily, get_family
from coda_envs.programs.diagnosis import Alternative, Diagnosis
from coda_envs.programs.generation import GenerationProgram, SampleEdit
from coda_envs.programs.lifting import lift, lift_path
from coda_trainer.compile.generation import guards_of
from coda_trainer.diagnosis.base import gate_text
from coda_trainer.memory.adopting import transferable, write_mode
from coda_trainer.memory.evidence import (
    confirming,
    generation_program,
    last_confirmation,
    program_flaw,
)
from coda_trainer.memory.modes import Mode, merge_all
from coda_trainer.memory.store import MemoryStore


class NothingLiftsError(RunError):
    """No mode has a counterpart in the other family."""


@dataclass(frozen=True)
class LiftedMemory:
    """Modes of the target's memory by the id of the mode that each comes from, and why the others
    have no counterpart."""

    modes: Mapping[str, Mode]
    left_out: Mapping[str, str]


def lift_memory(source: MemoryStore, family: str, target: MemoryStore) -> LiftedMemory:
    """Write what ``source`` knows of other families into ``target`` as validated modes of
    ``family``.

    A mode is lifted with its generation program (:func:`coda_envs.programs.lifting.lift`); one of
    which an edit has no counterpart is left out. The guards become the conditions under which the
    factor exists there. The stage becomes that of the same name, or the one as far from the goal.
    Modes that become one there are merged. Raises :class:`RunError` where ``source`` has no
    confirmed mode of another family, :class:`NothingLiftsError` where none has a counterpart.
    """
    goal = get_family(family)
    others = sorted({m.family for m in source.modes()} - {goal.name})
    found: dict[str, Mode] = {}
    left_out: dict[str, str] = {}
    for other in others:
        for mode in transferable(source, other):
            program = generation_program(source, mode)
            assert program is not None
            try:
                family_of = get_family(other)
            except ConfigError as error:
                left_out[mode.id] = error.problem
                continue
            lifted = _lifted(program, family_of, goal)
            if isinstance(lifted, str):
                left_out[mode.id] = lifted
                continue
            diagnoses = [_diagnosis(d, lifted, family_of, goal) for d in confirming(source, mode)]
            control = {**last_confirmation(source, mode), "lifted_from": other}
            values = _values(mode, lifted)
            found[mode.id] = write_mode(target, values, diagnoses, lifted, control, 0)
    if not found and not left_out:
        raise RunError(
            f"the memory {source.path} has no confirmed mode of another family than {family!r}.",
            allowed=f"its modes are of: {', '.join(others) or goal.name}",
        )
    if not found:
        raise NothingLiftsError(
            f"nothing of {source.path} has a counterpart in {family}: "
            f"{'; '.join(dict.fromkeys(left_out.values()))}."
        )
    # Stages of one family may be one stage of the other.
    for mode in merge_all(target.modes(family=goal.name), 0):
        target.save_mode(0, mode)
    return LiftedMemory(found, left_out)


def _lifted(
    program: GenerationProgram, source: TaskFamily, target: TaskFamily
) -> GenerationProgram | str:
    """The program in the other family, or why an edit has no counterpart."""
    flaw = program_flaw(program, source.space)
    if flaw:
        return flaw
    found = lift(program, source.space, target.space)
    missing = [f"{w}: {why}" for w, why in found.left_out.items() if w.startswith("edits")]
    if found.program is None or missing:
        return "; ".join(missing)
    paths = [edit.factor for edit in found.program.edits if isinstance(edit, SampleEdit)]
    guards = {g.hash: g for path in paths for g in guards_of(target.space, target.space[path])}
    kept = tuple(guard for guard in guards.values() if guard.factor not in paths)
    return found.program.model_copy(update={"guards": kept})


def _values(mode: Mode, lifted: GenerationProgram) -> Mode:
    """``mode`` with the interval or choices that the lifted program draws from."""
    edit = lifted.edits[0]
    assert isinstance(edit, SampleEdit)
    if edit.choices:
        return mode.replaced(interval=None, choices=edit.choices)
    assert edit.low is not None
    assert edit.high is not None
    return mode.replaced(interval=(edit.low, edit.high), choices=())


def _diagnosis(
    diagnosis: Diagnosis, lifted: GenerationProgram, source: TaskFamily, target: TaskFamily
) -> Diagnosis:
    """What the diagnosis says, in the words of the other family. Its scene stays the old one."""
    edit = lifted.edits[0]
    assert isinstance(edit, SampleEdit)
    stage = lift_stage(diagnosis.stage, source, target)
    alternatives = [
        Alternative(factor=path, direction=other.direction, confidence=other.confidence)
        for other in diagnosis.alternatives
        if (path := lift_path(other.factor, source.space, target.space)) is not None
    ]
    changes = {
        "family": target.name,
        "stage": target.template.stage_names[stage],
        "failed_predicate": gate_text(target.template.stages[stage].gate),
        "factor": edit.factor,
        "role": target.space[edit.factor].role or "",
        "alternatives": tuple(alternatives),
        "sentence": f"lifted from {source.name}: {diagnosis.sentence}"[:500],
    }
    return Diagnosis(**{**dict(diagnosis), **changes})


def lift_stage(stage: str, source: TaskFamily, target: TaskFamily) -> int:
    """Index of the target's stage of the same name, else of the one as many stages from the goal
    (its first one where it has fewer)."""
    names = target.template.stage_names
    if stage in names:
        return names.index(stage)
    own = source.template.stage_names
    return max(len(names) - (len(own) - own.index(stage)), 0)
