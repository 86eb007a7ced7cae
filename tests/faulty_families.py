"""Pick-place with one fault more than its scenes' values show: a family that cannot be trusted."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from env_cases import FAMILY, VALUES

from coda_envs.factor import Value
from coda_envs.factors import FactorSpace
from coda_envs.family import Expert
from coda_envs.props import Body, Geom, Joint, Prop
from coda_envs.scene import Scene
from coda_envs.validity import CHECKS
from task_families.pick_place.family import PickPlace

#: Faults of a scene, besides one a check.
MORE = ("tips", "drifts", "diverges")
#: Parts of the family's code that break.
BROKEN = ("goal", "ambiguity", "describe", "problem", "props", "success", "expert", "action")
FAULTS = ("none", *CHECKS, *MORE, *BROKEN)


class Faulty(PickPlace):
    """Its fault is the value of the factor ``task.fault``."""

    name: ClassVar[str] = "faulty"
    env_id: ClassVar[str] = "CoDA-Faulty-v0"
    #: From this call on the broken part breaks; before, it works.
    patience: int = 0

    @cached_property
    def space(self) -> FactorSpace:
        data = FAMILY.space.model_dump(mode="json")
        fault = {"path": "task.fault", "type": "discrete", "meaning": "what is wrong"}
        data["factors"].append(fault | {"seed": FAULTS, "generator": FAULTS})
        return FactorSpace.model_validate(data | {"family": self.name})

    def faulty(self, fault: str) -> Scene:
        """The scene of ``env_cases`` with a fault."""
        values = VALUES | {"task.fault": "none"}
        at = self.scene(values)
        data = at.to_dict()
        data["task"]["choices"]["fault"] = fault
        if fault == "factors":
            data["spatial"]["target"]["x"] = 9.0
        # Not parsed: a broken family could not even do that.
        return Scene.model_validate(data)

    def _break(self, part: str, fault: Value) -> None:
        if fault == part:
            self.patience -= 1
            if self.patience < 0:
                raise ZeroDivisionError(f"{part} is\nbroken")

    def goal(self, values: Mapping[str, Value]) -> Any:
        self._break("goal", values["task.fault"])
        return super().goal(values)

    def ambiguity(self, values: Mapping[str, Value]) -> str | None:
        self._break("ambiguity", values["task.fault"])
        return "has two such cubes" if values["task.fault"] == "language" else None

    def describe(self, values: Mapping[str, Value]) -> tuple[str, tuple[str, ...]]:
        self._break("describe", values["task.fault"])
        return super().describe(values)

    def problem(self, values: Mapping[str, Value]) -> str | None:
        self._break("problem", values["task.fault"])
        return "has a fault" if values["task.fault"] == "layout" else None

    def success(self, scene: Scene, features: np.ndarray) -> np.ndarray:
        self._break("success", scene.values["task.fault"])
        return super().success(scene, features)

    def props(self, scene: Scene) -> list[Prop]:
        fault = scene.values["task.fault"]
        self._break("props", fault)
        props = {prop.body.name: prop for prop in super().props(scene)}
        extra, changes = _change(str(fault), props)
        target = props["target"]
        body = dataclasses.replace(target.body, **changes)
        return [*(props | {"target": dataclasses.replace(target, body=body)}).values(), *extra]

    def expert(self, seed: int = 0) -> Expert:
        return _FaultyExpert(self, super().expert(seed))


class _FaultyExpert(Expert):
    """Does what another expert does, until it breaks or gives an action that is none."""

    def __init__(self, family: Faulty, inner: Expert) -> None:
        self._family, self._inner, self._step = family, inner, 0

    def act(self, env: Any) -> np.ndarray:
        fault = env.scene.values["task.fault"]
        self._step += 1
        if self._step > 3:
            self._family._break("expert", fault)
            if fault == "action":
                return np.full(7, np.nan)
        return self._inner.act(env)


def _change(fault: str, props: Mapping[str, Prop]) -> tuple[list[Prop], dict[str, Any]]:
    """Further props, and what is different about the target's body."""
    plate = props["receptacle"].body.pos
    if fault == "compiles":
        return [], {"geoms": (Geom("box", (0.0, 0.0, 0.0), "red"),)}
    if fault == "penetration":
        x, y, z = props["distractor_1"].body.pos
        return [], {"pos": (x + 0.01, y, z)}
    if fault == "not_solved":
        # A hair into the surface, so that it touches.
        return [], {"pos": (*plate[:2], 0.0299)}
    if fault == "settles":
        return [], {"pos": (0.0, -0.1, 0.1)}
    if fault == "tips":
        half = 0.3
        return [], {
            "pos": (0.0, -0.1, 0.02 * (math.cos(half) + math.sin(half))),
            "quat": (math.cos(half / 2), 0.0, math.sin(half / 2), 0.0),
        }
    if fault == "drifts":
        flap = Body(
            "flap", (Geom("box", (0.02, 0.02, 0.01), "gray"),), (0.2, 0.3, 0.1),
            joint=Joint("slide", (0.0, 0.0, 1.0), travel=0.1, start=0.05), mass=0.1,
        )  # fmt: skip
        return [Prop(flap, ())], {}
    if fault == "diverges":
        # Beyond what MuJoCo counts as a number.
        return [], {"pos": (0.0, -0.1, 2e10)}
    if fault == "workspace":
        return [], {"pos": (0.0, -0.49, 0.02)}
    if fault == "reachable":
        return [], {"pos": (0.34, -0.45, 0.02)}
    if fault == "visible":
        canopy = Geom("box", (0.2, 0.2, 0.002), "gray", collides=False)
        return [Prop(Body("canopy", (canopy,), (0.0, -0.1, 0.12)), ())], {}
    if fault == "solvable":
        return [], {"mass": 60.0}
    return [], {}
