"""Checks a generation program Ω against a family's factors, before it touches a scene."""

from __future__ import annotations

from collections.abc import Iterable

from coda_envs.errors import ProgramError, SceneError, suggest
from coda_envs.factor import ContinuousFactor, DiscreteFactor
from coda_envs.factors import FactorSpace
from coda_envs.programs.generation import (
    AddDistractorEdit,
    Edit,
    GenerationProgram,
    Guard,
    SampleEdit,
    ScaleEdit,
    SetEdit,
    ShiftEdit,
    SwapEdit,
)

#: An angle lies within this many of its periods.
TURNS = 4.0
#: The factor that ``add_distractor`` counts up.
DISTRACTORS = "task.distractors"


def check_program(program: GenerationProgram, space: FactorSpace) -> None:
    """Every factor, role, value and range of the program fits the family.

    Raises :class:`ProgramError` naming the entry (``edits[2]``), its value and what is allowed.
    Angles may be given beyond their range, since they wrap: up to ``TURNS`` periods away from 0,
    and in intervals that span one period at most.
    """
    if program.family != space.family:
        raise ProgramError(
            f"the generation program is for the family {program.family!r}.",
            allowed=repr(space.family),
            remedy="lift the program to this family first",
        )
    entries = [
        *((f"guards[{i}]", guard) for i, guard in enumerate(program.guards)),
        *((f"edits[{i}]", edit) for i, edit in enumerate(program.edits)),
    ]
    _known_roles(program.roles, space, "roles")
    for where, entry in entries:
        try:
            if isinstance(entry, Guard):
                _check_guard(entry, space, where)
            else:
                _check_edit(entry, space, where)
        except SceneError as error:
            # A factor's own complaint about a path or a value.
            raise ProgramError(
                f"{where}: {error.problem}", allowed=error.allowed, remedy=error.remedy
            ) from error


def spatial_paths(space: FactorSpace, role: str) -> list[str]:
    """The spatial factors of a role, in declared order."""
    return [f.path for f in space.factors if f.group == "spatial" and f.role == role]


def _check_guard(guard: Guard, space: FactorSpace, where: str) -> None:
    factor = space[guard.factor]
    if guard.equals is None and guard.low is None and guard.high is None:
        raise ProgramError(
            f"{where} on {guard.factor!r} demands nothing.", allowed="equals, low, high"
        )
    if guard.equals is not None:
        if isinstance(factor, ContinuousFactor):
            raise ProgramError(
                f"{where} asks for {guard.factor} = {guard.equals!r}, but that factor is a number.",
                allowed="low and high",
            )
        _reach(factor).check(guard.equals)
    if guard.low is None and guard.high is None:
        return
    if isinstance(factor, DiscreteFactor) and any(isinstance(c, str) for c in factor.generator):
        raise ProgramError(
            f"{where} puts bounds on {guard.factor}, which is a word.", allowed="equals"
        )
    if guard.low is not None and guard.high is not None and guard.low > guard.high:
        raise ProgramError(f"{where}: low {guard.low:g} is above high {guard.high:g}.")


def _check_edit(edit: Edit, space: FactorSpace, where: str) -> None:
    if isinstance(edit, SetEdit):
        _check_value(space[edit.factor], edit.value)
    elif isinstance(edit, (ShiftEdit, ScaleEdit)):
        if isinstance(space[edit.factor], DiscreteFactor):
            raise ProgramError(
                f"{where} is a {edit.edit} of {edit.factor}, which is a choice.",
                allowed="'set', or 'sample' with choices",
            )
    elif isinstance(edit, SampleEdit):
        _check_sample(edit, space, where)
    elif isinstance(edit, SwapEdit):
        _known_roles((edit.role, edit.other), space, where)
        if edit.role == edit.other:
            raise ProgramError(f"{where} swaps {edit.role!r} with itself.", allowed="two roles")
    else:
        _check_add(edit, space, where)


def _check_sample(edit: SampleEdit, space: FactorSpace, where: str) -> None:
    factor = space[edit.factor]
    bounds = (edit.low, edit.high, edit.easy)
    if isinstance(factor, DiscreteFactor):
        if bounds != (None, None, None):
            raise ProgramError(
                f"{where} draws {edit.factor} from an interval, but it is a choice.",
                allowed="choices among " + ", ".join(map(repr, factor.generator)),
            )
        for choice in edit.choices:
            _reach(factor).check(choice)
        return
    if edit.choices or edit.low is None or edit.high is None:
        raise ProgramError(
            f"{where} draws {edit.factor} from choices, but it is a number.",
            allowed="low and high",
        )
    for value in bounds:
        if value is not None:
            _check_value(factor, value)
    if factor.period is not None and edit.high - edit.low > factor.period:
        raise ProgramError(
            f"{where} draws {edit.factor} from {edit.low:g} to {edit.high:g}.",
            allowed=f"an interval of at most its period, {factor.period:g}",
        )


def _check_add(edit: AddDistractorEdit, space: FactorSpace, where: str) -> None:
    _known_roles((edit.near,), space, where)
    counter = space.by_path.get(DISTRACTORS)
    if not isinstance(counter, DiscreteFactor) or not all(
        isinstance(c, int) for c in counter.generator
    ):
        raise ProgramError(f"{where}: the family {space.family!r} has no distractors to add.")


def _known_roles(roles: Iterable[str], space: FactorSpace, where: str) -> None:
    known = {f.role for f in space.factors if f.group == "spatial" and f.role}
    for role in roles:
        if role not in known:
            raise ProgramError(f"{where} names the role {role!r}.", allowed=suggest(role, known))


def _check_value(factor: ContinuousFactor | DiscreteFactor, value: float | int | str) -> None:
    """A value the factor can take; of an angle, any turn within ``TURNS`` periods."""
    turns = isinstance(factor, ContinuousFactor) and TURNS * (factor.period or 0.0)
    if not turns or isinstance(value, str) or abs(value) > turns:
        _reach(factor).check(value)


def _reach(factor: ContinuousFactor | DiscreteFactor) -> ContinuousFactor | DiscreteFactor:
    """The factor as the engine may move it: its far values are the held-out suites' alone."""
    none = () if isinstance(factor, DiscreteFactor) else None
    return factor.model_copy(update={"far": none})
