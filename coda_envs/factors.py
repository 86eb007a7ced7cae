"""FactorSpace: the factors a family declares, their types, ranges, and the held-out split."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import yaml
from pydantic import BaseModel, ConfigDict, Field, model_validator

from coda_envs.errors import SceneError, short, suggest

Value = float | int | str
Group = Literal["task", "spatial", "attributes"]
RangeName = Literal["seed", "generator"]
Region = Literal["generator", "ood-dev", "ood", "mixed"]

#: Digits after the point kept of every number, so that a scene survives YAML and JSON with its id.
DIGITS = 6

#: Shares of the cells that go to the generator, to ``ood-dev`` and to ``ood`` (design: 70/10/20).
SHARES: tuple[tuple[Region, float], ...] = (("generator", 0.7), ("ood-dev", 0.8), ("ood", 1.0))


class _Declared(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class When(_Declared):
    """A condition under which a factor exists in a scene: another factor's value."""

    factor: str
    min: int | None = None
    equals: str | None = None

    @model_validator(mode="after")
    def _one_form(self) -> When:
        if (self.min is None) == (self.equals is None):
            raise ValueError(f"a condition on {self.factor} gives min or equals")
        return self

    def holds(self, value: Value) -> bool:
        """Whether ``value`` of the other factor makes this one exist."""
        if self.min is not None:
            # A whole number may come from a file as 1.0.
            return isinstance(value, int | float) and value >= self.min
        return value == self.equals


class _Base(_Declared):
    path: str = Field(pattern=r"^(task|(spatial|attributes)\.\w+)\.\w+$")
    meaning: str
    when: When | None = None

    @property
    def group(self) -> Group:
        head = self.path.split(".", 1)[0]
        return head  # type: ignore[return-value]

    @property
    def role(self) -> str | None:
        """The role a factor belongs to (``spatial.target.x`` → ``target``), if any."""
        parts = self.path.split(".")
        return parts[1] if len(parts) == 3 else None


class ContinuousFactor(_Base):
    """A number. ``unit`` is SI; an angle is in radians and wraps at ``period``."""

    type: Literal["continuous", "angle"]
    unit: str
    seed: tuple[float, float]
    generator: tuple[float, float]
    bins: int = Field(default=4, ge=1, le=16)
    period: float | None = None

    @model_validator(mode="after")
    def _nested(self) -> ContinuousFactor:
        low, high = self.generator
        if not low <= self.seed[0] <= self.seed[1] <= high:
            raise ValueError(f"{self.path}: the seed range must lie inside the generator range")
        if any(round(bound, DIGITS) != bound for bound in (*self.seed, *self.generator)):
            # A scene could not hold a value at such a bound.
            raise ValueError(f"{self.path}: bounds have at most {DIGITS} digits after the point")
        return self

    def sample(self, rng: np.random.Generator, within: RangeName) -> float:
        """One value, uniform over the named range."""
        low, high = self.seed if within == "seed" else self.generator
        return float(rng.uniform(low, high))

    def check(self, value: Any) -> float:
        """``value`` as a float inside the generator range, or a :class:`SceneError`."""
        low, high = self.generator
        allowed = f"a number from {low:g} to {high:g} ({self.unit})"
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise SceneError(
                f"{self.path} is {short(value)}, not a number.",
                allowed=allowed,
                remedy=f"set {self.path} to a number in that range",
            )
        # NaN and whole numbers beyond a float's reach fail this comparison too.
        if not low - 1e-9 <= value <= high + 1e-9:
            raise SceneError(
                f"{self.path} is {short(value)}, outside its range.",
                allowed=allowed,
                remedy=f"set {self.path} to a value in that range",
            )
        return float(min(max(value, low), high))

    def bin(self, value: Value) -> int:
        """Index of the equal-width bin of the generator range that holds ``value``."""
        low, high = self.generator
        share = (float(value) - low) / (high - low) if high > low else 0.0
        return min(int(share * self.bins), self.bins - 1)


class DiscreteFactor(_Base):
    """A choice among words or small integers."""

    type: Literal["discrete"]
    seed: tuple[int | str, ...]
    generator: tuple[int | str, ...]

    @model_validator(mode="after")
    def _nested(self) -> DiscreteFactor:
        if not set(self.seed) <= set(self.generator):
            raise ValueError(f"{self.path}: every seed choice must be a generator choice")
        return self

    @property
    def bins(self) -> int:
        """One bin a choice."""
        return len(self.generator)

    def sample(self, rng: np.random.Generator, within: RangeName) -> int | str:
        """One choice, uniform over the named range."""
        choices = self.seed if within == "seed" else self.generator
        return choices[int(rng.integers(len(choices)))]

    def check(self, value: Any) -> int | str:
        """``value`` if it is one of the choices, else a :class:`SceneError`."""
        if isinstance(value, bool) or value not in self.generator:
            raise SceneError(
                f"{self.path} is {short(value)}, not one of its choices.",
                allowed=suggest(short(value).strip("'"), map(str, self.generator)),
                remedy=f"set {self.path} to one of them",
            )
        # The declared choice itself: 1.0 from a file must not stand beside 1.
        return self.generator[self.generator.index(value)]

    def bin(self, value: Value) -> int:
        """Index of ``value`` among the choices."""
        return self.generator.index(value)


Factor = Annotated[ContinuousFactor | DiscreteFactor, Field(discriminator="type")]


class FactorSpace(_Declared):
    """All factors of a family, and how their space is split into training and held-out regions.

    ``cells`` names the continuous key factors whose bins are cut into cells, ``combinations`` the
    discrete ones whose joint choices are held out. A fixed hash orders the cells (and the
    combinations); the first 70% go to the generator, the next 10% to ``ood-dev``, the rest to
    ``ood``. Marginals agree between the regions, compositions differ.
    """

    family: str
    factors: tuple[Factor, ...]
    cells: tuple[str, ...]
    combinations: tuple[str, ...]
    salt: str = ""

    @classmethod
    def load(cls, path: Path) -> FactorSpace:
        """Read ``factors.yaml``. Raises :class:`SceneError` naming the file and the entry."""
        try:
            return cls.model_validate(yaml.safe_load(path.read_text(encoding="utf-8")))
        except (OSError, yaml.YAMLError, ValueError) as error:
            raise SceneError(f"{path} is not a factor file: {error}") from error

    @model_validator(mode="after")
    def _known_keys(self) -> FactorSpace:
        known: dict[str, ContinuousFactor | DiscreteFactor] = {}
        for factor in self.factors:
            if factor.path in known:
                raise ValueError(f"the factor {factor.path!r} is declared twice")
            if factor.when is not None and factor.when.factor not in known:
                raise ValueError(
                    f"{factor.path!r} depends on {factor.when.factor!r}, which is not declared "
                    "before it"
                )
            known[factor.path] = factor
        for path in (*self.cells, *self.combinations):
            if path not in known:
                raise ValueError(f"key factor {path!r} is not declared")
            if known[path].when is not None:
                raise ValueError(f"key factor {path!r} does not exist in every scene")
        return self

    @cached_property
    def by_path(self) -> Mapping[str, ContinuousFactor | DiscreteFactor]:
        """Factors by their path, in declared order."""
        return {f.path: f for f in self.factors}

    def __getitem__(self, path: str) -> ContinuousFactor | DiscreteFactor:
        try:
            return self.by_path[path]
        except KeyError:
            raise SceneError(
                f"{path!r} is not a factor of the family {self.family!r}.",
                allowed=suggest(path, self.by_path),
            ) from None

    def active(self, values: Mapping[str, Value]) -> list[ContinuousFactor | DiscreteFactor]:
        """The factors that exist in a scene with these ``values`` (conditions applied in order)."""
        found: list[ContinuousFactor | DiscreteFactor] = []
        live: set[str] = set()
        for factor in self.factors:
            when = factor.when
            if when is None or (
                when.factor in live and when.factor in values and when.holds(values[when.factor])
            ):
                found.append(factor)
                live.add(factor.path)
        return found

    def sample(
        self,
        rng: np.random.Generator,
        within: RangeName,
        fixed: Mapping[str, Value] | None = None,
    ) -> dict[str, Value]:
        """A value for every factor that exists, uniform over the named range.

        ``fixed`` values are taken as they are. A draw is made for every declared factor, existing
        or not, so that fixing one leaves the others' draws unchanged. Raises :class:`SceneError`
        for a fixed value that the factor cannot take.
        """
        drawn = {f.path: f.sample(rng, within) for f in self.factors}
        drawn.update({path: self[path].check(value) for path, value in (fixed or {}).items()})
        return {f.path: drawn[f.path] for f in self.active(drawn)}

    def check(self, values: Mapping[str, Any]) -> dict[str, Value]:
        """Every existing factor, checked; unknown, missing and inactive ones are errors."""
        for path in values:
            if path not in self.by_path:
                raise SceneError(
                    f"unknown factor {short(path)} for the family {self.family!r}.",
                    allowed=suggest(path, self.by_path),
                    remedy="remove it or correct its spelling",
                )
        active = self.active(values)
        checked: dict[str, Value] = {}
        for factor in active:
            if factor.path not in values:
                raise SceneError(
                    f"factor {factor.path!r} is missing ({factor.meaning}).",
                    remedy=f"add {factor.path} to the scene",
                )
            checked[factor.path] = factor.check(values[factor.path])
        for path in values:
            if path not in checked:
                when = self.by_path[path].when
                assert when is not None
                need = f"at least {when.min}" if when.min is not None else repr(when.equals)
                raise SceneError(
                    f"factor {path!r} is set, but {when.factor} is "
                    f"{values.get(when.factor)!r}, so it does not exist in this scene.",
                    allowed=f"{path} only where {when.factor} is {need}",
                    remedy=f"remove {path} or change {when.factor}",
                )
        return checked

    def distance(self, path: str, a: Value, b: Value) -> float:
        """Normalised distance of two values of a factor: share of its generator range, 0 or 1
        for a choice; angles are measured the short way round their period."""
        factor = self[path]
        if isinstance(factor, DiscreteFactor):
            return 0.0 if a == b else 1.0
        low, high = factor.generator
        gap = abs(float(a) - float(b))
        if factor.period:
            gap = min(gap % factor.period, factor.period - gap % factor.period)
        return gap / (high - low) if high > low else 0.0

    def region(self, values: Mapping[str, Value]) -> Region:
        """Where a scene lies: ``generator``, ``ood-dev``, ``ood``, or ``mixed`` (used by nobody).

        A scene is held out when its cell *and* its combination are; where they disagree it is
        ``mixed``, so that the regions stay disjoint in both.
        """
        cell = self._cells[tuple(self.by_path[p].bin(values[p]) for p in self.cells)]
        combination = self._combinations[
            tuple(self.by_path[p].bin(values[p]) for p in self.combinations)
        ]
        return cell if cell == combination else "mixed"

    @cached_property
    def _cells(self) -> dict[tuple[int, ...], Region]:
        return self._split(self.cells)

    @cached_property
    def _combinations(self) -> dict[tuple[int, ...], Region]:
        return self._split(self.combinations)

    def _split(self, paths: Sequence[str]) -> dict[tuple[int, ...], Region]:
        """Assign every cell by the rank of its hash, so that the shares are exact."""
        cells = list(itertools.product(*(range(self.by_path[p].bins) for p in paths)))
        label = f"{self.family}|{self.salt}|{'|'.join(paths)}|"
        cells.sort(key=lambda c: hashlib.sha256(f"{label}{c}".encode()).digest())
        return {
            cell: next(name for name, upto in SHARES if (rank + 0.5) / len(cells) <= upto)
            for rank, cell in enumerate(cells)
        }
