"""Layers that the heads of the built-in policies share."""

from __future__ import annotations

from torch import Tensor, nn


class Trunk(nn.Sequential):
    """Two hidden layers: ``[B, n_inputs]`` → ``[B, width]``."""

    def __init__(self, n_inputs: int, width: int) -> None:
        super().__init__(nn.Linear(n_inputs, width), nn.SiLU(), nn.Linear(width, width), nn.SiLU())


class ResidualBlocks(nn.Module):
    """``[B, width]`` → ``[B, n_outputs]``: normalised blocks that each add to what came in."""

    def __init__(self, width: int, n_outputs: int, count: int = 2) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(
            nn.Sequential(
                nn.LayerNorm(width), nn.Linear(width, width), nn.SiLU(), nn.Linear(width, width)
            )
            for _ in range(count)
        )
        self.leave = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, n_outputs))

    def forward(self, hidden: Tensor) -> Tensor:
        """What the last layer makes of the sum."""
        for block in self.blocks:
            hidden = hidden + block(hidden)
        out: Tensor = self.leave(hidden)
        return out
