"""Matched scenes for control evaluation: condition, control, and another edit of the same size."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from coda_envs.errors import HeldOutError
from coda_envs.factor import ContinuousFactor, DiscreteFactor, Value
from coda_envs.family import TaskFamily
from coda_envs.scene import Scene
from coda_trainer.diagnosis.ranking import middle_and_deviation

#: The successful population of a number: its successes between these quantiles. Not the extremes,
#: because a condition that fails often still succeeds sometimes.
INTERVAL = (0.2, 0.8)
#: A control moves a number by at least this share of its generator range: a smaller reset would
#: test nothing.
MIN_MOVE = 0.1
#: Values of the interval that are tried, nearest first.
GRID = 17
#: Two normalised distances count as the same within this (scenes round to six digits).
SAME_DISTANCE = 1e-3


@dataclass(frozen=True)
class Triple:
    """Three scenes that differ in one factor each.

    ``condition`` (T) has the diagnosed condition, ``control`` (C) has that factor reset,
    ``other`` (P) keeps it and has ``other_factor`` moved by the same normalised distance.
    """

    condition: Scene
    control: Scene
    other: Scene
    other_factor: str


@dataclass
class TripleMaker:
    """Makes triples for one diagnosed factor from the scenes that failed.

    ``failed``: scenes with the condition; they are taken in turn, so that few of them still give
    many triples. ``succeeded``: the successful population. ``skipped`` counts the tries that gave
    nothing, by reason. Every scene made can be laid out and lies in the generator's region.
    """

    family: TaskFamily
    factor: str
    failed: Sequence[Scene]
    succeeded: Sequence[Scene]
    rng: np.random.Generator
    skipped: dict[str, int] = field(default_factory=dict)

    def make(self, most: int) -> list[Triple]:
        """Up to ``most`` triples; fewer where the tries (four for each) run out.

        Raises :class:`HeldOutError` where a failed scene lies in a region kept for testing.
        """
        controls: list[tuple[Scene, Scene]] = []
        for scene in self.failed:
            region = self.family.region(scene)
            if region != "generator":
                raise HeldOutError(
                    f"the failed scene {scene.id[:12]} lies in the region {region!r}.",
                    allowed="scenes of the region 'generator'",
                    remedy="diagnose training episodes only",
                )
            control = self._control(scene)
            if control is None:
                self._skip("no control scene")
            else:
                controls.append((scene, control))
        triples: list[Triple] = []
        if not controls:
            return triples
        for scene, control in itertools.islice(itertools.cycle(controls), 4 * most):
            other = self._other(scene, control)
            if other is None:
                self._skip("no other edit of the same size")
                continue
            triples.append(Triple(scene, control, *other))
            if len(triples) == most:
                break
        return triples

    def _control(self, scene: Scene) -> Scene | None:
        """The scene with the factor at the nearest successful value that can be laid out."""
        return next(self._edits(scene, self.factor, self._successful_values(scene)), None)

    def _successful_values(self, scene: Scene) -> list[Value]:
        """Values of the successful population, the nearest (or the most frequent choice) first."""
        factor = self.family.space[self.factor]
        current = scene.values[self.factor]
        seen = [s.values[self.factor] for s in self.succeeded if self.factor in s.values]
        if not seen:
            return []
        if isinstance(factor, DiscreteFactor):
            present = [c for c in factor.generator if c != current and c in seen]
            return sorted(present, key=lambda c: -seen.count(c))
        reference = np.array(seen, dtype=np.float64)
        middle, away = middle_and_deviation(factor, reference, reference)
        low, high = np.quantile(away, INTERVAL)
        inside: list[Value] = [_wrapped(factor, middle + a) for a in np.linspace(low, high, GRID)]

        def move(value: Value) -> float:
            return self.family.space.distance(self.factor, current, value)

        return sorted((v for v in inside if move(v) >= MIN_MOVE), key=move)

    def _other(self, scene: Scene, control: Scene) -> tuple[Scene, str] | None:
        """The scene with another factor of the same kind moved as far, and that factor."""
        space = self.family.space
        moved = space.distance(self.factor, scene.values[self.factor], control.values[self.factor])
        kind = type(space[self.factor])
        paths = [
            path
            for path in scene.values
            if path not in self._kept and isinstance(space[path], kind)
        ]
        for index in self.rng.permutation(len(paths)):
            path = paths[int(index)]
            for edited in self._edits(scene, path, self._moved_values(scene, path, moved)):
                distance = space.distance(path, scene.values[path], edited.values[path])
                if abs(distance - moved) <= SAME_DISTANCE:
                    return edited, path
        return None

    @property
    def _kept(self) -> set[str]:
        """The diagnosed factor and those whose change would take it away."""
        kept: set[str] = set()
        path: str | None = self.factor
        while path is not None:
            kept.add(path)
            when = self.family.space[path].when
            path = when.factor if when else None
        return kept

    def _moved_values(self, scene: Scene, path: str, moved: float) -> list[Value]:
        """Where a factor can be moved: for a number, toward the successes' middle first."""
        factor = self.family.space[path]
        current = scene.values[path]
        if isinstance(factor, DiscreteFactor):
            others = [c for c in factor.generator if c != current]
            return [others[int(i)] for i in self.rng.permutation(len(others))]
        low, high = factor.generator
        step = moved * (high - low)
        ends = [_wrapped(factor, float(current) + s) for s in (step, -step)]
        seen = [s.values[path] for s in self.succeeded if path in s.values]
        reference = np.array(seen or factor.seed, dtype=np.float64)
        _, away = middle_and_deviation(factor, reference, np.array(ends))
        return [ends[int(i)] for i in np.argsort(np.abs(away), kind="stable")]

    def _edits(self, scene: Scene, path: str, values: Sequence[Value]) -> Iterator[Scene]:
        """The scene with ``path`` set to each of the values, where that scene may be used."""
        factor = self.family.space[path]
        for value in values:
            if isinstance(factor, ContinuousFactor):
                low, high = factor.generator
                if not low <= float(value) <= high:
                    continue
            edited = scene.edit_many({path: value})
            usable = self.family.flaw(edited.values) is None
            if usable and self.family.region(edited) == "generator":
                yield edited

    def _skip(self, reason: str) -> None:
        self.skipped[reason] = self.skipped.get(reason, 0) + 1


def _wrapped(factor: ContinuousFactor, value: float) -> float:
    """``value``, an angle turned by whole periods into its generator range."""
    if not factor.period:
        return value
    low, high = factor.generator
    turned = low + (value - low) % factor.period
    # A range may fall short of its period by a rounding error.
    return min(turned, high) if turned - high < SAME_DISTANCE else turned
