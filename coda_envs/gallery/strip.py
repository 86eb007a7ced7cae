"""The strip of a family: a seed scene, one place edited three times as far, a resize, a
replacement. Each panel differs from the seed scene in one factor, and is physically valid."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from PIL import Image

from coda_envs.errors import SceneError
from coda_envs.factor import ContinuousFactor, DiscreteFactor, Value
from coda_envs.family import TaskFamily, get_family
from coda_envs.gallery.panels import ARROW, Panel, sheet
from coda_envs.gallery.views import Views
from coda_envs.scene import Scene
from coda_envs.validity import validate

#: Width of a panel's picture (pixels).
WIDTH = 480
#: Magnitudes of the spatial edits: shares of the way to an end of the factor's generator range.
MAGNITUDES = ((1 / 3, "1/3"), (2 / 3, "2/3"), (1.0, "1"))
#: What an edit must change to be worth showing: a share of the picture; of a place, the diagonal of
#: what has changed, as a share of the picture's width.
VISIBLE_AREA = 0.0006
VISIBLE_EXTENT = 0.12
#: Least distance of an edited number from the seed scene's, as a share of the generator range.
FAR_ENOUGH = 0.4
#: Seed scenes drawn before giving up.
TRIES = 40


@dataclass(frozen=True)
class Variant:
    """One panel: a scene, and the one factor in which it differs from the seed scene, if any."""

    label: str
    scene: Scene
    factor: str = ""
    old: Value | None = None
    new: Value | None = None

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {
            "label": self.label,
            "scene_id": self.scene.id,
            "factor": self.factor or None,
            "old": self.old,
            "new": self.new,
        }


def find_variants(family: TaskFamily, seed: int) -> list[Variant]:
    """The six scenes of a strip, from the first seed-range scene that allows all of them.

    Edits the goal's first thing where that is possible and shows, by the factor and value that show
    most. Raises :class:`SceneError` where no scene was found.
    """
    rng = np.random.default_rng(seed)
    with Views(family) as views:
        for _ in range(TRIES):
            found = _Search(family, family.sample(rng, "seed"), views).variants()
            if found:
                return found
    raise SceneError(
        f"none of {TRIES} scenes of {family.name!r} has a spatial edit, a resize and a replacement "
        "that are valid and can be seen.",
        remedy="try another seed, or declare factors that change what the main camera sees",
    )


def draw_strip(variants: list[Variant]) -> Image.Image:
    """The variants side by side, with what was edited under each."""
    family = get_family(variants[0].scene.family)
    with Views(family) as views:
        pictures = views.pictures([variant.scene for variant in variants], WIDTH)
    panels = [
        Panel(picture, variant.label, _lines(family, variant))
        for picture, variant in zip(pictures, variants, strict=True)
    ]
    return sheet(panels, len(panels))


def _lines(family: TaskFamily, variant: Variant) -> tuple[str, ...]:
    if not variant.factor:
        return (variant.scene.task.instruction,)
    factor = family.space[variant.factor]
    unit = factor.unit if isinstance(factor, ContinuousFactor) and factor.unit != "1" else ""
    change = f"{_number(variant.old)} {ARROW} {_number(variant.new)} {unit}"
    return (variant.factor, change)


def _number(value: Value | None) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)


#: An edit to try: the factor's path, and its values in the panels.
_Edit = tuple[str, tuple[Value, ...]]


class _Search:
    """Looks for the edits of one seed scene.

    Edits to try come in groups, the preferred group first; of a group the one that shows most is
    taken.
    """

    def __init__(self, family: TaskFamily, scene: Scene, views: Views) -> None:
        self._scene = scene
        self._views = views
        self._factors = family.space.active(scene.values)
        # The goal's things come first.
        self._roles = dict.fromkeys((*scene.task.goal.roles, *(f.role for f in self._factors)))

    def variants(self) -> list[Variant]:
        """All six, or none."""
        if not _is_valid(self._scene):
            return []
        places = [f"spatial edit, m = {share}" for _, share in MAGNITUDES]
        found = [Variant("seed scene", self._scene)]
        for labels, groups, measure, least in (
            (places, self._moves(), _extent, VISIBLE_EXTENT),
            (["resize"], self._resizes(), _area, VISIBLE_AREA),
            (["replacement"], self._replacements(), _area, VISIBLE_AREA),
        ):
            tried = (self._best(edits, labels, measure, least) for edits in groups)
            edited = next(filter(None, tried), None)
            if edited is None:
                return []
            found += edited
        return found

    def _moves(self) -> Iterator[list[_Edit]]:
        """For each role, its spatial factors on their way to either end."""
        for role in self._roles:
            edits: list[_Edit] = []
            for factor in self._of(role, "spatial"):
                for end in _ends(factor, self._scene):
                    old = float(self._scene.values[factor.path])
                    way = tuple(old + share * (end - old) for share, _ in MAGNITUDES)
                    edits.append((factor.path, way))
            yield edits

    def _resizes(self) -> Iterator[list[_Edit]]:
        """The lengths among the attributes, each at either end."""
        for role in self._roles:
            for factor in self._of(role, "attributes"):
                if isinstance(factor, ContinuousFactor) and factor.unit == "m":
                    yield [(factor.path, (end,)) for end in _ends(factor, self._scene)]

    def _replacements(self) -> Iterator[list[_Edit]]:
        """The choices among the attributes: a role's first says most of what the thing is."""
        for role in self._roles:
            for factor in self._of(role, "attributes"):
                if isinstance(factor, DiscreteFactor):
                    old = self._scene.values[factor.path]
                    yield [(factor.path, (new,)) for new in factor.generator if new != old]

    def _of(self, role: str | None, group: str) -> list[ContinuousFactor | DiscreteFactor]:
        return [f for f in self._factors if f.role == role and f.group == group]

    def _best(
        self,
        edits: list[_Edit],
        labels: list[str],
        measure: Callable[[np.ndarray], float],
        least: float,
    ) -> list[Variant]:
        """The valid edit whose last panel differs most from the seed scene, by at least ``least``;
        none: empty."""
        ranked: list[tuple[float, _Edit]] = []
        for path, values in edits:
            change = measure(self._views.changed(self._scene, self._scene.edit(path, values[-1])))
            if change >= least:
                ranked.append((change, (path, values)))
        for _, (path, values) in sorted(ranked, key=lambda entry: -entry[0]):
            scenes = [self._scene.edit(path, value) for value in values]
            if all(map(_is_valid, scenes)):
                old = self._scene.values[path]
                return [
                    Variant(label, scene, path, old, scene.values[path])
                    for label, scene in zip(labels, scenes, strict=True)
                ]
        return []


def _ends(factor: ContinuousFactor | DiscreteFactor, scene: Scene) -> list[float]:
    """The ends of a number's generator range that are far enough from what the scene has."""
    if isinstance(factor, DiscreteFactor):
        return []
    low, high = factor.generator
    value = float(scene.values[factor.path])
    return [end for end in (low, high) if abs(end - value) >= FAR_ENOUGH * (high - low)]


def _area(changed: np.ndarray) -> float:
    """Share of the picture that has changed."""
    return float(changed.mean())


def _extent(changed: np.ndarray) -> float:
    """Diagonal of the smallest rectangle around what has changed: how far a thing went. As a share
    of the picture's width."""
    if not changed.any():
        return 0.0
    wide, high = (float(np.ptp(np.flatnonzero(changed.any(axis=axis)))) for axis in (0, 1))
    return float(math.hypot(wide, high) / changed.shape[1])


def _is_valid(scene: Scene) -> bool:
    return validate(scene, solve_tries=0).passed
