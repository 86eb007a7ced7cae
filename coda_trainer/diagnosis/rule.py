"""The rule that turns counts of control evaluations into a verdict.

Of n pairs of episodes (arms A and B, same seed), let b be those where only B reached the stage and
c those where only A did. Under a Dirichlet posterior over the four paired outcomes, with prior ½ on
each (Jeffreys' prior of a multinomial: as likely to favour B as A, worth two pairs in all), the
shares θ_b and θ_c give Δ = θ_b − θ_c, the gain of B over A. With s = θ_b + θ_c,

    s ~ Beta(b + c + 1, n − b − c + 1),   θ_b / s ~ Beta(b + ½, c + ½), independent,
    P(Δ > d) = E_s[ P(θ_b / s > (1 + d/s) / 2) ],

which :func:`gain_table` integrates over quantiles of s, once for every b and c.

The verdict is looked for after each batch. A look before the last one needs ``EARLY`` certainty,
the last one ``LAST``, so that several looks confirm hardly more often than one would. ``T``, ``C``
and ``P`` are the arms (condition, control, other edit):

- untestable: C reaches the stage too rarely for anything to be seen;
- confirmed: P(Δ_{T→C} > SMALL) and P(Δ_{P→C} > SMALL) are certain: removing the condition helps,
  and it helps more than another edit of the same size;
- refuted: P(Δ_{T→C} > MATERIAL) is as unlikely, or the other edit helps (P(Δ_{T→P} > SMALL) is
  certain) and P(Δ_{P→C} > MATERIAL) is unlikely;
- inconclusive: none of these after the last look.

``python -m coda_trainer.diagnosis.error_rates`` measures how often it is wrong (docs/control.md).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np
from scipy.special import betainc, betaincinv

from coda_envs.errors import ConfigError

Verdict = Literal["confirmed", "refuted", "untestable", "inconclusive"]
VERDICTS: tuple[Verdict, ...] = ("confirmed", "refuted", "untestable", "inconclusive")

#: A gain that must be exceeded to confirm, and one that must not be to refute.
SMALL = 0.07
MATERIAL = 0.15
#: Certainty needed at the last look, and at those before it.
LAST = 0.90
EARLY = 0.99
#: Under this rate of reaching the stage in C, a diagnosis cannot be tested.
MIN_REACH = 0.3
#: Prior weight of each of the four paired outcomes, and of each outcome of a single arm.
PRIOR = 0.5
#: Quantiles of s over which P(Δ > d) is averaged.
NODES = 256
#: Pairs between two looks.
BATCH = 8


@dataclass(frozen=True)
class Counts:
    """Outcomes of n episodes an arm, paired over the arms.

    ``reached`` [3] of T, C, P; ``gains`` pairs (only the second reached, only the first reached)
    for T→C, P→C and T→P. All are integers or integer arrays of one shape.
    """

    n: int
    reached: tuple[np.ndarray, np.ndarray, np.ndarray]
    t_to_c: tuple[np.ndarray, np.ndarray]
    p_to_c: tuple[np.ndarray, np.ndarray]
    t_to_p: tuple[np.ndarray, np.ndarray]


def count(t: np.ndarray, c: np.ndarray, p: np.ndarray) -> Counts:
    """Counts of reached flags ``[..., n]`` of the arms T, C and P, summed over the last axis."""
    return Counts(
        n=t.shape[-1],
        reached=(t.sum(-1), c.sum(-1), p.sum(-1)),
        t_to_c=((c & ~t).sum(-1), (t & ~c).sum(-1)),
        p_to_c=((c & ~p).sum(-1), (p & ~c).sum(-1)),
        t_to_p=((p & ~t).sum(-1), (t & ~p).sum(-1)),
    )


def looks(most: int) -> tuple[int, ...]:
    """Pairs after which a verdict is looked for: every ``BATCH``, the last at ``most``.

    Raises :class:`ConfigError` where ``most`` is below one.
    """
    if most < 1:
        raise ConfigError(f"a control evaluation of {most} episodes an arm.", allowed="at least 1")
    return (*range(BATCH, most, BATCH), most)


def gain_probability(pair: tuple[np.ndarray, np.ndarray], n: int, margin: float) -> np.ndarray:
    """P(Δ > ``margin``) for (only B, only A) of n pairs; same shape as the counts."""
    probability: np.ndarray = gain_table(n, margin)[pair]
    return probability


def reach_below(reached: np.ndarray, n: int, rate: float) -> np.ndarray:
    """P(an arm's rate < ``rate``) after ``reached`` of n, under the prior Beta(½, ½)."""
    probability: np.ndarray = betainc(reached + PRIOR, n - reached + PRIOR, rate)
    return probability


def decide(counts: Counts, *, last: bool) -> np.ndarray:
    """Index into ``VERDICTS``, or −1 to go on, for every element of the counts."""
    certain = LAST if last else EARLY
    n = counts.n

    def likely(pair: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
        return gain_probability(pair, n, SMALL) > certain

    def unlikely(pair: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
        return gain_probability(pair, n, MATERIAL) < 1 - certain

    in_c = np.asarray(counts.reached[1])
    rare = in_c < MIN_REACH * n if last else reach_below(in_c, n, MIN_REACH) > certain
    confirmed = likely(counts.t_to_c) & likely(counts.p_to_c)
    refuted = unlikely(counts.t_to_c) | (likely(counts.t_to_p) & unlikely(counts.p_to_c))
    return np.select(
        [rare, confirmed, refuted],
        [VERDICTS.index("untestable"), VERDICTS.index("confirmed"), VERDICTS.index("refuted")],
        VERDICTS.index("inconclusive") if last else -1,
    )


@lru_cache(maxsize=256)
def gain_table(n: int, margin: float) -> np.ndarray:
    """P(Δ > ``margin``) ``[n+1, n+1]`` by (only B, only A); NaN where their sum exceeds n."""
    only_b, only_a = np.meshgrid(np.arange(n + 1), np.arange(n + 1), indexing="ij")
    possible = only_b + only_a <= n
    b, a = only_b[possible] + PRIOR, only_a[possible] + PRIOR
    same = n - only_b[possible] - only_a[possible] + 2 * PRIOR
    quantiles = (np.arange(NODES) + 0.5) / NODES
    changed = betaincinv((a + b)[:, None], same[:, None], quantiles)
    cut = np.clip((1 + margin / np.maximum(changed, 1e-12)) / 2, 0.0, 1.0)
    table = np.full((n + 1, n + 1), np.nan)
    table[possible] = (1.0 - betainc(b[:, None], a[:, None], cut)).mean(axis=1)
    table.flags.writeable = False
    return table
