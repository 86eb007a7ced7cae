"""A complete policy of your own: a small MLP that regresses the next eight actions.

    coda train --config configs/demo.yaml --plugin examples/tiny_policy.py

It reads the hand and the object table as they come (slots shuffled, no instruction), so it is
weak where several objects lie on the table: a starting point, not a baseline.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from coda_envs.sensing import N_SLOTS, PROPRIO, SLOT_COLUMNS
from coda_trainer.backbone import BackboneSpec, ChunkBatch, ObsBatch
from coda_trainer.policies.torch_backbone import TorchBackbone, initialised_from

HORIZON, ACTIONS = 8, 7


class TinyPolicy(TorchBackbone):
    """``proprio`` and ``objects`` in, a chunk of eight actions out; steady, so one candidate."""

    def __init__(self, seed: int = 0, width: int = 128) -> None:
        spec = BackboneSpec(
            name="tiny_policy",
            horizon=HORIZON,
            execute=4,
            state_keys=("proprio", "objects"),
            trainable=True,
        )
        with initialised_from(seed):
            module = nn.Sequential(
                nn.LazyLinear(width), nn.ReLU(),
                nn.Linear(width, width), nn.ReLU(),
                nn.Linear(width, HORIZON * ACTIONS), nn.Tanh(),
            )  # fmt: skip
            module(torch.zeros(1, len(PROPRIO) + N_SLOTS * len(SLOT_COLUMNS)))
        super().__init__(spec, module, seed=seed)

    def _chunks(self, obs: ObsBatch) -> Tensor:
        flat = [np.asarray(obs[key]).reshape(len(obs[key]), -1) for key in self.spec.state_keys]
        out: Tensor = self.module(torch.as_tensor(np.concatenate(flat, 1), dtype=torch.float32))
        return out.view(-1, HORIZON, ACTIONS)

    def loss(self, batch: ChunkBatch, weight: Tensor) -> Tensor:
        """Squared error of the valid actions."""
        valid = torch.as_tensor(batch.valid, dtype=torch.float32)
        error = (self._chunks(batch.obs) - torch.as_tensor(batch.actions)).square().mean(2)
        return (weight[:, None] * valid * error).sum() / valid.sum()

    def sample(self, obs: ObsBatch, n: int = 1, *, seed: int | None = None) -> np.ndarray:
        """The same chunk ``n`` times: a regression has no other candidate to offer."""
        with torch.inference_mode():
            return self._chunks(obs)[:, None].repeat(1, n, 1, 1).numpy()
