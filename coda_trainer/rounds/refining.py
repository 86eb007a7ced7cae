"""The potential in force: compiled from diagnoses, and refined by what each round measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from coda_envs.programs.diagnosis import Diagnosis
from coda_envs.programs.potential import PotentialProgram
from coda_envs.text2potential import compile_potential
from coda_trainer.compile.author import make_author
from coda_trainer.compile.refinement import refine
from coda_trainer.episode import Episode
from coda_trainer.learning.chunk_critic import NoPotential, StatePotential
from coda_trainer.learning.signals import RULES, signal_program
from coda_trainer.rounds.authoring import report_author
from coda_trainer.rounds.context import ProgramState, RoundContext


def potential_in_force(context: RoundContext, diagnoses: Sequence[Diagnosis]) -> StatePotential:
    """The family's Φ for this round, by the run's signal; kept in the family's state.

    What past rounds refined stays in force while the diagnoses give the same program; a new one
    starts unrefined.
    """
    compiled = signal_program(context.config.signal, context.family, diagnoses)
    if compiled is None:
        return NoPotential()
    state = context.state.program
    if state is None or state.compiled.hash != compiled.hash:
        written = _written(context, diagnoses, compiled)
        state = context.state.program = ProgramState(compiled, written or compiled)
    return compile_potential(state.refined, context.family.schema)


def _written(
    context: RoundContext, diagnoses: Sequence[Diagnosis], compiled: PotentialProgram
) -> PotentialProgram | None:
    """The potential that a model writes for the diagnoses; None where none is asked or gave one."""
    if not diagnoses or RULES[context.config.signal].potential != "diagnoses":
        return None
    author = make_author(context.config.programs)
    if author is None:
        return None
    written = author.potential(context.family, diagnoses, compiled)
    report_author(context, "potential", author)
    return written


def refine_potential(context: RoundContext, episodes: Sequence[Episode]) -> None:
    """Refine the family's potential by the round's wide ``episodes``, where the signal says so.

    The critic is told at the next round's start, and then corrects itself by Φ_old − Φ_new.
    """
    state = context.state.program
    if state is None or not RULES[context.config.signal].refined:
        return
    seed = context.torch_seed("refinement")
    found = refine(state.refined, context.family.schema, episodes, seed)
    context.state.program = replace(state, refined=found.program)
    changed = found.program.to_dict() if found.change else None
    context.log("refinement", **found.to_dict(), program=changed)
