"""Error rates of the control evaluation's rule, by simulation over rates of reaching the stage.

``python -m coda_trainer.diagnosis.error_rates`` prints the tables of docs/control.md.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np

from coda_trainer.diagnosis import rule

#: Rates (T, C, P) in the printed table, with what is true of them.
TABLE: tuple[tuple[str, tuple[float, float, float]], ...] = (
    ("no effect, weak policy", (0.2, 0.2, 0.2)),
    ("no effect", (0.5, 0.5, 0.5)),
    ("no effect, strong policy", (0.8, 0.8, 0.8)),
    ("no effect, other edit harms", (0.5, 0.5, 0.05)),
    ("any edit helps", (0.05, 0.5, 0.5)),
    ("any edit helps", (0.2, 0.8, 0.8)),
    ("the control harms", (0.5, 0.2, 0.5)),
    ("effect 0.1", (0.4, 0.5, 0.4)),
    ("effect 0.2", (0.3, 0.5, 0.3)),
    ("effect 0.3", (0.3, 0.6, 0.3)),
    ("effect 0.4, hardest case", (0.3, 0.7, 0.3)),
    ("effect 0.4, rare condition", (0.05, 0.45, 0.05)),
    ("effect 0.4, other edit helps half", (0.05, 0.9, 0.5)),
    ("effect 0.5", (0.3, 0.8, 0.3)),
    ("effect 0.7", (0.1, 0.8, 0.1)),
    ("effect, but C still rare", (0.0, 0.2, 0.0)),
)
#: Rates that are combined where the worst case is looked for.
GRID = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
#: An effect that the rule is to confirm: C exceeds both T and P by this much.
EFFECT = 0.4


@dataclass(frozen=True)
class Rates:
    """Share of evaluations that end in each verdict, and their mean number of episodes an arm."""

    confirmed: float
    refuted: float
    untestable: float
    inconclusive: float
    episodes: float


def simulate(
    rates: tuple[float, float, float],
    *,
    most: int = 32,
    shared: float = 0.0,
    runs: int = 4000,
    seed: int = 0,
) -> Rates:
    """Error rates where T, C and P reach the stage at these ``rates``, ``most`` episodes an arm.

    ``shared``: the chance that the three episodes of a seed have their luck in common (0: they
    are independent, the hardest case for the rule's power). Bounds on the standard error of a
    share follow from ``runs``: 0.8 points at 4,000.
    """
    rng = np.random.default_rng(seed)
    luck = rng.random((3, runs, most))
    common = rng.random((runs, most)) < shared
    luck = np.where(common, rng.random((runs, most)), luck)
    reached = luck < np.array(rates)[:, None, None]
    verdict = np.full(runs, -1)
    used = np.full(runs, most)
    for look in rule.looks(most):
        counts = rule.count(*reached[:, :, :look])
        decided = rule.decide(counts, last=look == most)
        new = (verdict < 0) & (decided >= 0)
        verdict[new] = decided[new]
        used[new] = look
    shares = {name: float(np.mean(verdict == i)) for i, name in enumerate(rule.VERDICTS)}
    return Rates(**shares, episodes=float(used.mean()))


@dataclass(frozen=True)
class Worst:
    """Worst cases over ``GRID``.

    ``false_confirmation``: most often confirmed though C is no better than T or than P.
    ``power``: least often confirmed, ``false_refutation``: most often refuted, at ``EFFECT``.
    """

    false_confirmation: float
    power: float
    false_refutation: float


def worst_case(*, most: int = 32, shared: float = 0.0, runs: int = 4000, seed: int = 0) -> Worst:
    """The rule's worst cases; see :func:`simulate` for the arguments."""

    def rates(t: float, c: float, p: float) -> Rates:
        return simulate((t, c, p), most=most, shared=shared, runs=runs, seed=seed)

    # C equal to the better of T and P is the hardest case without an effect; C ahead of both by
    # no more than the effect is the hardest one with it.
    no_effect = [
        rates(*arms)
        for c, other in itertools.product(GRID, GRID)
        if other <= c
        for arms in ((c, c, other), (other, c, c))
    ]
    effect = [
        rates(t, round(max(t, p) + EFFECT, 2), p)
        for t, p in itertools.product(GRID, GRID)
        if max(t, p) + EFFECT <= 1 + 1e-9
    ]
    return Worst(
        max(r.confirmed for r in no_effect),
        min(r.confirmed for r in effect),
        max(r.refuted for r in effect),
    )


def table(most: int = 32) -> str:
    """The error rates of ``TABLE`` as a Markdown table, in percent."""
    lines = [
        "| truth | T | C | P | confirmed | refuted | untestable | inconclusive | episodes an arm |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for truth, rates in TABLE:
        measured = simulate(rates, most=most, runs=20_000)
        shares = (getattr(measured, name) for name in rule.VERDICTS)
        cells = [
            truth,
            *(f"{r:.2f}" for r in rates),
            *(f"{100 * share:.1f}" for share in shares),
            f"{measured.episodes:.1f}",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def worst_table() -> str:
    """The worst cases by the most episodes an arm as a Markdown table, in percent."""
    lines = [
        "| most episodes an arm | false confirmation | confirmed at 0.4 | refuted at 0.4 |",
        "|---|---|---|---|",
    ]
    for most in (8, 16, 24, 32):
        worst = worst_case(most=most, runs=10_000)
        shares = (worst.false_confirmation, worst.power, worst.false_refutation)
        lines.append(f"| {most} | {' | '.join(f'{100 * share:.1f}' for share in shares)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(f"{table()}\n\n{worst_table()}")
