"""From recorded episodes to the columns that a replay stores, checked on the way in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from coda_envs.errors import LearningError
from coda_trainer.episode import Episode

#: Prefix of the columns that hold observations.
OBSERVATION = "observation."


def episode_states(episodes: Sequence[Episode]) -> dict[str, np.ndarray]:
    """The episodes' arrays by column, a row a state, one episode after the other.

    Raises :class:`LearningError` where the episodes' arrays do not go together.
    """
    columns: dict[str, list[np.ndarray]] = {}
    for episode in episodes:
        own = {
            "features": episode.features.astype(np.float32),
            # The last state has no action and no reward: its row keeps zeros.
            "action": np.pad(episode.actions.astype(np.float32), ((0, 1), (0, 0))),
            "reward": np.pad(episode.rewards.astype(np.float32), (0, 1)),
        } | {OBSERVATION + k: np.asarray(v) for k, v in sorted(episode.observations.items())}
        for name, values in own.items():
            column = columns.setdefault(name, [])
            if column and column[0].shape[1:] != values.shape[1:]:
                raise LearningError(
                    f"{name} of the episode with seed {episode.seed} has rows of shape "
                    f"{values.shape[1:]}.",
                    allowed=f"{column[0].shape[1:]}, as in the episode before it",
                )
            column.append(values)
    for name, column in columns.items():
        if len(column) != len(episodes):
            raise LearningError(
                f"{name} is missing from {len(episodes) - len(column)} of the episodes.",
                allowed="the same observations in every episode",
            )
    return {name: np.concatenate(column) for name, column in columns.items()}


def observation_columns(columns: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The observations among the columns, under their own names."""
    return {
        name.removeprefix(OBSERVATION): column
        for name, column in columns.items()
        if name.startswith(OBSERVATION)
    }


def check_episode(episode: Episode) -> None:
    """Raises :class:`LearningError` where the episode cannot be learnt from, saying why."""
    where = f"of the episode with scene {episode.scene.id[:12]} and seed {episode.seed}"
    t = episode.length
    if t < 1:
        raise LearningError(f"no step {where}.", remedy="leave empty episodes out")
    shapes = {"features": len(episode.features) - 1, "rewards": len(episode.rewards)}
    shapes |= {key: len(values) - 1 for key, values in episode.observations.items()}
    for name, length in shapes.items():
        if length != t:
            raise LearningError(f"{name} {where} cover {length} steps.", allowed=f"{t}")
    for name in ("actions", "features", "rewards"):
        check_finite(f"{name} {where}", getattr(episode, name))
    # The bounds of the critic's targets rest on it.
    if episode.rewards.min() < 0 or episode.rewards.sum() > 1 + 1e-6:
        raise LearningError(
            f"rewards {where} sum to {episode.rewards.sum():g}, the lowest is "
            f"{episode.rewards.min():g}.",
            allowed="sparse rewards: 0, and 1 once at success",
            remedy="record episodes with reward_mode 'sparse'; shaping is added by the learner",
        )


def check_finite(what: str, values: np.ndarray) -> None:
    """Raises :class:`LearningError` that names ``what`` and the first value that is not finite."""
    bad = np.argwhere(~np.isfinite(values))
    if len(bad):
        raise LearningError(
            f"{what}: the value at {tuple(int(i) for i in bad[0])} is not finite.",
            remedy="leave that episode out and report the scene",
        )
