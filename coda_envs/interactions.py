"""Difficulty interactions: compositions of factors that a family's author declares to be hard.

Suites are stratified over them and reported by thirds of magnitude. They are read by nothing that
generates or trains: the engine has to find the difficulties by itself.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import yaml
from pydantic import Field, model_validator

from coda_envs.errors import SceneError
from coda_envs.factor import DIGITS, ContinuousFactor, Declared, RangeName, Value
from coda_envs.factors import FactorSpace, Region
from coda_envs.family import TaskFamily
from coda_envs.scene import Scene

#: Parts of an interaction's magnitude that are told apart: easy, middle, hard.
THIRDS = 3
#: Draws before a scene of an interaction is given up.
TRIES = 1_000


class Choice(Declared):
    """A choice factor has one of these values."""

    kind: Literal["choice"] = "choice"
    factor: str
    values: tuple[int | str, ...] = Field(min_length=1)

    def share(self, values: Mapping[str, Value]) -> float | None:
        """0 where it holds (a choice has no magnitude), else None."""
        return 0.0 if values.get(self.factor) in self.values else None


class Graded(Declared):
    """A number lies between ``easy`` and ``hard``, or beyond ``hard``.

    ``absolute``: its absolute value counts.
    """

    kind: Literal["graded"] = "graded"
    factor: str
    easy: float
    hard: float
    absolute: bool = False

    def share(self, values: Mapping[str, Value]) -> float | None:
        """How far from easy (0) to hard (1), None where it does not hold."""
        if self.factor not in values:
            return None
        value = float(values[self.factor])
        return _share(abs(value) if self.absolute else value, self.easy, self.hard)


class Gap(Declared):
    """The horizontal distance (m) of two roles lies between ``easy`` and ``hard``, or beyond."""

    kind: Literal["gap"] = "gap"
    gap: tuple[str, str]
    easy: float
    hard: float

    def share(self, values: Mapping[str, Value]) -> float | None:
        """How far from easy (0) to hard (1), None where it does not hold."""
        places = [[values.get(f"spatial.{role}.{axis}") for axis in "xy"] for role in self.gap]
        (x, y), (other_x, other_y) = places
        if x is None or y is None or other_x is None or other_y is None:
            return None
        gap = math.hypot(float(x) - float(other_x), float(y) - float(other_y))
        return _share(gap, self.easy, self.hard)


def _share(value: float, easy: float, hard: float) -> float | None:
    share = (value - easy) / (hard - easy)
    return None if share < 0.0 else min(share, 1.0)


Condition = Annotated[Choice | Graded | Gap, Field(discriminator="kind")]


class Interaction(Declared):
    """A composition that makes a scene hard, and the motion it needs that the bulk lacks."""

    name: str = Field(pattern=r"^[a-z0-9_]+$")
    needs: str
    conditions: tuple[Condition, ...] = Field(min_length=1)

    @model_validator(mode="before")
    @classmethod
    def _read_short_forms(cls, data: object) -> object:
        """``equals: a`` and ``in: [a, b]`` for a choice; the kind follows from the keys."""
        if not isinstance(data, dict) or not isinstance(data.get("conditions"), list):
            return data
        return {**data, "conditions": [_with_kind(c) for c in data["conditions"]]}

    @model_validator(mode="after")
    def _has_magnitude(self) -> Interaction:
        graded = [c for c in self.conditions if not isinstance(c, Choice)]
        if not graded:
            raise ValueError(f"the interaction {self.name!r} has no graded condition")
        for condition in graded:
            if condition.easy == condition.hard:
                raise ValueError(f"the interaction {self.name!r} has easy equal to hard")
        return self

    def magnitude(self, values: Mapping[str, Value]) -> float | None:
        """Mean share of the graded conditions in [0, 1], or None where a condition fails."""
        shares: list[float] = []
        for condition in self.conditions:
            share = condition.share(values)
            if share is None:
                return None
            if not isinstance(condition, Choice):
                shares.append(share)
        return sum(shares) / len(shares)


def _with_kind(condition: object) -> object:
    if not isinstance(condition, dict) or "kind" in condition:
        return condition
    if "equals" in condition or "in" in condition:
        rest = {k: v for k, v in condition.items() if k not in ("equals", "in")}
        wanted = condition.get("in", [condition.get("equals")])
        return {**rest, "kind": "choice", "values": wanted}
    return {**condition, "kind": "gap" if "gap" in condition else "graded"}


class _Declaration(Declared):
    family: str
    interactions: tuple[Interaction, ...]


def load_interactions(family: TaskFamily) -> tuple[Interaction, ...]:
    """The interactions of ``interactions.yaml``; none where the family has no such file.

    Raises :class:`SceneError` naming the file and the entry.
    """
    path = family.folder / "interactions.yaml"
    if not path.is_file():
        return ()
    declared = _read(path)
    if declared.family != family.name:
        raise SceneError(f"{path} is for {declared.family!r}.", allowed=repr(family.name))
    for interaction in declared.interactions:
        for condition in interaction.conditions:
            _check(condition, family.space)
    return declared.interactions


@lru_cache(maxsize=32)
def _read(path: Path) -> _Declaration:
    try:
        return _Declaration.model_validate(yaml.safe_load(path.read_text(encoding="utf-8")))
    except (OSError, yaml.YAMLError, ValueError) as error:
        raise SceneError(f"{path} does not declare interactions: {error}") from error


def _check(condition: Condition, space: FactorSpace) -> None:
    """Every factor is the family's, and of the kind that the condition is about."""
    if isinstance(condition, Gap):
        for role in condition.gap:
            for axis in "xy":
                _ = space[f"spatial.{role}.{axis}"]
        return
    factor = space[condition.factor]
    if isinstance(condition, Choice):
        for value in condition.values:
            factor.check(value)
    elif not isinstance(factor, ContinuousFactor):
        raise SceneError(f"{condition.factor} is a choice, not a number.", allowed="equals, in")


def third(magnitude: float) -> int:
    """Which third of the magnitude: 0 easy, 1 middle, 2 hard."""
    return min(int(THIRDS * magnitude), THIRDS - 1)


def sample_interaction(
    family: TaskFamily,
    interaction: Interaction,
    rng: np.random.Generator,
    region: Region,
    part: int,
    within: RangeName = "generator",
) -> Scene:
    """A laid-out scene of the interaction in a region, with its magnitude in third ``part``.

    ``within``: the range of the factors that the interaction says nothing about.
    Raises :class:`SceneError` where ``TRIES`` draws gave none: the region may have no such cell.
    """
    for _ in range(TRIES):
        fixed, ranges = _demands(family.space, interaction, rng, part)
        try:
            values = family.draw(rng, within, region, fixed, ranges)
        except SceneError:
            # The region has no such cell; another choice of a condition may have one.
            continue
        _bring_near(values, interaction, rng, part)
        magnitude = interaction.magnitude(values)
        if magnitude is None or third(magnitude) != part:
            continue
        inside = family.space.region(values) == region and _in_range(family.space, values, region)
        if inside and family.flaw(values) is None:
            return family.worded(values, region)
    raise SceneError(
        f"no scene of {family.name!r} with {interaction.name!r} in its third {part + 1} found in "
        f"the region {region!r} in {TRIES} draws."
    )


def _near(part: int) -> tuple[float, float]:
    """Shares between which a condition is drawn for the magnitude to lie in a third.

    Magnitudes are means, so a third can be reached with one number outside it; a third on either
    side leaves that open.
    """
    return max(part - 1, 0) / THIRDS, min(part + 2, THIRDS) / THIRDS


def _demands(
    space: FactorSpace, interaction: Interaction, rng: np.random.Generator, part: int
) -> tuple[dict[str, Value], dict[str, tuple[float, float]]]:
    """Values and intervals that bring the factors' conditions about, near the wanted third."""
    fixed: dict[str, Value] = {}
    ranges: dict[str, tuple[float, float]] = {}
    for condition in interaction.conditions:
        if isinstance(condition, Choice):
            fixed[condition.factor] = condition.values[int(rng.integers(len(condition.values)))]
        elif isinstance(condition, Graded):
            factor = space[condition.factor]
            assert isinstance(factor, ContinuousFactor)
            way = condition.hard - condition.easy
            ends = sorted(condition.easy + way * share for share in _near(part))
            if condition.absolute and rng.random() < 0.5:
                ends = [-ends[1], -ends[0]]
            low, high = factor.generator
            ranges[condition.factor] = (max(ends[0], low), min(ends[1], high))
    return fixed, ranges


def _bring_near(
    values: dict[str, Value], interaction: Interaction, rng: np.random.Generator, part: int
) -> None:
    """Put the second role of every gap at a distance from the first that the gap asks for."""
    for condition in interaction.conditions:
        if not isinstance(condition, Gap):
            continue
        one, other = ([f"spatial.{role}.{axis}" for axis in "xy"] for role in condition.gap)
        if not all(path in values for path in (*one, *other)):
            continue
        shares = rng.uniform(*_near(part))
        gap = condition.easy + (condition.hard - condition.easy) * shares
        angle = rng.uniform(0.0, 2.0 * math.pi)
        for path, own, way in zip(one, other, (math.cos(angle), math.sin(angle)), strict=True):
            values[own] = round(float(values[path]) + gap * way, DIGITS)


def _in_range(space: FactorSpace, values: Mapping[str, Value], region: Region) -> bool:
    """Whether no factor has left its generator range (in ``ood-far``: its limits)."""
    for path, value in values.items():
        factor = space[path]
        if isinstance(factor, ContinuousFactor):
            low, high = factor.limits if region == "ood-far" else factor.generator
            if not low <= float(value) <= high:
                return False
    return True
