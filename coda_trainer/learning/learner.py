"""ResidualLearner: chunk TD3 of a bounded residual actor, over recorded episodes."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

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
from coda_trainer.learning.networks import track
from coda_trainer.learning.relative import RelativeFeatures
from coda_trainer.learning.replay import Replay, TransitionBatch
from coda_trainer.learning.residual import ResidualActor, ResidualConfig
from coda_trainer.learning.states import load_states

#: Smallest mean |Q| that the actor's loss is divided by: near zero it would drown the anchor.
LEAST_Q = 0.05


@dataclass(frozen=True)
class LearnerConfig:
    """The pilot's recipe (docs/design.md, value learning).

    ``discount``: γ per environment step; 0.9924 is .97 over a chunk of four. ``tau``: pace of the
    target networks. ``smoothing``: standard deviation of the noise on the target actor's chunk.
    ``actor_every``: critic updates for each of the actor's. ``anchor``: weight of the residual's
    size in the actor's loss.
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


class ResidualLearner:
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
        """``features``: F of the family's schema; ``encoding``: E of the base's encoding;
        ``relative``: see :class:`ChunkCritic`; ``dense``: paid beside the sparse reward."""
        self.config = config
        self.dense = dense
        # What it can pay from any state on.
        self._dense_bound = 0.0 if dense is None else dense.scale / (1.0 - config.discount)
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
        self._encoding = encoding
        self._new_actor()

    def _new_actor(self) -> None:
        shape = self.config.residual
        self.actor = ResidualActor(shape, self._encoding, self.generator)
        self.target_actor = ResidualActor(shape, self._encoding, self.generator)
        self.target_actor.load_state_dict(self.actor.state_dict())
        self.target_actor.requires_grad_(False)
        self._actor_optimiser = torch.optim.Adam(
            self.actor.network.parameters(), lr=self.config.actor_rate, fused=True
        )

    # What changes between rounds ---------------------------------------------------------------

    def set_potential(self, potential: StatePotential) -> None:
        """Train under another potential from now on; the critic keeps what it knows."""
        self.critic.set_potential(potential)

    def reset_actor(self) -> None:
        """Start again from a residual of nothing, for a new base (:meth:`Replay.rebase` first)."""
        self._new_actor()

    def observe_rollouts(self, success: float) -> None:
        """Success rate of the latest rollouts, for the alarm: always on comparable scenes."""
        self.alarm.observe_success(success)

    # Training ----------------------------------------------------------------------------------

    def warm_up(
        self, replay: Replay, updates: int, source_weights: Mapping[str, float] | None = None
    ) -> dict[str, float]:
        """Critic updates only, so that the actor never climbs an untrained critic.

        Arguments, result and errors are those of :meth:`train`.
        """
        return self._run(replay, updates, source_weights, with_actor=False)

    def train(
        self, replay: Replay, updates: int, source_weights: Mapping[str, float] | None = None
    ) -> dict[str, float]:
        """``updates`` of the critic, every ``actor_every``-th with one of the actor.

        ``source_weights``: see :meth:`Replay.draw`. Returns means over the updates:
        ``critic_loss``; ``target`` (y, in units of Q − Φ) and ``value`` (y + Φ, in units of Q,
        what the alarm watches); ``q`` and ``deviation`` (mean |a − b| / s before clipping) of the
        actor's updates; ``actor_updates`` done; ``alarm`` 1 where it rings at the end, and the
        actor was or will be held. Raises :class:`LearningError` on a replay that cannot serve or a
        loss that is not finite; the networks are then as before the bad update.
        """
        return self._run(replay, updates, source_weights, with_actor=True)

    def _run(
        self,
        replay: Replay,
        updates: int,
        source_weights: Mapping[str, float] | None,
        with_actor: bool,
    ) -> dict[str, float]:
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
            self.alarm.observe_value(metrics["value"] / (1.0 + self._dense_bound))
            due = with_actor and self.updates % self.config.actor_every == 0
            if due and not self.alarm.ringing:
                metrics |= self._update_actor(batch)
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
        if not self.actor.normaliser.fitted:
            encoding = replay.stored("encoding")
            if encoding.shape[1:] != (self._encoding,):
                raise LearningError(
                    f"the replay holds encodings of shape {encoding.shape}.",
                    allowed=f"[N, {self._encoding}]",
                )
            self.actor.normaliser.fit(encoding)
            self.target_actor.normaliser.fit(encoding)

    def _update_critic(self, batch: TransitionBatch) -> dict[str, float]:
        both = np.concatenate([batch.features, batch.next_features])
        phi, next_phi = np.split(potential_values(self.critic.potential, both), 2)
        with torch.no_grad():
            chunk, _ = self.target_actor(
                torch.from_numpy(batch.next_encoding), torch.from_numpy(batch.next_base)
            )
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
            dense_bound=self._dense_bound,
        )
        q = self.critic.values(
            self.critic.read(batch.features),
            torch.from_numpy(batch.chunk),
            torch.from_numpy(batch.valid),
        )
        loss = ((q - torch.from_numpy(target.astype(np.float32))) ** 2).mean()
        self._step("critic loss", loss, self._critic_optimiser)
        self.critic.track_targets()
        mean = float(target.mean())
        return {
            "critic_loss": float(loss.detach()),
            "target": mean,
            "value": mean + float(phi.mean()),
        }

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
        self._step("actor loss", loss, self._actor_optimiser)
        track(self.target_actor.network, self.actor.network, self.config.tau)
        return {
            "q": float(q.detach().mean()),
            "deviation": float(lean.detach().abs().mean()),
        }

    def _step(self, what: str, loss: Tensor, optimiser: torch.optim.Optimizer) -> None:
        if not math.isfinite(float(loss.detach())):
            raise LearningError(
                f"{what} is {float(loss.detach())} at update {self.updates + 1}.",
                allowed="finite values",
                remedy="resume from the last checkpoint with a lower learning rate",
            )
        weights = [w for group in optimiser.param_groups for w in group["params"]]
        # Only these: the actor's loss runs through the critic, whose weights it must not touch.
        gradients = torch.autograd.grad(loss, weights)
        for weight, gradient in zip(weights, gradients, strict=True):
            weight.grad = gradient
        optimiser.step()

    # Checkpoints -------------------------------------------------------------------------------

    def save(self, folder: Path) -> None:
        """Write the actor (``residual.*``), ``learner.pt`` and ``learner.json`` into a folder.

        They hold weights, targets, optimisers, generators and the alarm: a learner that loads them
        goes on bit for bit. The replay has its own :meth:`Replay.save`.
        """
        self.actor.save(folder)
        states = {name: part.state_dict() for name, part in self._torch_parts().items()}
        torch.save({**states, "generator": self.generator.get_state()}, folder / "learner.pt")
        plain = {
            "updates": self.updates,
            "rng": self.rng.bit_generator.state,
            "potentials": self.critic.versions(),
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
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise RunError(
                f"{path} is not a learner's state: {error}.", remedy="use another checkpoint"
            ) from error
        check_versions(versions, first, potential, str(path))
        states = load_states(folder / "learner.pt", self._torch_parts())
        self.generator.set_state(states["generator"])
        self.critic.restore_potentials(first, potential)
        self.updates, self.rng = updates, rng

    def _torch_parts(self) -> dict[str, torch.nn.Module | torch.optim.Optimizer | ValueAlarm]:
        return {
            "critic": self.critic,
            "actor": self.actor,
            "target_actor": self.target_actor,
            "critic_optimiser": self._critic_optimiser,
            "actor_optimiser": self._actor_optimiser,
            "alarm": self.alarm,
        }
