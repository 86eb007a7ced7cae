"""WeightedLearner: advantage-weighted updates of the backbone itself (docs/design.md §8)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from coda_envs.errors import ConfigError, LearningError
from coda_trainer.learning.advantages import AdvantageEstimator
from coda_trainer.learning.chunk_critic import DenseReward, StatePotential
from coda_trainer.learning.critic_learner import CriticLearner, LearnerConfig
from coda_trainer.learning.episode_rows import EpisodeRows, Record
from coda_trainer.learning.exploration import ExplorationNoise
from coda_trainer.learning.looks import Looks, look_chunks, looks, newest
from coda_trainer.learning.relative import RelativeFeatures
from coda_trainer.learning.replay import Replay, TransitionBatch
from coda_trainer.learning.update_rule import Lesson

#: Most that exp(A / β) counts for: one lucky chunk must not become the whole lesson.
MOST = 20.0
#: Least standard deviation that advantages are divided by: noise alone must not become a lesson.
LEAST_SPREAD = 0.01


@dataclass(frozen=True)
class WeightedConfig:
    """``beta``: β, temperature of the weights, in standard deviations of the advantages.
    ``keep``: blocks of which all episodes are learnt from; of earlier ones only the successes.
    ``trace``: λ of the advantages, per chunk."""

    beta: float = 1.0
    keep: int = 3
    trace: float = 0.9

    def __post_init__(self) -> None:
        if not (np.isfinite(self.beta) and self.beta > 0) or self.keep < 1:
            raise ConfigError(
                f"the weighted update has beta={self.beta} and keep={self.keep}.",
                allowed="beta > 0, keep a whole number from 1",
            )
        if not 0 <= self.trace <= 1:
            raise ConfigError(
                f"the weighted update has trace={self.trace}.", allowed="a number in [0, 1]"
            )


class WeightedLearner(CriticLearner):
    """Judges the executed chunks; the backbone learns them in proportion to exp(A / β).

    It has no residual, and nothing is distilled: what learns is the policy that is measured. Of a
    backbone it asks only ``update(batch, weight)``. Advantages are computed anew for each lesson,
    under the V' and the potential in force, for all episodes that are learnt from; those that the
    replay has dropped are forgotten. What the base does in stored states is read anew when a round
    begins only, so that the critic values a policy that is up to a round old.
    """

    def __init__(
        self,
        config: LearnerConfig,
        *,
        weighted: WeightedConfig,
        features: int,
        encoding: int,
        potential: StatePotential,
        seed: int,
        relative: RelativeFeatures | None = None,
        dense: DenseReward | None = None,
    ) -> None:
        """See :class:`CriticLearner`; of ``config.residual`` only h and A are used."""
        super().__init__(
            config,
            features=features,
            encoding=encoding,
            potential=potential,
            seed=seed,
            relative=relative,
            dense=dense,
        )
        self.weighted = weighted
        self.noise = ExplorationNoise()
        self.estimator = AdvantageEstimator(
            self.critic,
            self.generator,
            discount=config.discount,
            trace=weighted.trace,
            dense_bound=self.dense_bound,
        )
        #: Episodes of the last ``keep`` blocks, oldest block first.
        self._blocks: list[int] = []

    @property
    def residual(self) -> None:
        """None: the backbone itself learns."""
        return None

    def reset_actor(self) -> None:
        """Nothing to reset: the base goes on learning."""

    def observe_rollouts(self, success: float, count: int) -> None:
        """The alarm is the loop's: the backbone is shared by all families, and so is its fall."""

    # Training ----------------------------------------------------------------------------------

    def after_warm_up(
        self, replay: Replay, episodes: int, updates: int, source_weights: Mapping[str, float]
    ) -> dict[str, float]:
        """The critic, and V' of the backbone as it is."""
        metrics = self.warm_up(replay, updates, source_weights)
        if episodes:
            metrics |= self._observe(replay, episodes)
        return metrics

    def after_block(
        self, replay: Replay, episodes: int, updates: int, source_weights: Mapping[str, float]
    ) -> dict[str, float]:
        """The critic and V'; the backbone's own part is :meth:`lesson`."""
        return self.warm_up(replay, updates, source_weights) | self._observe(replay, episodes)

    def _observe(self, replay: Replay, episodes: int) -> dict[str, float]:
        self._blocks = [*self._blocks, episodes][-self.weighted.keep :]
        rows = replay.rollouts
        recent = self._looks(rows, newest(rows, sum(self._blocks)))
        return {"value_loss": self.estimator.fit(rows, recent)}

    def lesson(self, replay: Replay, horizon: int) -> Lesson | None:
        """The last ``keep`` blocks' chunks and those of all earlier successes, weighted.

        Only chunks that start where the policy looked. Chunks from between two looks carry, as
        labels, the noise held since the last look, which the policy could not have seen: measured
        in one family, with them success fell from .80 to .39 within a few lessons, with chunks at
        looks alone it rose to .86. Raises :class:`LearningError` where an advantage is not finite.
        """
        rows = replay.rollouts
        found = self._looks(rows, self._kept(rows))
        advantage, _ = self.estimator.advantages(rows, found)
        return Lesson(
            look_chunks(rows, found, horizon), advantage_weights(advantage, self.weighted.beta)
        )

    def _kept(self, rows: EpisodeRows) -> tuple[Record, ...]:
        recent = newest(rows, sum(self._blocks))
        earlier = tuple(rows.records)[: len(rows.records) - len(recent)]
        return (*(r for r in earlier if r.success), *recent)

    def _looks(self, rows: EpisodeRows, records: tuple[Record, ...]) -> Looks:
        return looks(rows, records, self.config.residual.execute, self.config.discount, self.dense)

    # What the critic needs, and checkpoints ------------------------------------------------------

    def _next_chunk(self, batch: TransitionBatch) -> Tensor:
        return torch.from_numpy(batch.next_base)

    def _parts(self) -> dict[str, Any]:
        return super()._parts() | self.estimator.parts()

    def _plain(self) -> dict[str, Any]:
        return {"value_updates": self.estimator.updates, "blocks": self._blocks}

    def _restore(self, plain: Mapping[str, Any]) -> None:
        self.estimator.updates = int(plain["value_updates"])
        self._blocks = [int(count) for count in plain["blocks"]]


def advantage_weights(advantage: np.ndarray, beta: float) -> np.ndarray:
    """W = min(exp(A / β), 20) ``[N]`` over their mean, with A in standard deviations of the batch
    and around its mean (Peng et al. 2019; Nair et al. 2020).

    Raises :class:`LearningError` where an advantage is not finite.
    """
    if not np.isfinite(advantage).all():
        raise LearningError(
            f"{int((~np.isfinite(advantage)).sum())} of {len(advantage)} advantages are not "
            "finite.",
            remedy="resume from the last checkpoint with a lower learning rate",
        )
    spread = max(float(advantage.std()), LEAST_SPREAD)
    # Bounded before the exponential, which would overflow.
    scaled = np.minimum((advantage - advantage.mean()) / (spread * beta), np.log(MOST))
    weight = np.exp(scaled)
    return np.asarray(weight / weight.mean())


def effective_size(weight: np.ndarray) -> float:
    """Share of the samples that count: (Σ w)² / (N Σ w²), 1 where all weigh the same."""
    return float(weight.sum() ** 2 / (len(weight) * (weight**2).sum()))
