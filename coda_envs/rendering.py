"""One off-screen renderer an environment, kept across scenes: no textures, so nothing to upload."""

from __future__ import annotations

import atexit
import os
import sys
import weakref
from collections.abc import Collection
from typing import Any, Literal, Protocol

import mujoco
import numpy as np

from coda_envs.errors import CodaError

#: What a camera gives: colours, distances, and which thing is where.
Channel = Literal["rgb", "depth", "segmentation"]
CHANNELS: tuple[Channel, ...] = ("rgb", "depth", "segmentation")

# Drawing with both, a pixel holds the number of what is seen there, and edges are not smoothed.
_NUMBERED = (mujoco.mjtRndFlag.mjRND_SEGMENT, mujoco.mjtRndFlag.mjRND_IDCOLOR)

_open: weakref.WeakSet[Closable] = weakref.WeakSet()


class Closable(Protocol):
    """What holds a GL context."""

    def close(self) -> None:
        """Free the context; once is enough."""


def close_at_exit(holder: Closable) -> None:
    """Have what is still open at exit freed while the GL library is there."""
    _open.add(holder)
    # Registered anew, so that it runs before the GL library's own exit handler.
    atexit.unregister(_close_all)
    atexit.register(_close_all)


def _close_all() -> None:
    for holder in list(_open):
        holder.close()


def has_display() -> bool:
    """Whether a window can be thought of here: everywhere but on Linux without a display."""
    return not sys.platform.startswith("linux") or any(
        os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY")
    )


def uses_egl() -> bool:
    """Whether MUJOCO_GL names EGL *now*: MuJoCo looks only when it is imported, which a user's
    program may have done before coda_envs chose EGL."""
    return os.environ.get("MUJOCO_GL", "").lower() == "egl"


def _context_class() -> Any:
    """The kind of GL context to draw in where there is no window."""
    if uses_egl():
        from mujoco.egl import GLContext

        return GLContext
    return mujoco.GLContext


def new_scene(model: mujoco.MjModel) -> mujoco.MjvScene:
    """A scene to draw this model with; no shadows, which take longer than all the rest."""
    scene = mujoco.MjvScene(model, maxgeom=model.ngeom + 100)
    scene.flags[mujoco.mjtRndFlag.mjRND_SHADOW] = False
    scene.flags[mujoco.mjtRndFlag.mjRND_REFLECTION] = False
    return scene


class OffscreenRenderer:
    """Draws any model of ours into arrays. Hold one and close it; contexts are scarce."""

    #: Nothing to free, before a context was made and after it was freed.
    _closed = True

    def __init__(self, model: mujoco.MjModel) -> None:
        width, height = model.vis.global_.offwidth, model.vis.global_.offheight
        try:
            self._gl = _context_class()(width, height)
            self._gl.make_current()
            self._context = mujoco.MjrContext(model, mujoco.mjtFontScale.mjFONTSCALE_100.value)
        except Exception as error:
            # The GL libraries raise many types; the user needs the one remedy.
            raise CodaError(
                f"rendering is not available: {type(error).__name__}: {error}",
                remedy="run `coda doctor`; on Debian `apt-get install libegl1 libgl1`, then "
                "MUJOCO_GL=egl",
            ) from error
        mujoco.mjr_setBuffer(mujoco.mjtFramebuffer.mjFB_OFFSCREEN.value, self._context)
        self._context.readDepthMap = mujoco.mjtDepthMap.mjDEPTH_ZEROFAR.value
        self._closed = False
        close_at_exit(self)
        self._option = mujoco.MjvOption()
        self._camera = mujoco.MjvCamera()
        self._camera.type = mujoco.mjtCamera.mjCAMERA_FIXED
        self._scene: mujoco.MjvScene | None = None
        self._model: mujoco.MjModel | None = None

    def render(
        self,
        model: mujoco.MjModel,
        data: mujoco.MjData,
        camera: str,
        size: tuple[int, int],
        channels: Collection[Channel],
    ) -> dict[Channel, np.ndarray]:
        """What a camera sees: upright, fresh arrays of ``size`` (height, width), one a channel.

        ``rgb``: ``[height, width, 3]`` uint8. ``depth``: ``[height, width]`` float32, metres along
        the camera's axis; where nothing is, the far plane's. ``segmentation``: ``[height, width]``
        int32, the geom's index, -1 where there is none.
        """
        self._gl.make_current()
        scene = self._look(model, data, camera)
        out: dict[Channel, np.ndarray] = {}
        if "rgb" in channels:
            out["rgb"] = np.empty((*size, 3), dtype=np.uint8)
            self._draw(scene, out["rgb"], None)
        if "depth" in channels or "segmentation" in channels:
            # Depth is drawn like this too: where edges are smoothed, two distances mix.
            numbers = np.empty((*size, 3), dtype=np.uint8)
            buffer = np.empty(size, dtype=np.float32)
            for flag in _NUMBERED:
                scene.flags[flag] = True
            self._draw(scene, numbers, buffer)
            for flag in _NUMBERED:
                scene.flags[flag] = False
            if "depth" in channels:
                out["depth"] = _metres(buffer, model)
            if "segmentation" in channels:
                out["segmentation"] = _geoms(numbers, scene)
        # OpenGL's first row is the lowest one.
        return {channel: np.ascontiguousarray(rows[::-1]) for channel, rows in out.items()}

    def _look(self, model: mujoco.MjModel, data: mujoco.MjData, camera: str) -> mujoco.MjvScene:
        """The scene as it is now, from this camera."""
        if self._scene is None or self._model is not model:
            self._scene, self._model = new_scene(model), model
        self._camera.fixedcamid = model.camera(camera).id
        everything = mujoco.mjtCatBit.mjCAT_ALL.value
        mujoco.mjv_updateScene(
            model, data, self._option, None, self._camera, everything, self._scene
        )
        return self._scene

    def _draw(self, scene: mujoco.MjvScene, pixels: np.ndarray, buffer: np.ndarray | None) -> None:
        """Draw, and read the colours ``[h, w, 3]`` and the depth buffer ``[h, w]``."""
        height, width = pixels.shape[:2]
        viewport = mujoco.MjrRect(0, 0, width, height)
        mujoco.mjr_render(viewport, scene, self._context)
        mujoco.mjr_readPixels(pixels, buffer, viewport, self._context)

    def close(self) -> None:
        """Free the context; once is enough."""
        if self._closed:
            return
        self._closed = True
        # Its objects are freed in whichever context is current: not in another renderer's.
        self._gl.make_current()
        self._context.free()
        self._gl.free()

    def __del__(self) -> None:
        self.close()


def _metres(buffer: np.ndarray, model: mujoco.MjModel) -> np.ndarray:
    """The depth buffer (1 at the near plane, 0 at the far one) as metres along the axis."""
    near, far = (model.stat.extent * p for p in (model.vis.map.znear, model.vis.map.zfar))
    # Perspective makes the buffer linear in 1 / distance.
    return np.asarray(1.0 / (1.0 / far + buffer * (1.0 / near - 1.0 / far)), dtype=np.float32)


def _geoms(numbers: np.ndarray, scene: mujoco.MjvScene) -> np.ndarray:
    """The index of the model's geom that each pixel's number stands for, -1 where none."""
    drawn = numbers.astype(np.int32) @ np.array((1, 1 << 8, 1 << 16), dtype=np.int32)
    index = np.full(scene.ngeom + 1, -1, dtype=np.int32)
    for geom in scene.geoms[: scene.ngeom]:
        if geom.objtype == mujoco.mjtObj.mjOBJ_GEOM and geom.segid >= 0:
            index[geom.segid + 1] = geom.objid
    return np.asarray(index[drawn])
