"""FactorSpace: the factors a family declares, and the split into training and held-out regions."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
import yaml
from pydantic import model_validator

from coda_envs.errors import SceneError, short, suggest
from coda_envs.factor import (
    ContinuousFactor,
    Declared,
    DiscreteFactor,
    Factor,
    Group,
    RangeName,
    Value,
)

Region = Literal[
    "generator", "ood-dev", "ood", "ood-spatial", "ood-attribute", "ood-task", "ood-far", "mixed"
]

#: Shares of the cells that go to the generator, to ``ood-dev`` and to ``ood`` (design: 70/10/20).
SHARES: tuple[tuple[Region, float], ...] = (("generator", 0.7), ("ood-dev", 0.8), ("ood", 1.0))

GROUPS: tuple[Group, ...] = ("task", "spatial", "attributes")
#: Regions that hold out one group of factors at a time.
_ONE_GROUP: dict[Region, Group] = {
    "ood-task": "task",
    "ood-spatial": "spatial",
    "ood-attribute": "attributes",
}


class FactorSpace(Declared):
    """All factors of a family, and how their space is split into training and held-out regions.

    ``keys`` names, for each group of factors, the key factors whose bins are cut into cells. A
    fixed hash orders a group's cells; the first 70% go to the generator, the next 10% to
    ``ood-dev``, the rest to ``ood``. Marginals agree between the regions, compositions differ.
    """

    family: str
    factors: tuple[Factor, ...]
    keys: Mapping[Group, tuple[str, ...]]
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
        if set(self.keys) != set(GROUPS):
            raise ValueError(f"keys has the groups {sorted(self.keys)}, not {sorted(GROUPS)}")
        for group, paths in self.keys.items():
            for path in paths:
                if path not in known:
                    raise ValueError(f"key factor {path!r} is not declared")
                if known[path].group != group:
                    raise ValueError(f"key factor {path!r} is not of the group {group!r}")
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
                f"{short(path)} is not a factor of the family {self.family!r}.",
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
        """Where a scene lies; the regions are disjoint.

        ``ood-far``: some factor lies outside its generator range. Else by the cells of its task,
        spatial and attribute key factors: ``generator``, ``ood-dev`` and ``ood`` where all three
        lie in that part, ``ood-task``, ``ood-spatial`` and ``ood-attribute`` where that one lies in
        the ``ood`` part and the others in the generator's; ``mixed``, which nobody uses, otherwise.
        """
        if any(self.by_path[path].is_far(value) for path, value in values.items()):
            return "ood-far"
        labels = {group: self._label(group, values) for group in self._keyed}
        return next((region for region in self.regions if self._parts(region) == labels), "mixed")

    def _label(self, group: Group, values: Mapping[str, Value]) -> Region:
        return self._cells[group][tuple(self.by_path[p].bin(values[p]) for p in self.keys[group])]

    @cached_property
    def _keyed(self) -> tuple[Group, ...]:
        """Groups that have key factors."""
        return tuple(group for group in GROUPS if self.keys[group])

    @cached_property
    def regions(self) -> tuple[Region, ...]:
        """The regions that cells make up: a group without key factors cannot be held out."""
        single = (region for region, group in _ONE_GROUP.items() if group in self._keyed)
        return ("generator", "ood-dev", "ood", *(single if len(self._keyed) > 1 else ()))

    def _parts(self, region: Region) -> dict[Group, Region]:
        """The part that each keyed group's cell lies in, in a region."""
        alone = _ONE_GROUP.get(region)
        if alone is None:
            return dict.fromkeys(self._keyed, region)
        return {group: "ood" if group == alone else "generator" for group in self._keyed}

    def sample_keys(
        self,
        rng: np.random.Generator,
        region: Region,
        fixed: Mapping[str, Value] | None = None,
        ranges: Mapping[str, tuple[float, float]] | None = None,
    ) -> dict[str, Value]:
        """Values of the key factors in a region: a cell, then a place in it, both uniform.

        Only cells that ``fixed`` values and ``ranges`` meet. ``ood-far`` has no cells of its own
        and takes the generator's. Raises :class:`SceneError` for ``mixed``, or where no cell fits.
        """
        wanted = "generator" if region == "ood-far" else region
        if wanted not in self.regions:
            raise SceneError(
                f"no scene of {self.family!r} can be drawn from the region {region!r}.",
                allowed=", ".join((*self.regions, "ood-far")),
            )
        values: dict[str, Value] = {}
        for group, label in self._parts(wanted).items():
            paths = self.keys[group]
            demands = [self._demand(path, fixed or {}, ranges or {}) for path in paths]
            bins = [b for b, _ in demands]
            cells = self._cells_of[group][label]
            if any(b is not None for b in bins):
                cells = [
                    cell
                    for cell in cells
                    if all(b is None or i in b for i, b in zip(cell, bins, strict=True))
                ]
            if not cells:
                raise SceneError(
                    f"no {group} cell of {self.family!r} in the part {label!r} is as asked for.",
                    remedy="fix fewer factors, or other values",
                )
            cell = cells[int(rng.integers(len(cells)))]
            for path, index, (_, ends) in zip(paths, cell, demands, strict=True):
                factor = self.by_path[path]
                if ends is not None and isinstance(factor, ContinuousFactor):
                    edges = factor.edges(index)
                    low, high = max(edges[0], ends[0]), min(edges[1], ends[1])
                    values[path] = float(rng.uniform(low, high))
                else:
                    values[path] = factor.sample_bin(rng, index)
        return values

    def _demand(
        self, path: str, fixed: Mapping[str, Value], ranges: Mapping[str, tuple[float, float]]
    ) -> tuple[set[int] | None, tuple[float, float] | None]:
        """The bins of a key factor that meet what is asked for (None: any), and the interval."""
        factor = self.by_path[path]
        if path in fixed:
            return {factor.bin(fixed[path])}, None
        if path in ranges and isinstance(factor, ContinuousFactor):
            low, high = ranges[path]
            edges = [factor.edges(i) for i in range(factor.bins)]
            return {i for i, (a, b) in enumerate(edges) if a < high and low < b}, (low, high)
        return None, None

    @cached_property
    def key_paths(self) -> tuple[str, ...]:
        """The key factors of all groups."""
        return tuple(path for group in GROUPS for path in self.keys[group])

    @cached_property
    def _cells(self) -> dict[Group, dict[tuple[int, ...], Region]]:
        return {group: self._split(self.keys[group]) for group in GROUPS}

    @cached_property
    def _cells_of(self) -> dict[Group, dict[Region, list[tuple[int, ...]]]]:
        return {
            group: {
                label: [cell for cell, own in cells.items() if own == label] for label, _ in SHARES
            }
            for group, cells in self._cells.items()
        }

    def _split(self, paths: Sequence[str]) -> dict[tuple[int, ...], Region]:
        """Assign every cell by the rank of its hash, so that the shares are exact."""
        cells = list(itertools.product(*(range(self.by_path[p].bins) for p in paths)))
        label = f"{self.family}|{self.salt}|{'|'.join(paths)}|"
        cells.sort(key=lambda c: hashlib.sha256(f"{label}{c}".encode()).digest())
        return {
            cell: next(name for name, upto in SHARES if (rank + 0.5) / len(cells) <= upto)
            for rank, cell in enumerate(cells)
        }
