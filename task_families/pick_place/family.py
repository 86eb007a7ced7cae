"""Pick-place: pick up the named object and put it on the plate or into the tray.

Task: one target among up to two distractors, one receptacle of two kinds; the instruction names
the target by colour, by shape, or by both. Success: the target rests on the receptacle's surface,
within its inner radius, touching it, let go of, and still.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from coda_envs.factor import Value
from coda_envs.family import Expert, TaskFamily
from coda_envs.layout import Footprint, crowding
from coda_envs.props import WALL, Prop, free_object, plate, tray
from coda_envs.scene import Goal, Scene

#: Half extents of each shape along x, y and z, as multiples of half its width at the grasp. A bar
#: only fits between the fingers one way; ``disc`` and ``post`` are in ``ood-far`` scenes alone.
PROPORTIONS = {
    "cube": (1.0, 1.0, 1.0),
    "bar": (2.0, 1.0, 1.0),
    "cylinder": (1.0, 1.0, 1.2),
    "disc": (1.0, 1.0, 0.7),
    "post": (1.0, 1.0, 1.7),
}
_REFERENCES = {"color": ("color",), "shape": ("shape",), "color_shape": ("color", "shape")}


def half_extents(shape: str, size: float) -> tuple[float, float, float]:
    """Half extents (m) of an object whose half width at the grasp is ``size``."""
    x, y, z = PROPORTIONS[shape]
    return (x * size, y * size, z * size)


def footprint_radius(shape: str, size: float) -> float:
    """Radius (m) of the circle an object takes up on the table."""
    half = half_extents(shape, size)
    return half[0] if shape in ("cylinder", "disc") else math.hypot(half[0], half[1])


class PickPlace(TaskFamily):
    """See the module's docstring."""

    name: ClassVar[str] = "pick-place"
    env_id: ClassVar[str] = "CoDA-PickPlace-v0"
    roles: ClassVar[tuple[str, ...]] = ("target", "receptacle", "distractor_1", "distractor_2")
    max_seconds: ClassVar[float] = 5.0
    folder: ClassVar[Path] = Path(__file__).parent

    def goal(self, values: Mapping[str, Value]) -> Goal:  # noqa: D102
        return Goal(predicate="placed", roles=("target", "receptacle"))

    def describe(self, values: Mapping[str, Value]) -> tuple[str, tuple[str, ...]]:  # noqa: D102
        name, (at, to) = self._name(values), self._place(values)
        return f"put the {name} {at}", (f"place the {name} {at}", f"move the {name} {to}")

    def unseen_wording(self, values: Mapping[str, Value]) -> str:  # noqa: D102
        at, _ = self._place(values)
        return f"the {self._name(values)} belongs {at}"

    @staticmethod
    def _name(values: Mapping[str, Value]) -> str:
        color, shape = values["attributes.target.color"], values["attributes.target.shape"]
        return {
            "color": f"{color} object",
            "shape": f"{shape}",
            "color_shape": f"{color} {shape}",
        }[str(values["task.reference"])]

    @staticmethod
    def _place(values: Mapping[str, Value]) -> tuple[str, str]:
        on_plate = values["task.receptacle"] == "plate"
        return ("on the plate", "onto the plate") if on_plate else ("in the tray", "into the tray")

    def ambiguity(self, values: Mapping[str, Value]) -> str | None:  # noqa: D102
        named = _REFERENCES[str(values["task.reference"])]
        for i in range(1, int(values["task.distractors"]) + 1):
            if all(
                values[f"attributes.distractor_{i}.{n}"] == values[f"attributes.target.{n}"]
                for n in named
            ):
                return f"has an instruction that fits distractor_{i} too ({' and '.join(named)})"
        return None

    def problem(self, values: Mapping[str, Value]) -> str | None:  # noqa: D102
        footprints = [self._footprint(r, values) for r in self.roles if f"spatial.{r}.x" in values]
        return self._misfit(values) or crowding(footprints, grasped=("target",))

    @staticmethod
    def _misfit(values: Mapping[str, Value]) -> str | None:
        """The target must fit between the tray's walls, however it is turned."""
        if values["task.receptacle"] != "tray":
            return None
        shape, size = values["attributes.target.shape"], values["attributes.target.size"]
        radius = footprint_radius(str(shape), float(size))
        room = float(values["attributes.receptacle.size"]) - WALL
        if radius <= room:
            return None
        return f"has a target that does not fit the tray ({radius:.3f} m > {room:.3f} m)"

    @staticmethod
    def _footprint(role: str, values: Mapping[str, Value]) -> Footprint:
        size = float(values[f"attributes.{role}.size"])
        if role == "receptacle":
            radius = size * (1.25 if values["task.receptacle"] == "tray" else 1.0)
        else:
            radius = footprint_radius(str(values[f"attributes.{role}.shape"]), size)
        x, y = float(values[f"spatial.{role}.x"]), float(values[f"spatial.{role}.y"])
        return Footprint(role, x, y, radius)

    def props(self, scene: Scene) -> list[Prop]:  # noqa: D102
        return [self._prop(scene, role) for role in self.roles if role in scene.spatial]

    @staticmethod
    def _prop(scene: Scene, role: str) -> Prop:
        # Checked against factors.yaml when the scene was made: each value has its factor's type.
        pose: Mapping[str, Any] = scene.spatial[role]
        looks: Mapping[str, Any] = scene.attributes[role]
        xy, color = (pose["x"], pose["y"]), looks["color"]
        if role == "receptacle":
            if scene.task.choices["receptacle"] == "tray":
                return tray(role, looks["size"], looks["rim"], xy, color)
            return plate(role, looks["size"], xy, color)
        # Distractors have no mass or friction of their own to edit.
        return free_object(
            role, looks["shape"], half_extents(looks["shape"], looks["size"]), xy, pose["yaw"],
            mass=looks.get("mass", 0.1), friction=looks.get("friction", 1.0), color=color,
        )  # fmt: skip

    def expert(self, seed: int = 0) -> Expert:  # noqa: D102
        from task_families.pick_place.expert import PickPlaceExpert

        return PickPlaceExpert()
