"""Curriculum weights within a round: how many scenes each mode gets, and how many stay wide.

weight of mode i = (1 − wide) · [ (1 − floor) · c_i / Σ c  +  floor / n ],
c_i = E[p_i (1 − p_i)] · s_i,   s_i = P(|LP_i| > 0.05) / Σ_j P(|LP_j| > 0.05)

over the n modes that are not removed. p_i has a Beta posterior, so that E[p(1 − p)] never
vanishes. LP enters as the probability that it is material, not as a point value, which at 64
probes is noise; a mode without a measured LP counts as 1, the optimistic end. The floor keeps some
practice in every mode, also where it has been learned: forgetting needs practice too.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from coda_envs.errors import ConfigError, RunError
from coda_trainer.memory.modes import Mode
from coda_trainer.memory.progress import PRIOR, Measurement

#: The name of scenes that are drawn from the whole generator range (``Episode.source``).
WIDE = "wide"
#: At least half of every round stays wide.
MIN_WIDE_SHARE = 0.5


@dataclass(frozen=True)
class Standing:
    """What is known of a mode when a round is planned.

    ``successes`` of ``trials`` probes (0 of 0: not measured); ``p_material`` = P(|LP| > 0.05),
    None where LP was not measured yet.
    """

    mode_id: str
    successes: int
    trials: int
    p_material: float | None
    removed: bool = False

    def __post_init__(self) -> None:
        if not 0 <= self.successes <= self.trials:
            raise RunError(
                f"mode {self.mode_id}: {self.successes} successes of {self.trials} probes.",
                allowed="0 ≤ successes ≤ trials",
            )
        if self.p_material is not None and not 0 <= self.p_material <= 1:
            raise RunError(
                f"mode {self.mode_id}: P(|LP| > 0.05) is {self.p_material!r}.",
                allowed="a number from 0 to 1, or None where LP was not measured",
            )


def standing(mode: Mode, last: Measurement | None) -> Standing:
    """The standing of a mode that was selected, from its last measurement (None: not yet)."""
    progress = last.progress if last else None
    return Standing(
        mode_id=mode.id,
        successes=last.successes if last else 0,
        trials=last.trials if last else 0,
        p_material=progress.p_material if progress else None,
        removed=mode.state == "removed",
    )


def curriculum_weights(
    standings: Sequence[Standing], *, wide_share: float = 0.5, floor: float = 0.2
) -> dict[str, float]:
    """The share of a round's scenes for ``wide`` and for each mode; they sum to 1.

    ``floor`` in [0, 1] is the part of the modes' share that is dealt out evenly. A removed mode
    gets 0; where no mode is left, everything is wide. Raises :class:`ConfigError` for a share or
    floor outside its range, :class:`RunError` where a mode is listed twice.
    """
    _check("wide_share", wide_share, MIN_WIDE_SHARE, 1.0)
    _check("floor", floor, 0.0, 1.0)
    weights = {WIDE: 1.0, **{s.mode_id: 0.0 for s in standings}}
    if len(weights) != len(standings) + 1:
        raise RunError("a mode is listed twice in a round's plan, or is called 'wide'.")
    active = [s for s in standings if not s.removed]
    if not active:
        return weights
    a = np.array([s.successes for s in active], dtype=float) + PRIOR
    b = np.array([s.trials - s.successes for s in active], dtype=float) + PRIOR
    # E[p(1 − p)] under Beta(a, b).
    learnable = a / (a + b) * (b / (a + b + 1))
    progress = np.array([1.0 if s.p_material is None else s.p_material for s in active])
    # Scaled by the largest before the product, so that tiny numbers do not underflow.
    progress = progress / progress.max() if progress.max() > 0 else np.ones(len(active))
    claim = learnable * progress
    share = (1.0 - floor) * claim / claim.sum() + floor / len(active)
    weights[WIDE] = wide_share
    for standing, part in zip(active, (1.0 - wide_share) * share, strict=True):
        weights[standing.mode_id] = float(part)
    return weights


def allocate(n: int, weights: Mapping[str, float]) -> dict[str, int]:
    """Whole numbers of scenes that sum to ``n``, for weights of :func:`curriculum_weights`.

    ``wide`` gets its share rounded up, so that at least half stays wide in small rounds too; the
    rest goes to the modes by largest remainder, equal remainders in the order of their ids.
    Raises :class:`RunError` for a negative ``n``, or for weights that are not shares.
    """
    values = list(weights.values())
    if n < 0 or WIDE not in weights:
        raise RunError(f"{n} scenes for {sorted(weights)[:5]}.", allowed="n ≥ 0, and a wide share")
    if not all(math.isfinite(w) and w >= 0 for w in values) or abs(sum(values) - 1) > 1e-6:
        raise RunError("the weights of a round are not shares.", allowed="≥ 0, with the sum 1")
    modes = sorted(name for name in weights if name != WIDE)
    share = np.array([weights[name] for name in modes], dtype=float)
    if share.sum() == 0:
        return {WIDE: n, **dict.fromkeys(modes, 0)}
    # Rounded first: 0.6 · 5 must not become 4 by the last bit of a float.
    wide = min(n, math.ceil(round(n * weights[WIDE], 6)))
    counts = largest_remainder(n - wide, share)
    return {WIDE: wide, **dict(zip(modes, counts.tolist(), strict=True))}


def largest_remainder(n: int, share: np.ndarray) -> np.ndarray:
    """``n`` things dealt out in proportion to ``share [k]`` (≥ 0, not all 0) → int ``[k]``.

    Everyone gets the whole part of the quota, and what is left goes to the largest remainders,
    equal ones in order. A share of 0 gets nothing.
    """
    quota = n * (share / share.sum())
    counts: np.ndarray = np.floor(quota + 1e-9).astype(np.int64)
    left = int(n - counts.sum())
    remainder = np.where(share > 0, np.round(quota - counts, 9), -np.inf)
    counts[np.argsort(-remainder, kind="stable")[:left]] += 1
    return counts


def _check(name: str, value: float, low: float, high: float) -> None:
    if not low <= value <= high:
        raise ConfigError(
            f"{name} is {value!r}.",
            allowed=f"a number from {low:g} to {high:g}",
            remedy=f"set {name} to a value in that range",
        )
