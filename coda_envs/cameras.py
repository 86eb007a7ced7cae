"""The cameras of an environment: pictures, distances and labels, alone or as observations."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import mujoco
import numpy as np
from gymnasium import spaces

from coda_envs.arena import OFFSCREEN, Compiled
from coda_envs.errors import SceneError, short, suggest
from coda_envs.rendering import CHANNELS, Channel, OffscreenRenderer

CAMERAS = ("agentview", "wrist")

#: Largest distance in an observation (m): what is farther, or nothing at all, is given as this.
DEPTH_BOUND = 5.0


class Cameras:
    """What the cameras see. The renderer is made when first needed, and again after a close."""

    def __init__(self) -> None:
        self._renderer: OffscreenRenderer | None = None
        self._labelled: Compiled | None = None

    def look(
        self,
        compiled: Compiled,
        data: mujoco.MjData,
        camera: str,
        size: tuple[int, int],
        channels: Collection[Channel],
    ) -> dict[Channel, np.ndarray]:
        """One array a channel, ``size`` being (height, width): see
        :meth:`coda_envs.rendering.OffscreenRenderer.render`.

        ``segmentation`` is given as labels: 1 + index into ``compiled.entities``, 0 where something
        else is seen or nothing. Positions in ``data`` must be up to date.
        """
        if camera not in CAMERAS:
            raise SceneError(f"there is no camera {camera!r}.", allowed=suggest(camera, CAMERAS))
        check_size("the picture's size", *size)
        if self._renderer is None:
            self._renderer = OffscreenRenderer(compiled.model)
        mujoco.mj_camlight(compiled.model, data)
        seen = self._renderer.render(compiled.model, data, camera, size, channels)
        if "segmentation" in seen:
            if self._labelled is not compiled:
                self._labels, self._labelled = _labels(compiled), compiled
            seen["segmentation"] = self._labels[seen["segmentation"]]
        return seen

    def observe(
        self,
        compiled: Compiled,
        data: mujoco.MjData,
        size: int,
        channels: Collection[Channel],
        order: np.ndarray,
    ) -> dict[str, np.ndarray]:
        """The observations that :func:`image_spaces` declares.

        ``order [N_SLOTS]``: index of the entity in each slot of the object table.
        """
        obs: dict[str, np.ndarray] = {}
        for camera in CAMERAS:
            seen = self.look(compiled, data, camera, (size, size), channels)
            if "rgb" in seen:
                obs[camera] = seen["rgb"]
            if "depth" in seen:
                obs[f"{camera}_depth"] = np.minimum(seen["depth"].ravel(), np.float32(DEPTH_BOUND))
            if "segmentation" in seen:
                # The order of the entities would give the target away; that of the slots does not.
                slots = np.concatenate([[0], 1 + np.argsort(order)]).astype(np.uint8)
                obs[f"{camera}_segmentation"] = slots[seen["segmentation"]][..., None]
        return obs

    def close(self) -> None:
        """Free the renderer."""
        if self._renderer is not None:
            self._renderer.close()
            self._renderer = None


def image_spaces(size: int, channels: Collection[Channel]) -> dict[str, spaces.Box]:
    """Spaces of the cameras' observations, ``size`` pixels in height and width.

    For each camera: ``agentview [size, size, 3]`` uint8; ``agentview_depth [size · size]`` float32,
    metres along the camera's axis, up to :data:`DEPTH_BOUND` (flat, as SB3 takes anything else for
    a picture); ``agentview_segmentation [size, size, 1]`` uint8, 1 + the row of the object table
    that the thing has in this episode, 0 for all else.
    """
    found: dict[str, spaces.Box] = {}
    for camera in CAMERAS:
        if "rgb" in channels:
            found[camera] = spaces.Box(0, 255, (size, size, 3), np.uint8)
        if "depth" in channels:
            found[f"{camera}_depth"] = spaces.Box(0.0, DEPTH_BOUND, (size * size,), np.float32)
        if "segmentation" in channels:
            # The bound is a picture's, not the number of slots: SB3 asks for it.
            found[f"{camera}_segmentation"] = spaces.Box(0, 255, (size, size, 1), np.uint8)
    return found


def check_size(name: str, height: int, width: int) -> None:
    """Raise :class:`SceneError` for a picture that is too small or too large to draw."""
    if not (16 <= height <= OFFSCREEN[0] and 16 <= width <= OFFSCREEN[1]):
        raise SceneError(
            f"{name} is {height} × {width}.",
            allowed=f"height and width from 16 to {OFFSCREEN[0]} × {OFFSCREEN[1]} pixels",
        )


def checked_channels(channels: Sequence[Channel]) -> tuple[Channel, ...]:
    """``image_channels=`` as an environment keeps it. Raises :class:`SceneError`."""
    listed = not isinstance(channels, str) and len(channels) > 0
    if not listed or any(channel not in CHANNELS for channel in channels):
        raise SceneError(
            f"image_channels={short(channels)}.",
            allowed=f"a list of one or more of {', '.join(map(repr, CHANNELS))}",
        )
    return tuple(channels)


def _labels(compiled: Compiled) -> np.ndarray:
    """Label ``[ngeom + 1]`` int32 of each geom; index -1, where there is no geom, has 0.

    A geom belongs to the entity of its body, or of the nearest body above it that has one.
    """
    model = compiled.model
    labels = {model.body(entity.role).id: 1 + i for i, entity in enumerate(compiled.entities)}
    found = np.zeros(model.ngeom + 1, dtype=np.int32)
    for geom in range(model.ngeom):
        body = int(model.geom_bodyid[geom])
        while body and body not in labels:
            body = int(model.body_parentid[body])
        found[geom] = labels.get(body, 0)
    return found
