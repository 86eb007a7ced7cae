"""ResidualLearner: chunk TD3 of a bounded residual actor, over recorded episodes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from coda_trainer.learning.chunk_critic import DenseReward, StatePotential, potential_values
from coda_trainer.learning.critic_learner import CriticLearner, LearnerConfig, step
from coda_trainer.learning.exploration import ExplorationNoise
from coda_trainer.learning.networks import track
from coda_trainer.learning.relative import RelativeFeatures
from coda_trainer.learning.replay import Replay, TransitionBatch
from coda_trainer.learning.residual import ResidualActor
from coda_trainer.learning.update_rule import Lesson

__all__ = ["LearnerConfig", "ResidualLearner"]

#: Smallest mean |Q| that the actor's loss is divided by: near zero it would drown the anchor.
LEAST_Q = 0.05


class ResidualLearner(CriticLearner):
    """Trains a residual actor and its chunk critic from a replay.

    Order of use: :meth:`warm_up` (critic only) after the first rollouts, then rollouts and
    :meth:`train` in turn, each time with :meth:`observe_rollouts`. ``actor`` is what acts. All
    randomness comes from ``seed``.
    """

    def __init__(
        self,
        config: LearnerConfig,
        *,
        features: int,
        encoding: int,
        potential: StatePotential,
        seed: int,
        relative: RelativeFeatures | None = None,
        dense: DenseReward | None = None,
    ) -> None:
        """See :class:`CriticLearner`."""
        super().__init__(
            config,
            features=features,
            encoding=encoding,
            potential=potential,
            seed=seed,
            relative=relative,
            dense=dense,
        )
        self.noise = ExplorationNoise()
        self._new_actor()

    def _new_actor(self) -> None:
        shape = self.config.residual
        self.actor = ResidualActor(shape, self.encoding_size, self.generator)
        self.target_actor = ResidualActor(shape, self.encoding_size, self.generator)
        self.target_actor.load_state_dict(self.actor.state_dict())
        self.target_actor.requires_grad_(False)
        self._actor_optimiser = torch.optim.Adam(
            self.actor.network.parameters(), lr=self.config.actor_rate, fused=True
        )

    @property
    def residual(self) -> ResidualActor:
        """What corrects the base's chunks."""
        return self.actor

    def reset_actor(self) -> None:
        """Start again from a residual of nothing, for a new base (:meth:`Replay.rebase` first)."""
        self._new_actor()

    def observe_rollouts(self, success: float, count: int = 1) -> None:
        """Success rate of the latest ``count`` rollouts, for the alarm: always on comparable
        scenes."""
        self.alarm.observe_success(success)

    def lesson(self, replay: Replay, horizon: int) -> Lesson | None:
        """The backbone waits for the round's end."""
        return None

    def after_warm_up(
        self, replay: Replay, episodes: int, updates: int, source_weights: Mapping[str, float]
    ) -> dict[str, float]:
        """The critic alone."""
        return self.warm_up(replay, updates, source_weights)

    def after_block(
        self, replay: Replay, episodes: int, updates: int, source_weights: Mapping[str, float]
    ) -> dict[str, float]:
        """Critic and actor, from the whole replay."""
        return self.train(replay, updates, source_weights)

    def train(
        self, replay: Replay, updates: int, source_weights: Mapping[str, float] | None = None
    ) -> dict[str, float]:
        """``updates`` of the critic, every ``actor_every``-th with one of the actor.

        Arguments, result and errors are those of :meth:`warm_up`; besides, the means of ``q`` and
        ``deviation`` (mean |a − b| / s before clipping) over the actor's updates, the number of
        ``actor_updates``, and ``alarm``: 1 where it rings at the end, and the actor was or will be
        held.
        """
        return self._run(replay, updates, source_weights, self._update_actor)

    def _prepare(self, replay: Replay) -> None:
        super()._prepare(replay)
        if not self.actor.normaliser.fitted:
            encoding = self._encodings(replay)
            self.actor.normaliser.fit(encoding)
            self.target_actor.normaliser.fit(encoding)

    def _next_chunk(self, batch: TransitionBatch) -> Tensor:
        chunk: Tensor = self.target_actor(
            torch.from_numpy(batch.next_encoding), torch.from_numpy(batch.next_base)
        )[0]
        return chunk

    def _update_actor(self, batch: TransitionBatch) -> dict[str, float]:
        chunk, lean = self.actor(torch.from_numpy(batch.encoding), torch.from_numpy(batch.base))
        state = self.critic.read(batch.features)
        q = self.critic.values(state, chunk, torch.ones(chunk.shape[:2])).amin(0)
        # Divided by the size of Q, not of Q': that may be near zero, and the actor's loss must not
        # depend on how much of Q the potential explains.
        phi = potential_values(self.critic.potential, batch.features)
        size = max(float((q.detach() + torch.from_numpy(phi)).abs().mean()), LEAST_Q)
        # ((a − b) / s)² is tanh², whatever the scale of a dimension.
        loss = -q.mean() / size + self.config.anchor * (lean**2).mean()
        step("actor loss", loss, self._actor_optimiser, self.updates + 1)
        track(self.target_actor.network, self.actor.network, self.config.tau)
        return {
            "q": float(q.detach().mean()),
            "deviation": float(lean.detach().abs().mean()),
        }

    def save(self, folder: Path) -> None:
        """Write the actor (``residual.*``) and what :meth:`CriticLearner.save` writes."""
        self.actor.save(folder)
        super().save(folder)

    def _parts(self) -> dict[str, Any]:
        return super()._parts() | {
            "actor": self.actor,
            "target_actor": self.target_actor,
            "actor_optimiser": self._actor_optimiser,
        }
