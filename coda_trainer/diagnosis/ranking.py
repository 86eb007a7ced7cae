"""Which factors set a failed scene apart from the scenes that succeed, and how surely.

For one stage, with F the scenes that failed there and S the scenes that succeeded, the evidence
that a factor explains a failure is a lower bound on

    log( share of F with a value like this one / share of S with a value like this one ),

1.5 standard errors under its estimate. "Like this one" is the same choice, or a number beyond some
threshold that this scene's value is beyond too: above the successes' middle, below it, or away
from it on either side. The best threshold counts, so that a value further out than every other is
not held to be a rarity of its own. The unit is the same for numbers and choices (nats of relative
risk), so they can be ranked together. The bound shrinks with few scenes; it needs no fitting.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from coda_envs.factor import ContinuousFactor, Value
from coda_envs.factors import FactorSpace
from coda_envs.programs.diagnosis import Direction

#: Standard errors that the bound lies under the estimate, and the weight of "none of these factors"
#: beside those of the factors, on the scale of relative risk minus one. Both chosen by simulation
#: over single, joint and absent causes among 20 innocent factors (256 episodes).
ERRORS = 1.5
NO_FACTOR = 1.0
#: A factor is judged on at least this many successes and failures that have it.
MIN_SUCCESSES = 12
MIN_FAILURES = 3

Values = Mapping[str, Value]


@dataclass(frozen=True)
class Suspect:
    """A factor that may explain a failure.

    ``evidence``: lower bound of the log relative risk (nats). ``confidence``: the share of its
    excess risk, exp(evidence) − 1, among those of all factors and of none.
    """

    factor: str
    direction: Direction
    evidence: float
    confidence: float


def middle_and_deviation(
    factor: ContinuousFactor, reference: np.ndarray, values: np.ndarray
) -> tuple[float, np.ndarray]:
    """The middle of ``reference [n]`` and how far ``values [m]`` stand from it, signed.

    The middle is the median; of an angle, the circular mean, with deviations the short way round.
    """
    if not factor.period:
        middle = float(np.median(reference))
        return middle, values - middle
    turn = 2 * np.pi / factor.period
    middle = float(np.angle(np.exp(1j * turn * reference).mean()) / turn)
    half = factor.period / 2
    return middle, (values - middle + half) % factor.period - half


def side(value: Value, middle: float) -> Direction:
    """On which side of ``middle`` a number lies in its range; angles are not turned for this."""
    return "high" if float(value) > middle else "low"


class StageRanking:
    """Factors ranked against one another for failures at one stage.

    ``failed``, ``succeeded``: the factor values of the scenes that failed at the stage, and of
    those that succeeded.
    """

    def __init__(
        self, space: FactorSpace, failed: Sequence[Values], succeeded: Sequence[Values]
    ) -> None:
        self._space = space
        self._failed = failed
        self._succeeded = succeeded

    def suspects(self, values: Values) -> list[Suspect]:
        """Every factor of a scene that is worth suspecting, the most likely first."""
        found: list[tuple[float, str, Direction]] = []
        for path in sorted(values):
            judged = self._tables.get(path)
            if judged is not None:
                evidence, direction = judged.look_up(values[path])
                if evidence > 0.0:
                    found.append((evidence, path, direction))
        found.sort(key=lambda f: (-f[0], f[1]))
        total = NO_FACTOR + sum(np.expm1(e) for e, _, _ in found)
        return [Suspect(p, d, e, float(np.expm1(e) / total)) for e, p, d in found]

    @cached_property
    def _tables(self) -> dict[str, _Numbers | _Choices]:
        tables: dict[str, _Numbers | _Choices] = {}
        for path, factor in self._space.by_path.items():
            failed = [v[path] for v in self._failed if path in v]
            succeeded = [v[path] for v in self._succeeded if path in v]
            if len(failed) < MIN_FAILURES or len(succeeded) < MIN_SUCCESSES:
                continue
            if isinstance(factor, ContinuousFactor):
                tables[path] = _Numbers(factor, failed, succeeded)
            else:
                tables[path] = _Choices(failed, succeeded)
        return tables


class _Choices:
    """Relative risk of each choice."""

    def __init__(self, failed: Sequence[Value], succeeded: Sequence[Value]) -> None:
        self._failed = list(failed)
        self._succeeded = list(succeeded)

    def look_up(self, value: Value) -> tuple[float, Direction]:
        hits = np.array([self._failed.count(value)]), np.array([self._succeeded.count(value)])
        bound = _log_risk(hits[0], len(self._failed), hits[1], len(self._succeeded))
        return float(bound[0]), "other"


class _Numbers:
    """Relative risk of the best tail that a value lies in, as a table over thresholds."""

    def __init__(
        self, factor: ContinuousFactor, failed: Sequence[Value], succeeded: Sequence[Value]
    ) -> None:
        self._factor = factor
        self._reference = np.array(succeeded, dtype=np.float64)
        self._middle, away_succeeded = middle_and_deviation(
            factor, self._reference, self._reference
        )
        away_failed = self._deviation(np.array(failed, dtype=np.float64))
        self._curves = [_tail_curve(view(away_failed), view(away_succeeded)) for view in _VIEWS]

    def _deviation(self, values: np.ndarray) -> np.ndarray:
        return middle_and_deviation(self._factor, self._reference, values)[1]

    def look_up(self, value: Value) -> tuple[float, Direction]:
        away = self._deviation(np.array([float(value)]))
        best = -np.inf
        for view, (thresholds, bounds) in zip(_VIEWS, self._curves, strict=True):
            reached = int(np.searchsorted(thresholds, view(away)[0], side="right"))
            if reached:
                best = max(best, float(bounds[reached - 1]))
        return best, side(value, self._middle)


def _high(away: np.ndarray) -> np.ndarray:
    return away


def _low(away: np.ndarray) -> np.ndarray:
    return -away


def _far(away: np.ndarray) -> np.ndarray:
    distance: np.ndarray = np.abs(away)
    return distance


#: How far a value is from the successes' middle: above, below, or on either side.
_VIEWS = (_high, _low, _far)


def _tail_curve(failed: np.ndarray, succeeded: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(thresholds ascending ``[k]``, best bound of the tails that begin at or before each)."""
    thresholds = np.unique(failed[failed > 0.0])
    in_failed = len(failed) - np.searchsorted(np.sort(failed), thresholds, side="left")
    in_succeeded = len(succeeded) - np.searchsorted(np.sort(succeeded), thresholds, side="left")
    bounds = _log_risk(in_failed, len(failed), in_succeeded, len(succeeded))
    # A tail that holds most successes says nothing about what is unusual.
    bounds = np.where(2 * in_succeeded <= len(succeeded), bounds, -np.inf)
    return thresholds, np.maximum.accumulate(bounds)


def _log_risk(
    in_failed: np.ndarray, failed: int, in_succeeded: np.ndarray, succeeded: int
) -> np.ndarray:
    """Log ratio of two shares, ``ERRORS`` standard errors under its estimate.

    Half a scene is added to every count (Walter 1975), so that an empty one has a finite error.
    """
    a, n, b, m = in_failed + 0.5, failed + 0.5, in_succeeded + 0.5, succeeded + 0.5
    error = np.sqrt(np.maximum(1 / a - 1 / n + 1 / b - 1 / m, 0.0))
    bound: np.ndarray = np.log(a / n) - np.log(b / m) - ERRORS * error
    return bound
