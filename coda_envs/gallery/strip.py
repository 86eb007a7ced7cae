"""The strip of a family: a seed scene, one place edited three times as far, a resize, a
replacement. Each panel differs from the seed scene in one factor, and is physically valid."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
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
#: Share of the picture that an edit must change to be worth showing.
VISIBLE = 0.0006
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

    Of the goal's things the first that can be edited so that it shows is edited, by the factor and
    value that show most. Raises :class:`SceneError` where no scene was found.
    """
    rng = np.random.default_rng(seed)
    with Views(family) as views:
        for _ in range(TRIES):
            search = _Search(family, family.sample(rng, "seed"), views)
            found = search.variants()
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


#: Edits to try: the factor's path, and its values in the panels.
_Edits = tuple[str, tuple[Value, ...]]


class _Search:
    """Looks for the edits of one seed scene."""

    def __init__(self, family: TaskFamily, scene: Scene, views: Views) -> None:
        self._scene = scene
        self._views = views
        self._factors = family.space.active(scene.values)
        self._roles = dict.fromkeys((*scene.task.goal.roles, *family.roles, *scene.spatial))

    def variants(self) -> list[Variant]:
        """All six, or none."""
        if not _is_valid(self._scene):
            return []
        labels = [f"spatial edit, m = {share}" for _, share in MAGNITUDES]
        found = [Variant("seed scene", self._scene)]
        for names, candidates in (
            (labels, self._moves), (["resize"], self._resizes), (["replacement"], self._others)
        ):  # fmt: skip
            edited = self._best(candidates, names)
            if not edited:
                return []
            found += edited
        return found

    def _best(
        self, candidates: Callable[[str], Iterable[list[_Edits]]], labels: list[str]
    ) -> list[Variant]:
        """Of the first role that has any, the valid edits that change most of the picture."""
        for role in self._roles:
            for group in candidates(role):
                ranked = []
                for path, values in group:
                    # The seed scene's distance to the last panel stands for all.
                    change = self._views.changed(self._scene, self._scene.edit(path, values[-1]))
                    if change >= VISIBLE:
                        ranked.append((change, path, values))
                for _, path, values in sorted(ranked, key=lambda r: -r[0]):
                    scenes = [self._scene.edit(path, value) for value in values]
                    if all(_is_valid(scene) for scene in scenes):
                        old = self._scene.values[path]
                        return [
                            Variant(label, scene, path, old, scene.values[path])
                            for label, scene in zip(labels, scenes, strict=True)
                        ]
        return []

    def _moves(self, role: str) -> Iterator[list[_Edits]]:
        """Every spatial factor of a role on its way to either end of its generator range."""
        found: list[_Edits] = []
        for factor in self._of(role, "spatial"):
            if isinstance(factor, ContinuousFactor):
                old = float(self._scene.values[factor.path])
                low, high = factor.generator
                for end in factor.generator:
                    if abs(end - old) >= 0.5 * (high - low):
                        way = tuple(old + share * (end - old) for share, _ in MAGNITUDES)
                        found.append((factor.path, way))
        yield found

    def _resizes(self, role: str) -> Iterator[list[_Edits]]:
        """A role's lengths, one factor after the other, at either end of its generator range."""
        for factor in self._of(role, "attributes"):
            if isinstance(factor, ContinuousFactor) and factor.unit == "m":
                yield [(factor.path, (end,)) for end in factor.generator]

    def _others(self, role: str) -> Iterator[list[_Edits]]:
        """A role's choices, one factor after the other: the first says most of what a thing is."""
        for factor in self._of(role, "attributes"):
            if isinstance(factor, DiscreteFactor):
                old = self._scene.values[factor.path]
                yield [(factor.path, (choice,)) for choice in factor.generator if choice != old]

    def _of(self, role: str, group: str) -> list[ContinuousFactor | DiscreteFactor]:
        return [f for f in self._factors if f.role == role and f.group == group]


def _is_valid(scene: Scene) -> bool:
    return validate(scene, solve_tries=0).passed
