"""CriticLearner: what every update rule shares, the chunk critic that learns from the replay."""

from __future__ import annotations

import json
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from coda_envs.errors import ConfigError, LearningError, RunError
from coda_trainer.learning.alarm import AlarmConfig, ValueAlarm
from coda_trainer.learning.chunk_critic import (
    ChunkCritic,
    DenseReward,
    StatePotential,
    check_versions,
    chunk_targets,
    potential_values,
)
from coda_trainer.learning.relative import RelativeFeatures
from coda_trainer.learning.replay import Replay, TransitionBatch
from coda_trainer.learning.residual import ResidualConfig
from coda_trainer.learning.states import load_states


@dataclass(frozen=True)
class LearnerConfig:
    """The pilot's recipe (docs/design.md, value learning).

    ``residual``: shape of the residual; a rule without one takes h and A from it. ``discount``: γ
    per environment step; 0.9924 is .97 over a chunk of four. ``tau``: pace of the target networks.
    ``smoothing``: standard deviation of the noise on the chunk that a target looks at.
    ``actor_every``: critic updates for each of the residual actor's. ``anchor``: weight of the
    residual's size in the actor's loss.
    """

    residual: ResidualConfig = field(default_factory=ResidualConfig)
    alarm: AlarmConfig = field(default_factory=AlarmConfig)
    discount: float = 0.9924
    batch_size: int = 160
    demo_share: float = 0.25
    critic_rate: float = 3e-4
    actor_rate: float = 1e-4
    tau: float = 0.01
    members: int = 2
    width: int = 192
    smoothing: float = 0.04
    anchor: float = 0.3
    actor_every: int = 2
    observed_returns: bool = True

    def __post_init__(self) -> None:
        if not 0 < self.discount <= 1 or not 0 < self.tau <= 1:
            raise ConfigError(
                f"the learner has discount={self.discount} and tau={self.tau}.",
                allowed="both in (0, 1]",
            )
        for name in ("batch_size", "members", "width", "actor_every"):
            if getattr(self, name) < 1:
                raise ConfigError(
                    f"the learner's {name} is {getattr(self, name)}.",
                    allowed="whole numbers from 1",
                )


class CriticLearner(ABC):
    """Trains a chunk critic from a replay; a subclass says which policy it values, and trains that.

    All randomness comes from ``seed``.
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
        """``features``: F of the family's schema; ``encoding``: E of the base's encoding;
        ``relative``: see :class:`ChunkCritic`; ``dense``: paid beside the sparse reward."""
        self.config = config
        self.dense = dense
        # What it can pay from any state on.
        self.dense_bound = 0.0 if dense is None else dense.scale / (1.0 - config.discount)
        self.encoding_size = encoding
        self.updates = 0
        self.rng = np.random.default_rng(seed)
        self.generator = torch.Generator().manual_seed(int(self.rng.integers(2**63)))
        self.alarm = ValueAlarm(config.alarm)
        self.critic = ChunkCritic(
            features,
            config.residual.execute,
            len(config.residual.scale),
            potential,
            self.generator,
            relative=relative,
            members=config.members,
            width=config.width,
            tau=config.tau,
        )
        self._critic_optimiser = torch.optim.Adam(
            self.critic.online.parameters(), lr=config.critic_rate, fused=True
        )

    # What a rule adds --------------------------------------------------------------------------

    @abstractmethod
    def _next_chunk(self, batch: TransitionBatch) -> Tensor:
        """What the policy that the critic values does in the next states ``[B, h, A]``."""

    def _parts(self) -> dict[str, Any]:
        """Everything with a ``state_dict`` that the future depends on, by name."""
        return {
            "critic": self.critic,
            "critic_optimiser": self._critic_optimiser,
            "alarm": self.alarm,
        }

    def _plain(self) -> dict[str, Any]:
        """Further plain data that the future depends on."""
        return {}

    def _restore(self, plain: Mapping[str, Any]) -> None:  # noqa: B027
        """Take back what :meth:`_plain` gave; ValueError, KeyError or TypeError if it is not that.
        Nothing here, as there is none."""

    # What changes between rounds ---------------------------------------------------------------

    def set_potential(self, potential: StatePotential) -> None:
        """Train under another potential from now on; the critic keeps what it knows."""
        self.critic.set_potential(potential)

    # Training ----------------------------------------------------------------------------------

    def warm_up(
        self, replay: Replay, updates: int, source_weights: Mapping[str, float] | None = None
    ) -> dict[str, float]:
        """Critic updates only, so that no actor ever climbs an untrained critic.

        ``source_weights``: see :meth:`Replay.draw`. Returns means over the updates:
        ``critic_loss``; ``target`` (y, in units of Q − Φ) and ``value`` (y + Φ, in units of Q,
        what the alarm watches); ``actor_updates``: 0. Raises :class:`LearningError` on a replay
        that cannot serve or a loss that is not finite; the networks are then as before the bad
        update.
        """
        return self._run(replay, updates, source_weights)

    def _run(
        self,
        replay: Replay,
        updates: int,
        source_weights: Mapping[str, float] | None,
        update_actor: Callable[[TransitionBatch], dict[str, float]] | None = None,
    ) -> dict[str, float]:
        """``update_actor``: called with every ``actor_every``-th batch, unless the alarm rings."""
        self._prepare(replay)
        sums: dict[str, list[float]] = {}
        for _ in range(updates):
            batch = replay.draw(
                self.rng,
                self.config.batch_size,
                discount=self.config.discount,
                demo_share=self.config.demo_share,
                source_weights=source_weights,
                dense=self.dense,
            )
            metrics = self._update_critic(batch)
            self.updates += 1
            # As a share of the most that there is to get, so that the alarm's levels hold.
            self.alarm.observe_value(metrics["value"] / (1.0 + self.dense_bound))
            due = self.updates % self.config.actor_every == 0
            if update_actor is not None and due and not self.alarm.ringing:
                metrics |= update_actor(batch)
            for name, value in metrics.items():
                sums.setdefault(name, []).append(value)
        means = {name: math.fsum(values) / len(values) for name, values in sums.items()}
        means["actor_updates"] = float(len(sums.get("q", ())))
        means["alarm"] = float(self.alarm.ringing)
        return means

    def _prepare(self, replay: Replay) -> None:
        """Take the normalisation statistics, once a network, and check that the replay fits."""
        if replay.execute != self.config.residual.execute:
            raise LearningError(
                f"the replay cuts chunks of {replay.execute} actions.",
                allowed=f"{self.config.residual.execute}, as the residual executes",
            )
        if not self.critic.normaliser.fitted:
            features = replay.stored("features")
            self.critic.read(features[:1])
            self.critic.fit(features)

    def _encodings(self, replay: Replay) -> np.ndarray:
        """All encodings of the replay, checked, for the statistics of an actor's inputs."""
        encoding = replay.stored("encoding")
        if encoding.shape[1:] != (self.encoding_size,):
            raise LearningError(
                f"the replay holds encodings of shape {encoding.shape}.",
                allowed=f"[N, {self.encoding_size}]",
            )
        return encoding

    def _update_critic(self, batch: TransitionBatch) -> dict[str, float]:
        both = np.concatenate([batch.features, batch.next_features])
        phi, next_phi = np.split(potential_values(self.critic.potential, both), 2)
        with torch.no_grad():
            chunk = self._next_chunk(batch)
            noise = torch.randn(chunk.shape, generator=self.generator) * self.config.smoothing
            limit = 2 * self.config.smoothing
            chunk = (chunk + noise.clamp(-limit, limit)).clamp(-1.0, 1.0)
            state = self.critic.read(batch.next_features)
            next_value = self.critic.target_values(state, chunk, torch.ones(chunk.shape[:2]))
        target = chunk_targets(
            reward=batch.reward,
            steps=batch.steps,
            terminated=batch.terminated,
            phi=phi,
            next_phi=next_phi,
            next_value=next_value.amin(0).numpy().astype(np.float64),
            discount=self.config.discount,
            observed=batch.observed if self.config.observed_returns else None,
            dense=batch.dense,
            dense_bound=self.dense_bound,
        )
        q = self.critic.values(
            self.critic.read(batch.features),
            torch.from_numpy(batch.chunk),
            torch.from_numpy(batch.valid),
        )
        loss = ((q - torch.from_numpy(target.astype(np.float32))) ** 2).mean()
        step("critic loss", loss, self._critic_optimiser, self.updates + 1)
        self.critic.track_targets()
        mean = float(target.mean())
        return {
            "critic_loss": float(loss.detach()),
            "target": mean,
            "value": mean + float(phi.mean()),
        }

    # Checkpoints -------------------------------------------------------------------------------

    def save(self, folder: Path) -> None:
        """Write ``learner.pt`` and ``learner.json`` into a folder.

        They hold weights, targets, optimisers, generators and the alarm: a learner that loads them
        goes on bit for bit. The replay has its own :meth:`Replay.save`.
        """
        states = {name: part.state_dict() for name, part in self._parts().items()}
        torch.save({**states, "generator": self.generator.get_state()}, folder / "learner.pt")
        plain = {
            "updates": self.updates,
            "rng": self.rng.bit_generator.state,
            "potentials": self.critic.versions(),
            **self._plain(),
        }
        (folder / "learner.json").write_text(json.dumps(plain, indent=1), encoding="utf-8")

    def load(self, folder: Path, *, first: StatePotential, potential: StatePotential) -> None:
        """Restore what :meth:`save` wrote, into a learner with the same configuration.

        ``first``: the potential that the critic was first trained under; ``potential``: the one
        in force. Raises :class:`RunError` naming the file that is missing, damaged or of another
        configuration, and where a potential is not the checkpoint's.
        """
        path = folder / "learner.json"
        try:
            plain = json.loads(path.read_text(encoding="utf-8"))
            updates = int(plain["updates"])
            rng = np.random.default_rng()
            rng.bit_generator.state = plain["rng"]
            versions = {which: str(plain["potentials"][which]) for which in ("first", "now")}
            self._restore(plain)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise RunError(
                f"{path} is not a learner's state: {error}.", remedy="use another checkpoint"
            ) from error
        check_versions(versions, first, potential, str(path))
        states = load_states(folder / "learner.pt", self._parts())
        self.generator.set_state(states["generator"])
        self.critic.restore_potentials(first, potential)
        self.updates, self.rng = updates, rng


def step(
    what: str,
    loss: Tensor,
    optimiser: torch.optim.Optimizer,
    update: int,
    clip_norm: float | None = None,
) -> None:
    """One optimiser step down ``loss``, of the optimiser's own weights alone.

    ``update``: its number, for the message. ``clip_norm``: the longest that the gradient may be.
    Raises :class:`LearningError` where the loss is not finite; nothing has changed then.
    """
    value = float(loss.detach())
    if not math.isfinite(value):
        raise LearningError(
            f"{what} is {value} at update {update}.",
            allowed="finite values",
            remedy="resume from the last checkpoint with a lower learning rate",
        )
    weights = [w for group in optimiser.param_groups for w in group["params"]]
    # Only these: an actor's loss runs through the critic, whose weights it must not touch.
    gradients = torch.autograd.grad(loss, weights)
    for weight, gradient in zip(weights, gradients, strict=True):
        weight.grad = gradient
    if clip_norm is not None:
        nn.utils.clip_grad_norm_(weights, clip_norm)
    optimiser.step()
