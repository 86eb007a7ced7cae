"""Articulated: open or close the drawer or the door that the instruction names.

Task: a cabinet of two or three drawers, or of two doors; the instruction names the target by its
place, or by its handle's colour, kind or both. Success: the target's joint is open to 80% of its
travel, or shut to 10%, at rest, and no finger touches it.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from coda_envs.cabinet_props import Handle, Motion, Part, cabinet, door, drawer
from coda_envs.factor import Value
from coda_envs.family import Expert, TaskFamily
from coda_envs.language import Referent, ambiguity, refer
from coda_envs.props import Prop
from coda_envs.scene import Goal, Scene
from task_families.articulated import room

#: What the mode of reference speaks of, and how.
_MODES = {"color": "color_shape", "handle": "shape", "color_handle": "color_shape"}
#: Parts that are not the target have no size, stiffness or travel of their own to edit.
_OTHER = {
    "size": 0.010, "travel": room.OTHER_TRAVEL, "friction": 1.0, "damping": 6.0, "mass": 0.5,
}  # fmt: skip


class Articulated(TaskFamily):
    """See the module's docstring."""

    name: ClassVar[str] = "articulated"
    env_id: ClassVar[str] = "CoDA-Articulated-v0"
    roles: ClassVar[tuple[str, ...]] = ("target", "distractor_1", "distractor_2", "cabinet")
    max_seconds: ClassVar[float] = 8.0
    folder: ClassVar[Path] = Path(__file__).parent

    def goal(self, values: Mapping[str, Value]) -> Goal:  # noqa: D102
        return Goal(predicate="operated", roles=("target",))

    def describe(self, values: Mapping[str, Value]) -> tuple[str, tuple[str, ...]]:  # noqa: D102
        name, verb = self._name(values), values["task.verb"]
        if verb == "open":
            return f"open the {name}", (f"pull the {name} open", f"please open the {name}")
        return f"close the {name}", (f"push the {name} shut", f"shut the {name}")

    def unseen_wording(self, values: Mapping[str, Value]) -> str:  # noqa: D102
        done = "open" if values["task.verb"] == "open" else "closed"
        return f"the {self._name(values)} should be {done}"

    def _name(self, values: Mapping[str, Value]) -> str:
        phrase = self._phrase(values)
        part = str(values["task.furniture"])[:-1]
        return phrase if values["task.reference"] == "place" else f"{part} with the {phrase}"

    def _phrase(self, values: Mapping[str, Value]) -> str:
        """The words that pick out the target: "top drawer", or of its handle: "red knob"."""
        target, *others = self._referents(values)
        mode = str(values["task.reference"])
        if mode == "place":
            mode = "order" if values["task.furniture"] == "drawers" else "place"
        return refer(_MODES.get(mode, mode), target, others)

    def _referents(self, values: Mapping[str, Value]) -> list[Referent]:
        """The parts as language speaks of them, the target first."""
        mode, part = values["task.reference"], str(values["task.furniture"])[:-1]
        found = []
        for role, (x, y, z) in room.middles(values).items():
            handle, color = (str(values[f"attributes.{role}.{n}"]) for n in ("handle", "color"))
            noun = {"place": part, "color": "handle"}.get(str(mode), handle)
            found.append(Referent(role, color, noun, None, x, y, z, free=False))
        return found

    def ambiguity(self, values: Mapping[str, Value]) -> str | None:  # noqa: D102
        things, phrase = self._referents(values), self._phrase(values)
        flaw = ambiguity(phrase, things[0], things)
        return f"has an instruction ({phrase!r}) that {flaw}" if flaw else None

    def problem(self, values: Mapping[str, Value]) -> str | None:  # noqa: D102
        return room.problem(values)

    def props(self, scene: Scene) -> list[Prop]:  # noqa: D102
        values: Mapping[str, Any] = scene.values
        half_width, half_height = room.half_size(values)
        parts = [self._part(values, role) for role in room.places(values)]
        at = (values["spatial.cabinet.x"], values["spatial.cabinet.y"])
        return [
            cabinet(
                "cabinet", parts, at=at, yaw=values["spatial.cabinet.yaw"], half_width=half_width,
                half_height=half_height, color=values["attributes.cabinet.color"],
                shelves=room.shelves(values),
            )
        ]  # fmt: skip

    @staticmethod
    def _part(values: Mapping[str, Any], role: str) -> Part:
        # Checked against factors.yaml when the scene was made: each value has its factor's type.
        looks = {n: values.get(f"attributes.{role}.{n}", v) for n, v in _OTHER.items()}
        handle = Handle(
            values[f"attributes.{role}.handle"], looks["size"], values[f"attributes.{role}.color"],
            values.get("spatial.target.offset", 0.0), room.standoff(values, role),
        )  # fmt: skip
        opening = room.opening(values, role)
        motion = Motion(
            looks["travel"], opening, looks["friction"], looks["damping"], looks["mass"]
        )
        half_width, half_height = room.half_size(values)
        to_shut = role == "target" and values["task.verb"] == "close"
        color, place = values["attributes.cabinet.color"], room.places(values)[role]
        if values["task.furniture"] == "doors":
            return door(
                role, handle, motion, side=place, half_width=half_width,
                half_height=half_height, color=color, to_shut=to_shut,
            )  # fmt: skip
        return drawer(
            role, handle, motion, z=room.middles(values)[role][2], half_width=half_width,
            half_height=half_height / int(values["task.drawers"]), color=color, to_shut=to_shut,
        )  # fmt: skip

    def expert(self, seed: int = 0) -> Expert:  # noqa: D102
        from task_families.articulated.expert import ArticulatedExpert

        return ArticulatedExpert()
