"""What stands behind a mode in a memory: confirmed diagnoses, their evaluation, and its Ω."""

from __future__ import annotations

from typing import Any

from coda_envs.engine.check import check_program
from coda_envs.errors import ProgramError
from coda_envs.factors import FactorSpace
from coda_envs.programs.diagnosis import Diagnosis
from coda_envs.programs.generation import GenerationProgram, SampleEdit
from coda_trainer.memory.modes import Mode
from coda_trainer.memory.schema import PROGRAMS
from coda_trainer.memory.store import MemoryStore


def confirming(memory: MemoryStore, mode: Mode) -> list[Diagnosis]:
    """The diagnoses whose control evaluation confirmed the mode, in order."""
    controls = memory.records("controls", mode_id=mode.id)
    wanted = {s for row in controls if row["verdict"] == "confirmed" for s in row["diagnoses"]}
    rows = memory.records("diagnoses", sequences=wanted)
    return [Diagnosis.parse(row["data"], "diagnosis") for row in rows]


def generation_program(memory: MemoryStore, mode: Mode) -> GenerationProgram | None:
    """The mode's Ω: the one that it was selected with, else the last one compiled."""
    if mode.omega_hash:
        program = memory.program(mode.omega_hash)
        return program if isinstance(program, GenerationProgram) else None
    rows = memory.records("programs", mode_id=mode.id)
    compiled = [r for r in rows if PROGRAMS[r["program"]] is GenerationProgram]
    if not compiled:
        return None
    return GenerationProgram.parse(compiled[-1]["data"], "generation program")


def last_confirmation(memory: MemoryStore, mode: Mode) -> dict[str, Any]:
    """Data of the last control evaluation that confirmed the mode; empty where there is none."""
    rows = [r for r in memory.records("controls", mode_id=mode.id) if r["verdict"] == "confirmed"]
    return dict(rows[-1]["data"]) if rows else {}


def program_flaw(program: GenerationProgram, space: FactorSpace) -> str:
    """Why a mode cannot be trained on with this Ω, which may come from anywhere; empty where it
    can: it fits the family, and every edit draws from an interval or from choices."""
    try:
        check_program(program, space)
    except ProgramError as error:
        return f"it does not fit {space.family}: {error.problem}"
    other = [e.edit for e in program.edits if not isinstance(e, SampleEdit)]
    return f"it has the edits {', '.join(other)}; a mode's are all sample" if other else ""
