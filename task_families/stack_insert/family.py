"""Stack-insert: build a tower of two or three blocks in a named order, or put a peg into a socket.

Task: one of three kinds; the instruction names the target by colour, shape, size or place among
up to two distractors. Success: the target lies flat on the base, or stands on the floor of the
socket's hole; in a tower of three the second block lies on the target; all let go of, and still.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from coda_envs import language
from coda_envs.factor import Value
from coda_envs.family import Expert, TaskFamily
from coda_envs.language import Referent
from coda_envs.layout import crowding
from coda_envs.props import Prop
from coda_envs.scene import Goal, Scene
from task_families.stack_insert.parts import footprint, prop, referent, room_beside

#: Most things that move in a scene.
MAX_FREE = 4


class StackInsert(TaskFamily):
    """See the module's docstring."""

    name: ClassVar[str] = "stack-insert"
    env_id: ClassVar[str] = "CoDA-StackInsert-v0"
    roles: ClassVar[tuple[str, ...]] = (
        *("target", "receptacle", "second"),
        *("distractor_1", "distractor_2"),
    )
    max_seconds: ClassVar[float] = 10.0
    folder: ClassVar[Path] = Path(__file__).parent

    def goal(self, values: Mapping[str, Value]) -> Goal:  # noqa: D102
        return Goal(predicate="assembled", roles=("target", "receptacle", "second"))

    def describe(self, values: Mapping[str, Value]) -> tuple[str, tuple[str, ...]]:  # noqa: D102
        it = {role: f"the {phrase}" for role, phrase in self._phrases(values).items()}
        target, base = it["target"], it["receptacle"]
        if values["task.kind"] == "insert":
            return f"insert {target} into {base}", (
                f"put {target} into {base}",
                f"push {target} down into the hole of {base}",
            )
        if values["task.kind"] == "stack_two":
            return f"stack {target} on {base}", (
                f"put {target} on top of {base}",
                f"place {target} onto {base}",
            )
        return f"stack {target} on {base} and {it['second']} on top", (
            f"put {target} on {base}, then {it['second']} on {target}",
            f"build a tower of {base}, {target} and {it['second']}, from the bottom up",
        )

    def unseen_wording(self, values: Mapping[str, Value]) -> str:  # noqa: D102
        it = {role: f"the {phrase}" for role, phrase in self._phrases(values).items()}
        if values["task.kind"] == "insert":
            return f"{it['target']} belongs in {it['receptacle']}"
        under = f"{it['receptacle']} goes under {it['target']}"
        return f"{under}, which goes under {it['second']}" if "second" in it else under

    def _phrases(self, values: Mapping[str, Value]) -> dict[str, str]:
        """The noun phrase of each thing that the instruction names."""
        things = self._referents(values)
        named = {"target": language.refer(str(values["task.reference"]), things[0], things)}
        for thing in things[1:]:
            if thing.role in ("receptacle", "second"):
                mode = "shape" if thing.noun == "socket" else "color_shape"
                named[thing.role] = language.refer(mode, thing, things)
        return named

    def _referents(self, values: Mapping[str, Value]) -> list[Referent]:
        """Everything in the scene, the target first."""
        return [referent(role, values) for role in self._present(values)]

    def _present(self, values: Mapping[str, Value]) -> list[str]:
        return [role for role in self.roles if f"spatial.{role}.x" in values]

    def ambiguity(self, values: Mapping[str, Value]) -> str | None:  # noqa: D102
        things = self._referents(values)
        by_role = {thing.role: thing for thing in things}
        for role, phrase in self._phrases(values).items():
            problem = language.ambiguity(phrase, by_role[role], things)
            if problem:
                return f"has an instruction whose {phrase!r} {problem}"
        return None

    def problem(self, values: Mapping[str, Value]) -> str | None:  # noqa: D102
        circles = {role: footprint(role, values) for role in self._present(values)}
        if values["task.kind"] == "stack_three":
            if len(circles) > MAX_FREE:
                return f"has {len(circles)} free blocks, more than {MAX_FREE}"
            base, second = circles["receptacle"], circles["second"]
            radius = max(base.radius, circles["target"].radius)
            x, y = base.x - second.x, base.y - second.y
            room = room_beside(x, y, float(values["spatial.second.yaw"]))
            if math.hypot(x, y) < radius + room:
                return "has second too near the tower"
        return crowding(list(circles.values()), grasped=("target", "second"))

    def props(self, scene: Scene) -> list[Prop]:  # noqa: D102
        return [prop(role, scene) for role in self._present(scene.values)]

    def expert(self, seed: int = 0) -> Expert:  # noqa: D102
        from task_families.stack_insert.expert import StackInsertExpert

        return StackInsertExpert()
