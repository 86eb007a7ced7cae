"""Looks: the chunks of whole episodes, in order, as a policy gradient needs them.

A replay's draw takes chunks from any step; here they begin where the policy looked.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from coda_envs.errors import LearningError
from coda_trainer.backbone import ChunkBatch
from coda_trainer.learning.chunk_critic import DenseReward
from coda_trainer.learning.episode_rows import EpisodeRows, Record
from coda_trainer.learning.episode_states import observation_columns


@dataclass(frozen=True)
class Looks:
    """The N chunks at the looks of some episodes, one episode after the other.

    ``episode [N]``: which of the episodes; ``at [N]``: the row of the state looked at; ``steps
    [N]``: k ≤ h, the actions that ran; ``last [N]``: the episode's last chunk; ``terminated [N]``:
    it ended by termination, not by truncation; ``reward [N]``: G = Σ_{i<k} γ^i r_{t+i}, a dense
    reward included.
    """

    records: tuple[Record, ...]
    episode: np.ndarray
    at: np.ndarray
    steps: np.ndarray
    last: np.ndarray
    terminated: np.ndarray
    reward: np.ndarray

    def __len__(self) -> int:
        return len(self.at)


def newest(rows: EpisodeRows, count: int) -> tuple[Record, ...]:
    """The last ``count`` episodes that were stored, or what is left of them; in their order."""
    return tuple(rows.records)[max(0, len(rows.records) - count) :]


def looks(
    rows: EpisodeRows,
    records: Sequence[Record],
    execute: int,
    discount: float,
    dense: DenseReward | None = None,
) -> Looks:
    """The looks of ``records``, which are rollouts in ``rows``: one every ``execute`` = h steps.

    ``discount``: γ per environment step. ``dense``: paid beside the sparse reward, for arriving in
    a state. Raises :class:`LearningError` where there is no episode.
    """
    if not records:
        raise LearningError(
            "there is no episode to learn from: the replay holds none of the latest rollouts.",
            remedy="collect episodes first, or raise replay_megabytes",
        )
    length = np.array([r.length for r in records])
    count = -(-length // execute)
    episode = np.repeat(np.arange(len(records)), count)
    place = np.arange(len(episode)) - np.repeat(np.cumsum(count) - count, count)
    at = np.array([r.start for r in records])[episode] + place * execute
    steps = np.minimum(execute, length[episode] - place * execute)
    last = place == count[episode] - 1
    offset = np.arange(execute)
    valid = offset < steps[:, None]
    ran = np.where(valid, at[:, None] + offset, at[:, None])
    paid = np.where(valid, rows.columns["reward"][ran], 0.0).astype(np.float64)
    if dense is not None:
        paid[valid] += dense(rows.columns["features"][ran[valid] + 1])
    return Looks(
        records=tuple(records),
        episode=episode,
        at=at,
        steps=steps,
        last=last,
        terminated=last & np.array([r.terminated for r in records])[episode],
        reward=paid @ discount ** offset.astype(np.float64),
    )


def look_chunks(rows: EpisodeRows, found: Looks, horizon: int) -> ChunkBatch:
    """What was seen at each look and the H = ``horizon`` actions that followed, as far as the
    episode went."""
    offset = np.arange(horizon)
    end = np.array([r.start + r.length for r in found.records])[found.episode]
    valid = found.at[:, None] + offset < end[:, None]
    ran = np.where(valid, found.at[:, None] + offset, found.at[:, None])
    actions = rows.columns["action"][ran] * valid[:, :, None].astype(np.float32)
    observations = observation_columns(rows.columns)
    return ChunkBatch({k: v[found.at] for k, v in observations.items()}, actions, valid)
