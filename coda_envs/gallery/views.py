"""Scenes as the main camera sees them at the start, and how much of the picture an edit changes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from PIL import Image

from coda_envs.arena import OFFSCREEN
from coda_envs.env import ManipulationEnv
from coda_envs.family import TaskFamily
from coda_envs.scene import Scene

#: Height and width of the small pictures that are compared (pixels).
_SMALL = (240, 320)
#: A pixel has changed where a colour differs by more than this (of 255).
_LEVELS = 24
#: Least share of the picture's width that is shown, and room left around things (share of it).
_LEAST = 0.6
_ROOM = 0.08


class Views:
    """The main camera over one family's scenes. To be closed; a ``with`` statement does it."""

    def __init__(self, family: TaskFamily) -> None:
        self._env = ManipulationEnv(family.name)

    def __enter__(self) -> Views:
        return self

    def __exit__(self, *_: object) -> None:
        self._env.close()

    def changed(self, scene: Scene, other: Scene) -> np.ndarray:
        """Where two scenes differ: bool ``[h, w]`` of a small picture's pixels."""
        one, two = (self._look(s, _SMALL).astype(int) for s in (scene, other))
        return np.asarray((np.abs(one - two) > _LEVELS).any(axis=2))

    def pictures(self, scenes: Sequence[Scene], width: int) -> list[Image.Image]:
        """The scenes' starts, ``width`` pixels wide and 3/4 as high, all cut alike: to the part of
        the camera's picture in which any of them has its things."""
        seen = np.zeros(_SMALL, dtype=bool)
        large: list[np.ndarray] = []
        for scene in scenes:
            large.append(self._look(scene, OFFSCREEN))
            seen |= self._env.segmentation("agentview", *_SMALL) > 0
        height, full = OFFSCREEN
        left, top, size = crop(seen)
        box = (left * full, top * height, (left + size) * full, (top + size) * height)
        # Drawn larger than shown, so that edges come out smooth.
        return [
            Image.fromarray(picture).resize(
                (width, width * 3 // 4), Image.Resampling.LANCZOS, box=box
            )
            for picture in large
        ]

    def _look(self, scene: Scene, size: tuple[int, int]) -> np.ndarray:
        self._env.reset(seed=0, options={"scene": scene})
        return self._env.picture("agentview", *size)


def crop(seen: np.ndarray) -> tuple[float, float, float]:
    """(left, top, size) of the part to show, as shares of width, height and both.

    ``seen [h, w]``: where there is anything. What is there lies inside with room around it, unless
    that would leave the picture.
    """
    if not seen.any():
        return 0.0, 0.0, 1.0
    spans = []
    for axis in (0, 1):
        there = np.flatnonzero(seen.any(axis=axis))
        spans.append((there[0] / seen.shape[1 - axis], (there[-1] + 1) / seen.shape[1 - axis]))
    size = max(_LEAST, *(high - low + 2 * _ROOM for low, high in spans))
    size = min(size, 1.0)
    left, top = (float(min(max((low + high - size) / 2, 0.0), 1.0 - size)) for low, high in spans)
    return left, top, float(size)
