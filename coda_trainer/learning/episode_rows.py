"""Storage of episodes as rows of arrays, one row a state, within a bound of bytes."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from coda_envs.errors import LearningError
from coda_envs.scene import Scene


@dataclass(frozen=True)
class Record:
    """What is kept of an episode beside its rows: where they are, and where it came from.

    The episode's T + 1 states lie in rows ``start`` to ``start + length`` (``length`` = T).
    ``stage``: the one that it entered where it started; empty: it started at the beginning.
    """

    start: int
    length: int
    scene: Scene
    seed: int
    source: str
    terminated: bool
    success: bool
    stage: str = ""


@dataclass(frozen=True)
class EpisodeIndex:
    """The records as arrays, one entry an episode, for drawing."""

    start: np.ndarray
    length: np.ndarray
    terminated: np.ndarray
    success: np.ndarray
    source: np.ndarray
    stage: np.ndarray


class EpisodeRows:
    """Columns of equal length; an episode fills consecutive rows, so that none wraps round.

    With a bound, the rows are a ring: where a new episode needs the room, the oldest ones go, each
    as a whole. Without one, nothing is ever dropped.
    """

    def __init__(self, max_bytes: int | None) -> None:
        """``max_bytes``: most that the columns may take, or None for no bound."""
        self.max_bytes = max_bytes
        self.columns: dict[str, np.ndarray] = {}
        self.records: deque[Record] = deque()
        self.head = 0
        self._index: EpisodeIndex | None = None

    @property
    def allocated(self) -> int:
        """Rows that are allocated."""
        return len(next(iter(self.columns.values()))) if self.columns else 0

    @property
    def nbytes(self) -> int:
        """Bytes that the columns take."""
        return sum(c.nbytes for c in self.columns.values())

    @property
    def index(self) -> EpisodeIndex:
        """Where the stored episodes lie; made again only after a change."""
        if self._index is None:
            self._index = EpisodeIndex(
                start=np.array([r.start for r in self.records], dtype=np.int64),
                length=np.array([r.length for r in self.records], dtype=np.int64),
                terminated=np.array([r.terminated for r in self.records], dtype=bool),
                success=np.array([r.success for r in self.records], dtype=bool),
                source=np.array([r.source for r in self.records], dtype=np.str_),
                stage=np.array([r.stage for r in self.records], dtype=np.str_),
            )
        return self._index

    def check(self, states: Mapping[str, np.ndarray], longest: int) -> None:
        """Whether episodes with such arrays, of at most ``longest`` states, can be stored.

        Raises :class:`LearningError` where the arrays differ in name, shape or type from those
        already stored, or where one episode is larger than the bound.
        """
        new = {n: (v.shape[1:], v.dtype) for n, v in states.items()}
        old = {n: (c.shape[1:], c.dtype) for n, c in self.columns.items()} or new
        for name in sorted(new.keys() | old.keys()):
            if new.get(name) != old.get(name):
                raise LearningError(
                    f"an episode's array {name!r} has shape and type {new.get(name)}.",
                    allowed=f"{old.get(name)}, as in the episodes before it",
                    remedy="one replay holds one family's observations: use another replay",
                )
        width = _row_bytes(states)
        if self.max_bytes is not None and longest * width > self.max_bytes:
            raise LearningError(
                f"an episode of {longest} states takes {longest * width} bytes.",
                allowed=f"at most the replay's {self.max_bytes} bytes",
                remedy="raise the replay's capacity",
            )

    def append(self, record: Record, states: Mapping[str, np.ndarray]) -> None:
        """Store an episode that passed :meth:`check`: ``states[name] [T+1, ...]``.

        The record's ``start`` is set here.
        """
        rows = record.length + 1
        for name, values in states.items():
            if name not in self.columns:
                self.columns[name] = np.zeros((0, *values.shape[1:]), values.dtype)
        start = self._make_room(rows)
        for name, values in states.items():
            self.columns[name][start : start + rows] = values
        self.head = start + rows
        self.records.append(replace(record, start=start))
        self._index = None

    def restore(
        self, head: int, records: Iterable[Record], columns: Mapping[str, np.ndarray]
    ) -> None:
        """Take over what a file holds. Raises :class:`ValueError` where its parts disagree."""
        self.head = head
        self.records = deque(records)
        self.columns = dict(columns)
        self._index = None
        lengths = {len(c) for c in self.columns.values()}
        ends = [r.start + r.length + 1 for r in self.records]
        inside = all(r.start >= 0 and r.length >= 1 for r in self.records)
        if len(lengths) > 1 or not inside or max([self.head, *ends]) > self.allocated:
            raise ValueError("records and rows disagree")

    def _make_room(self, rows: int) -> int:
        """First of ``rows`` free rows."""
        limit = None if self.max_bytes is None else self.max_bytes // _row_bytes(self.columns)
        need = self.head + rows
        if need > self.allocated and self.allocated != limit:
            size = max(need, 2 * self.allocated)
            self._grow(size if limit is None else min(size, limit))
        start = self.head if need <= self.allocated else 0
        # The oldest go first, up to the last one that is in the way.
        in_the_way = [
            i
            for i, r in enumerate(self.records)
            if r.start < start + rows and start < r.start + r.length + 1
        ]
        for _ in range(in_the_way[-1] + 1 if in_the_way else 0):
            self.records.popleft()
        return start

    def _grow(self, rows: int) -> None:
        for name, column in self.columns.items():
            # Zeros, not whatever memory holds: the same history must give the same file.
            larger = np.zeros((rows, *column.shape[1:]), column.dtype)
            larger[: len(column)] = column
            self.columns[name] = larger


def _row_bytes(columns: Mapping[str, np.ndarray]) -> int:
    return sum(c.itemsize * math.prod(c.shape[1:]) for c in columns.values())
