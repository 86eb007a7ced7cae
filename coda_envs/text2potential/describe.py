"""The potential that follows from the task's description alone: what the sentence says, no more.

"Put the cube on the plate" tells which object to go to and where it belongs; it says nothing of
how to grasp, of lifting over a rim, or of a lid in the way. This is the baseline "potential from
the task description" that staged potentials from diagnoses are held against.
"""

from __future__ import annotations

from typing import Any

from coda_envs.family import TaskFamily
from coda_envs.programs.potential import PotentialProgram, Predicate
from coda_envs.text2potential.acts import predicates
from coda_envs.text2potential.terms import GRIPPER

#: Scale of both distances (m): about the width of the table that objects lie on.
ACROSS = 0.5
#: Goals about a part on a joint.
_JOINTED = ("opened", "shut", "operated", "at_stop")


def describe_program(family: TaskFamily) -> PotentialProgram:
    """Two stages for each object that the goal names: get near it, then bring it where it belongs.

    The way there is the distance between the two, the share of a joint's travel, the height of an
    object to be lifted. Only the goal, which is the last gate of the family's stages, is read:
    a tower of three has two such pairs, one after the other. Deterministic.
    """
    goal = next(predicates(family.template.stages[-1].gate))
    stages: list[dict[str, Any]] = []
    if goal.predicate == "assembled":
        first, base, then = goal.roles
        both = [Predicate(predicate=p, roles=(first, base)) for p in ("stacked", "inserted")]
        gate = {"any": [part.to_dict() for part in both]}
        stages += _pair(first, _distance(first, base), gate)
        stages += _pair(then, _distance(then, first), goal.to_dict())
    else:
        stages += _pair(goal.roles[0], _way(goal), goal.to_dict())
    data = {
        "family": family.name,
        "stages": stages,
        "note": f"From the description: {goal.predicate}({', '.join(goal.roles)}).",
    }
    return PotentialProgram.parse(data, f"the description of {family.name}")


def _pair(moved: str, way: dict[str, Any], done: dict[str, Any]) -> list[dict[str, Any]]:
    """The stages "get near it" and "bring it there"."""
    near = {"predicate": "near", "roles": [moved]}
    return [
        {"name": f"to {moved}", "gate": near, "progress": _distance(GRIPPER, moved)},
        {"name": f"{moved} there", "gate": done, "progress": way},
    ]


def _way(goal: Predicate) -> dict[str, Any]:
    """What measures the way to a goal over one object, or over an object and a place."""
    moved = goal.roles[0]
    if len(goal.roles) > 1:
        return _distance(moved, goal.roles[1])
    if goal.predicate in _JOINTED:
        return {"term": "joint_fraction", "roles": [moved]}
    if goal.predicate == "lifted":
        return {"term": "height", "roles": [moved]}
    return _distance(GRIPPER, moved)


def _distance(one: str, other: str) -> dict[str, Any]:
    return {"term": "distance", "roles": [one, other], "scale": ACROSS}
