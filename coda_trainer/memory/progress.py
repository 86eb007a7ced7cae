"""Learning progress of a mode: posteriors of its success and of its paired change.

A mode has fixed probes, pairs of (scene, seed), run every round. Both runs of a probe, before and
after, start alike, so the change is judged on pairs: each pair is one of (fail, fail),
(fail, success), (success, fail), (success, success), and the four shares have a Dirichlet
posterior. The change is the share gained minus the share lost. Learning progress (LP) is the
change on the mode's probes minus the change on matched control scenes, which takes away what
would have come from training in general.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from scipy import special

from coda_envs.errors import RunError

#: A change of success of at least this size is material (design: P(|LP| > 0.05)).
MATERIAL = 0.05
#: Draws from the posterior: the standard error of a probability is at most 0.008.
DRAWS = 4000
#: Jeffreys' prior, for the Beta of success and the Dirichlet of the four kinds of pair.
PRIOR = 0.5


@dataclass(frozen=True)
class SuccessPosterior:
    """Beta posterior of a success rate from ``successes`` of ``trials``, under Jeffreys' prior.

    It is proper and inside (0, 1) for any counts, nought trials included.
    """

    successes: int
    trials: int

    def __post_init__(self) -> None:
        if not 0 <= self.successes <= self.trials:
            raise RunError(
                f"{self.successes} successes of {self.trials} trials.",
                allowed="0 ≤ successes ≤ trials",
            )

    @property
    def _ab(self) -> tuple[float, float]:
        return self.successes + PRIOR, self.trials - self.successes + PRIOR

    @property
    def mean(self) -> float:
        """Posterior mean of the success rate."""
        a, b = self._ab
        return a / (a + b)

    def lower_bound(self, level: float) -> float:
        """The rate that the true one exceeds with probability ``level``."""
        a, b = self._ab
        return float(special.betaincinv(a, b, 1.0 - level))


@dataclass(frozen=True)
class ProgressEstimate:
    """Posterior of LP: mean, central 90% interval, and ``p_material`` = P(|LP| > 0.05)."""

    mean: float
    low: float
    high: float
    p_material: float

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> ProgressEstimate:
        """What ``dataclasses.asdict`` gave. Raises :class:`RunError` where it is not that."""
        fields = ("mean", "low", "high", "p_material")
        if set(data) != set(fields) or not all(_is_number(data[f]) for f in fields):
            raise RunError(
                f"a progress estimate holds {dict(data)!r}.", allowed=f"numbers {', '.join(fields)}"
            )
        return cls(**{f: float(data[f]) for f in fields})


@dataclass(frozen=True)
class Measurement:
    """Outcomes of a mode's probes and of its matched control scenes at the end of a round.

    ``probes [n]`` and ``controls [m]`` are successes in the order of the mode's own lists.
    ``progress`` is None at a mode's first measurement.
    """

    probes: tuple[bool, ...]
    controls: tuple[bool, ...]
    progress: ProgressEstimate | None = None

    @property
    def successes(self) -> int:
        """Successful probes."""
        return sum(self.probes)

    @property
    def trials(self) -> int:
        """Probes run."""
        return len(self.probes)

    @property
    def success(self) -> SuccessPosterior:
        """Posterior of the success rate on the probes."""
        return SuccessPosterior(self.successes, self.trials)

    def to_dict(self) -> dict[str, Any]:
        """Plain data; outcomes are kept, so that the next round can pair with them."""
        return {
            "probes": list(self.probes),
            "controls": list(self.controls),
            "progress": None if self.progress is None else asdict(self.progress),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Measurement:
        """What :meth:`to_dict` gave. Raises :class:`RunError` where it is not that."""
        if set(data) != {"probes", "controls", "progress"}:
            raise RunError(
                f"a measurement holds the entries {sorted(data)}.",
                allowed="probes, controls and progress",
            )
        for name in ("probes", "controls"):
            outcomes = data[name]
            if not isinstance(outcomes, list) or not all(isinstance(o, bool) for o in outcomes):
                raise RunError(f"{name} of a measurement is not a list of true and false.")
        progress = data["progress"]
        if progress is not None and not isinstance(progress, Mapping):
            raise RunError("progress of a measurement is not a mapping.")
        return cls(
            tuple(data["probes"]),
            tuple(data["controls"]),
            None if progress is None else ProgressEstimate.from_dict(progress),
        )


def measurement(
    probes: Sequence[bool],
    controls: Sequence[bool],
    before: Measurement | None,
    rng: np.random.Generator,
) -> Measurement:
    """This round's outcomes, with the progress since ``before`` (None: the first measurement).

    ``probes [n]`` and ``controls [m]`` are paired with ``before``'s by position. Where the mode
    has no control scenes (m = 0), nothing is subtracted. Raises :class:`RunError` where there are
    no probes or the numbers of before and now differ.
    """
    now = Measurement(tuple(map(bool, probes)), tuple(map(bool, controls)))
    if not now.probes:
        raise RunError("a mode was measured without probes.", allowed="at least one probe")
    if before is None:
        return now
    change = _change(before.probes, now.probes, rng, "probes")
    if now.controls or before.controls:
        change = change - _change(before.controls, now.controls, rng, "control scenes")
    low, high = np.quantile(change, (0.05, 0.95))
    estimate = ProgressEstimate(
        mean=float(change.mean()),
        low=float(low),
        high=float(high),
        p_material=float(np.mean(np.abs(change) > MATERIAL)),
    )
    return Measurement(now.probes, now.controls, estimate)


def _change(
    before: Sequence[bool], after: Sequence[bool], rng: np.random.Generator, what: str
) -> np.ndarray:
    """Posterior draws ``[DRAWS]`` of the paired change of success."""
    if len(before) != len(after):
        raise RunError(
            f"{len(after)} {what} now and {len(before)} before cannot be paired.",
            allowed="the same probes in the same order every round",
        )
    pairs = 2 * np.asarray(before, dtype=np.intp) + np.asarray(after, dtype=np.intp)
    counts = np.bincount(pairs, minlength=4)
    shares = rng.dirichlet(counts + PRIOR, size=DRAWS)
    change: np.ndarray = shares[:, 1] - shares[:, 2]
    return change


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
