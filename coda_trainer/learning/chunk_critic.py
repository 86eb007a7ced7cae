"""The chunk critic Q'(s, chunk) = Q − Φ: ensemble, targets and what a new potential does to it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor, nn

from coda_envs.errors import LearningError, RunError
from coda_envs.text2potential.wrapper import shaping
from coda_trainer.learning.networks import Normaliser, mlp, track
from coda_trainer.learning.relative import RelativeFeatures


class StatePotential(Protocol):
    """A potential Φ over state features, as :func:`compile_potential` makes one."""

    @property
    def version(self) -> str:
        """Hash of the program it was compiled from."""

    def __call__(self, features: np.ndarray) -> np.ndarray:
        """Φ ``[B]`` in [0, 1] of ``features [B, F]``."""


class DenseReward(Protocol):
    """A reward r(s') ≥ 0 on top of the sparse one that is no difference of potentials."""

    #: The most that one step pays.
    scale: float

    def __call__(self, features: np.ndarray) -> np.ndarray:
        """What arriving in the states ``features [B, F]`` pays: ``[B]`` in [0, ``scale``]."""


class NoPotential:
    """Φ ≡ 0: the sparse reward as it is."""

    version = "none"

    def __call__(self, features: np.ndarray) -> np.ndarray:
        """Zeros ``[B]``."""
        return np.zeros(len(features))


def potential_values(potential: StatePotential, features: np.ndarray) -> np.ndarray:
    """Φ ``[B]`` float64. Raises :class:`LearningError` where a value is not within [0, 1]."""
    phi = np.asarray(potential(features), dtype=np.float64)
    if phi.shape != features.shape[:1]:
        raise LearningError(
            f"potential {potential.version[:12]} gives shape {phi.shape}.",
            allowed=f"{features.shape[:1]}",
        )
    # Written so that a value that is not a number fails it too.
    if not np.all((phi >= 0) & (phi <= 1)):
        raise LearningError(
            f"potential {potential.version[:12]} gives {phi[~((phi >= 0) & (phi <= 1))][0]}.",
            allowed="[0, 1]",
            remedy="correct the potential program",
        )
    return phi


def chunk_targets(
    *,
    reward: np.ndarray,
    steps: np.ndarray,
    terminated: np.ndarray,
    phi: np.ndarray,
    next_phi: np.ndarray,
    next_value: np.ndarray,
    discount: float,
    observed: np.ndarray | None = None,
    dense: np.ndarray | None = None,
    dense_bound: float = 0.0,
) -> np.ndarray:
    """Targets y = G + F + γ^k (1 − d) V'(s_{t+k}) ``[B]``, clipped to [−Φ(s), 1 − Φ(s)].

    ``reward``: G; ``steps``: k; ``terminated``: d, False where the episode was only cut off;
    ``next_value``: V'(s_{t+k}) = V − Φ; ``discount``: γ per environment step. With Φ ≡ 0 these
    are the sparse targets within [0, 1]. The bounds are exact: the sparse rewards of an episode
    sum to one at most. ``observed``: the discounted sparse return that the episode went on to get;
    what was reached can be reached, so y is at least that much (minus Φ). It carries a success to
    the episode's first chunk at once, where bootstrapping needs an update of the targets for each
    chunk in between (Oh et al. 2018 use the same bound). Shaping: Ng, Harada and Russell (1999),
    over options.

    ``dense``: D = Σ_{i<k} γ^i r(s_{t+i+1}) of a :class:`DenseReward`, which is added to G;
    ``dense_bound``: the most that it can pay from any state on, by which the upper bound rises.
    The bounds stay valid (no such reward is negative) but are no longer tight, and the values are
    those of another task.
    """
    shaped = reward + shaping(phi, next_phi, discount, steps, terminated)
    if dense is not None:
        shaped = shaped + dense
    later = np.power(discount, steps) * np.where(terminated, 0.0, next_value)
    least = np.zeros_like(phi) if observed is None else observed
    return np.asarray(np.clip(shaped + later, least - phi, 1.0 + dense_bound - phi))


@dataclass(frozen=True)
class CriticState:
    """B states as the critic reads them: normalised ``inputs [B, F]``, ``offset [B]``."""

    inputs: Tensor
    offset: Tensor


class ChunkCritic(nn.Module):
    """An ensemble over (state features, chunk, which of its actions ran), with target networks.

    It sees simulator state, which the actor never does. Its output means Q − Φ for the potential
    in force. A network that was first trained under Φ_first holds Q − Φ_first; when the potential
    changes to Φ_now, Φ_first − Φ_now is added to online and target outputs alike, so that they
    mean Q − Φ_now from the first update on. Several changes need no more than that.
    """

    def __init__(
        self,
        features: int,
        execute: int,
        action_dim: int,
        potential: StatePotential,
        generator: torch.Generator,
        *,
        relative: RelativeFeatures | None = None,
        members: int = 2,
        width: int = 192,
        tau: float = 0.01,
    ) -> None:
        """``features``: F; ``execute``: h; ``action_dim``: A; ``tau``: pace of the targets.

        ``relative`` adds offsets between gripper and roles to what the networks read.
        """
        super().__init__()
        self.feature_size = features
        self.execute = execute
        self.action_dim = action_dim
        self.width = width
        self.tau = tau
        self.first_potential = potential
        self.potential = potential
        self.relative = relative
        size = features if relative is None else relative.size
        self.normaliser = Normaliser(size)
        inputs = size + execute * (action_dim + 1)
        self.online = nn.ModuleList(mlp(inputs, 1, width, generator) for _ in range(members))
        self.target = nn.ModuleList(mlp(inputs, 1, width, generator) for _ in range(members))
        self.target.load_state_dict(self.online.state_dict())
        self.target.requires_grad_(False)

    def set_potential(self, potential: StatePotential) -> None:
        """Put another potential in force; outputs shift by Φ_old − Φ_new."""
        self.potential = potential

    def restore_potentials(self, first: StatePotential, now: StatePotential) -> None:
        """The potentials of a checkpoint: the one first trained under, and the one in force."""
        self.first_potential = first
        self.potential = now

    def read(self, features: np.ndarray) -> CriticState:
        """States for :meth:`values` from ``features [B, F]`` as recorded."""
        if features.shape[1:] != (self.feature_size,):
            raise LearningError(
                f"the critic got features of shape {features.shape}.",
                allowed=f"[B, {self.feature_size}]",
                remedy="one critic serves one family",
            )
        inputs = self.normaliser(torch.from_numpy(self._expanded(features)))
        if self.first_potential.version == self.potential.version:
            return CriticState(inputs, torch.zeros(len(features)))
        offset = potential_values(self.first_potential, features)
        offset = offset - potential_values(self.potential, features)
        return CriticState(inputs, torch.from_numpy(offset.astype(np.float32)))

    def fit(self, features: np.ndarray) -> None:
        """Take the normalisation statistics from ``features [N, F]``."""
        self.normaliser.fit(self._expanded(features))

    def _expanded(self, features: np.ndarray) -> np.ndarray:
        if self.relative is None:
            return features.astype(np.float32)
        return self.relative(features)

    def values(self, state: CriticState, chunk: Tensor, valid: Tensor) -> Tensor:
        """Q' ``[members, B]`` of ``chunk [B, h, A]`` with ``valid [B, h]`` (float)."""
        return self._values(self.online, state, chunk, valid)

    def target_values(self, state: CriticState, chunk: Tensor, valid: Tensor) -> Tensor:
        """The same by the target networks."""
        return self._values(self.target, state, chunk, valid)

    def _values(
        self, members: nn.ModuleList, state: CriticState, chunk: Tensor, valid: Tensor
    ) -> Tensor:
        ran = (chunk * valid.unsqueeze(2)).flatten(1)
        inputs = torch.cat([state.inputs, ran, valid], dim=1)
        return torch.stack([m(inputs).squeeze(1) for m in members]) + state.offset

    @torch.no_grad()
    def score(self, features: np.ndarray, candidates: np.ndarray) -> np.ndarray:
        """Lowest member's Q' ``[B, N]`` of ``candidates [B, N, h, A]`` at ``features [B, F]``."""
        b, n, h, _ = candidates.shape
        state = self.read(np.repeat(features, n, axis=0))
        chunk = torch.from_numpy(candidates.astype(np.float32)).flatten(0, 1)
        lowest = self.values(state, chunk, torch.ones(b * n, h)).amin(0)
        return np.asarray(lowest.view(b, n).numpy())

    def track_targets(self) -> None:
        """Move the target networks one step towards the online ones."""
        track(self.target, self.online, self.tau)

    def versions(self) -> dict[str, str]:
        """Versions of the two potentials, for a checkpoint."""
        return {"first": self.first_potential.version, "now": self.potential.version}


def check_versions(
    saved: dict[str, str], first: StatePotential, now: StatePotential, source: str
) -> None:
    """Raises :class:`RunError` where potentials are not those that a checkpoint was made with."""
    for which, given in (("first", first), ("now", now)):
        if saved[which] != given.version:
            raise RunError(
                f"{source} was trained with the {which} potential {saved[which][:12]}, "
                f"not {given.version[:12]}.",
                remedy="give the potentials of that checkpoint",
            )
