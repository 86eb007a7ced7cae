"""FlowChunk: the default policy. Flow matching over chunks of actions.

A chunk is drawn by carrying Gaussian noise x₀ along straight paths x_t = (1 - t) x₀ + t x₁ to the
actions x₁ (Lipman et al., Flow Matching for Generative Modeling, 2023; π₀, Black et al., 2024). The
network predicts the path's end, from which the velocity is (x̂₁ - x_t) / (1 - t): the last step then
lands on the prediction itself and leaves no noise in the actions.
"""

from __future__ import annotations

import math
from functools import partial

import numpy as np
import torch
from torch import Tensor, nn

from coda_trainer.policies.chunk_policy import ACTION_DIM, ChunkPolicy
from coda_trainer.policies.layers import ResidualBlocks, Trunk

_TIME_FEATURES = 16


class FlowHead(nn.Module):
    """Where a noisy chunk ends: ``(features [B, F], x_t [B, C], t [B]) → x̂₁ [B, C]``."""

    def __init__(self, n_features: int, chunk: int, width: int) -> None:
        super().__init__()
        self.trunk = Trunk(n_features, width)
        self.enter = nn.Linear(width + chunk + _TIME_FEATURES, width)
        self.end = ResidualBlocks(width, chunk)
        frequencies = math.pi * 2.0 ** torch.arange(_TIME_FEATURES // 2) / 2
        self.register_buffer("frequencies", frequencies, persistent=False)

    frequencies: Tensor

    def condition(self, features: Tensor) -> Tensor:
        """The part that does not depend on the noise, computed once a sample: ``[B, width]``."""
        condition: Tensor = self.trunk(features)
        return condition

    def forward(self, condition: Tensor, x: Tensor, t: Tensor) -> Tensor:
        """The predicted end x̂₁."""
        phase = t[:, None] * self.frequencies
        hidden = self.enter(torch.cat((condition, x, phase.sin(), phase.cos()), dim=-1))
        end: Tensor = self.end(hidden)
        return end


class FlowChunk(ChunkPolicy):
    """Reads the table of objects, or with ``observation="rgb"`` two cameras of ``image_size``
    pixels; draws chunks with ``steps`` Euler steps.

    ``width``: of the hidden layers. Raises :class:`ConfigError` for an option out of its range.
    """

    def __init__(
        self,
        seed: int = 0,
        horizon: int = 8,
        execute: int = 4,
        width: int = 160,
        steps: int = 5,
        learning_rate: float = 1e-3,
        observation: str = "state",
        image_size: int = 64,
    ) -> None:
        super().__init__(
            "flow_chunk",
            lambda size: FlowHead(size, horizon * ACTION_DIM, width),
            seed=seed,
            horizon=horizon,
            execute=execute,
            learning_rate=learning_rate,
            observation=observation,
            image_size=image_size,
            multi_sample=True,
            counts={"width": width, "steps": steps},
        )
        self._steps = steps

    def errors(self, features: Tensor, actions: Tensor, valid: Tensor) -> Tensor:
        """Flow-matching error: the squared distance of the path's end, that is (1 - t)² times the
        velocity's, the mean over the action's dimensions."""
        ends = actions.flatten(1)
        noise = torch.randn(ends.shape, generator=self.generator)
        t = torch.rand(len(ends), generator=self.generator)
        # Where a step is not valid its end is unknown: the path stays at its noise.
        known = valid[:, :, None].expand_as(actions).flatten(1)
        x = torch.where(known, torch.lerp(noise, ends, t[:, None]), noise)
        head = self._head()
        predicted = head(head.condition(features), x, t)
        error: Tensor = (predicted.view_as(actions) - actions).square().mean(2)
        return error

    def draw(self, features: Tensor, n: int, seed: int | None) -> Tensor:
        """Carry noise to its end.

        The first candidate starts the flow at zero, the middle of its noise: what acts alone
        (n = 1) is steady, and a residual on top of it has one base to correct. The others are
        draws: the noise of row i's candidate j depends on (seed, i, j) alone, not on B or ``n``.
        Without a seed the backbone's own generator gives one.
        """
        if seed is None:
            seed = int(torch.randint(2**31, (), generator=self.generator))
        head = self._head()
        condition = head.condition(features)
        x = torch.from_numpy(self._noise(len(condition), n, seed))
        condition = condition.repeat_interleave(n, dim=0)
        for step in range(self._steps):
            t = step / self._steps
            end = head(condition, x, torch.full((len(x),), t))
            x = x + (end - x) / (self._steps * (1 - t))
        return x.view(-1, n, self.spec.horizon, ACTION_DIM)

    def _head(self) -> FlowHead:
        head = self.module.head
        assert isinstance(head, FlowHead)
        return head

    def _noise(self, rows: int, n: int, seed: int) -> np.ndarray:
        """``[rows · n, H · 7]``: zeros for the first candidate, for each other one a stream of its
        own, read row by row."""
        size = self.spec.horizon * ACTION_DIM
        streams = [np.zeros((rows, size), dtype=np.float32)]
        streams += [
            np.random.default_rng((seed, j)).standard_normal((rows, size), dtype=np.float32)
            for j in range(1, n)
        ]
        return np.stack(streams, axis=1).reshape(rows * n, size)


#: The same policy on images.
flow_chunk_rgb = partial(FlowChunk, observation="rgb")
