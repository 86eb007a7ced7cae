"""ChunkPolicy: what the built-in policies share, so that each is its head, its error and its draw.

An :class:`ObservationReader` makes features of what is seen, a head makes a chunk of the features,
and actions are normalised by what demonstrations did.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping

import numpy as np
import torch
from torch import Tensor, nn

from coda_envs.errors import ConfigError, RunError, suggest
from coda_trainer.backbone import BackboneSpec, ChunkBatch, ObsBatch
from coda_trainer.policies.image_reader import ImageReader
from coda_trainer.policies.observations import ObservationReader
from coda_trainer.policies.scaling import Scaling
from coda_trainer.policies.slot_reader import SlotReader
from coda_trainer.policies.torch_backbone import TorchBackbone, initialised_from

ACTION_DIM = 7
#: What a policy can be told to look at: the table of objects, or the two cameras.
OBSERVATIONS = ("state", "rgb")
#: Smallest standard deviation of an action dimension, as a share of its half range.
_ACTION_FLOOR = 0.1


class ChunkModule(nn.Module):
    """Everything of a policy that a checkpoint keeps."""

    fitted: Tensor

    def __init__(self, reader: ObservationReader, make_head: Callable[[int], nn.Module]) -> None:
        super().__init__()
        self.reader = reader
        self.head = make_head(reader.size)
        self.actions = Scaling(ACTION_DIM, floor=_ACTION_FLOOR)
        self.register_buffer("fitted", torch.tensor(False))


class ChunkPolicy(TorchBackbone):
    """A policy over chunks; a subclass gives its head and writes ``errors`` and ``draw``."""

    module: ChunkModule

    def __init__(
        self,
        name: str,
        make_head: Callable[[int], nn.Module],
        *,
        seed: int,
        horizon: int,
        execute: int,
        learning_rate: float,
        observation: str,
        image_size: int,
        multi_sample: bool,
        counts: Mapping[str, int],
    ) -> None:
        """``make_head``: from the size of the features. ``observation``: one of
        :data:`OBSERVATIONS`; ``rgb`` is part of the name then. ``image_size``: pixels of a square
        image, for ``rgb``. ``counts``: further options that must be at least 1.

        Raises :class:`ConfigError` for an option out of its range.
        """
        if observation not in OBSERVATIONS:
            raise ConfigError(
                f"{name}: observation is {observation!r}.",
                allowed=suggest(observation, OBSERVATIONS),
            )
        name = f"{name}_rgb" if observation == "rgb" else name
        for option, value in {"horizon": horizon, **counts}.items():
            if value < 1:
                raise ConfigError(f"{name}: {option} is {value}.", allowed="at least 1")
        if not 0 < learning_rate < 1:
            raise ConfigError(
                f"{name}: learning_rate is {learning_rate}.", allowed="between 0 and 1"
            )
        with initialised_from(seed):
            reader = ImageReader(image_size) if observation == "rgb" else SlotReader()
            module = ChunkModule(reader, make_head)
        spec = BackboneSpec(
            name=name,
            horizon=horizon,
            execute=execute,
            action_dim=ACTION_DIM,
            images=reader.images,
            state_keys=reader.state_keys,
            trainable=True,
            multi_sample=multi_sample,
            seedable=True,
        )
        super().__init__(spec, module, seed=seed, learning_rate=learning_rate)

    @abstractmethod
    def errors(self, features: Tensor, actions: Tensor, valid: Tensor) -> Tensor:
        """How far off the policy is at each step, ``[B, H]``.

        ``features [B, F]``; ``actions [B, H, 7]`` normalised, of any value where not
        ``valid [B, H]``.
        """

    @abstractmethod
    def draw(self, features: Tensor, n: int, seed: int | None) -> Tensor:
        """``n`` normalised chunks for each row of ``features [B, F]``: ``[B, n, H, 7]``."""

    def prepare(self, batch: ChunkBatch) -> None:
        """Take the normalisation statistics from ``batch``, unless there are some already: the
        weights depend on them, so they are taken once and then belong to the checkpoint."""
        if self.module.fitted:
            return
        if not batch.valid.any():
            raise ValueError("the batch has no valid step")
        self.module.reader.fit(batch.obs)
        self.module.actions.fit(torch.as_tensor(batch.actions[batch.valid], dtype=torch.float32))
        self.module.fitted.fill_(True)

    def loss(self, batch: ChunkBatch, weight: Tensor) -> Tensor:
        """The mean error of the valid steps: Σ weight·valid·error / Σ valid."""
        self.prepare(batch)
        actions = self.module.actions(torch.as_tensor(batch.actions, dtype=torch.float32))
        valid = torch.as_tensor(batch.valid)
        error = self.errors(self.module.reader(batch.obs), actions, valid)
        loss: Tensor = (weight[:, None] * valid * error).sum() / valid.sum()
        return loss

    def sample(self, obs: ObsBatch, n: int = 1, *, seed: int | None = None) -> np.ndarray:
        """``n`` chunks for each of B observations: ``[B, n, H, 7]`` float32 within [-1, 1]; see
        the policy's ``draw``. Raises :class:`RunError` before the first training."""
        self._check_fitted()
        with torch.inference_mode():
            chunks = self.module.actions.inverse(self.draw(self.module.reader(obs), n, seed))
            return chunks.clamp(-1, 1).numpy()

    def encode(self, obs: ObsBatch) -> np.ndarray:
        """The features that the head acts on, ``[B, E]`` float32. Raises :class:`RunError` before
        the first training."""
        self._check_fitted()
        with torch.inference_mode():
            features: Tensor = self.module.reader(obs)
            return features.numpy()

    def _check_fitted(self) -> None:
        if not self.module.fitted:
            raise RunError(
                f"{self.spec.name} has no normalisation statistics yet, so it cannot act.",
                remedy="train it on demonstrations or load a checkpoint first",
            )
