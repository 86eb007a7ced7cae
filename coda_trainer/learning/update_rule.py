"""UpdateRule: how a family's rollouts change what acts. The loop drives every rule the same way.

========== =========================================== ==========================================
rule       what acts while collecting                  what learns, and when
========== =========================================== ==========================================
residual   backbone + bounded residual + noise         the residual climbs the critic, after each
                                                       block; distilled at the round's end
ppo        backbone + residual, a Gaussian around it   the residual, from the block that it acted
                                                       in; distilled at the round's end
weighted   backbone + noise                            the backbone itself, after each block, on
                                                       chunks weighted by their advantage
========== =========================================== ==========================================

The chunk critic learns from the replay under each of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np

from coda_trainer.backbone import ChunkBatch
from coda_trainer.learning.chunk_critic import ChunkCritic, StatePotential
from coda_trainer.learning.exploration import Noise
from coda_trainer.learning.replay import Replay
from coda_trainer.learning.residual import ResidualActor


@dataclass(frozen=True)
class Lesson:
    """Chunks that the backbone is to learn, each with its weight ``[B]``: a demonstration has 1."""

    chunks: ChunkBatch
    weight: np.ndarray


class UpdateRule(Protocol):
    """One family's learner. Rollouts are added to the replay before the rule is told of them."""

    critic: ChunkCritic
    #: E, the size of the base's encoding.
    encoding_size: int

    @property
    def noise(self) -> Noise:
        """Exploration while collecting for the rule."""

    @property
    def residual(self) -> ResidualActor | None:
        """What corrects the backbone's chunks in rollouts, and is distilled at the round's end;
        None where the backbone itself learns."""

    def set_potential(self, potential: StatePotential) -> None:
        """Train under another potential from now on."""

    def reset_actor(self) -> None:
        """A round begins, with a new base (:meth:`Replay.rebase` first)."""

    def observe_rollouts(self, success: float, count: int) -> None:
        """Success rate of the latest ``count`` rollouts on comparable scenes, for the alarm."""

    def warm_up(
        self, replay: Replay, updates: int, source_weights: Mapping[str, float]
    ) -> dict[str, float]:
        """``updates`` of the critic alone."""

    def after_warm_up(
        self, replay: Replay, episodes: int, updates: int, source_weights: Mapping[str, float]
    ) -> dict[str, float]:
        """What is learnt before anything that acts may change: ``updates`` of the critic, and what
        the rule needs. ``episodes``: how many of the replay's newest are the warm-up's.

        ``source_weights``: see :meth:`Replay.draw`. Returns figures for the log. Raises
        :class:`LearningError` on a replay that cannot serve or a loss that is not finite.
        """

    def after_block(
        self, replay: Replay, episodes: int, updates: int, source_weights: Mapping[str, float]
    ) -> dict[str, float]:
        """Learn from the block whose ``episodes`` are the replay's newest; as
        :meth:`after_warm_up`, and the actor, where there is one, learns too. ``alarm``: 1 where it
        rings."""

    def lesson(self, replay: Replay, horizon: int) -> Lesson | None:
        """What the backbone, which predicts H = ``horizon`` actions, is to learn now; None where it
        waits for the round's end."""

    def save(self, folder: Path) -> None:
        """Write everything that the future depends on into an existing folder."""

    def load(self, folder: Path, *, first: StatePotential, potential: StatePotential) -> None:
        """Restore what :meth:`save` wrote, to go on bit for bit; see
        :meth:`CriticLearner.load`."""
