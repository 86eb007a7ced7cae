"""ChunkPPO: proximal policy optimisation of a residual on the frozen backbone's chunk."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from coda_envs.errors import ConfigError, LearningError
from coda_trainer.learning.advantages import AdvantageEstimator, minibatches
from coda_trainer.learning.chunk_basis import BasisNoise, chunk_basis
from coda_trainer.learning.chunk_critic import DenseReward, StatePotential
from coda_trainer.learning.critic_learner import CriticLearner, LearnerConfig, step
from coda_trainer.learning.episode_rows import EpisodeRows
from coda_trainer.learning.looks import Looks, looks, newest
from coda_trainer.learning.relative import RelativeFeatures
from coda_trainer.learning.replay import Replay, TransitionBatch
from coda_trainer.learning.residual import ResidualActor
from coda_trainer.learning.success_alarm import SuccessAlarm
from coda_trainer.learning.update_rule import Lesson

#: Reach of the residual in coordinates of the basis, for (x, y, z, rotation x, rotation y, yaw,
#: gripper), in action units: wider than the critic's residual, which a loose one collapses.
REACH = (0.6, 0.6, 0.6, 0.05, 0.05, 0.6, 1.0)

#: How far a recorded action may lie from the one that the policy asked for.
TOLERANCE = 1e-3
#: Least standard deviation that advantages are divided by: noise alone must not become a lesson.
LEAST_SPREAD = 0.01
#: An update whose divergence ends at this multiple of the limit is undone.
UNDO = 4.0
#: Bounds of the learning rate, and its factor where the divergence is far from the limit.
RATES, PACE = (1e-6, 1e-3), 1.5


@dataclass(frozen=True)
class PPOConfig:
    """How the residual learns.

    ``noise``: the Gaussian around the residual policy's chunk. ``trace``: λ of the advantages, per
    chunk. ``clip``: how far the ratio of probabilities may move what is gained. ``minibatch``:
    chunks an update. ``epochs``: most passes over a block. ``divergence``: Kullback-Leibler
    divergence (nats) from the policy that acted at which the passes stop; the learning rate, first
    ``rate``, is adapted to it. ``anchor``: weight of the residual's size in the loss.
    """

    noise: BasisNoise = field(default_factory=BasisNoise)
    trace: float = 0.9
    clip: float = 0.2
    minibatch: int = 512
    epochs: int = 6
    divergence: float = 0.03
    rate: float = 1e-4
    clip_norm: float = 1.0
    anchor: float = 0.02

    def __post_init__(self) -> None:
        if not 0 <= self.trace <= 1 or not 0 < self.clip < 1:
            raise ConfigError(
                f"PPO has trace={self.trace} and clip={self.clip}.",
                allowed="trace in [0, 1], clip in (0, 1)",
            )
        if self.minibatch < 1 or self.epochs < 1:
            raise ConfigError(
                f"PPO has minibatch={self.minibatch} and epochs={self.epochs}.",
                allowed="whole numbers from 1",
            )


@dataclass(frozen=True)
class PolicyBatch:
    """N chunks that the policy asked for: what it read (``encoding [N, E]``, ``base [N, h, A]``),
    the chunk ``asked [N, h, A]`` before the environment's clip, and its log-probability ``[N]``."""

    encoding: Tensor
    base: Tensor
    asked: Tensor
    log_probability: Tensor


class ChunkPPO(CriticLearner):
    """The policy is a Gaussian over chunks with the mean m = b + B^T(s·tanh r(e, b)).

    b is the frozen backbone's chunk, B the basis of :func:`chunk_basis`, in which residual and
    noise are independent. It learns from the block that it just acted in, and from nothing else;
    the chunk critic goes on learning from the whole replay, of the mean policy.

    What is executed is the sample clipped to [-1, 1]. A clipped action has no density, so
    probabilities are those of the sample before the clip, which belongs to the environment. The
    sample is known exactly: the episode's seed gives its noise again, and the recorded actions
    must be the clip of mean + noise. Actions of another policy are refused by the same check.
    """

    def __init__(
        self,
        config: LearnerConfig,
        *,
        ppo: PPOConfig,
        features: int,
        encoding: int,
        potential: StatePotential,
        seed: int,
        relative: RelativeFeatures | None = None,
        dense: DenseReward | None = None,
    ) -> None:
        """``config.residual`` must be one in the basis; the rest as :class:`CriticLearner`."""
        if not config.residual.basis or len(config.residual.scale) != len(ppo.noise.std):
            raise ConfigError(
                f"PPO got a residual with basis={config.residual.basis} and "
                f"{len(config.residual.scale)} dimensions, and noise of {len(ppo.noise.std)}.",
                allowed="a residual with basis=True, and as many dimensions as the noise has",
            )
        super().__init__(
            config,
            features=features,
            encoding=encoding,
            potential=potential,
            seed=seed,
            relative=relative,
            dense=dense,
        )
        self.ppo = ppo
        self.noise = ppo.noise
        self._basis = torch.from_numpy(chunk_basis(config.residual.execute).astype(np.float32))
        scale = ppo.noise.scale(config.residual.execute).astype(np.float32)
        self._explored = torch.from_numpy(np.asarray(ppo.noise.std) > 0)
        self._scale = torch.from_numpy(scale)[:, self._explored]
        self.estimator = AdvantageEstimator(
            self.critic,
            self.generator,
            discount=config.discount,
            trace=ppo.trace,
            dense_bound=self.dense_bound,
        )
        self.reset_actor()

    def reset_actor(self) -> None:
        """Start again from a residual of nothing, for a new base; V' stays."""
        self.actor = ResidualActor(self.config.residual, self.encoding_size, self.generator)
        self._actor_optimiser = torch.optim.Adam(
            self.actor.network.parameters(), lr=self.ppo.rate, fused=True
        )
        self._best = copy.deepcopy(self.actor)
        self._success = SuccessAlarm()

    @property
    def residual(self) -> ResidualActor:
        """The mean of the policy."""
        return self.actor

    def observe_rollouts(self, success: float, count: int) -> None:
        """Where success has clearly fallen, the policy goes back to the best one of the round."""
        if self._success.observe(success, count):
            self._best.load_state_dict(self.actor.state_dict())
        elif self._success.ringing:
            self.actor.load_state_dict(self._best.state_dict())

    def lesson(self, replay: Replay, horizon: int) -> Lesson | None:
        """The backbone waits for the round's end."""
        return None

    # Training ----------------------------------------------------------------------------------

    def after_warm_up(
        self, replay: Replay, episodes: int, updates: int, source_weights: Mapping[str, float]
    ) -> dict[str, float]:
        """The critic, and V' of the policy that has not learnt yet."""
        metrics = self.warm_up(replay, updates, source_weights)
        if episodes:
            metrics["value_loss"] = self.estimator.fit(*self._looks(replay, episodes))
        return metrics

    def after_block(
        self, replay: Replay, episodes: int, updates: int, source_weights: Mapping[str, float]
    ) -> dict[str, float]:
        """The critic; the policy, unless the alarm sent it back or V' is new; then V'.

        Besides the critic's figures: ``kl`` and ``deviation`` (mean |tanh r|) after the passes,
        ``policy_updates``, ``learning_rate``, ``value_loss``.
        """
        metrics = self.warm_up(replay, updates, source_weights)
        rows, found = self._looks(replay, episodes)
        metrics["alarm"] = float(self._success.ringing)
        metrics["policy_updates"] = 0.0
        if self.estimator.fitted and not self._success.ringing:
            advantage, _ = self.estimator.advantages(rows, found)
            metrics |= self._improve(self.batch(rows, found), advantage)
        metrics["value_loss"] = self.estimator.fit(rows, found)
        return metrics

    def batch(self, rows: EpisodeRows, found: Looks) -> PolicyBatch:
        """The chunks of the looks as the present policy asked for them.

        Raises :class:`LearningError` where a recorded action is not what it would have executed.
        """
        h = self.config.residual.execute
        per_episode = np.bincount(found.episode, minlength=len(found.records)).tolist()
        draws = np.concatenate(
            [
                self.noise.draws(record.seed, count, h)
                for record, count in zip(found.records, per_episode, strict=True)
            ]
        )
        encoding = torch.from_numpy(rows.columns["encoding"][found.at])
        base = torch.from_numpy(rows.columns["base"][found.at])
        with torch.no_grad():
            mean, _ = self.actor(encoding, base)
            noise = torch.from_numpy(draws.astype(np.float32))
            asked = mean + torch.einsum("kt,bka->bta", self._basis, noise)
            log_probability = self.log_probability(mean, asked)
        self._check_executed(rows, found, asked.clamp(-1.0, 1.0).numpy())
        return PolicyBatch(encoding, base, asked, log_probability)

    def log_probability(self, mean: Tensor, asked: Tensor) -> Tensor:
        """Log-density ``[N]`` of chunks ``asked [N, h, A]`` around ``mean [N, h, A]``, but for a
        constant; dimensions without noise are left out."""
        apart = torch.einsum("kt,bta->bka", self._basis, asked - mean)[:, :, self._explored]
        return -0.5 * ((apart / self._scale) ** 2).sum((1, 2))

    def _check_executed(self, rows: EpisodeRows, found: Looks, wanted: np.ndarray) -> None:
        offset = np.arange(wanted.shape[1])
        valid = offset < found.steps[:, None]
        ran = np.where(valid, found.at[:, None] + offset, found.at[:, None])
        apart = np.abs(rows.columns["action"][ran] - wanted).max(axis=2) * valid
        # Written so that a value that is not a number fails it too.
        if not apart.max() <= TOLERANCE:
            worst = int(np.unravel_index(int(apart.argmax()), apart.shape)[0])
            record = found.records[int(found.episode[worst])]
            raise LearningError(
                f"the episode with scene {record.scene.id[:12]} and seed {record.seed} executed "
                f"actions up to {apart.max():.3g} away from those of the policy that is trained.",
                allowed=f"at most {TOLERANCE:g}: PPO learns from its own rollouts",
                remedy="use a backbone that answers an observation with one first chunk, and no "
                "critic at collection; or set learner.update to residual or weighted",
            )

    def _improve(self, batch: PolicyBatch, advantage: np.ndarray) -> dict[str, float]:
        spread = max(float(advantage.std()), LEAST_SPREAD)
        gain = torch.from_numpy(((advantage - advantage.mean()) / spread).astype(np.float32))
        before = copy.deepcopy(self.actor.state_dict())
        count, kl = 0, 0.0
        for _ in range(self.ppo.epochs):
            for part in minibatches(len(gain), self.ppo.minibatch, self.generator):
                mean, lean = self.actor(batch.encoding[part], batch.base[part])
                log_ratio = (
                    self.log_probability(mean, batch.asked[part]) - batch.log_probability[part]
                )
                loss = -clipped_gain(log_ratio, gain[part], self.ppo.clip).mean()
                loss = loss + self.ppo.anchor * (lean**2).mean()
                count += 1
                step("policy loss", loss, self._actor_optimiser, count, self.ppo.clip_norm)
            kl = self._divergence(batch)
            if kl > self.ppo.divergence:
                break
        self._adapt(kl)
        undone = not kl <= UNDO * self.ppo.divergence
        if undone:
            self.actor.load_state_dict(before)
        with torch.no_grad():
            _, lean = self.actor(batch.encoding, batch.base)
        return {
            "kl": kl,
            "deviation": float(lean.abs().mean()),
            "policy_updates": float(count),
            "learning_rate": float(self._actor_optimiser.param_groups[0]["lr"]),
            "alarm": float(undone),
        }

    def _divergence(self, batch: PolicyBatch) -> float:
        """Kullback-Leibler divergence of the policy from the one that acted, estimated from its
        samples as mean(ρ − 1 − log ρ) with ρ the ratio of probabilities (Schulman 2020)."""
        with torch.no_grad():
            mean, _ = self.actor(batch.encoding, batch.base)
            log_ratio = self.log_probability(mean, batch.asked) - batch.log_probability
            return float((log_ratio.exp() - 1.0 - log_ratio).mean())

    def _adapt(self, kl: float) -> None:
        group = self._actor_optimiser.param_groups[0]
        if not kl <= PACE * self.ppo.divergence:
            group["lr"] = max(group["lr"] / PACE, RATES[0])
        elif kl < self.ppo.divergence / PACE:
            group["lr"] = min(group["lr"] * PACE, RATES[1])

    def _looks(self, replay: Replay, episodes: int) -> tuple[EpisodeRows, Looks]:
        rows = replay.rollouts
        h, discount = self.config.residual.execute, self.config.discount
        return rows, looks(rows, newest(rows, episodes), h, discount, self.dense)

    # What the critic needs, and checkpoints ------------------------------------------------------

    def _prepare(self, replay: Replay) -> None:
        super()._prepare(replay)
        if not self.actor.normaliser.fitted:
            encoding = self._encodings(replay)
            self.actor.normaliser.fit(encoding)
            self._best.normaliser.fit(encoding)

    def _next_chunk(self, batch: TransitionBatch) -> Tensor:
        mean: Tensor = self.actor(
            torch.from_numpy(batch.next_encoding), torch.from_numpy(batch.next_base)
        )[0]
        return mean

    def save(self, folder: Path) -> None:
        """Write the residual (``residual.*``) and what :meth:`CriticLearner.save` writes."""
        self.actor.save(folder)
        super().save(folder)

    def _parts(self) -> dict[str, Any]:
        own = {
            "actor": self.actor,
            "actor_optimiser": self._actor_optimiser,
            "best": self._best,
            "success": self._success,
        }
        return super()._parts() | self.estimator.parts() | own

    def _plain(self) -> dict[str, Any]:
        return {"value_updates": self.estimator.updates}

    def _restore(self, plain: Mapping[str, Any]) -> None:
        self.estimator.updates = int(plain["value_updates"])


def clipped_gain(log_ratio: Tensor, gain: Tensor, clip: float) -> Tensor:
    """min(ρ·A, clip(ρ, 1 − ε, 1 + ε)·A) ``[N]`` for ``log_ratio`` = log ρ, ``gain`` = A and
    ``clip`` = ε (Schulman et al. 2017)."""
    ratio = log_ratio.exp()
    return torch.minimum(ratio * gain, ratio.clamp(1.0 - clip, 1.0 + clip) * gain)
