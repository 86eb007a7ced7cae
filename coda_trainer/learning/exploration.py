"""Exploration noise on chunks, drawn from explicit generators."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from coda_envs.errors import ConfigError

#: Noise of (x, y, z, rotation x, rotation y, yaw, gripper), as multiples of its standard deviation.
NOISE = (1.0, 1.0, 1.5, 1.0, 1.0, 2.0, 1.5)


class Noise(Protocol):
    """Exploration as plain data that a worker process can be sent."""

    def __call__(
        self,
        chunk: np.ndarray,
        rngs: Sequence[np.random.Generator],
        multiplier: float | Sequence[float] = 1.0,
    ) -> np.ndarray:
        """Noisy ``chunk [B, h, A]``; row i draws from ``rngs[i]`` alone. ``multiplier``: factor on
        the standard deviation, for all rows or one a row."""


@dataclass(frozen=True)
class ExplorationNoise:
    """Gaussian noise on a chunk's actions.

    ``std`` in action units, times ``per_dimension``; a chunk gets noise with probability
    ``share``, the others run as they are. ``held``: share of the variance that stays the same over
    the chunk, the kind of step that a residual shift takes; the rest is independent.
    """

    std: float = 0.05
    share: float = 0.8
    held: float = 0.5
    per_dimension: tuple[float, ...] = NOISE

    def __post_init__(self) -> None:
        shares = 0 <= self.share <= 1 and 0 <= self.held <= 1
        if not (np.isfinite(self.std) and self.std >= 0 and shares):
            raise ConfigError(
                f"exploration noise has std={self.std}, share={self.share} and held={self.held}.",
                allowed="std ≥ 0, share and held in [0, 1]",
            )

    def __call__(
        self,
        chunk: np.ndarray,
        rngs: Sequence[np.random.Generator],
        multiplier: float | Sequence[float] = 1.0,
    ) -> np.ndarray:
        """Noisy ``chunk [B, h, A]`` within [-1, 1]; row i draws from ``rngs[i]`` alone.

        ``multiplier``: factor on the standard deviation, for all rows or one a row.
        """
        if len(rngs) != len(chunk) or chunk.shape[2] != len(self.per_dimension):
            raise ConfigError(
                f"exploration noise for {len(rngs)} generators and {len(self.per_dimension)} "
                f"action dimensions got chunks of shape {chunk.shape}.",
                allowed="one generator a row, one multiple an action dimension",
            )
        factor = np.broadcast_to(np.asarray(multiplier, dtype=np.float64), len(chunk))
        (_, h, a), rows = chunk.shape, len(chunk)
        chances, draws = np.empty(rows), np.empty((rows, h + 1, a))
        for row, rng in enumerate(rngs):
            # Both are drawn every time, so that what follows in the stream is the same.
            chances[row] = rng.random()
            rng.standard_normal(out=draws[row])
        # The last draw of a row is the one that the whole chunk holds.
        noise = np.sqrt(1 - self.held) * draws[:, :h] + np.sqrt(self.held) * draws[:, h:]
        noise *= self.std * np.asarray(self.per_dimension) * factor[:, None, None]
        chosen = (chances < self.share)[:, None, None]
        noisy = np.where(chosen, np.clip(chunk + noise, -1.0, 1.0), chunk)
        return noisy.astype(chunk.dtype)
