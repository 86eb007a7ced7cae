"""What critic and residual actor are made of: an MLP with LayerNorm, a normaliser fitted once."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor, nn

#: Smallest standard deviation that is divided by; a near-constant column would explode otherwise.
STD_FLOOR = 1e-3
#: Normalised inputs are clipped to this range: a column that was constant when the statistics
#: were taken must not drown the others once it changes.
CLIP = 5.0


class Normaliser(nn.Module):
    """Shifts and scales columns to mean 0 and standard deviation 1, by statistics taken once.

    The statistics are frozen after :meth:`fit`: what a network has learnt depends on them. They
    travel in the checkpoint.
    """

    mean: Tensor
    std: Tensor
    fitted: Tensor

    def __init__(self, size: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(size))
        self.register_buffer("std", torch.ones(size))
        self.register_buffer("fitted", torch.tensor(False))

    def fit(self, values: np.ndarray) -> None:
        """Take the statistics of ``values [N, size]``."""
        values = values.astype(np.float64)
        std = np.maximum(values.std(axis=0), STD_FLOOR)
        self.mean.copy_(torch.from_numpy(values.mean(axis=0)))
        self.std.copy_(torch.from_numpy(std))
        self.fitted.fill_(True)

    def forward(self, values: Tensor) -> Tensor:
        """Normalised ``values [B, size]``."""
        return ((values - self.mean) / self.std).clamp(-CLIP, CLIP)


def mlp(inputs: int, outputs: int, width: int, generator: torch.Generator) -> nn.Sequential:
    """Two hidden layers of ``width`` with LayerNorm and ReLU; weights drawn from ``generator``."""
    return nn.Sequential(
        _linear(inputs, width, generator),
        nn.LayerNorm(width),
        nn.ReLU(),
        _linear(width, width, generator),
        nn.LayerNorm(width),
        nn.ReLU(),
        _linear(width, outputs, generator),
    )


def _linear(inputs: int, outputs: int, generator: torch.Generator) -> nn.Linear:
    # Made without values first: nn.Linear would draw from torch's global generator.
    layer = nn.Linear(inputs, outputs, device="meta").to_empty(device="cpu")
    bound = 1 / math.sqrt(inputs)
    with torch.no_grad():
        layer.weight.uniform_(-bound, bound, generator=generator)
        layer.bias.uniform_(-bound, bound, generator=generator)
    return layer


def track(target: nn.Module, online: nn.Module, tau: float) -> None:
    """Move the target's weights the share ``tau`` of the way to the online ones."""
    with torch.no_grad():
        torch._foreach_lerp_(list(target.parameters()), list(online.parameters()), tau)
