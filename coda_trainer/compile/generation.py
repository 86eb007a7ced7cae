"""Diagnosis → generation program Ω: one edit that recreates the diagnosed difficulty."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from coda_envs.errors import ProgramError, SceneError
from coda_envs.factor import DIGITS, ContinuousFactor, DiscreteFactor, Value
from coda_envs.factors import FactorSpace
from coda_envs.programs.diagnosis import Diagnosis
from coda_envs.programs.generation import GenerationProgram, Guard, SampleEdit
from coda_trainer.diagnosis.base import DiagnosisContext
from coda_trainer.diagnosis.control import Candidate

#: Share of the failures' values left out at either end of the interval.
TRIM = 0.1
#: The interval spans at least this share of the generator range, however few failures there were.
MIN_WIDTH = 0.1


def compile_generation(
    diagnosis: Diagnosis,
    space: FactorSpace,
    *,
    difficult: Sequence[Value],
    successful: Sequence[Value],
) -> GenerationProgram:
    """A ``sample`` edit of the diagnosed factor over the values that make episodes fail.

    ``difficult`` and ``successful``: the factor's values in failed and in successful episodes.

    - A number: from the ``TRIM`` to the 1 − ``TRIM`` quantile of the failures on the diagnosed side
      of the successes' median, at least ``MIN_WIDTH`` of the generator range wide and inside it.
      ``easy`` is the successful value nearest to the interval's middle. Where nothing has succeeded
      yet, the seed range stands for the successes.
    - A choice: those whose share among failures is at least their share among successes.

    A factor that exists only under conditions brings them along as guards. Deterministic; the
    order of the values does not matter.

    Raises :class:`ProgramError` for an abstention, another family's diagnosis, an unknown factor,
    impossible values, or a direction on which no failure lies.
    """
    if diagnosis.abstain:
        raise ProgramError("the diagnosis abstains.", remedy="compile confirmed diagnoses only")
    if diagnosis.family != space.family:
        raise ProgramError(
            f"the diagnosis is of the family {diagnosis.family!r}.", allowed=repr(space.family)
        )
    try:
        factor = space[diagnosis.factor]
        failed = [factor.check(v) for v in difficult]
        passed = [factor.check(v) for v in successful]
    except SceneError as error:
        raise ProgramError(error.problem, allowed=error.allowed, remedy=error.remedy) from error
    if not failed:
        raise ProgramError(
            f"no failed episode gives a value of {factor.path}.", allowed="at least one value"
        )
    edit = (
        _choices(factor, failed, passed)
        if isinstance(factor, DiscreteFactor)
        else _interval(factor, space, diagnosis, failed, passed)
    )
    return GenerationProgram(
        family=space.family,
        roles=(factor.role,) if factor.role else (),
        guards=guards_of(space, factor),
        edits=(edit,),
        provenance=(f"diagnosis:{diagnosis.hash}",),
    )


def compile_candidate(candidate: Candidate, context: DiagnosisContext) -> GenerationProgram:
    """Ω of a claim: from its factor's values in the failures that it explains, and in the
    successes. Raises :class:`ProgramError` as :func:`compile_generation` does."""
    failed, passed = factor_values(candidate, context)
    return compile_generation(
        candidate.diagnoses[0], context.family.space, difficult=failed, successful=passed
    )


def factor_values(
    candidate: Candidate, context: DiagnosisContext
) -> tuple[list[Value], list[Value]]:
    """The claim's factor in the failures that it explains, and in the successes."""
    scenes, path = {d.scene_id for d in candidate.diagnoses}, candidate.factor
    return (
        [e.scene.values[path] for e in context.failures if e.scene.id in scenes],
        [e.scene.values[path] for e in context.successes if path in e.scene.values],
    )


def _interval(
    factor: ContinuousFactor,
    space: FactorSpace,
    diagnosis: Diagnosis,
    failed: Sequence[Value],
    passed: Sequence[Value],
) -> SampleEdit:
    bottom, top = factor.generator
    values = np.sort(np.array(failed, dtype=float))
    centre = float(np.median(np.array(passed or factor.seed, dtype=float)))
    if diagnosis.direction == "high":
        values = values[values > centre]
    elif diagnosis.direction == "low":
        values = values[values < centre]
    if not values.size:
        raise ProgramError(
            f"the diagnosis says {factor.path} is too {diagnosis.direction}, but no failure lies "
            f"on that side of {centre:g}, the middle of the successes.",
        )
    low, high = (float(v) for v in np.quantile(values, [TRIM, 1.0 - TRIM]))
    width = MIN_WIDTH * (top - bottom)
    if high - low < width:
        # Grown evenly, then moved back inside the range.
        low = min(max((low + high - width) / 2, bottom), top - width)
        high = low + width
    middle = (low + high) / 2
    if passed:
        # Ties go to the smaller value, so that the order of the values does not matter.
        easy = min(sorted(map(float, passed)), key=lambda v: space.distance(factor.path, v, middle))
    else:
        easy = min(max(middle, factor.seed[0]), factor.seed[1])
    return SampleEdit(
        edit="sample",
        factor=factor.path,
        low=round(low, DIGITS),
        high=round(high, DIGITS),
        easy=round(easy, DIGITS),
    )


def _choices(
    factor: DiscreteFactor, failed: Sequence[Value], passed: Sequence[Value]
) -> SampleEdit:
    def share(values: Sequence[Value], choice: Value) -> float:
        return values.count(choice) / len(values) if values else 0.0

    # Both shares add up to one, so at least one choice that failed qualifies.
    hard = [c for c in factor.generator if c in failed and share(failed, c) >= share(passed, c)]
    return SampleEdit(edit="sample", factor=factor.path, choices=tuple(hard))


def guards_of(space: FactorSpace, factor: ContinuousFactor | DiscreteFactor) -> tuple[Guard, ...]:
    """The conditions under which the factor exists, its own first, then its conditions' own."""
    found: list[Guard] = []
    when = factor.when
    while when is not None:
        low = None if when.min is None else float(when.min)
        found.append(Guard(factor=when.factor, equals=when.equals, low=low))
        when = space[when.factor].when
    return tuple(found)
