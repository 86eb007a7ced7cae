"""Choice: the chunk critic picks among a backbone's samples, whose weights stay as they are.

Weighted while collecting, so that what looks second best is tried too; the best one when measured.
The critic reads simulator state: what acts this way is no policy that a robot could run, and every
report says "critic at test time".
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np
import torch

from coda_envs.errors import LearningError, RunError
from coda_envs.family import get_family
from coda_trainer.learning.chunk_critic import ChunkCritic, NoPotential
from coda_trainer.learning.relative import RelativeFeatures
from coda_trainer.learning.states import load_states

#: Temperature β of the weights exp(Q / β), in units of success probability.
TEMPERATURE = 0.05


@dataclass(frozen=True)
class ChoiceSpec:
    """A choice as plain data, so that worker processes can build it.

    ``folder``: what :func:`save_critic` wrote; it must not change while the spec is in use.
    ``candidates``: N samples to pick one of. ``best``: the best one, or else one by weight.
    """

    folder: Path
    candidates: int
    best: bool


def save_critic(critic: ChunkCritic, family: str, folder: Path) -> None:
    """Write ``critic.json`` and ``critic.pt`` of a family's critic into an existing folder."""
    described = {
        "family": family,
        "features": critic.feature_size,
        "execute": critic.execute,
        "action_dim": critic.action_dim,
        "members": len(critic.online),
        "width": critic.width,
        "relative": critic.relative is not None,
    }
    (folder / "critic.json").write_text(json.dumps(described, indent=1), encoding="utf-8")
    torch.save(critic.state_dict(), folder / "critic.pt")


class Choice:
    """Picks one of N candidate chunks for each of B states."""

    def __init__(self, critic: ChunkCritic, *, best: bool) -> None:
        self.critic = critic
        self.best = best

    @classmethod
    def load(cls, spec: ChoiceSpec) -> Self:
        """The choice that a spec describes. Raises :class:`RunError` naming the bad file.

        The critic comes without its potential, which shifts all candidates of a state alike.
        """
        path = spec.folder / "critic.json"
        try:
            described = json.loads(path.read_text(encoding="utf-8"))
            schema = get_family(described["family"]).schema
            critic = ChunkCritic(
                int(described["features"]),
                int(described["execute"]),
                int(described["action_dim"]),
                NoPotential(),
                torch.Generator(),
                relative=RelativeFeatures(schema) if described["relative"] else None,
                members=int(described["members"]),
                width=int(described["width"]),
            )
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise RunError(
                f"{path} is not a critic: {error}.", remedy="use another checkpoint"
            ) from error
        load_states(spec.folder / "critic.pt", {"": critic})
        return cls(critic, best=spec.best)

    def __call__(
        self, features: np.ndarray, candidates: np.ndarray, rngs: Sequence[np.random.Generator]
    ) -> np.ndarray:
        """The chosen chunks ``[B, h, A]`` of ``candidates [B, N, h, A]`` at ``features [B, F]``.

        A choice by weight draws row i from ``rngs[i]`` alone. Raises :class:`LearningError` where
        a value is not finite.
        """
        values = self.critic.score(features, candidates).astype(np.float64)
        if not np.isfinite(values).all():
            raise LearningError(
                "the critic that picks among the backbone's samples gives values that are not "
                "finite.",
                remedy="resume from the last checkpoint with a lower learning rate",
            )
        if self.best:
            picked = values.argmax(axis=1)
        else:
            weights = np.exp((values - values.max(axis=1, keepdims=True)) / TEMPERATURE)
            edges = np.cumsum(weights, axis=1)
            points = np.array([rng.random() for rng in rngs]) * edges[:, -1]
            picked = (edges <= points[:, None]).sum(axis=1)
        return np.asarray(candidates[np.arange(len(candidates)), picked])
