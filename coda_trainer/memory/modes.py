"""Difficulty modes: confirmed diagnoses that share a signature, and the rule that merges them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from itertools import combinations
from typing import Any, Literal

from pydantic import Field, StrictInt, StrictStr, model_validator

from coda_envs.programs.base import ProgramData
from coda_envs.programs.diagnosis import Diagnosis, Direction

State = Literal["candidate", "validated", "selected", "retained", "removed"]
Reason = Literal["mastered", "stalled", "refuted", "infeasible"]
Choice = StrictInt | StrictStr

#: (stage, failed predicate, factor path, direction, role), as :attr:`Diagnosis.signature` gives it.
Signature = tuple[str, str, str, str, str]

#: Two modes of equal signature are one where their intervals overlap by this much (IoU, Jaccard).
MERGE_OVERLAP = 0.3

#: How far a mode has come; of two that merge, the one further along stays.
_RANK: dict[State, int] = {
    "candidate": 0,
    "validated": 1,
    "selected": 2,
    "retained": 3,
    "removed": 4,
}


class Probe(ProgramData):
    """One fixed evaluation episode of a mode: a stored scene, and the seed it is run under."""

    scene_id: str
    seed: int = Field(ge=0)


class Event(ProgramData):
    """One line of a mode's history: what happened, and the state it led to."""

    round: int = Field(ge=0)
    event: str
    state: State
    note: str = ""


class Tombstone(ProgramData):
    """What a removed mode leaves behind. ``success`` is the posterior mean of its success on its
    probes when it was removed; None where it was not measured."""

    round: int = Field(ge=0)
    reason: Reason
    success: float | None = Field(default=None, ge=0, le=1)


class Mode(ProgramData):
    """A difficulty mode of one family, frozen; :mod:`coda_trainer.memory.lifecycle` moves it on.

    Its difficulty lies in ``interval`` (low, high; the factor's unit) or, for a discrete factor,
    in ``choices``. ``omega_hash`` and ``phi_hash`` name its programs in the memory (empty: none
    yet). ``probes`` are the mode's own fixed episodes, ``controls`` the matched ones without its
    difficulty. ``magnitude`` in (0, 1] is the difficulty at which its scenes are generated.
    """

    id: str = Field(pattern="^[0-9a-f]{12}$")
    family: str = Field(min_length=1)
    stage: str = Field(min_length=1)
    failed_predicate: str
    factor: str = Field(min_length=1)
    direction: Direction
    role: str = ""
    interval: tuple[float, float] | None = None
    choices: tuple[Choice, ...] = ()
    round_created: int = Field(ge=0)
    state: State = "candidate"
    magnitude: float = Field(default=1.0, gt=0, le=1)
    reductions: int = Field(default=0, ge=0)
    omega_hash: str = ""
    phi_hash: str = ""
    probes: tuple[Probe, ...] = ()
    controls: tuple[Probe, ...] = ()
    #: Measurements in a row that spoke for mastery, and rounds in a row that spoke for a stall.
    mastered_count: int = Field(default=0, ge=0)
    stalled_count: int = Field(default=0, ge=0)
    #: The round of the last measurement, None before the first.
    round_measured: int | None = Field(default=None, ge=0)
    #: Posterior mean of success on the probes at the last measurement.
    success: float | None = Field(default=None, ge=0, le=1)
    tombstone: Tombstone | None = None
    #: Ids of modes that were merged into this one.
    merged: tuple[str, ...] = ()
    history: tuple[Event, ...] = ()

    @model_validator(mode="after")
    def _consistent(self) -> Mode:
        if (self.interval is None) == (not self.choices):
            raise ValueError("a mode has an interval, or choices")
        if self.interval is not None and self.interval[0] > self.interval[1]:
            raise ValueError("the interval's low end is above its high end")
        if len(set(self.choices)) != len(self.choices):
            raise ValueError("the choices repeat")
        if (self.state == "removed") != (self.tombstone is not None):
            raise ValueError("a removed mode has a tombstone, and no other mode has one")
        return self

    @property
    def signature(self) -> Signature:
        """What diagnoses of this mode agree in."""
        return (self.stage, self.failed_predicate, self.factor, self.direction, self.role)

    @property
    def label(self) -> str:
        """The difficulty in a few words: ``attributes.target.size high [0.027, 0.031]``."""
        if self.interval is not None:
            where = f"[{self.interval[0]:.4g}, {self.interval[1]:.4g}]"
        else:
            where = "{" + ", ".join(map(str, self.choices)) + "}"
        return f"{self.factor} {self.direction} {where}"

    def replaced(self, **changes: Any) -> Mode:
        """The same mode with some fields changed, checked again."""
        return Mode(**{**dict(self), **changes})


def mode_of(
    diagnosis: Diagnosis,
    round: int,
    *,
    interval: tuple[float, float] | None = None,
    choices: Sequence[int | str] = (),
) -> Mode:
    """A candidate mode from a diagnosis and where its factor is difficult.

    Give ``interval`` for a number, ``choices`` for a discrete factor. The id is the first 12 hex
    digits of the sha256 of family, signature and interval: the same claim has the same id in
    every run. Raises ``pydantic.ValidationError`` (a ``ValueError``) for an abstention or where
    both or neither are given.
    """
    ordered = _ordered(choices)
    ends = None if interval is None else [float(end) + 0.0 for end in interval]
    named = [diagnosis.family, list(diagnosis.signature), ends, list(ordered)]
    text = json.dumps(named, separators=(",", ":"), allow_nan=False)
    return Mode(
        id=hashlib.sha256(text.encode()).hexdigest()[:12],
        family=diagnosis.family,
        stage=diagnosis.stage,
        failed_predicate=diagnosis.failed_predicate,
        factor=diagnosis.factor,
        direction=diagnosis.direction,
        role=diagnosis.role,
        interval=None if ends is None else (ends[0], ends[1]),
        choices=ordered,
        round_created=round,
        history=(Event(round=round, event="created", state="candidate"),),
    )


def overlap(a: Mode, b: Mode) -> float:
    """Intersection over union of two modes' intervals, or the Jaccard index of their choices.

    In [0, 1] and symmetric. Two intervals of no length overlap fully where they are equal; an
    interval and choices do not overlap.
    """
    if a.interval is None or b.interval is None:
        if a.interval is not b.interval:
            return 0.0
        return len({*a.choices} & {*b.choices}) / len({*a.choices} | {*b.choices})
    shared = min(a.interval[1], b.interval[1]) - max(a.interval[0], b.interval[0])
    union = max(a.interval[1], b.interval[1]) - min(a.interval[0], b.interval[0])
    if union == 0.0:
        return 1.0
    return max(shared, 0.0) / union


def belong_together(a: Mode, b: Mode) -> bool:
    """Whether two modes are one: same family, equal signature, overlap of at least 0.3."""
    return a.family == b.family and a.signature == b.signature and overlap(a, b) >= MERGE_OVERLAP


def merge(a: Mode, b: Mode, round: int) -> Mode:
    """The one mode that two which belong together are, whichever is named first.

    The mode further along its lifecycle stays (a removed one furthest, so that a tombstone keeps
    swallowing the diagnoses it was made for), else the older one; it keeps its id, programs,
    probes and history. The interval becomes the union.
    """
    kept, other = sorted((a, b), key=lambda m: (-_RANK[m.state], m.round_created, m.id, m.hash))
    interval = kept.interval
    if interval is not None and other.interval is not None:
        interval = (
            min(interval[0], other.interval[0]),
            max(interval[1], other.interval[1]),
        )
    if kept.id == other.id and kept.interval == interval and {*other.choices} <= {*kept.choices}:
        return kept
    gone = {*kept.merged, *other.merged, other.id} - {kept.id}
    event = Event(round=round, event="merged", state=kept.state, note=f"with {other.label}")
    return kept.replaced(
        interval=interval,
        choices=_ordered({*kept.choices, *other.choices}),
        merged=tuple(sorted(gone)),
        history=(*kept.history, event),
    )


def merge_all(modes: Iterable[Mode], round: int) -> tuple[Mode, ...]:
    """Merge until no two modes belong together, the largest overlap first.

    The result depends on the set of modes, not on their order; it is sorted by
    (round created, id).
    """
    groups: dict[tuple[str, Signature], list[Mode]] = {}
    for mode in sorted(modes, key=lambda m: (m.id, m.hash)):
        groups.setdefault((mode.family, mode.signature), []).append(mode)
    merged: list[Mode] = []
    for group in groups.values():
        while True:
            pairs = [(overlap(a, b), i, j) for (i, a), (j, b) in combinations(enumerate(group), 2)]
            best = max(pairs, key=lambda p: (p[0], -p[1], -p[2]), default=(0.0, 0, 0))
            if best[0] < MERGE_OVERLAP:
                break
            one = merge(group[best[1]], group[best[2]], round)
            rest = [m for k, m in enumerate(group) if k not in best[1:]]
            group = sorted([*rest, one], key=lambda m: (m.id, m.hash))
        merged.extend(group)
    return tuple(sorted(merged, key=lambda m: (m.round_created, m.id)))


def _ordered(choices: Iterable[int | str]) -> tuple[int | str, ...]:
    """Distinct choices in an order of their own: numbers first, then words."""
    return tuple(sorted(set(choices), key=lambda c: (isinstance(c, str), c)))
