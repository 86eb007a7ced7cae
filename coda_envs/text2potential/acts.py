"""What a stage asks the robot to do, read from its gate: which phases, of which object, to where.

Nothing here knows a family: predicates say which of their roles is moved and which is the place
it goes to, and the order of the stages says what is new in each.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from coda_envs.programs.potential import AllOf, Gate, PotentialProgram, Predicate

#: ``clear``: take a cover off its place; ``operate``: move a part on its joint; ``leave``: let go
#: of it. The others are those of an object that is carried to a place.
Phase = Literal["reach", "hold", "lift", "carry", "settle", "clear", "operate", "leave"]

#: What has to be done with an object before a phase of it. A stage whose object no earlier stage
#: has brought that far takes those phases in.
BEFORE: dict[Phase, tuple[Phase, ...]] = {
    "reach": (),
    "hold": ("reach",),
    "lift": ("reach", "hold"),
    "carry": ("reach", "hold", "lift"),
    "settle": ("reach", "hold", "lift", "carry"),
    # Pushed, pulled or lifted aside: the hand is free to let go of it before the way is clear.
    "clear": ("reach",),
    "operate": ("reach", "hold"),
    "leave": ("reach", "hold", "operate"),
}

#: Phase that makes a predicate true, and the positions of the moved object and of its place among
#: its roles. Predicates that are not listed (``released``, ``stable``) tell of no phase.
_MEANS: dict[str, tuple[Phase, int, int | None]] = {
    "near": ("reach", 0, None),
    "grasped": ("hold", 0, None),
    "around": ("hold", 0, None),
    "engaged": ("hold", 0, None),
    "lifted": ("lift", 0, None),
    "over": ("carry", 0, 1),
    "above": ("carry", 0, 1),
    "at": ("settle", 0, 1),
    "within": ("settle", 0, 1),
    "placed": ("settle", 0, 1),
    "inside": ("settle", 0, 1),
    "on_top": ("settle", 0, 1),
    "stacked": ("settle", 0, 1),
    "inserted": ("settle", 0, 1),
    "assembled": ("settle", 2, 0),
    "uncovered": ("clear", 1, 0),
    "at_stop": ("operate", 0, None),
    "opened": ("leave", 0, None),
    "shut": ("leave", 0, None),
    "operated": ("leave", 0, None),
}


@dataclass(frozen=True, order=True)
class Act:
    """A phase of the object ``moved`` on its way to the role ``place`` ("" where there is none)."""

    phase: Phase
    moved: str
    place: str = ""


def stage_acts(program: PotentialProgram) -> tuple[tuple[Act, ...], ...]:
    """The acts that each stage adds to those before it, sorted.

    A gate that repeats what an earlier stage has done (the lid still off, the first block still in
    place) repeats it as a condition, not as an act.
    """
    done: set[tuple[str, Phase]] = set()
    found = []
    for stage in program.stages:
        gate = [act for p in predicates(stage.gate) if (act := _act(p)) is not None]
        own = [act for act in gate if (act.moved, act.phase) not in done]
        acts = set(own)
        for act in own:
            for phase in BEFORE[act.phase]:
                if (act.moved, phase) not in done:
                    acts.add(Act(phase, act.moved, act.place))
        done |= {(act.moved, act.phase) for act in acts}
        found.append(tuple(sorted(acts)))
    return tuple(found)


def predicates(gate: Gate) -> Iterator[Predicate]:
    """Every predicate of a gate, from left to right."""
    if isinstance(gate, Predicate):
        yield gate
        return
    for part in gate.all if isinstance(gate, AllOf) else gate.any:
        yield from predicates(part)


def _act(predicate: Predicate) -> Act | None:
    means = _MEANS.get(predicate.predicate)
    if means is None:
        return None
    phase, moved, place = means
    roles = predicate.roles
    # A gate that does not resolve is refused where it is compiled, with its name.
    if max(moved, place or 0) >= len(roles):
        return None
    return Act(phase, roles[moved], "" if place is None else roles[place])
