"""Annotations: what people say of failed episodes, kept line by line, and how far two agree."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from coda_envs.errors import CodaError
from coda_trainer.strict_json import dumps

#: What an annotator says who cannot tell.
UNSURE = ""
#: Resamples of episodes for an interval.
RESAMPLES = 2000
#: Longest line that is read, and longest text in it.
MAX_LINE, MAX_TEXT = 10_000, 200


@dataclass(frozen=True)
class Label:
    """What ``annotator`` said of the episode in ``scene_id`` with ``seed``: the ``stage`` that was
    not done and the ``factor`` that made it fail, each empty where they could not tell."""

    annotator: str
    scene_id: str
    seed: int
    stage: str
    factor: str

    @property
    def episode(self) -> tuple[str, int]:
        """Which episode it is about."""
        return self.scene_id, self.seed


@dataclass(frozen=True)
class Agreement:
    """Cohen's kappa of two annotators over ``n`` episodes, with a bootstrap 95% interval, and the
    share of equal answers. ``kappa`` is None where both always gave one and the same answer."""

    n: int
    equal: float
    kappa: float | None
    interval95: tuple[float, float] | None

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)


def append_label(path: Path, label: Label) -> None:
    """Add a line to the file, on disk when this returns: a kill loses no answer that was given.

    Half a line that a kill left is taken away first.
    """
    with path.open("a+b") as file:
        file.seek(0)
        file.truncate(file.read().rfind(b"\n") + 1)
        file.write((dumps(asdict(label)) + "\n").encode())
        file.flush()
        os.fsync(file.fileno())


def read_labels(path: Path) -> dict[tuple[str, int], Label]:
    """The labels of a file by episode, the last one where an episode has several.

    A last line without its end, which a kill may have left, is passed over. Raises
    :class:`CodaError` naming the line that is no label.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise CodaError(
            f"{path} cannot be read: {why}.", remedy="write one with `coda annotate label`"
        ) from error
    whole, _, _ = text.rpartition("\n")
    found = {}
    for number, line in enumerate(whole.split("\n") if whole else [], start=1):
        label = _label(line, f"{path}, line {number}")
        found[label.episode] = label
    return found


def agreement(
    one: Mapping[tuple[str, int], Label], two: Mapping[tuple[str, int], Label]
) -> dict[str, Agreement]:
    """How far two annotators agree on ``stage`` and ``factor``, over the episodes that both saw.

    Not being able to tell is an answer like any other. Raises :class:`CodaError` where no episode
    is in both.
    """
    shared = sorted(one.keys() & two.keys())
    if not shared:
        raise CodaError(
            "no episode has a label from both.",
            remedy="label the same episode file with both annotators",
        )
    return {
        what: _agreement(
            [getattr(one[e], what) for e in shared], [getattr(two[e], what) for e in shared]
        )
        for what in ("stage", "factor")
    }


def cohens_kappa(one: Sequence[str], two: Sequence[str]) -> float | None:
    """(p − e) / (1 − e), p the share of equal answers and e what chance gives annotators with these
    frequencies (Cohen 1960); None where e is 1."""
    n = len(one)
    first, second = Counter(one), Counter(two)
    chance = sum(first[k] * second[k] for k in first) / n**2
    if chance >= 1.0:
        return None
    equal = sum(a == b for a, b in zip(one, two, strict=True)) / n
    return (equal - chance) / (1 - chance)


def _agreement(one: Sequence[str], two: Sequence[str]) -> Agreement:
    n = len(one)
    equal = sum(a == b for a, b in zip(one, two, strict=True)) / n
    kappa = cohens_kappa(one, two)
    rows = np.random.default_rng(0).integers(n, size=(RESAMPLES, n))
    drawn = [cohens_kappa([one[i] for i in row], [two[i] for i in row]) for row in rows.tolist()]
    known = [k for k in drawn if k is not None]
    interval = None
    if kappa is not None and len(known) > RESAMPLES // 2:
        low, high = np.quantile(known, (0.025, 0.975)).tolist()
        interval = (low, high)
    return Agreement(n, equal, kappa, interval)


def _label(line: str, place: str) -> Label:
    try:
        if len(line) > MAX_LINE:
            raise ValueError(f"it has {len(line)} characters")
        data = json.loads(line)
        if not isinstance(data, dict) or set(data) != set(Label.__dataclass_fields__):
            raise ValueError(f"it has not the entries {', '.join(Label.__dataclass_fields__)}")
        texts = [data[name] for name in ("annotator", "scene_id", "stage", "factor")]
        if not all(isinstance(t, str) and len(t) <= MAX_TEXT for t in texts):
            raise ValueError("an entry is no short text")
        if type(data["seed"]) is not int:
            raise ValueError("its seed is no whole number")
    except (ValueError, RecursionError) as error:
        raise CodaError(f"{place} is no label: {error}.") from error
    return Label(**data)
