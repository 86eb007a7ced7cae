"""Applies a generation program Ω to a scene: typed edits, nothing executed, all values bounded."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from coda_envs.engine.check import DISTRACTORS, check_program, spatial_paths
from coda_envs.errors import ProgramError
from coda_envs.factor import DIGITS, ContinuousFactor, Value
from coda_envs.factors import FactorSpace
from coda_envs.family import get_family
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
from coda_envs.scene import Scene

#: How far from its role's middle an added distractor stands (m): near enough to be in the way.
NEAR = (0.07, 0.12)


@dataclass(frozen=True)
class AppliedEdit:
    """An edited scene, and the paths the program decided; repair must leave those alone.

    Factors that came or went because another was edited (a tray's rim, say) are not among them.
    """

    scene: Scene
    edited_paths: tuple[str, ...]


@dataclass(frozen=True)
class GuardNotMet:
    """The program does not apply to this scene, and why. An outcome, not an error."""

    reason: str


def apply_program(
    program: GenerationProgram, scene: Scene, rng: np.random.Generator
) -> AppliedEdit | GuardNotMet:
    """Carry out the program's edits in order, at its magnitude m.

    ``shift`` adds m·amount and ``scale`` multiplies by 1 + m·(by − 1). ``sample`` draws u uniformly
    from its interval and gives easy + m·(u − easy), where a missing ``easy`` is the scene's own
    value. ``set``, ``swap``, ``add_distractor`` and ``sample`` from choices are not graded. Numbers
    are clipped to the generator range, angles wrapped into it first, and pulled the short way
    round. ``swap`` exchanges the spatial factors that both roles have.

    The draws do not depend on m, so that one generator state gives the same scene harder or easier.
    Equal program, scene and generator state give the same result. The layout is not judged here.

    Raises :class:`ProgramError` where the program does not fit the family.
    """
    space = get_family(scene.family).space
    check_program(program, space)
    draft = _Draft(space, scene, program.magnitude, rng)
    for guard in program.guards:
        reason = draft.unmet(guard)
        if reason:
            return GuardNotMet(reason)
    for edit in program.edits:
        reason = draft.apply(edit)
        if reason:
            return GuardNotMet(reason)
    gone = draft.edited - draft.values.keys()
    if gone:
        return GuardNotMet(f"{min(gone)} does not exist in the edited scene")
    # What an edit took away and a later one brought back is as it was, unless it was edited too.
    own = {p: v for p, v in scene.values.items() if p in draft.values and p not in draft.edited}
    return AppliedEdit(draft.scene.edit_many(own), tuple(sorted(draft.edited)))


@dataclass
class _Draft:
    """The scene while the edits are carried out one after the other."""

    space: FactorSpace
    scene: Scene
    magnitude: float
    rng: np.random.Generator
    edited: set[str] = field(default_factory=set)

    @property
    def values(self) -> Mapping[str, Value]:
        """Factors that exist by now."""
        return self.scene.values

    def unmet(self, guard: Guard) -> str | None:
        """Why the scene does not meet the guard, or None."""
        if guard.factor not in self.values:
            return f"{guard.factor} does not exist in this scene"
        value = self.values[guard.factor]
        if guard.equals is not None and value != guard.equals:
            return f"{guard.factor} is {value!r}, not {guard.equals!r}"
        if guard.low is not None and float(value) < guard.low:
            return f"{guard.factor} is {value!r}, below {guard.low:g}"
        if guard.high is not None and float(value) > guard.high:
            return f"{guard.factor} is {value!r}, above {guard.high:g}"
        return None

    def apply(self, edit: Edit) -> str | None:
        """Carry out one edit; the reason where the scene does not admit it, else None."""
        if isinstance(edit, SwapEdit):
            return self._swap(edit)
        if isinstance(edit, AddDistractorEdit):
            return self._add(edit)
        if edit.factor not in self.values:
            return f"{edit.factor} does not exist in this scene"
        factor = self.space[edit.factor]
        if isinstance(factor, ContinuousFactor):
            self._write({edit.factor: self._number(factor, edit)})
        elif isinstance(edit, SetEdit):
            self._write({edit.factor: edit.value})
        else:
            assert isinstance(edit, SampleEdit)
            self._write({edit.factor: edit.choices[int(self.rng.integers(len(edit.choices)))]})
        return None

    def _number(
        self, factor: ContinuousFactor, edit: SetEdit | ShiftEdit | ScaleEdit | SampleEdit
    ) -> float:
        """The edited value, before it is bounded."""
        own = float(self.values[factor.path])
        if isinstance(edit, SetEdit):
            return float(edit.value)
        if isinstance(edit, ShiftEdit):
            return own + self.magnitude * edit.amount
        if isinstance(edit, ScaleEdit):
            return own * (1.0 + self.magnitude * (edit.by - 1.0))
        assert edit.low is not None
        assert edit.high is not None
        drawn = float(self.rng.uniform(edit.low, edit.high))
        easy = own if edit.easy is None else edit.easy
        way = drawn - easy
        if factor.period is not None:
            way = (way + factor.period / 2) % factor.period - factor.period / 2
        return easy + self.magnitude * way

    def _swap(self, edit: SwapEdit) -> str | None:
        mine = {p.rpartition(".")[2]: p for p in spatial_paths(self.space, edit.role)}
        theirs = {p.rpartition(".")[2]: p for p in spatial_paths(self.space, edit.other)}
        absent = {*mine.values(), *theirs.values()} - self.values.keys()
        if absent:
            return f"{min(absent)} does not exist in this scene"
        changes: dict[str, Value] = {}
        for name in mine.keys() & theirs.keys():
            changes[mine[name]] = self.values[theirs[name]]
            changes[theirs[name]] = self.values[mine[name]]
        self._write(changes)
        return None

    def _add(self, edit: AddDistractorEdit) -> str | None:
        anchor = {axis: f"spatial.{edit.near}.{axis}" for axis in "xy"}
        before = self.values
        if not before.keys() >= set(anchor.values()):
            return f"{edit.near} has no place in this scene"
        present = int(before[DISTRACTORS])
        if present + 1 not in self.space[DISTRACTORS].generator:
            return f"{DISTRACTORS} is {present}, the most there can be"
        self._write({DISTRACTORS: present + 1})
        radius, angle = self.rng.uniform(*NEAR), self.rng.uniform(0.0, 2.0 * math.pi)
        offset = {"x": radius * math.cos(angle), "y": radius * math.sin(angle)}
        changes: dict[str, Value] = {}
        # In the scene's order, so that every factor gets the same draw in any process.
        for path in (p for p in self.values if p not in before):
            factor, axis = self.space[path], path.rpartition(".")[2]
            if factor.group == "spatial" and axis in offset:
                changes[path] = float(before[anchor[axis]]) + offset[axis]
            else:
                changes[path] = factor.sample(self.rng, "seed")
        self._write(changes)
        return None

    def _write(self, changes: Mapping[str, Value]) -> None:
        """Edit the scene, bounding every number first."""
        bounded: dict[str, Value] = {}
        for path, value in changes.items():
            factor = self.space[path]
            if isinstance(factor, ContinuousFactor):
                value = _bounded(factor, float(value))
            bounded[path] = value
        self.scene = self.scene.edit_many(bounded)
        self.edited |= bounded.keys()


def _bounded(factor: ContinuousFactor, value: float) -> float:
    """``value`` wrapped (an angle) and clipped into the generator range, rounded as scenes are."""
    low, high = factor.generator
    if not math.isfinite(value):
        raise ProgramError(f"an edit takes {factor.path} to {value!r}.", allowed="finite numbers")
    if factor.period is not None and not low <= value <= high:
        value = low + (value - low) % factor.period
        # The gap that a range shorter than its period leaves: to the nearer end.
        if value > high and value - high > low + factor.period - value:
            value = low
    return round(min(max(value, low), high), DIGITS)
