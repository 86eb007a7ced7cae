"""What happened in an episode, step by step: touches, grasps, drops, stages, the end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from coda_envs import predicates
from coda_envs.family import TaskFamily
from coda_envs.text2potential.evaluate import compile_potential
from coda_envs.view import View
from coda_trainer.episode import Episode

#: A grasp that ends with the object this far above where it stood is a drop (m).
DROP = 0.02
#: Longest table of events: an episode of restless fingers has hundreds.
MAX_EVENTS = 40


@dataclass(frozen=True)
class Event:
    """Something that happened at ``step`` (0 is the start): ``kind`` of it, to the object in
    ``role`` (empty: to none), in words."""

    step: int
    kind: str
    role: str
    text: str

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {"step": self.step, "kind": self.kind, "role": self.role, "text": self.text}


def episode_events(episode: Episode, family: TaskFamily) -> list[Event]:
    """The episode's events in order, the end last; at most ``MAX_EVENTS``, later ones first to go.

    Kinds: ``touch`` and ``loss`` of a pad's first and last contact of a stretch, ``grasp``,
    ``release``, ``drop``, ``stage`` (a stage was done for the first time), ``undone`` (the goal's
    way back), ``end``.
    """
    events = [*_stages(episode, family)]
    view = View(family.schema, np.asarray(episode.features, dtype=np.float64))
    for role in family.schema.roles:
        if view.of(role, "present")[0] > 0.5:
            events += _handling(view, role)
    events.sort(key=lambda e: (e.step, e.kind, e.role))
    return [*events[: MAX_EVENTS - 1], _end(episode)]


def _handling(view: View, role: str) -> list[Event]:
    touched = (view.of(role, "left") > 0.5) | (view.of(role, "right") > 0.5)
    held = predicates.grasped(view, role)
    height = view.of(role, "z")
    lowest = float(height[0])
    found = [Event(s, "touch", role, f"a finger touches the {role}") for s in _starts(touched)]
    found += [Event(s, "grasp", role, f"both fingers hold the {role}") for s in _starts(held)]
    for step in _starts(~held):
        if height[step] > lowest + DROP and not touched[step]:
            text = f"the hand lets the {role} go {height[step] - lowest:.2f} m up"
            found.append(Event(step, "drop", role, text))
        elif not touched[step]:
            found.append(Event(step, "release", role, f"the hand lets the {role} go"))
    return found


def _stages(episode: Episode, family: TaskFamily) -> list[Event]:
    potential = compile_potential(family.template, family.schema)
    stage = np.asarray(potential.stage(episode.features))
    names = family.template.stage_names
    best, found = int(stage[0]), []
    for step in range(1, len(stage)):
        now = int(stage[step])
        if now > best:
            done = ", ".join(names[best:now])
            found.append(Event(step, "stage", "", f"done: {done}"))
            best = now
        elif now < int(stage[step - 1]):
            text = f"back to {names[now]}" if now < len(names) else "back"
            found.append(Event(step, "undone", "", text))
    return found


def _end(episode: Episode) -> Event:
    why = "the task is solved" if episode.success else episode.failure or "the time is over"
    return Event(episode.length, "end", "", why)


def _starts(flag: np.ndarray) -> list[int]:
    """Steps at which a flag turns on; never the first state."""
    return [int(s) + 1 for s in np.flatnonzero(flag[1:] & ~flag[:-1])]
