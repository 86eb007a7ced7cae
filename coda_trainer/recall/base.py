"""Recall: what a round takes from what a run remembers of its failures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from coda_envs.scene import Scene
from coda_trainer.rounds.context import RoundContext
from coda_trainer.rounds.diagnosing import DiagnosisPhase
from coda_trainer.rounds.schedule import WIDE
from coda_trainer.strategies.base import RoundPlan


class Recall(Protocol):
    """One file a kind of memory; ``recall.make_recall`` finds it by the setting ``coda.memory``.

    All of them see the same failures of the present policy and train on as many episodes; they
    differ in what they make of them.
    """

    #: Whether a diagnostician names causes for it.
    diagnoses: bool
    #: Whether control evaluations test what it named.
    tests: bool

    def plan(
        self,
        context: RoundContext,
        phase: DiagnosisPhase,
        scenes: dict[str, Sequence[Scene]],
        weights: Mapping[str, float],
    ) -> RoundPlan:
        """The round's plan. ``scenes`` and ``weights``: the wide part, whose shares sum to 1; at
        least ``collect.wide_share`` of the round stays with it."""

    def measure(self, context: RoundContext) -> None:
        """After training: what it wants to know of the new policy."""


def with_aimed(
    context: RoundContext, weights: Mapping[str, float], aimed: Mapping[str, float]
) -> dict[str, float]:
    """Shares of all sources: ``collect.wide_share`` dealt out by ``weights``, the rest by ``aimed``
    (shares that sum to 1). All is wide where nothing is aimed."""
    if not aimed:
        return dict(weights)
    wide = context.config.collect.wide_share
    shares = {source: wide * share for source, share in weights.items()}
    assert WIDE in shares
    return shares | {source: (1.0 - wide) * share for source, share in aimed.items()}
