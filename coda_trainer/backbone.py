"""The plugin protocol: any policy that proposes action chunks. ``discovery`` finds one by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, runtime_checkable

import numpy as np

from coda_envs.errors import PluginError

#: Observations of B environments: each key of the environment's Dict space with a leading axis B,
#: e.g. ``proprio [B, 8]`` float32, ``objects [B, 180]`` float32, ``instruction [B, 128]`` uint8.
ObsBatch = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class ChunkBatch:
    """What a backbone learns from.

    ``obs``: :data:`ObsBatch` at the chunks' first steps. ``actions [B, H, A]``: the actions that
    followed, in environment units, zero where not valid. ``valid [B, H]``: whether the step was
    executed (an episode can end inside a chunk).
    """

    obs: ObsBatch
    actions: np.ndarray
    valid: np.ndarray

    def __len__(self) -> int:
        return len(self.actions)


@dataclass(frozen=True)
class BackboneSpec:
    """What a backbone predicts, needs and can do."""

    name: str
    horizon: int
    execute: int
    action_dim: int = 7
    images: Mapping[str, tuple[int, int, int]] = field(default_factory=dict)
    state_keys: tuple[str, ...] = ()
    trainable: bool = False
    multi_sample: bool = False
    seedable: bool = False
    remote: bool = False

    def __post_init__(self) -> None:
        if not 1 <= self.execute <= self.horizon:
            raise PluginError(
                f"backbone {self.name!r} executes {self.execute} of {self.horizon} actions.",
                allowed="1 ≤ execute ≤ horizon",
            )


@runtime_checkable
class Backbone(Protocol):
    """A policy that proposes chunks of actions."""

    spec: BackboneSpec

    def reset(self, env_ids: Sequence[int] | None = None) -> None:
        """Forget what belongs to the episodes of these environments (all, where None)."""

    def sample(self, obs: ObsBatch, n: int = 1, *, seed: int | None = None) -> np.ndarray:
        """``n`` candidate chunks for each of B observations: ``[B, n, H, A]``, environment units,
        within [-1, 1]. The same seed, observations and weights give the same chunks."""

    def close(self) -> None:
        """Release what the backbone holds (a socket, a device)."""


@runtime_checkable
class TrainableBackbone(Backbone, Protocol):
    """A backbone whose weights the trainer may change."""

    def update(self, batch: ChunkBatch, weight: np.ndarray) -> dict[str, float]:
        """One optimiser step on the batch, each sample's loss times ``weight [B]``."""

    def save(self, folder: Path) -> None:
        """Write weights, normalisation, optimiser and generator state into an existing folder."""

    def load(self, folder: Path) -> None:
        """Restore what :meth:`save` wrote; the backbone then continues bit for bit."""


@runtime_checkable
class EncodingBackbone(Backbone, Protocol):
    """A backbone that lends its own reading of an observation to the residual actor."""

    def encode(self, obs: ObsBatch) -> np.ndarray:
        """Features ``[B, E]`` float32 of B observations, from observations alone."""


@runtime_checkable
class PreparingBackbone(Protocol):
    """A backbone that fits something, such as normalisation, before it learns."""

    def prepare(self, batch: ChunkBatch) -> None:
        """Fit it on the data, unless that was done before."""


@runtime_checkable
class ScheduledBackbone(Protocol):
    """A backbone whose learning rate a schedule may change."""

    #: The learning rate that a schedule starts from and gives back.
    learning_rate: float

    def set_learning_rate(self, value: float) -> None:
        """Use ``value`` from the next update on; ``learning_rate`` stays as it is."""


#: Makes a backbone from the options of the configuration and ``seed``, all given by keyword.
BackboneFactory = Callable[..., Backbone]

BUILT_IN: Mapping[str, str] = {
    "flow_chunk": "coda_trainer.policies.flow_chunk:FlowChunk",
    "flow_chunk_rgb": "coda_trainer.policies.flow_chunk:flow_chunk_rgb",
    "regression_chunk": "coda_trainer.policies.regression_chunk:RegressionChunk",
    "regression_chunk_rgb": "coda_trainer.policies.regression_chunk:regression_chunk_rgb",
}
#: What :func:`register_backbone` added in this process.
REGISTERED: dict[str, BackboneFactory] = {}
#: The entry-point group of installed backbones.
GROUP = "coda.backbones"


def register_backbone(name: str, factory: BackboneFactory) -> None:
    """Make a backbone known by name in this process. A built-in name cannot be taken."""
    if name in BUILT_IN:
        raise PluginError(
            f"the backbone name {name!r} belongs to a built-in.", remedy="choose another name"
        )
    REGISTERED[name] = factory
