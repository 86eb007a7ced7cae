"""FlowChunk: the built-in policy. Flow matching over chunks of actions, on object tables.

A chunk is drawn by carrying Gaussian noise x₀ along straight paths x_t = (1 - t) x₀ + t x₁ to the
actions x₁ (Lipman et al., Flow Matching for Generative Modeling, 2023; π₀, Black et al., 2024). The
network predicts the path's end, from which the velocity is (x̂₁ - x_t) / (1 - t): the last step then
lands on the prediction itself and leaves no noise in the actions.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor, nn

from coda_envs.errors import ConfigError, PluginError, RunError
from coda_envs.sensing import N_SLOTS, PROPRIO, SLOT_COLUMNS, object_table
from coda_trainer.backbone import BackboneSpec, ChunkBatch, ObsBatch
from coda_trainer.policies.language import count_words
from coda_trainer.policies.scaling import Scaling
from coda_trainer.policies.slot_reader import SlotReader
from coda_trainer.policies.torch_backbone import TorchBackbone, initialised_from

ACTION_DIM = 7
#: Smallest standard deviation of an action dimension, as a share of its half range.
_ACTION_FLOOR = 0.1
_TIME_FEATURES = 16


class FlowHead(nn.Module):
    """Where a noisy chunk ends: ``(features [B, F], x_t [B, C], t [B]) → x̂₁ [B, C]``."""

    def __init__(self, n_features: int, chunk: int, width: int) -> None:
        super().__init__()
        self.trunk = nn.Sequential(
            nn.Linear(n_features, width), nn.SiLU(), nn.Linear(width, width), nn.SiLU()
        )
        self.enter = nn.Linear(width + chunk + _TIME_FEATURES, width)
        self.blocks = nn.ModuleList(
            nn.Sequential(
                nn.LayerNorm(width), nn.Linear(width, width), nn.SiLU(), nn.Linear(width, width)
            )
            for _ in range(2)
        )
        self.leave = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, chunk))
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
        for block in self.blocks:
            hidden = hidden + block(hidden)
        end: Tensor = self.leave(hidden)
        return end


class FlowPolicy(nn.Module):
    """Everything of the policy that a checkpoint keeps."""

    def __init__(self, horizon: int, width: int) -> None:
        super().__init__()
        self.reader = SlotReader()
        self.head = FlowHead(self.reader.size, horizon * ACTION_DIM, width)
        self.actions = Scaling(ACTION_DIM, floor=_ACTION_FLOOR)
        self.register_buffer("fitted", torch.tensor(False))

    fitted: Tensor


class FlowChunk(TorchBackbone):
    """Reads ``proprio``, ``objects`` and ``instruction``; draws chunks with ``steps`` Euler steps.

    ``width``: of the hidden layers. Raises :class:`ConfigError` for an option out of its range.
    """

    module: FlowPolicy

    def __init__(
        self,
        seed: int = 0,
        horizon: int = 8,
        execute: int = 4,
        width: int = 160,
        steps: int = 5,
        learning_rate: float = 1e-3,
    ) -> None:
        counts = {"horizon": horizon, "width": width, "steps": steps}
        for name, value in counts.items():
            if value < 1:
                raise ConfigError(f"flow_chunk: {name} is {value}.", allowed="at least 1")
        if not 0 < learning_rate < 1:
            raise ConfigError(
                f"flow_chunk: learning_rate is {learning_rate}.", allowed="between 0 and 1"
            )
        spec = BackboneSpec(
            name="flow_chunk",
            horizon=horizon,
            execute=execute,
            action_dim=ACTION_DIM,
            state_keys=("proprio", "objects", "instruction"),
            trainable=True,
            multi_sample=True,
            seedable=True,
        )
        with initialised_from(seed):
            module = FlowPolicy(horizon, width)
        super().__init__(spec, module, seed=seed, learning_rate=learning_rate)
        self._steps = steps

    def prepare(self, batch: ChunkBatch) -> None:
        """Take the normalisation statistics from ``batch``, unless there are some already: the
        weights depend on them, so they are taken once and then belong to the checkpoint."""
        if self.module.fitted:
            return
        if not batch.valid.any():
            raise ValueError("the batch has no valid step")
        proprio, objects, _ = self._tensors(batch.obs)
        self.module.reader.fit(proprio, objects)
        self.module.actions.fit(torch.as_tensor(batch.actions[batch.valid], dtype=torch.float32))
        self.module.fitted.fill_(True)

    def loss(self, batch: ChunkBatch, weight: Tensor) -> Tensor:
        """Flow-matching error of the valid steps: Σ weight·valid·error / Σ valid, the error being
        the squared distance of the path's end, that is (1 - t)² times the velocity's."""
        self.prepare(batch)
        actions = self.module.actions(torch.as_tensor(batch.actions, dtype=torch.float32))
        valid = torch.as_tensor(batch.valid)
        ends = actions.flatten(1)
        noise = torch.randn(ends.shape, generator=self.generator)
        t = torch.rand(len(ends), generator=self.generator)
        # Where a step is not valid its end is unknown: the path stays at its noise.
        known = valid[:, :, None].expand_as(actions).flatten(1)
        x = torch.where(known, torch.lerp(noise, ends, t[:, None]), noise)

        predicted = self.module.head(self.module.head.condition(self._features(batch.obs)), x, t)
        error = (predicted.view_as(actions) - actions).square().mean(2)
        loss: Tensor = (weight[:, None] * valid * error).sum() / valid.sum()
        return loss

    def sample(self, obs: ObsBatch, n: int = 1, *, seed: int | None = None) -> np.ndarray:
        """``n`` chunks for each of B observations: ``[B, n, H, 7]`` float32 within [-1, 1].

        The first candidate starts the flow at zero, the middle of its noise: what acts alone
        (n = 1) is steady, and a residual on top of it has one base to correct. The others are
        draws: the noise of row i's candidate j depends on (seed, i, j) alone, not on B or ``n``.
        Without a seed the backbone's own generator gives one. Raises :class:`RunError` before the
        first training.
        """
        self._check_fitted()
        if seed is None:
            seed = int(torch.randint(2**31, (), generator=self.generator))
        with torch.inference_mode():
            condition = self.module.head.condition(self._features(obs))
            x = torch.from_numpy(self._noise(len(condition), n, seed))
            condition = condition.repeat_interleave(n, dim=0)
            for step in range(self._steps):
                t = step / self._steps
                end = self.module.head(condition, x, torch.full((len(x),), t))
                x = x + (end - x) / (self._steps * (1 - t))
            chunks = self.module.actions.inverse(x.view(-1, n, self.spec.horizon, ACTION_DIM))
            return chunks.clamp(-1, 1).numpy()

    def encode(self, obs: ObsBatch) -> np.ndarray:
        """The features the head is conditioned on, ``[B, E]`` float32: geometry of the objects the
        instruction names, the hand, and what stands around. Raises :class:`RunError` before the
        first training."""
        self._check_fitted()
        with torch.inference_mode():
            return self._features(obs).numpy()

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

    def _features(self, obs: ObsBatch) -> Tensor:
        features: Tensor = self.module.reader(*self._tensors(obs))
        return features

    def _tensors(self, obs: ObsBatch) -> tuple[Tensor, Tensor, Tensor]:
        """Proprio, objects and word counts; raises :class:`PluginError` for what does not fit."""
        proprio, objects = _array(obs, "proprio"), _array(obs, "objects")
        instruction = _array(obs, "instruction")
        _check_shape("proprio", proprio, (len(PROPRIO),))
        _check_shape("objects", objects, (N_SLOTS * len(SLOT_COLUMNS),))
        _check_shape("instruction", instruction, (None,))
        return (
            torch.as_tensor(proprio, dtype=torch.float32),
            torch.as_tensor(object_table(objects), dtype=torch.float32),
            torch.from_numpy(count_words(instruction)),
        )

    def _check_fitted(self) -> None:
        if not self.module.fitted:
            raise RunError(
                "flow_chunk has no normalisation statistics yet, so it cannot act.",
                remedy="train it on demonstrations or load a checkpoint first",
            )


def _array(obs: Mapping[str, np.ndarray], key: str) -> np.ndarray:
    if key not in obs:
        raise PluginError(
            f"flow_chunk needs the observation {key!r}; it was given {', '.join(sorted(obs))}.",
            remedy="make the environment with obs_mode='state', 'rgb+state' or 'privileged'",
        )
    return np.asarray(obs[key])


def _check_shape(key: str, array: np.ndarray, row: tuple[int | None, ...]) -> None:
    fits = array.ndim == len(row) + 1 and all(
        want in (None, have) for want, have in zip(row, array.shape[1:], strict=True)
    )
    if not fits:
        wanted = ", ".join("any" if want is None else str(want) for want in row)
        raise PluginError(
            f"flow_chunk was given {key!r} of shape {array.shape}.", allowed=f"[B, {wanted}]"
        )
