"""The intervals that success rates carry."""

from __future__ import annotations

import math

#: Standard normal quantile of a two-sided 95% interval.
Z95 = 1.959963984540054


def wilson(successes: int, trials: int) -> tuple[float, float] | None:
    """Wilson's 95% score interval of a rate; None where nothing was tried.

    Formula: (p + z²/2n ± z √(p(1−p)/n + z²/4n²)) / (1 + z²/n), with p = successes / trials.
    """
    if trials == 0:
        return None
    p = successes / trials
    square = Z95**2 / trials
    middle = (p + square / 2) / (1 + square)
    half = Z95 * math.sqrt(p * (1 - p) / trials + square / (4 * trials)) / (1 + square)
    return max(middle - half, 0.0), min(middle + half, 1.0)
