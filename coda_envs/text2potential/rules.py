"""Rules of the deterministic compiler: what a diagnosed factor asks to be measured, and when.

A rule speaks of a factor by whom it belongs to, seen from what a stage does (the object that is
moved, the place it goes to, another object, what surrounds them, or the task), and by its name.
No rule knows a family.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from coda_envs.programs.diagnosis import Direction
from coda_envs.programs.potential import Term, TermName
from coda_envs.text2potential.acts import Act, Phase
from coda_envs.text2potential.terms import GRIPPER

#: ``bystander``: another object of the same kind, a ``distractor_…``. ``surroundings``: a role that
#: no stage names and that is no distractor: the cabinet of a drawer, the fillers of a container.
Owner = Literal["moved", "place", "bystander", "surroundings", "task"]
Slot = Literal["gripper", "moved", "place"]
EVERY: tuple[Direction, ...] = ("high", "low", "other")
BYSTANDER = "distractor"


@dataclass(frozen=True)
class Rule:
    """Factors named ``fields`` of ``owner`` → a term in the stages that have one of ``phases``.

    ``keep``: the term is 1 already where the phase begins, if all is well, and shall stay so. Then
    half of the stage's progress p is paid as far as the term t holds, p·(1 + t)/2: in a mean it
    would be a gift for entering the stage, which every instant outside takes back.
    """

    owner: Owner
    fields: tuple[str, ...]
    phases: tuple[Phase, ...]
    term: TermName
    slots: tuple[Slot, ...]
    scale: float | None = None
    directions: tuple[Direction, ...] = EVERY
    keep: bool = False


@dataclass(frozen=True)
class Addition:
    """A term that a rule adds to a stage, and whether it is one to keep (see :class:`Rule`)."""

    term: Term
    keep: bool


RULES: tuple[Rule, ...] = (
    # Where the object, or its handle, is: get there exactly.
    Rule("moved", ("x", "y", "ajar", "opening", "offset"), ("reach",),
         "distance", ("gripper", "moved"), 0.40),
    Rule("moved", ("x", "y", "ajar", "offset"), ("hold",),
         "distance", ("gripper", "moved"), 0.03),
    # How it is turned or shaped: turn the hand before closing it.
    Rule("moved", ("yaw", "shape", "size", "handle"), ("reach", "hold"),
         "alignment", ("moved",), keep=True),
    # A wide object leaves little room between the fingers, a narrow or low one little to hold.
    Rule("moved", ("size", "height", "handle"), ("hold",),
         "distance", ("gripper", "moved"), 0.03),
    # Heavy or slippery: hold it at its middle, and see that it does not turn in the hand.
    Rule("moved", ("mass", "friction", "damping"), ("hold",),
         "distance", ("gripper", "moved"), 0.03),
    Rule("moved", ("mass", "friction"), ("lift", "carry"), "upright", ("moved",), keep=True),
    # A part that resists, or moves far: stay with its handle all the way.
    Rule("moved", ("mass", "friction", "damping", "travel"), ("operate",),
         "distance", ("gripper", "moved"), 0.10, keep=True),
    # A tall object: carry it higher.
    Rule("moved", ("height",), ("carry",), "height", ("moved", "place"), 0.12, ("high",)),
    # Where the place is and how it is turned, and how much room it leaves.
    Rule("place", ("x", "y", "yaw", "ratio"), ("carry",), "distance", ("moved", "place"), 0.15),
    Rule("place", ("x", "y", "yaw", "ratio", "size", "clearance"), ("settle",),
         "distance", ("moved", "place"), 0.04),
    # Walls, a tall base: carry it above them.
    Rule("place", ("rim", "height"), ("carry",),
         "height", ("moved", "place"), 0.12, ("high",)),
    # A tight or a deep hole: straight down to its floor.
    Rule("place", ("clearance", "depth"), ("settle",), "upright", ("moved",), 0.50, keep=True),
    Rule("place", ("depth",), ("settle",), "insertion_depth", ("moved", "place")),
    # A cover that is high, heavy or stiff: get to its knob or handle, and stay near.
    Rule("moved", ("opening", "knob", "mass", "stiffness"), ("clear",),
         "distance", ("gripper", "moved"), 0.10),
    # What is covered stands elsewhere or turned: so does its cover's handle.
    Rule("place", ("x", "y", "yaw"), ("clear",), "distance", ("gripper", "moved"), 0.10),
    Rule("place", ("yaw",), ("clear",), "alignment", ("moved",), keep=True),
    # What carries the object: where that stands and how it is turned, the object is.
    Rule("surroundings", ("x", "y", "width", "height"), ("reach",),
         "distance", ("gripper", "moved"), 0.40),
    Rule("surroundings", ("yaw",), ("reach", "hold"), "alignment", ("moved",), keep=True),
    # What lies in the place already: come in from above, in the middle.
    Rule("surroundings", ("bearing", "size"), ("carry",), "height", ("moved", "place"), 0.12),
    Rule("surroundings", ("bearing", "size"), ("settle",), "distance", ("moved", "place"), 0.04),
    # Others in the way: come in turned as the object is, carry it over them.
    Rule("bystander", ("x", "y", "yaw", "size", "shape"), ("reach", "hold"),
         "alignment", ("moved",), keep=True),
    Rule("bystander", ("x", "y", "yaw", "size", "shape"), ("carry",), "height", ("moved",), 0.12),
    Rule("bystander", ("ajar", "handle"), ("reach",), "distance", ("gripper", "moved"), 0.40),
    # Choices of the task: which place, how many others, which of the parts.
    Rule("task", ("receptacle", "container"), ("carry",), "height", ("moved", "place"), 0.12),
    Rule("task", ("distractors", "fillers"), ("carry",), "height", ("moved",), 0.12),
    Rule("task", ("kind",), ("settle",), "distance", ("moved", "place"), 0.04),
    Rule("task", ("furniture", "drawers", "drawer", "door"), ("reach",),
         "distance", ("gripper", "moved"), 0.40),
)  # fmt: skip


def additions(
    acts: tuple[Act, ...], named: frozenset[str], factor: str, direction: Direction
) -> Iterator[Addition]:
    """What the rules add to a stage with these acts for a diagnosed factor.

    ``named``: the roles that any stage of the program moves or goes to. A factor of one of them
    that this stage has nothing to do with adds none.
    """
    for act in acts:
        roles = {"gripper": GRIPPER, "moved": act.moved, "place": act.place}
        owner, field = _owner(factor, act, named), factor.rpartition(".")[2]
        for rule in RULES:
            fits = rule.owner == owner and field in rule.fields and direction in rule.directions
            names = tuple(roles[slot] for slot in rule.slots)
            if fits and act.phase in rule.phases and all(names):
                term = Term(term=rule.term, roles=names, scale=rule.scale)
                yield Addition(term, rule.keep)


def _owner(factor: str, act: Act, named: frozenset[str]) -> Owner | None:
    """Whom a factor path such as ``spatial.target.x`` or ``task.distractors`` belongs to."""
    parts = factor.split(".")
    if len(parts) < 3:
        return "task"
    role = parts[1]
    if role == act.moved:
        return "moved"
    if role == act.place:
        return "place"
    if role in named:
        return None
    return "bystander" if role.startswith(BYSTANDER) else "surroundings"
