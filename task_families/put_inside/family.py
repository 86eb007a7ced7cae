"""Put-inside: put the named object into a container.

Task: one target, at most one distractor, and a box, a bowl, a box under a lid or a drawer, with up
to two things in it already. A lid has to be taken off first, a drawer to be opened. Success: the
target lies in the container, wholly below its rim, carried by it or by what lies in it, let go of,
and still.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from coda_envs import language
from coda_envs.factor import Value
from coda_envs.family import Expert, TaskFamily
from coda_envs.language import Referent
from coda_envs.props import Prop
from coda_envs.scene import Goal, Scene
from task_families.put_inside.layout import crowding, overfull, too_tall
from task_families.put_inside.things import (
    FILLER,
    container,
    fillers,
    footprint,
    half_extents,
    props,
    start_opening,
    surface,
)

_PLACES = {"box": "box", "bowl": "bowl", "lidded": "box", "drawer": "drawer"}
_FIRST = {"lidded": "take the lid off and ", "drawer": "open the drawer and "}


class PutInside(TaskFamily):
    """See the module's docstring."""

    name: ClassVar[str] = "put-inside"
    env_id: ClassVar[str] = "CoDA-PutInside-v0"
    roles: ClassVar[tuple[str, ...]] = (
        *("target", "receptacle", "cover"),
        *("filler_1", "filler_2", "distractor_1"),
    )
    max_seconds: ClassVar[float] = 10.0
    folder: ClassVar[Path] = Path(__file__).parent

    def goal(self, values: Mapping[str, Value]) -> Goal:  # noqa: D102
        return Goal(predicate="inside", roles=("target", "receptacle"))

    def describe(self, values: Mapping[str, Value]) -> tuple[str, tuple[str, ...]]:  # noqa: D102
        name, place = self._phrase(values), _PLACES[str(values["task.container"])]
        first = _FIRST.get(str(values["task.container"]), "")
        return f"put the {name} in the {place}", (
            f"place the {name} inside the {place}",
            f"{first}drop the {name} into the {place}",
        )

    def unseen_wording(self, values: Mapping[str, Value]) -> str:  # noqa: D102
        place = _PLACES[str(values["task.container"])]
        return f"the {place} is where the {self._phrase(values)} goes"

    def ambiguity(self, values: Mapping[str, Value]) -> str | None:  # noqa: D102
        things = _referents(values)
        problem = language.ambiguity(self._phrase(values), things[0], things)
        return f"has an instruction that {problem}" if problem else None

    @staticmethod
    def _phrase(values: Mapping[str, Value]) -> str:
        target, *others = _referents(values)
        return language.refer(str(values["task.reference"]), target, others)

    def problem(self, values: Mapping[str, Value]) -> str | None:  # noqa: D102
        return too_tall(values) or crowding(values) or overfull(values)

    def props(self, scene: Scene) -> list[Prop]:  # noqa: D102
        return props(scene.values)

    def expert(self, seed: int = 0) -> Expert:  # noqa: D102
        from task_families.put_inside.expert import PutInsideExpert

        return PutInsideExpert()


def _referents(values: Mapping[str, Value]) -> list[Referent]:
    """The scene's things as language can speak of them, the target first."""
    at = container(values, start_opening(values))
    inside = {f.role: f for f in fillers(values, at)}
    things = []
    for role in ("target", *inside, *(["distractor_1"] if values["task.distractors"] else [])):
        half, place = half_extents(values, role), inside.get(role) or footprint(values, role)
        shape = FILLER if role in inside else str(values[f"attributes.{role}.shape"])
        looks = "filler_1" if role in inside else role
        floor = surface(values) if role in inside else 0.0
        things.append(
            Referent(
                role, str(values[f"attributes.{looks}.color"]), shape, half[1],
                place.x, place.y, floor + half[2],
            )
        )  # fmt: skip
    color, noun = str(values["attributes.receptacle.color"]), _PLACES[str(values["task.container"])]
    things.append(
        Referent("receptacle", color, noun, at.half[1], at.x, at.y, at.top / 2, free=False)
    )
    if values["task.container"] == "lidded":
        things.append(Referent("cover", color, "lid", at.half[1], at.x, at.y, at.top))
    return things
