"""The engine: proposes scenes, wide or under a generation program, and accepts or rejects them.

Every proposal leaves a construction trace: what was edited, which check failed, what was repaired.
An accepted scene is physically valid and lies in the generator region.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from coda_envs.engine.apply import AppliedEdit, GuardNotMet, apply_program
from coda_envs.engine.check import check_program
from coda_envs.engine.trace import ACCEPTED, NO_BASE, Generated, Trace
from coda_envs.errors import ProgramError, SceneError
from coda_envs.factor import Value
from coda_envs.family import TaskFamily
from coda_envs.programs.generation import GenerationProgram
from coda_envs.scene import Scene
from coda_envs.validity import (
    FAMILY_ERROR,
    Certificate,
    FamilyCodeError,
    Repair,
    accept_for_training,
    family_code,
    repair,
    validate,
)

#: Proposals for each accepted scene that is asked for, before the engine gives up.
BUDGET = 12
#: Proposals in a row that come to nothing, after which it gives up too.
PATIENCE = 60
#: Bases drawn for one proposal until the program's guards hold and the edit stays in the region.
BASES = 60
#: Repairs of one proposal.
REPAIRS = 2

#: Draws a scene from a generator.
Draw = Callable[[np.random.Generator], Scene]


def generate(
    family: TaskFamily,
    n: int,
    rng: np.random.Generator,
    *,
    source: str,
    program: GenerationProgram | None = None,
    solve_tries: int = 0,
    base: Draw | None = None,
) -> Generated:
    """Up to ``n`` accepted scenes: uniform over the generator range, or edited by ``program``.

    ``base`` draws the scene a program edits (default: uniform). Fewer than ``n`` come back where
    ``BUDGET·n`` proposals did not suffice, or ``PATIENCE`` in a row were in vain; the traces say
    why. Raises :class:`ProgramError` where the program does not fit the family, never for a bad
    proposal.
    """
    if program is not None:
        check_program(program, family.space)
    scenes: list[Scene] = []
    traces: list[Trace] = []
    in_vain = 0
    while len(scenes) < n and len(traces) < BUDGET * n and in_vain < PATIENCE:
        scene, trace = propose(
            family, rng, source=source, program=program, solve_tries=solve_tries, base=base
        )
        traces.append(trace)
        in_vain += 1
        if scene is not None:
            scenes.append(scene)
            in_vain = 0
    return Generated(tuple(scenes), tuple(traces))


def propose(
    family: TaskFamily,
    rng: np.random.Generator,
    *,
    source: str,
    program: GenerationProgram | None = None,
    solve_tries: int = 0,
    base: Draw | None = None,
) -> tuple[Scene | None, Trace]:
    """One proposal, repaired where needed: the accepted scene, or None, and its trace.

    Raises :class:`coda_envs.errors.HeldOutError` where ``base`` itself gives held-out scenes.
    """
    name = program.hash if program else ""
    bases = 0
    certificates: list[Certificate] = []
    repairs: list[Repair] = []
    edits: dict[str, Value] = {}

    def trace(outcome: str, detail: str = "") -> Trace:
        return Trace(
            source, name, outcome, detail, edits, tuple(certificates), tuple(repairs), bases
        )

    try:
        found, bases = _edited_base(family, rng, program, base)
        if isinstance(found, str):
            return None, trace(NO_BASE, found)
        scene = found.scene
        edits = {path: scene.values[path] for path in found.edited_paths}
        while True:
            certificates.append(validate(scene, solve_tries=solve_tries))
            failed = certificates[-1].checks[-1]
            if failed.passed:
                accept_for_training(scene)
                return scene, trace(ACCEPTED)
            if len(repairs) == REPAIRS:
                return None, trace(failed.name, failed.detail)
            mended, record = repair(scene, failed.name, edits, rng)
            repairs.append(record)
            if mended is None:
                return None, trace(failed.name, failed.detail)
            scene = mended
    except FamilyCodeError as error:
        return None, trace(FAMILY_ERROR, error.problem)


def _edited_base(
    family: TaskFamily,
    rng: np.random.Generator,
    program: GenerationProgram | None,
    base: Draw | None,
) -> tuple[AppliedEdit | str, int]:
    """A base scene with the program's edits, in the generator region, or why none was found; and
    how many bases were drawn.

    The base's other factors are drawn anew until the edited scene lies in the region: the edit
    itself is never bent to fit.
    """
    draw = base or (lambda r: family.sample(r, "generator"))
    reason = ""
    for drawn in range(1, BASES + 1):
        with family_code(family, "drawing a scene"):
            try:
                scene = draw(rng)
            except SceneError as error:
                # It has searched long enough by itself.
                return error.problem, drawn
            if program is None:
                return AppliedEdit(scene, ()), drawn
            try:
                applied = apply_program(program, scene, rng)
            except (SceneError, ProgramError) as error:
                reason = error.problem
                continue
            if isinstance(applied, GuardNotMet):
                reason = applied.reason
            elif family.region(applied.scene) != "generator":
                reason = "the edited scene lies in a held-out region"
            else:
                return applied, drawn
    return reason, BASES


def explore(family: TaskFamily, rng: np.random.Generator, most: int = 3, tries: int = 500) -> Scene:
    """A seed-range scene with one to ``most`` factors drawn from the whole generator range.

    What a policy that knows the seed range fails at here can be traced to few factors. Raises
    :class:`SceneError` where no such scene is found in ``tries``.
    """
    for _ in range(tries):
        scene = family.sample(rng, "seed")
        active = family.space.active(scene.values)
        picked = rng.permutation(len(active))[: int(rng.integers(1, most + 1))]
        edits = {active[i].path: active[i].sample(rng, "generator") for i in sorted(picked)}
        try:
            edited = scene.edit_many(edits)
        except SceneError:
            # One edit took away the factor that another one changes.
            continue
        laid_out = family.flaw(edited.values) is None
        if laid_out and family.region(edited) == "generator":
            return edited
    raise SceneError(f"no edited seed scene of {family.name!r} found in {tries} draws.")
