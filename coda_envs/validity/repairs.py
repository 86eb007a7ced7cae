"""Repair: other places for what no edit decided, bounded and on record."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from coda_envs.errors import SceneError
from coda_envs.factor import DIGITS, Value
from coda_envs.family import get_family
from coda_envs.scene import Scene
from coda_envs.validity.family_code import family_code

#: Failures that other places can mend. The rest lies in what things are, or in the task.
REPAIRABLE = ("layout", "penetration", "workspace", "reachable", "visible")
#: Draws of one repair.
TRIES = 20


@dataclass(frozen=True)
class Repair:
    """One attempt to repair a scene.

    ``reason``: the failure. ``changed``: the factors drawn anew, with their new values. ``draws``:
    how many it took. ``obstacle``: why there was no repair, empty where there was one.
    """

    reason: str
    changed: Mapping[str, Value] = field(default_factory=dict)
    draws: int = 0
    obstacle: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {
            "reason": self.reason,
            "changed": dict(self.changed),
            "draws": self.draws,
            "obstacle": self.obstacle,
        }


def repair(
    scene: Scene,
    reason: str,
    edited: Iterable[str],
    rng: np.random.Generator,
    tries: int = TRIES,
) -> tuple[Scene | None, Repair]:
    """A laid-out scene of the same region with other places, and the record; or None and why not.

    Draws the unedited spatial factors anew where ``reason`` is one that places can mend. Never
    touches an ``edited`` factor: a scene that only an edit makes invalid is rejected. What an edit
    brings into being or takes away follows it, so no repair does either.
    """
    if reason not in REPAIRABLE:
        return None, Repair(reason, obstacle="other places do not mend this")
    family = get_family(scene.family)
    keep = set(edited)
    free = [
        f for f in family.space.active(scene.values) if f.group == "spatial" and f.path not in keep
    ]
    if not free:
        return None, Repair(reason, obstacle="every place was edited")
    region = family.region(scene)
    obstacle = ""
    for draw in range(1, tries + 1):
        changed: dict[str, Value] = {}
        for factor in free:
            value = factor.sample(rng, "generator")
            changed[factor.path] = round(value, DIGITS) if isinstance(value, float) else value
        with family_code(family, "problem() or describe()"):
            try:
                candidate = scene.edit_many(changed)
            except SceneError as error:
                obstacle = error.problem
                continue
            flaw = family.flaw(candidate.values)
        if flaw is not None:
            obstacle = f"the redrawn scene {flaw}"
        elif candidate.values.keys() != scene.values.keys():
            obstacle = "the redrawn scene has other factors"
        elif family.region(candidate) != region:
            obstacle = f"the redrawn scene lies outside the region {region!r}"
        else:
            return candidate, Repair(reason, changed, draw)
    return None, Repair(reason, draws=tries, obstacle=f"{tries} draws, at last: {obstacle}")
