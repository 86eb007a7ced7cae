"""Pick-place: pick up the named object and put it on the plate or into the tray.

Task: one target among up to two distractors, one receptacle of two kinds; the instruction names
the target by colour, by shape, or by both. Success: the target rests on the receptacle's surface,
within its inner radius, touching it, let go of, and still.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import yaml

from coda_envs.arena import WALL, SceneBuilder
from coda_envs.factors import FactorSpace, Value
from coda_envs.family import Expert, TaskFamily
from coda_envs.programs.potential import PotentialProgram
from coda_envs.scene import Goal, Scene

_HERE = Path(__file__).parent
#: Free room between any two objects (m): a finger and its pad fit in.
CLEARANCE = 0.012
#: Free room between the target and what else stands on the table (m), for the opened fingers.
FINGER_ROOM = 0.04


def half_extents(shape: str, size: float) -> tuple[float, float, float]:
    """Half extents (m) of an object whose half width at the grasp is ``size``.

    A bar is twice as long as it is wide, so that it only fits between the fingers one way.
    """
    if shape == "bar":
        return (2.0 * size, size, size)
    if shape == "cylinder":
        return (size, size, 1.2 * size)
    return (size, size, size)


def _footprint(shape: str, size: float) -> float:
    """Radius (m) of the circle an object takes up on the table."""
    half = half_extents(shape, size)
    return half[0] if shape == "cylinder" else math.hypot(half[0], half[1])


class PickPlace(TaskFamily):
    """See the module's docstring."""

    name: ClassVar[str] = "pick-place"
    env_id: ClassVar[str] = "CoDA-PickPlace-v0"
    roles: ClassVar[tuple[str, ...]] = ("target", "receptacle", "distractor_1", "distractor_2")
    max_seconds: ClassVar[float] = 5.0

    @cached_property
    def space(self) -> FactorSpace:  # noqa: D102
        return FactorSpace.load(_HERE / "factors.yaml")

    @cached_property
    def template(self) -> PotentialProgram:  # noqa: D102
        data = yaml.safe_load((_HERE / "stages.yaml").read_text(encoding="utf-8"))
        return PotentialProgram.parse(data, "stages.yaml")

    def goal(self, values: Mapping[str, Value]) -> Goal:  # noqa: D102
        return Goal(predicate="placed", roles=("target", "receptacle"))

    def describe(self, values: Mapping[str, Value]) -> tuple[str, tuple[str, ...]]:  # noqa: D102
        color, shape = values["attributes.target.color"], values["attributes.target.shape"]
        name = {
            "color": f"{color} object",
            "shape": f"{shape}",
            "color_shape": f"{color} {shape}",
        }[str(values["task.reference"])]
        plate = values["task.receptacle"] == "plate"
        at, to = ("on the plate", "onto the plate") if plate else ("in the tray", "into the tray")
        return f"put the {name} {at}", (f"place the {name} {at}", f"move the {name} {to}")

    def problem(self, values: Mapping[str, Value]) -> str | None:  # noqa: D102
        return self._ambiguity(values) or self._misfit(values) or self._overlap(values)

    def _ambiguity(self, values: Mapping[str, Value]) -> str | None:
        """The instruction must be true of exactly one object."""
        named = {"color": ("color",), "shape": ("shape",), "color_shape": ("color", "shape")}[
            str(values["task.reference"])
        ]
        for i in range(1, int(values["task.distractors"]) + 1):
            if all(
                values[f"attributes.distractor_{i}.{n}"] == values[f"attributes.target.{n}"]
                for n in named
            ):
                return f"has an instruction that fits distractor_{i} too ({' and '.join(named)})"
        return None

    @staticmethod
    def _misfit(values: Mapping[str, Value]) -> str | None:
        """The target must fit between the tray's walls, however it is turned."""
        if values["task.receptacle"] != "tray":
            return None
        shape, size = values["attributes.target.shape"], values["attributes.target.size"]
        radius = _footprint(str(shape), float(size))
        room = float(values["attributes.receptacle.size"]) - WALL
        if radius <= room:
            return None
        return f"has a target that does not fit the tray ({radius:.3f} m > {room:.3f} m)"

    def _overlap(self, values: Mapping[str, Value]) -> str | None:
        """No two objects may stand closer than the fingers need."""
        discs: list[tuple[str, float, float, float]] = []
        for role in self.roles:
            if f"spatial.{role}.x" not in values:
                continue
            size = float(values[f"attributes.{role}.size"])
            if role == "receptacle":
                tray = values["task.receptacle"] == "tray"
                radius = size * (1.25 if tray else 1.0)
            else:
                radius = _footprint(str(values[f"attributes.{role}.shape"]), size)
            x, y = float(values[f"spatial.{role}.x"]), float(values[f"spatial.{role}.y"])
            for other, ox, oy, other_radius in discs:
                room = FINGER_ROOM if other == "target" else CLEARANCE
                if math.hypot(x - ox, y - oy) < radius + other_radius + room:
                    return f"has {role} too near {other}"
            discs.append((role, x, y, radius))
        return None

    def build(self, builder: SceneBuilder, scene: Scene) -> None:  # noqa: D102
        # Checked against factors.yaml when the scene was made: each value has its factor's type.
        poses: Mapping[str, Mapping[str, Any]] = scene.spatial
        looks_of: Mapping[str, Mapping[str, Any]] = scene.attributes
        for role in self.roles:
            pose, looks = poses.get(role), looks_of.get(role)
            if pose is None or looks is None:
                continue
            xy = (pose["x"], pose["y"])
            if role != "receptacle":
                builder.add_object(
                    role,
                    looks["shape"],
                    half_extents(looks["shape"], looks["size"]),
                    xy,
                    pose["yaw"],
                    # Distractors have no mass or friction of their own to edit.
                    mass=looks.get("mass", 0.1),
                    friction=looks.get("friction", 1.0),
                    color=looks["color"],
                )
            elif scene.task.choices["receptacle"] == "tray":
                builder.add_tray(role, looks["size"], looks["rim"], xy, looks["color"])
            else:
                builder.add_plate(role, looks["size"], xy, looks["color"])

    def expert(self, seed: int = 0) -> Expert:  # noqa: D102
        from task_families.pick_place.expert import PickPlaceExpert

        return PickPlaceExpert()
