"""One off-screen renderer an environment, kept across scenes: no textures, so nothing to upload."""

from __future__ import annotations

import atexit
import os
import weakref
from typing import Any

import mujoco
import numpy as np

from coda_envs.errors import CodaError

_open: weakref.WeakSet[OffscreenRenderer] = weakref.WeakSet()


def _close_all() -> None:
    """Free what is still open at exit, while the GL library is there."""
    for renderer in list(_open):
        renderer.close()


def _context_class() -> Any:
    """The kind of GL context that MUJOCO_GL names *now*: MuJoCo looks only when it is imported,
    which a user's program may have done before coda_envs chose EGL."""
    if os.environ.get("MUJOCO_GL", "").lower() == "egl":
        from mujoco.egl import GLContext

        return GLContext
    return mujoco.GLContext


class OffscreenRenderer:
    """Draws any model of ours into RGB arrays. Hold one and close it; contexts are scarce."""

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
        self._closed = False
        _open.add(self)
        # Registered anew, so that it runs before the GL library's own exit handler.
        atexit.unregister(_close_all)
        atexit.register(_close_all)
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
        width: int,
        height: int,
    ) -> np.ndarray:
        """An upright ``[height, width, 3]`` uint8 picture, a fresh array."""
        self._gl.make_current()
        if self._model is not model:
            self._scene = mujoco.MjvScene(model, maxgeom=200)
            self._scene.flags[mujoco.mjtRndFlag.mjRND_SHADOW] = False
            self._scene.flags[mujoco.mjtRndFlag.mjRND_REFLECTION] = False
            self._model = model
        scene = self._scene
        assert scene is not None
        self._camera.fixedcamid = model.camera(camera).id
        mujoco.mjv_updateScene(
            model, data, self._option, None, self._camera, mujoco.mjtCatBit.mjCAT_ALL.value, scene
        )
        viewport = mujoco.MjrRect(0, 0, width, height)
        mujoco.mjr_render(viewport, scene, self._context)
        pixels = np.empty((height, width, 3), dtype=np.uint8)
        mujoco.mjr_readPixels(pixels, None, viewport, self._context)
        # OpenGL's first row is the lowest one.
        return np.ascontiguousarray(pixels[::-1])

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
