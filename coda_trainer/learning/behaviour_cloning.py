"""Behaviour cloning: from recorded episodes to chunks, and from chunks to a trained backbone.

The same loop serves demonstrations and the distillation of a learner's successes; it asks of a
backbone only ``update(batch, weight)``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from coda_envs.errors import RunError
from coda_trainer.backbone import (
    ChunkBatch,
    PreparingBackbone,
    ScheduledBackbone,
    TrainableBackbone,
)
from coda_trainer.episode import Episode

#: Called after every update with its number (from 1) and the update's metrics.
Progress = Callable[[int, dict[str, float]], None]

#: The learning rate ends at this share of where it began.
_LAST_RATE = 0.02


def chunk_arrays(
    episodes: Iterable[Episode], horizon: int, keys: Sequence[str] | None = None
) -> ChunkBatch:
    """One chunk for every step of every episode: what was seen there, and the next actions.

    Chunks that reach past an episode's end are padded with zeros and marked invalid there; none
    spans two episodes. ``keys``: the observations to keep (all of the first episode's, where None).
    Raises :class:`RunError` where there is no step at all.
    """
    observations: list[dict[str, np.ndarray]] = []
    actions: list[np.ndarray] = []
    valid: list[np.ndarray] = []
    for episode in episodes:
        if episode.length == 0:
            continue
        keys = tuple(episode.observations) if keys is None else keys
        observations.append({k: episode.observations[k][: episode.length] for k in keys})
        actions.append(_windows(episode.actions, horizon))
        valid.append(_windows(np.ones((episode.length, 1), dtype=bool), horizon)[..., 0])
    if not actions:
        raise RunError(
            "there is no episode with a step to learn from.", remedy="collect episodes first"
        )
    return ChunkBatch(
        obs={k: np.concatenate([o[k] for o in observations]) for k in observations[0]},
        actions=np.concatenate(actions),
        valid=np.concatenate(valid),
    )


def take_chunks(data: ChunkBatch, indices: np.ndarray) -> ChunkBatch:
    """The chunks at ``indices``, copied."""
    return ChunkBatch(
        obs={key: value[indices] for key, value in data.obs.items()},
        actions=data.actions[indices],
        valid=data.valid[indices],
    )


def join_chunks(*parts: ChunkBatch) -> ChunkBatch:
    """All batches in one (at least one is given), with the observations of the first."""
    if len(parts) == 1:
        return parts[0]
    return ChunkBatch(
        obs={key: np.concatenate([part.obs[key] for part in parts]) for key in parts[0].obs},
        actions=np.concatenate([part.actions for part in parts]),
        valid=np.concatenate([part.valid for part in parts]),
    )


def train_backbone(
    backbone: TrainableBackbone,
    data: ChunkBatch,
    *,
    updates: int,
    batch_size: int,
    rng: np.random.Generator,
    weight: np.ndarray | None = None,
    demonstrations: ChunkBatch | None = None,
    demonstration_share: float = 0.25,
    progress: Progress | None = None,
) -> dict[str, float]:
    """``updates`` optimiser steps on batches drawn with replacement.

    ``weight [len(data)]``: each chunk's weight in the loss (1 where None). ``demonstrations`` fill
    the fixed share ``demonstration_share`` of every batch, with weight 1. A backbone that prepares
    (normalisation) does so on ``data`` first; one whose learning rate can be set follows half a
    cosine from its ``learning_rate`` to 2% of it and is given it back at the end.

    Returns ``updates`` and ``loss``, the mean of the last tenth of the updates.
    """
    if updates < 1 or batch_size < 1:
        raise ValueError(f"updates is {updates}, batch_size {batch_size}; both must be at least 1")
    if not 0 <= demonstration_share <= 1:
        raise ValueError(f"demonstration_share is {demonstration_share}, not from 0 to 1")
    chunk_weight = np.ones(len(data)) if weight is None else np.asarray(weight)
    if chunk_weight.shape != (len(data),):
        raise ValueError(f"weight has shape {chunk_weight.shape}, expected ({len(data)},)")
    mixed = 0 if demonstrations is None else round(demonstration_share * batch_size)
    if isinstance(backbone, PreparingBackbone):
        backbone.prepare(data)

    losses = np.empty(updates)
    try:
        for step in range(updates):
            if isinstance(backbone, ScheduledBackbone):
                backbone.set_learning_rate(backbone.learning_rate * _rate(step, updates))
            indices = rng.integers(len(data), size=batch_size - mixed)
            batch, batch_weight = take_chunks(data, indices), chunk_weight[indices]
            if demonstrations is not None and mixed:
                own = take_chunks(demonstrations, rng.integers(len(demonstrations), size=mixed))
                batch = join_chunks(batch, own)
                batch_weight = np.concatenate((batch_weight, np.ones(mixed)))
            metrics = backbone.update(batch, batch_weight)
            losses[step] = metrics["loss"]
            if progress is not None:
                progress(step + 1, metrics)
    finally:
        if isinstance(backbone, ScheduledBackbone):
            backbone.set_learning_rate(backbone.learning_rate)
    return {"updates": float(updates), "loss": float(losses[-max(1, updates // 10) :].mean())}


def _rate(step: int, updates: int) -> float:
    """Half a cosine from 1 to the last rate."""
    return _LAST_RATE + (1 - _LAST_RATE) * 0.5 * (1 + math.cos(math.pi * step / updates))


def _windows(steps: np.ndarray, horizon: int) -> np.ndarray:
    """``[T, A]`` → ``[T, horizon, A]``: each step and those after it, zeros past the end."""
    padding = np.zeros((horizon - 1, *steps.shape[1:]), dtype=steps.dtype)
    windows = sliding_window_view(np.concatenate((steps, padding)), horizon, axis=0)
    return np.ascontiguousarray(np.moveaxis(windows, -1, 1))
