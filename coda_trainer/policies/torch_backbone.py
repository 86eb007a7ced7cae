"""TorchBackbone: what every PyTorch policy shares, so that a new one is its loss and its sampler.

A policy subclasses it once and writes ``loss`` and ``sample``; see ``docs`` for one in full.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import pickle
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from coda_envs.errors import RunError
from coda_trainer.backbone import BackboneSpec, ChunkBatch, ObsBatch

MODEL, TRAINING, SPEC = "model.pt", "training.pt", "spec.json"


@contextlib.contextmanager
def initialised_from(seed: int) -> Iterator[None]:
    """Make modules inside it: their initial weights come from ``seed`` alone, and the process's
    global generator is left as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield


class TorchBackbone(ABC):
    """A trainable backbone made of one ``nn.Module``.

    AdamW with gradient clipping; ``generator`` is the source of all its randomness. Everything
    that a checkpoint must carry besides weights, such as normalisation, is a buffer of ``module``.
    """

    def __init__(
        self,
        spec: BackboneSpec,
        module: nn.Module,
        *,
        seed: int,
        learning_rate: float = 1e-3,
        weight_decay: float = 1e-4,
        clip_norm: float = 1.0,
    ) -> None:
        self.spec = spec
        self.module = module
        self.learning_rate = learning_rate
        self.clip_norm = clip_norm
        self.generator = torch.Generator().manual_seed(seed)
        self._weight_decay = weight_decay

    @cached_property
    def optimizer(self) -> torch.optim.Optimizer:
        """Made when it is first needed: torch's optimisers take seconds to import, and a process
        that only acts needs none."""
        return torch.optim.AdamW(
            self.parameters(), lr=self.learning_rate, weight_decay=self._weight_decay, fused=True
        )

    @abstractmethod
    def loss(self, batch: ChunkBatch, weight: Tensor) -> Tensor:
        """The scalar loss of a batch, each sample's share times ``weight [B]`` float32.

        Invalid steps (``batch.valid``) must not count. Randomness comes from ``self.generator``.
        """

    @abstractmethod
    def sample(self, obs: ObsBatch, n: int = 1, *, seed: int | None = None) -> np.ndarray:
        """See :meth:`coda_trainer.backbone.Backbone.sample`."""

    def parameters(self) -> Iterator[nn.Parameter]:
        """What learns; override it to freeze a part of the module."""
        return self.module.parameters()

    def reset(self, env_ids: Sequence[int] | None = None) -> None:  # noqa: B027
        """Nothing to forget: these policies keep no state between observations."""

    def close(self) -> None:  # noqa: B027
        """Nothing to release."""

    def set_learning_rate(self, value: float) -> None:
        """Use ``value`` from the next update on; ``learning_rate`` stays as it is."""
        for group in self.optimizer.param_groups:
            group["lr"] = value

    def update(self, batch: ChunkBatch, weight: np.ndarray) -> dict[str, float]:
        """One optimiser step; returns ``loss`` and ``grad_norm`` (before clipping).

        Raises ``ValueError`` for weights that are not B finite numbers ≥ 0 with a positive sum or
        a batch without a valid step, :class:`RunError` where the loss or a gradient is not finite.
        """
        _check_weights(batch, weight)
        loss = self.loss(batch, torch.as_tensor(weight, dtype=torch.float32))
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        norm = nn.utils.clip_grad_norm_(self.parameters(), self.clip_norm)
        if not (torch.isfinite(loss) and torch.isfinite(norm)):
            raise RunError(
                f"backbone {self.spec.name!r}: loss {loss.item()}, gradient norm {norm.item()}.",
                remedy="look for non-finite observations or actions, or lower the learning rate",
            )
        self.optimizer.step()
        return {"loss": loss.item(), "grad_norm": norm.item()}

    def save(self, folder: Path) -> None:
        """Write ``model.pt``, ``training.pt`` and ``spec.json`` into an existing folder."""
        torch.save(self.module.state_dict(), folder / MODEL)
        training = {
            "optimizer": self.optimizer.state_dict(),
            "generator": self.generator.get_state(),
        }
        torch.save(training, folder / TRAINING)
        (folder / SPEC).write_text(json.dumps(self._described(), indent=2, sort_keys=True) + "\n")

    def load(self, folder: Path) -> None:
        """Restore what :meth:`save` wrote; the backbone then continues bit for bit.

        Only tensors and plain values are read, never code. Raises :class:`RunError` naming the
        file that is missing, broken or of another backbone; the backbone is then not to be used.
        """
        self._check_spec(folder / SPEC)
        model, training = _read(folder / MODEL), _read(folder / TRAINING)
        with _naming(folder / MODEL):
            self.module.load_state_dict(model)
        with _naming(folder / TRAINING):
            self.optimizer.load_state_dict(training["optimizer"])
            self.generator.set_state(training["generator"])

    def _described(self) -> dict[str, Any]:
        spec = dataclasses.asdict(self.spec)
        spec["images"] = {name: list(shape) for name, shape in self.spec.images.items()}
        spec["state_keys"] = list(self.spec.state_keys)
        return spec

    def _check_spec(self, path: Path) -> None:
        try:
            saved = json.loads(path.read_text())
        except (OSError, ValueError) as error:
            raise RunError(f"{path} cannot be read: {error}.") from error
        if not isinstance(saved, dict):
            raise RunError(f"{path} is not a backbone's description.")
        own = self._described()
        # How many actions are executed before looking again may differ from training.
        differing = sorted(
            k for k in own.keys() | saved.keys() if k != "execute" and own.get(k) != saved.get(k)
        )
        if differing:
            key = differing[0]
            raise RunError(
                f"{path} was saved by another backbone: {key} is {saved.get(key)!r}, "
                f"here {own.get(key)!r}.",
                remedy="make the backbone with the options it was saved with",
            )


def _check_weights(batch: ChunkBatch, weight: np.ndarray) -> None:
    if np.shape(weight) != (len(batch),):
        raise ValueError(f"weight has shape {np.shape(weight)}, expected ({len(batch)},)")
    if not (np.isfinite(weight).all() and (weight >= 0).all() and weight.sum() > 0):
        raise ValueError("weights must be finite, at least 0, and not all 0")
    if not batch.valid.any():
        raise ValueError("the batch has no valid step")


def _read(path: Path) -> Any:
    try:
        return torch.load(path, weights_only=True, map_location="cpu")
    except (OSError, RuntimeError, ValueError, EOFError, pickle.UnpicklingError) as error:
        raise RunError(
            f"{path} cannot be read: {error}", remedy="use a checkpoint that was saved completely"
        ) from error


@contextlib.contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Turn what torch raises for contents that do not fit into an error that names the file."""
    try:
        yield
    except (RuntimeError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise RunError(
            f"{path} does not fit this backbone: {error}",
            remedy="make the backbone with the options it was saved with",
        ) from error
