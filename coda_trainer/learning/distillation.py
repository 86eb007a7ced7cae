"""Distillation: from a residual policy's successes to chunks that the backbone can learn."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from coda_envs.errors import LearningError
from coda_trainer.backbone import ChunkBatch
from coda_trainer.episode import Episode
from coda_trainer.learning.behaviour_cloning import chunk_arrays
from coda_trainer.learning.reader import Reader
from coda_trainer.learning.residual import ResidualActor


def distil_selection(
    episodes: Sequence[Episode], actor: ResidualActor, reader: Reader, horizon: int
) -> ChunkBatch:
    """The successes among ``episodes`` as chunks, labelled by the noiseless residual policy.

    ``reader``: the frozen base's, as in the rollouts. ``horizon``: H of the backbone. The residual
    speaks for the h actions that execute; the other H − h of a chunk are those that the episode
    went on with, and what would reach past its end is invalid. Raises :class:`LearningError` where
    no episode succeeded: there is nothing to learn from, and the caller keeps the backbone.
    """
    kept = [e for e in episodes if e.success]
    if not kept:
        raise LearningError(
            f"none of {len(episodes)} episodes succeeded: there is nothing to distil.",
            remedy="train the residual longer, on easier scenes, or collect more episodes",
        )
    return residual_chunks(kept, actor, reader, horizon)


def residual_chunks(
    episodes: Sequence[Episode], actor: ResidualActor, reader: Reader, horizon: int
) -> ChunkBatch:
    """The chunks of all these episodes, labelled as :func:`distil_selection` does."""
    execute = actor.config.execute
    chunks = chunk_arrays(episodes, horizon)
    encoding, base = reader(chunks.obs)
    labels = chunks.actions.copy()
    ran = chunks.valid[:, :execute, None]
    # The mean of a Gaussian may lie where no action does.
    labels[:, :execute] = np.clip(actor.act(encoding, base), -1.0, 1.0) * ran
    return ChunkBatch(chunks.obs, labels, chunks.valid)
