"""RegressionChunk: one pass from what is seen to all actions of a chunk, fitted by L1 error.

The recipe of OpenVLA-OFT (Kim, Finn & Liang 2025): all actions at once in place of one after the
other, continuous in place of binned, the mean absolute error in place of a likelihood. The answer
is then the median of what demonstrations did, and there is only one.
"""

from __future__ import annotations

from functools import partial

from torch import Tensor, nn

from coda_envs.errors import PluginError
from coda_trainer.policies.chunk_policy import ACTION_DIM, ChunkPolicy
from coda_trainer.policies.layers import ResidualBlocks, Trunk


class RegressionChunk(ChunkPolicy):
    """Reads the table of objects, or with ``observation="rgb"`` two cameras of ``image_size``
    pixels; answers with one chunk.

    ``width``: of the hidden layers. Raises :class:`ConfigError` for an option out of its range.
    """

    def __init__(
        self,
        seed: int = 0,
        horizon: int = 8,
        execute: int = 4,
        width: int = 160,
        learning_rate: float = 1e-3,
        observation: str = "state",
        image_size: int = 64,
    ) -> None:
        super().__init__(
            "regression_chunk",
            lambda size: nn.Sequential(
                Trunk(size, width), ResidualBlocks(width, horizon * ACTION_DIM)
            ),
            seed=seed,
            horizon=horizon,
            execute=execute,
            learning_rate=learning_rate,
            observation=observation,
            image_size=image_size,
            multi_sample=False,
            counts={"width": width},
        )

    def errors(self, features: Tensor, actions: Tensor, valid: Tensor) -> Tensor:
        """Absolute error, the mean over the action's dimensions."""
        del valid
        return (self._chunk(features) - actions).abs().mean(2)

    def draw(self, features: Tensor, n: int, seed: int | None) -> Tensor:
        """The chunk; ``seed`` changes nothing. Raises :class:`PluginError` for ``n`` > 1."""
        del seed
        if n != 1:
            raise PluginError(
                f"{self.spec.name} was asked for {n} candidates, and its answer is always the "
                "same: a choice among copies would be none.",
                allowed="n = 1",
                remedy="use flow_chunk for best-of-N, or leave best-of-N off",
            )
        return self._chunk(features)[:, None]

    def _chunk(self, features: Tensor) -> Tensor:
        chunk: Tensor = self.module.head(features)
        return chunk.view(-1, self.spec.horizon, ACTION_DIM)


#: The same policy on images.
regression_chunk_rgb = partial(RegressionChunk, observation="rgb")
