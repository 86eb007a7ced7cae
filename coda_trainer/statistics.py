"""The intervals that success rates carry, and what a number of episodes can show."""

from __future__ import annotations

import math
from collections.abc import Sequence

#: Standard normal quantile of a two-sided 95% interval.
Z95 = 1.959963984540054
#: Of a one-sided 80%: the power that differences are planned for.
Z80 = 0.8416212335729143


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


def mean_and_error(values: Sequence[float]) -> tuple[float, float | None]:
    """Mean and its standard error s/√k over k values; the error is None for a single one."""
    k = len(values)
    if k == 0:
        raise ValueError("the mean of nothing")
    mean = math.fsum(values) / k
    if k == 1:
        return mean, None
    square = math.fsum((v - mean) ** 2 for v in values) / (k - 1)
    return mean, math.sqrt(square / k)


def detectable_difference(n: int, *, rate: float, discordant: float) -> dict[str, float]:
    """The least difference of two success rates that n episodes an arm show with 80% power.

    At 5% two-sided: (z.975 + z.80)·√v, where v = 2p(1−p)/n for arms with different episodes, and
    v = ψ/n for arms paired by episode of which the share ψ (``discordant``) ends differently
    (Connor 1987, without its small term in the difference itself). ``rate``: p, about which both
    arms are assumed to lie.
    """
    scale = Z95 + Z80
    return {
        "unpaired": scale * math.sqrt(2 * rate * (1 - rate) / n),
        "paired": scale * math.sqrt(discordant / n),
    }
