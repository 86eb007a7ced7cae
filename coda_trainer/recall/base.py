"""Recall: what a round takes from what a run remembers of its failures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from coda_envs.scene import Scene
from coda_trainer.learning.chunk_critic import StatePotential
from coda_trainer.rounds.context import RoundContext
from coda_trainer.rounds.diagnosing import DiagnosisPhase
from coda_trainer.strategies.base import RoundPlan


@dataclass(frozen=True)
class Wide:
    """The wide part of a round: accepted scenes by source, and each source's share of it (they
    sum to 1)."""

    scenes: Mapping[str, Sequence[Scene]]
    shares: Mapping[str, float]

    def plan(self, potential: StatePotential) -> RoundPlan:
        """A round that is nothing else."""
        return RoundPlan(self.scenes, self.shares, potential)

    def beside(
        self, context: RoundContext, aimed: Mapping[str, Sequence[Scene]], potential: StatePotential
    ) -> RoundPlan:
        """A round of which the wide part keeps ``collect.wide_share``, and the ``aimed`` sources
        share the rest alike. All is wide where nothing is aimed."""
        if not aimed:
            return self.plan(potential)
        wide = context.config.collect.wide_share
        shares = {source: wide * share for source, share in self.shares.items()}
        shares |= {source: (1.0 - wide) / len(aimed) for source in aimed}
        return RoundPlan({**self.scenes, **aimed}, shares, potential)


class Recall(Protocol):
    """One file a kind of memory; ``recall.make_recall`` finds it by the setting ``coda.memory``.

    All of them see the same failures of the present policy and train on as many episodes; they
    differ in what they make of them.
    """

    #: Whether a diagnostician names causes for it.
    diagnoses: bool
    #: Whether control evaluations test what it named.
    tests: bool

    def plan(self, context: RoundContext, phase: DiagnosisPhase, wide: Wide) -> RoundPlan:
        """The round's plan; at least ``collect.wide_share`` of it stays with the wide part."""

    def measure(self, context: RoundContext) -> None:
        """After training: what it wants to know of the new policy."""
