"""Pictures along an episode, which is played again from its scene, seed and actions."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from coda_envs.env import ManipulationEnv
from coda_envs.errors import LearningError
from coda_trainer.episode import Episode


def frames_at(
    env: ManipulationEnv,
    episode: Episode,
    steps: Collection[int],
    cameras: Sequence[str],
    size: tuple[int, int],
) -> dict[tuple[int, str], np.ndarray]:
    """The pictures ``[height, width, 3]`` uint8 of ``size`` (height, width) at ``steps``, by step
    and camera, in the order of time.

    The same scene, seed and actions give the same states. Raises :class:`LearningError` for an
    episode that did not begin at its scene's start.
    """
    if episode.began:
        raise LearningError(
            f"the episode with scene {episode.scene.id[:12]} began {episode.began} steps into "
            "another one: it cannot be played again from its scene.",
            allowed="episodes that begin at the start of their scene",
        )
    env.reset(seed=episode.seed, options={"scene": episode.scene})
    frames: dict[tuple[int, str], np.ndarray] = {}
    for step in range(episode.length + 1):
        if step in steps:
            for camera in cameras:
                frames[step, camera] = env.picture(camera, *size)
        if step < episode.length:
            env.step(episode.actions[step])
    return frames
