"""Lifting: a generation program of one family as a program of another one.

Roles are unified by name, and by what they are for where the names differ; a factor by group, role,
name, type and unit. What two families share so is a difficulty of the same kind ("the target is
wide"), and its numbers are carried over by where they lie between the families' ranges: the edge
of one seed range becomes the edge of the other. What has no counterpart is left out, and listed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from coda_envs.engine.check import DISTRACTORS, check_program
from coda_envs.errors import ProgramError, suggest
from coda_envs.factor import DIGITS, ContinuousFactor, DiscreteFactor
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

#: Roles with the same part in the task, by family name of roles: what the target is brought to, or
#: is part of.
KIN = (("receptacle", "cabinet"),)


@dataclass(frozen=True)
class Lifted:
    """A lifted program, None where none of its edits could be; ``left_out``: by entry of the
    original (``edits[1]``), why it has no counterpart; ``roles``: what each role became."""

    program: GenerationProgram | None
    left_out: Mapping[str, str]
    roles: Mapping[str, str]


class NoCounterpart(Exception):  # noqa: N818 - never leaves this module
    """An entry has none in the other family; the message says why."""


@dataclass
class _Lift:
    source: FactorSpace
    target: FactorSpace
    roles: Mapping[str, str]
    left_out: dict[str, str] = field(default_factory=dict)


def lift(
    program: GenerationProgram,
    source: FactorSpace,
    target: FactorSpace,
    roles: Mapping[str, str] | None = None,
) -> Lifted:
    """``program`` of the family of ``source`` as one of the family of ``target``.

    ``roles``: role of the source → role of the target, in place of the unification by name. A
    program that was lifted and lifted back gives the same edits, up to rounding, where nothing was
    left out and both families' ranges reach beyond their seed ranges on both sides.

    Raises :class:`ProgramError` where the program does not fit its own family, or ``roles`` names
    a role that a family lacks.
    """
    check_program(program, source)
    lifting = _Lift(source, target, _unified(source, target, roles or {}))
    guards = [
        found
        for i, guard in enumerate(program.guards)
        if (found := _entry(lifting, f"guards[{i}]", guard)) is not None
    ]
    edits = [
        found
        for i, edit in enumerate(program.edits)
        if (found := _entry(lifting, f"edits[{i}]", edit)) is not None
    ]
    placed = {f.role for f in target.factors if f.group == "spatial"}
    used = {r: lifting.roles[r] for r in program.roles if lifting.roles.get(r) in placed}
    if not edits:
        return Lifted(None, lifting.left_out, used)
    lifted = GenerationProgram(
        family=target.family,
        roles=tuple(used.values()),
        guards=tuple(guards),
        edits=tuple(edits),
        magnitude=program.magnitude,
        provenance=(*program.provenance, f"lifted:{program.hash}"),
    )
    check_program(lifted, target)
    return Lifted(lifted, lifting.left_out, used)


def lift_path(path: str, source: FactorSpace, target: FactorSpace) -> str | None:
    """The factor of ``target`` that a factor of ``source`` corresponds to, or None."""
    try:
        found: str = _factor(_Lift(source, target, _unified(source, target, {})), path).path
        return found
    except NoCounterpart:
        return None


def _unified(source: FactorSpace, target: FactorSpace, given: Mapping[str, str]) -> dict[str, str]:
    mine, theirs = _roles(source), _roles(target)
    for role, other in given.items():
        for word, known, family in ((role, mine, source.family), (other, theirs, target.family)):
            if word not in known:
                raise ProgramError(
                    f"{family!r} has no role {word!r} with factors.", allowed=suggest(word, known)
                )
    found = {role: role for role in mine if role in theirs}
    for one, two in (*KIN, *((b, a) for a, b in KIN)):
        if one in mine and one not in theirs and two in theirs:
            found[one] = two
    return found | dict(given)


def _roles(space: FactorSpace) -> list[str]:
    return sorted({f.role for f in space.factors if f.role})


def _entry(lifting: _Lift, where: str, entry: Any) -> Any:
    """The entry in the other family's words; None, and a line in ``left_out``, without one."""
    try:
        if isinstance(entry, Guard):
            return _guard(lifting, entry)
        return _edit(lifting, entry)
    except NoCounterpart as reason:
        lifting.left_out[where] = str(reason)
        return None


def _guard(lifting: _Lift, guard: Guard) -> Guard:
    factor, own = _factor(lifting, guard.factor), lifting.source[guard.factor]
    if guard.equals is not None:
        _known(factor, (guard.equals,))
        return Guard(factor=factor.path, equals=guard.equals)
    if isinstance(own, DiscreteFactor):
        # Bounds on a whole number, such as how many drawers there are.
        return Guard(factor=factor.path, low=guard.low, high=guard.high)
    return Guard(
        factor=factor.path,
        low=None if guard.low is None else _number(own, factor, guard.low),
        high=None if guard.high is None else _number(own, factor, guard.high),
    )


def _edit(lifting: _Lift, edit: Edit) -> Edit:
    if isinstance(edit, SwapEdit):
        return SwapEdit(
            edit="swap", role=_role(lifting, edit.role), other=_role(lifting, edit.other)
        )
    if isinstance(edit, AddDistractorEdit):
        if DISTRACTORS not in lifting.target.by_path:
            raise NoCounterpart(f"{lifting.target.family} has no {DISTRACTORS}")
        return AddDistractorEdit(edit="add_distractor", near=_role(lifting, edit.near))
    factor, own = _factor(lifting, edit.factor), lifting.source[edit.factor]
    path = factor.path
    if isinstance(own, DiscreteFactor):
        return _choice(factor, edit)
    if isinstance(edit, ScaleEdit):
        return ScaleEdit(edit="scale", factor=path, by=edit.by)
    if isinstance(edit, ShiftEdit):
        amount = edit.amount * _span(factor) / _span(own)
        return ShiftEdit(edit="shift", factor=path, amount=amount)
    if isinstance(edit, SetEdit):
        return SetEdit(edit="set", factor=path, value=_number(own, factor, float(edit.value)))
    assert edit.low is not None
    assert edit.high is not None
    low, high = _number(own, factor, edit.low), _number(own, factor, edit.high)
    easy = None if edit.easy is None else _number(own, factor, edit.easy)
    return SampleEdit(edit="sample", factor=path, low=low, high=high, easy=easy)


def _choice(factor: DiscreteFactor, edit: SetEdit | ShiftEdit | ScaleEdit | SampleEdit) -> Edit:
    path = factor.path
    if isinstance(edit, SetEdit):
        return SetEdit(edit="set", factor=path, value=_known(factor, (edit.value,))[0])
    assert isinstance(edit, SampleEdit)
    return SampleEdit(edit="sample", factor=path, choices=_known(factor, edit.choices))


def _role(lifting: _Lift, role: str) -> str:
    if role not in lifting.roles:
        raise NoCounterpart(f"{lifting.target.family} has nothing in the place of the {role}")
    return lifting.roles[role]


def _factor(lifting: _Lift, path: str) -> Any:
    """The counterpart of a factor of the source."""
    own, family = lifting.source[path], lifting.target.family
    group, _, rest = path.partition(".")
    name = rest
    if own.role:
        name = f"{_role(lifting, own.role)}.{rest.partition('.')[2]}"
    found = f"{group}.{name}"
    if found not in lifting.target.by_path:
        raise NoCounterpart(f"{family} has no factor {found}")
    factor = lifting.target[found]
    if factor.type != own.type:
        raise NoCounterpart(f"{found} is a {factor.type} in {family}, not a {own.type}")
    if isinstance(own, ContinuousFactor) and isinstance(factor, ContinuousFactor):
        if own.unit != factor.unit:
            raise NoCounterpart(f"{found} is in {factor.unit} in {family}, not in {own.unit}")
        if not _span(own) or not _span(factor):
            raise NoCounterpart(f"{found} has one value only")
    return factor


def _known(factor: DiscreteFactor, choices: tuple[Any, ...]) -> tuple[Any, ...]:
    """Those of the choices that the factor has, in their order."""
    kept = tuple(choice for choice in choices if choice in factor.generator)
    if not kept:
        raise NoCounterpart(f"{factor.path} is never {' or '.join(map(str, choices))} there")
    return kept


def _span(factor: ContinuousFactor) -> float:
    return factor.generator[1] - factor.generator[0]


def _number(own: ContinuousFactor, factor: ContinuousFactor, value: float) -> float:
    """The value that lies between the landmarks of ``factor`` as ``value`` does between those of
    ``own``: ends of the generator range and of the seed range, straight lines between them."""
    if (own.seed, own.generator) == (factor.seed, factor.generator):
        return value
    low, high = own.generator
    if not low - 1e-9 <= value <= high + 1e-9:
        # Only an angle may, by whole turns, and ranges that differ have none in common.
        raise NoCounterpart(f"{own.path} = {value:g} lies beyond the range")
    pairs = list(zip(_landmarks(own), _landmarks(factor), strict=True))
    # Where a seed range ends with the generator range two landmarks are one: the outer one counts.
    kept = [p for i, p in enumerate(pairs) if i == 0 or p[0] > pairs[i - 1][0]]
    moved = float(np.interp(value, [a for a, _ in kept], [b for _, b in kept]))
    return round(moved, DIGITS)


def _landmarks(factor: ContinuousFactor) -> tuple[float, float, float, float]:
    return factor.generator[0], factor.seed[0], factor.seed[1], factor.generator[1]
