"""Comparing two memories: which difficulties one knows and the other lacks, and how they stand."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from coda_trainer.memory.modes import Mode, belong_together, overlap
from coda_trainer.memory.store import MemoryStore
from coda_trainer.memory.view import find_memory, shown_memory


def compare(first: Path | str, second: Path | str) -> dict[str, Any]:
    """The modes of two memories, run folders or files, as plain data.

    ``both``: pairs of modes that are one difficulty (the same id, else equal signature and
    overlapping values, the largest overlap first); ``only_first``, ``only_second``: the others.
    Raises :class:`RunError` where one of them is no memory.
    """
    ours, theirs = _modes(first), _modes(second)
    pairs = _pairs(ours, theirs)
    paired = {m.id for pair in pairs for m in pair[:1]}, {m.id for pair in pairs for m in pair[1:]}
    return {
        "first": shown_memory(first),
        "second": shown_memory(second),
        "both": [
            {
                **_brief(a),
                "label_second": b.label,
                "state_second": b.state,
                "success_second": b.success,
                "overlap": overlap(a, b),
            }
            for a, b in pairs
        ],
        "only_first": [_brief(m) for m in ours if m.id not in paired[0]],
        "only_second": [_brief(m) for m in theirs if m.id not in paired[1]],
    }


def _pairs(ours: Sequence[Mode], theirs: Sequence[Mode]) -> list[tuple[Mode, Mode]]:
    alike = [
        (a.id != b.id, -overlap(a, b), a.id, b.id, a, b)
        for a in ours
        for b in theirs
        if a.id == b.id or belong_together(a, b)
    ]
    taken: tuple[set[str], set[str]] = set(), set()
    pairs = []
    for _, _, one, two, a, b in sorted(alike, key=lambda row: row[:4]):
        if one not in taken[0] and two not in taken[1]:
            taken[0].add(one)
            taken[1].add(two)
            pairs.append((a, b))
    return pairs


def _modes(path: Path | str) -> list[Mode]:
    with MemoryStore.open_read_only(find_memory(path)) as memory:
        return memory.modes()


def _brief(mode: Mode) -> dict[str, Any]:
    return {
        "id": mode.id,
        "family": mode.family,
        "stage": mode.stage,
        "label": mode.label,
        "state": mode.state,
        "success": mode.success,
    }
