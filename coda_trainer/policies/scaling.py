"""Shift and scale of columns by statistics of the demonstrations, kept in the checkpoint."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Scaling(nn.Module):
    """Columns ``[..., size]`` to mean 0 and standard deviation 1, and back.

    ``floor``: the smallest standard deviation, in the columns' unit; a column that hardly moved in
    the demonstrations would otherwise turn every later movement into an enormous number.
    """

    mean: Tensor
    std: Tensor

    def __init__(self, size: int, floor: float) -> None:
        super().__init__()
        self.floor = floor
        self.register_buffer("mean", torch.zeros(size))
        self.register_buffer("std", torch.ones(size))

    def fit(self, values: Tensor) -> None:
        """Take the statistics of ``values [N, size]``."""
        values = values.double()
        self.mean.copy_(values.mean(0))
        self.std.copy_(values.std(0, unbiased=False).clamp_min(self.floor))

    def forward(self, values: Tensor) -> Tensor:
        """Scaled values."""
        return (values - self.mean) / self.std

    def inverse(self, scaled: Tensor) -> Tensor:
        """Values in their own unit again."""
        return scaled * self.std + self.mean
