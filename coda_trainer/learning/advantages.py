"""Advantages of executed chunks: V'(s) = V − Φ, and generalised advantage estimation over chunks.

Shared by the two update rules that climb no critic, chunk PPO and advantage-weighted updates.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from coda_envs.text2potential.wrapper import shaping
from coda_trainer.learning.chunk_critic import ChunkCritic, CriticState, potential_values
from coda_trainer.learning.critic_learner import step
from coda_trainer.learning.episode_rows import EpisodeRows
from coda_trainer.learning.looks import Looks
from coda_trainer.learning.networks import mlp

#: Chunks an update of the value network.
MINIBATCH = 512
#: Learning rate of the value network.
VALUE_RATE = 1e-3
#: Times that the first fit computes the returns anew, and passes over the data in each fit.
FIRST_FITS, PASSES = 4, 6


def chunk_advantages(
    *,
    reward: np.ndarray,
    steps: np.ndarray,
    terminated: np.ndarray,
    last: np.ndarray,
    phi: np.ndarray,
    next_phi: np.ndarray,
    value: np.ndarray,
    next_value: np.ndarray,
    discount: float,
    trace: float,
) -> np.ndarray:
    """GAE ``[N]`` over chunks, in units of Q: A_j = Σ_l (Π_{i<l} γ^{k_{j+i}} λ) δ_{j+l}.

    δ = G + F + γ^k (1 − d) V'(s_{t+k}) − V'(s_t), F = γ^k (1 − d) Φ(s_{t+k}) − Φ(s_t). All arrays
    are ``[N]``: ``steps``: k; ``terminated``: d, False where the episode was only cut off, which
    keeps Φ and V'; ``last``: the episode ends with this chunk; ``value``, ``next_value``: V' = V −
    Φ before and after; ``discount``: γ per environment step; ``trace``: λ per chunk. With
    V' = V − Φ the result does not depend on Φ. Schulman et al. 2016, over options of k steps.
    """
    pace = np.power(discount, steps)
    later = pace * np.where(terminated, 0.0, next_value)
    error = reward + shaping(phi, next_phi, discount, steps, terminated) + later - value
    carry = np.where(last, 0.0, pace * trace)
    advantage = np.empty(len(error))
    following = 0.0
    for j in range(len(error) - 1, -1, -1):
        following = error[j] + carry[j] * following
        advantage[j] = following
    return advantage


class StateValue(nn.Module):
    """V'(s) over what a chunk critic reads of a state.

    It was first trained under the potential that the critic was, so the critic's offset makes it
    mean V − Φ for the potential in force, too.
    """

    def __init__(self, inputs: int, width: int, generator: torch.Generator) -> None:
        """``inputs``: numbers that the critic reads of a state."""
        super().__init__()
        self.network = mlp(inputs, 1, width, generator)

    def forward(self, state: CriticState) -> Tensor:
        """V' ``[B]``."""
        value: Tensor = self.network(state.inputs).squeeze(1) + state.offset
        return value


class AdvantageEstimator:
    """V' of the policy that acts, and the advantages of its chunks against it.

    The critic lends its reading of a state, its normalisation and the potential in force.
    """

    def __init__(
        self,
        critic: ChunkCritic,
        generator: torch.Generator,
        *,
        discount: float,
        trace: float,
        dense_bound: float = 0.0,
    ) -> None:
        """``discount``: γ per environment step; ``trace``: λ per chunk; ``dense_bound``: the most
        that a dense reward pays from any state on."""
        self.critic = critic
        self.generator = generator
        self.discount = discount
        self.trace = trace
        self.dense_bound = dense_bound
        self.updates = 0
        self.value = StateValue(len(critic.normaliser.mean), critic.width, generator)
        self._optimiser = torch.optim.Adam(self.value.parameters(), lr=VALUE_RATE, fused=True)

    @property
    def fitted(self) -> bool:
        """Whether V' was ever trained."""
        return self.updates > 0

    def parts(self) -> dict[str, Any]:
        """Network and optimiser by name, for a checkpoint."""
        return {"value": self.value, "value_optimiser": self._optimiser}

    def values(self, features: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """``(V', Φ)`` ``[B]`` of ``features [B, F]``, V' within its bounds [−Φ, 1 − Φ]."""
        phi = potential_values(self.critic.potential, features)
        with torch.no_grad():
            value = self.value(self.critic.read(features)).numpy().astype(np.float64)
        return np.clip(value, -phi, 1.0 + self.dense_bound - phi), phi

    def advantages(
        self, rows: EpisodeRows, found: Looks, trace: float | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """``(A, λ-returns of V')`` ``[N]`` of the looks ``found`` in ``rows``, under the potential
        in force. ``trace``: another λ; 1 gives Monte Carlo returns."""
        features = rows.columns["features"]
        value, phi = self.values(features[found.at])
        next_value, next_phi = self.values(features[found.at + found.steps])
        advantage = chunk_advantages(
            reward=found.reward,
            steps=found.steps,
            terminated=found.terminated,
            last=found.last,
            phi=phi,
            next_phi=next_phi,
            value=value,
            next_value=next_value,
            discount=self.discount,
            trace=self.trace if trace is None else trace,
        )
        return advantage, np.clip(advantage + value, -phi, 1.0 + self.dense_bound - phi)

    def fit(self, rows: EpisodeRows, found: Looks) -> float:
        """Fit V' to the returns of the looks; the mean loss of the last pass.

        The first time on Monte Carlo returns, several times over, so that what truncated episodes
        bootstrap from is of use; later on λ-returns. Raises :class:`LearningError` where the loss
        is not finite.
        """
        first = not self.fitted
        loss = 0.0
        for _ in range(FIRST_FITS if first else 1):
            _, returns = self.advantages(rows, found, 1.0 if first else None)
            loss = self._passes(rows.columns["features"][found.at], returns)
        return loss

    def _passes(self, features: np.ndarray, returns: np.ndarray) -> float:
        state = self.critic.read(features)
        wanted = torch.from_numpy(returns.astype(np.float32))
        losses: list[float] = []
        for _ in range(PASSES):
            losses = []
            for part in minibatches(len(wanted), MINIBATCH, self.generator):
                own = CriticState(state.inputs[part], state.offset[part])
                loss = ((self.value(own) - wanted[part]) ** 2).mean()
                step("value loss", loss, self._optimiser, self.updates + 1)
                self.updates += 1
                losses.append(float(loss.detach()))
        return sum(losses) / len(losses)


def minibatches(count: int, size: int, generator: torch.Generator) -> tuple[Tensor, ...]:
    """Indices of ``count`` samples in random order, in equal parts of about ``size``."""
    order = torch.randperm(count, generator=generator)
    return torch.tensor_split(order, max(1, round(count / size)))
