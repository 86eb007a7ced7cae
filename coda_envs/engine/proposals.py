"""The engine: proposes scenes, wide or under a generation program, and accepts or rejects them.

Every proposal leaves a construction trace: what was edited, which check failed, what was repaired.
An accepted scene is physically valid and lies in the generator region.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from coda_envs.engine.apply import GuardNotMet, apply_program
from coda_envs.errors import SceneError
from coda_envs.family import TaskFamily
from coda_envs.programs.generation import GenerationProgram
from coda_envs.scene import Scene
from coda_envs.validity import accept_for_training, repair, validate

#: Proposals for each accepted scene that is asked for, before the engine gives up.
BUDGET = 12
#: Bases drawn for one proposal until the program's guards hold and the edit stays in the region.
BASES = 60
#: Repairs of one proposal.
REPAIRS = 2


@dataclass(frozen=True)
class Trace:
    """The construction trace of one proposal.

    ``outcome``: ``accepted``, or the reason of the rejection (a check's name, ``no base``).
    ``first_try``: valid without repair. ``edited``: paths that the program decided.
    """

    source: str
    program: str
    outcome: str
    first_try: bool
    scene_id: str = ""
    edited: tuple[str, ...] = ()
    repairs: tuple[Mapping[str, Any], ...] = ()
    detail: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {
            "source": self.source,
            "program": self.program,
            "outcome": self.outcome,
            "first_try": self.first_try,
            "scene_id": self.scene_id,
            "edited": list(self.edited),
            "repairs": [dict(r) for r in self.repairs],
            "detail": self.detail,
        }


@dataclass(frozen=True)
class Generated:
    """Accepted scenes and the traces of all proposals."""

    scenes: tuple[Scene, ...]
    traces: tuple[Trace, ...]

    @property
    def verified(self) -> float | None:
        """Verification share: first-try valid / proposals; None where nothing was proposed."""
        if not self.traces:
            return None
        return sum(t.first_try for t in self.traces) / len(self.traces)


def generate(
    family: TaskFamily,
    n: int,
    rng: np.random.Generator,
    *,
    source: str,
    program: GenerationProgram | None = None,
    solve_tries: int = 0,
    base: Callable[[np.random.Generator], Scene] | None = None,
) -> Generated:
    """Up to ``n`` accepted scenes: uniform over the generator range, or edited by ``program``.

    ``base`` draws the scene a program edits (default: uniform). Fewer than ``n`` come back where
    ``BUDGET·n`` proposals did not suffice; the traces say why. Never raises for a bad proposal.
    """
    draw = base or (lambda r: family.sample(r, "generator"))
    scenes: list[Scene] = []
    traces: list[Trace] = []
    while len(scenes) < n and len(traces) < BUDGET * n:
        scene, trace = _propose(family, rng, source, program, solve_tries, draw)
        traces.append(trace)
        if scene is not None:
            scenes.append(scene)
    return Generated(tuple(scenes), tuple(traces))


def _propose(
    family: TaskFamily,
    rng: np.random.Generator,
    source: str,
    program: GenerationProgram | None,
    solve_tries: int,
    draw: Callable[[np.random.Generator], Scene],
) -> tuple[Scene | None, Trace]:
    name = program.hash if program else ""
    found = _edited_base(family, rng, program, draw)
    if isinstance(found, str):
        return None, Trace(source, name, "no base", False, detail=found)
    scene, edited = found
    repairs: list[Mapping[str, Any]] = []
    while True:
        certificate = validate(scene, solve_tries=solve_tries)
        if certificate.passed:
            accept_for_training(scene)
            return scene, Trace(
                source, name, "accepted", not repairs, scene.id, edited, tuple(repairs)
            )
        failed = certificate.checks[-1]
        mended = None
        if len(repairs) < REPAIRS:
            mended = repair(scene, failed.name, edited, rng)
        if mended is None:
            return None, Trace(
                source, name, failed.name, False, scene.id, edited, tuple(repairs), failed.detail
            )
        scene, record = mended
        repairs.append({"reason": record.reason, "changed": dict(record.changed)})


def _edited_base(
    family: TaskFamily,
    rng: np.random.Generator,
    program: GenerationProgram | None,
    draw: Callable[[np.random.Generator], Scene],
) -> tuple[Scene, tuple[str, ...]] | str:
    """A base scene with the program's edits, in the generator region; or why none was found.

    The base's other factors are drawn anew until the edited scene lies in the region: the edit
    itself is never bent to fit.
    """
    reason = ""
    for _ in range(BASES):
        try:
            scene = draw(rng)
            if program is None:
                return scene, ()
            applied = apply_program(program, scene, rng)
        except SceneError as error:
            reason = error.problem
            continue
        if isinstance(applied, GuardNotMet):
            reason = applied.reason
        elif family.region(applied.scene) != "generator":
            reason = "the edited scene lies in a held-out region"
        else:
            return applied.scene, applied.edited_paths
    return reason


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
        laid_out = family.problem(edited.values) is None
        if laid_out and family.region(edited) == "generator":
            return edited
    raise SceneError(f"no edited seed scene of {family.name!r} found in {tries} draws.")
