"""What episodes say about a potential: how far they got, how long it took, what Φ told of the end.

Φ is 1 in the last state of every success, so that any potential would tell successes from failures
at the end. Whether it is of use is seen before: with H three quarters of the successes' median
length, an episode's score is the mean of Φ over its first H states, its last state never among
them. The same span for all: neither the end nor a failure's longer life gives the outcome away.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol

import numpy as np

from coda_envs.text2potential.evaluate import Potential

#: Share of the successes' median length over which Φ is judged.
SPAN = 0.75


class Played(Protocol):
    """An episode as far as it matters here: ``features [T+1, F]`` and how it ended."""

    @property
    def features(self) -> np.ndarray:
        """State features from the start to the end."""

    @property
    def success(self) -> bool:
        """Whether it ended in success."""


@dataclass(frozen=True)
class StageEvidence:
    """What the episodes did in one stage.

    ``reached``: share of all that ever got it done; ``passed``: of those that got the stages before
    it done (None where none did); ``dwell``: mean number of steps spent in it, by outcome (None
    where no episode had that outcome).
    """

    name: str
    reached: float
    passed: float | None
    dwell_success: float | None
    dwell_failure: float | None

    def to_dict(self) -> dict[str, Any]:
        """Plain data, ready for JSON."""
        return asdict(self)


def stage_evidence(potential: Potential, episodes: Sequence[Played]) -> tuple[StageEvidence, ...]:
    """Reach rate and dwell of every stage; at least one episode."""
    names = potential.stage_names
    stages = [potential.stage(episode.features) for episode in episodes]
    # One past the latest stage that each got done; each stage's steps, but for the last state.
    done = np.array([stage.max() for stage in stages])
    steps = np.array([np.bincount(s[:-1], minlength=len(names) + 1) for s in stages])
    success = outcomes(episodes)

    def dwell(rows: np.ndarray, stage: int) -> float | None:
        return float(steps[rows, stage].mean()) if rows.any() else None

    found = []
    for k, name in enumerate(names):
        arrived = int((done >= k).sum())
        found.append(
            StageEvidence(
                name=name,
                reached=float((done > k).mean()),
                passed=float((done > k).sum() / arrived) if arrived else None,
                dwell_success=dwell(success, k),
                dwell_failure=dwell(~success, k),
            )
        )
    return tuple(found)


def outcomes(episodes: Sequence[Played]) -> np.ndarray:
    """Success of each episode: bool ``[n]``."""
    return np.array([episode.success for episode in episodes], dtype=bool)


def span(episodes: Sequence[Played]) -> int:
    """H: how many of the first states Φ is judged on. Needs a success."""
    lengths = [len(e.features) - 1 for e in episodes if e.success]
    return max(round(SPAN * float(np.median(lengths))), 1)


def scores(potential: Potential, episodes: Sequence[Played], states: int) -> np.ndarray:
    """Mean Φ ``[n]`` of each episode over its first ``states`` states, without its last."""
    kept = [episode.features[: min(states, len(episode.features) - 1)] for episode in episodes]
    ends = np.cumsum([0, *(len(rows) for rows in kept)])
    total = np.add.reduceat(potential(np.concatenate(kept)), ends[:-1])
    return np.asarray(total / np.diff(ends))


def wins(values: np.ndarray, success: np.ndarray) -> np.ndarray:
    """For each success and failure, whether the success has the higher value: ``[S, F]`` of 0, ½
    (equal) and 1. Its mean is the area under the ROC curve (Mann and Whitney's U / SF).
    """
    # What differs by rounding only is equal.
    gap = np.round(values[success][:, None] - values[~success][None, :], 9)
    return np.asarray(0.5 * (np.sign(gap) + 1.0))
