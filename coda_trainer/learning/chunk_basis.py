"""An orthonormal basis over a chunk's steps, and exploration noise expressed in it.

The first vector is constant: a step that the whole chunk holds. The others alternate, the later
the faster. A chunk that is off by the same amount at every step is what an action chunk most often
has to be corrected by, and noise that averages out within a chunk shows nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from coda_envs.errors import ConfigError
from coda_trainer.learning.jobs import episode_rng

#: Standard deviation for (x, y, z, rotation x, rotation y, yaw, gripper), in action units, before
#: the factors of the basis. Tilting the hand never helped: those two are not explored.
STD = (0.056, 0.056, 0.07, 0.0, 0.0, 0.105, 0.175)


def chunk_basis(steps: int) -> np.ndarray:
    """The DCT-II basis ``[h, h]`` of ``steps`` = h steps: rows are orthonormal, the first constant
    (Ahmed, Natarajan and Rao 1974)."""
    k, t = np.arange(steps)[:, None], np.arange(steps)[None, :]
    basis: np.ndarray = np.sqrt(2.0 / steps) * np.cos(np.pi * (t + 0.5) * k / steps)
    basis[0] /= np.sqrt(2.0)
    return basis


@dataclass(frozen=True)
class BasisNoise:
    """Gaussian noise on every chunk, independent in the coordinates of :func:`chunk_basis`.

    ``std``: for each action dimension, in action units; 0 leaves the dimension as it is. Times
    ``held`` for the held coordinate, ``rest`` for the others. What it adds depends on the episode's
    seed and the number of the look alone, so that :meth:`draws` can give it again.
    """

    std: tuple[float, ...] = STD
    held: float = 2.0
    rest: float = 0.7

    def __post_init__(self) -> None:
        values = (*self.std, self.held, self.rest)
        if not all(np.isfinite(v) and v >= 0 for v in values) or not max(self.std, default=0) > 0:
            raise ConfigError(
                f"noise in the basis has std={self.std}, held={self.held} and rest={self.rest}.",
                allowed="finite numbers from 0, and one std above 0",
            )

    def scale(self, steps: int) -> np.ndarray:
        """Standard deviations ``[h, A]`` in the basis of ``steps`` = h steps."""
        factor = np.full((steps, 1), self.rest)
        factor[0] = self.held
        return np.asarray(factor * np.asarray(self.std))

    def draws(self, seed: int, looks: int, steps: int) -> np.ndarray:
        """What the first ``looks`` looks of the episode with that seed had added, in coordinates
        of the basis: ``[looks, h, A]``."""
        shape = (looks, steps, len(self.std))
        return np.asarray(episode_rng(seed).standard_normal(shape) * self.scale(steps))

    def __call__(
        self,
        chunk: np.ndarray,
        rngs: Sequence[np.random.Generator],
        multiplier: float | Sequence[float] = 1.0,
    ) -> np.ndarray:
        """``chunk [B, h, A]`` with noise, which may leave [-1, 1]: the environment clips what it
        executes. Row i draws from ``rngs[i]`` alone.

        ``multiplier`` is not looked at: a gradient of the policy's own probabilities needs the
        noise that they were computed with.
        """
        (_, h, a) = chunk.shape
        if len(rngs) != len(chunk) or a != len(self.std):
            raise ConfigError(
                f"noise for {len(rngs)} generators and {len(self.std)} action dimensions got "
                f"chunks of shape {chunk.shape}.",
                allowed="one generator a row, one std an action dimension",
            )
        draws = np.array([rng.standard_normal((h, a)) for rng in rngs]) * self.scale(h)
        noise = np.einsum("kt,bka->bta", chunk_basis(h), draws)
        return np.asarray(chunk + noise, dtype=chunk.dtype)
