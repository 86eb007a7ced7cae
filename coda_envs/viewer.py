"""A window on a running environment, for ``render_mode="human"``.

Imported when a window is asked for: this loads the window system's library.
"""

from __future__ import annotations

import time
import warnings
from typing import Any

import glfw
import mujoco

from coda_envs.errors import CodaError
from coda_envs.rendering import close_at_exit, new_scene, uses_egl

#: Width and height of the window when it opens (screen coordinates).
SIZE = (960, 720)

#: What dragging with the left, right and middle button does.
_DRAGS = (
    (glfw.MOUSE_BUTTON_LEFT, mujoco.mjtMouse.mjMOUSE_ROTATE_V),
    (glfw.MOUSE_BUTTON_RIGHT, mujoco.mjtMouse.mjMOUSE_MOVE_V),
    (glfw.MOUSE_BUTTON_MIDDLE, mujoco.mjtMouse.mjMOUSE_ZOOM),
)


class Window:
    """Shows states as they come, in real time. The mouse turns, shifts and zooms the view.

    MuJoCo's own viewer offers more, but draws in a thread of its own: it takes the whole program
    down where an environment was not closed, and hangs where there is no display.
    """

    def __init__(self, fps: float) -> None:
        self._pause = 1.0 / fps
        self._due = 0.0
        self._window: Any = None
        self._dismissed = False
        self._model: mujoco.MjModel | None = None
        self._option = mujoco.MjvOption()
        # The view is from near the camera `agentview`.
        self._camera = mujoco.MjvCamera()
        self._camera.azimuth, self._camera.elevation, self._camera.distance = 57.0, -35.0, 1.5
        self._camera.lookat = (0.0, 0.0, 0.1)

    def show(self, model: mujoco.MjModel, data: mujoco.MjData) -> None:
        """Show this state, then wait until the next one is due.

        The first call opens the window; raises :class:`CodaError` where that is not possible. Once
        a person has closed it, calls do nothing and do not wait. Positions in ``data`` must be up
        to date.
        """
        if self._dismissed:
            return
        if self._window is None:
            self._open(model)
        glfw.make_context_current(self._window)
        if self._model is not model:
            self._model, self._scene = model, new_scene(model)
        self._follow_mouse()
        mujoco.mj_camlight(model, data)
        everything = mujoco.mjtCatBit.mjCAT_ALL.value
        mujoco.mjv_updateScene(
            model, data, self._option, None, self._camera, everything, self._scene
        )
        viewport = mujoco.MjrRect(0, 0, *glfw.get_framebuffer_size(self._window))
        mujoco.mjr_render(viewport, self._scene, self._context)
        glfw.swap_buffers(self._window)
        glfw.poll_events()
        if glfw.window_should_close(self._window):
            self.close()
            self._dismissed = True
            return
        time.sleep(max(0.0, self._due - time.monotonic()))
        self._due = time.monotonic() + self._pause

    def close(self) -> None:
        """Close the window; the next :meth:`show` opens another one."""
        self._dismissed = False
        if self._window is not None:
            # Its objects are freed in whichever context is current.
            glfw.make_context_current(self._window)
            self._context.free()
            glfw.destroy_window(self._window)
            self._window = None

    def __del__(self) -> None:
        self.close()

    def _open(self, model: mujoco.MjModel) -> None:
        with warnings.catch_warnings():
            # GLFW also warns of what is raised below.
            warnings.simplefilter("ignore")
            if glfw.init():
                glfw.default_window_hints()
                if uses_egl():
                    # A thread cannot go to and fro between contexts of two kinds.
                    glfw.window_hint(glfw.CONTEXT_CREATION_API, glfw.EGL_CONTEXT_API)
                self._window = glfw.create_window(*SIZE, "CoDA", None, None) or None
            # Bytes or None, whatever its type stub says.
            reason: Any = glfw.get_error()[1]
        if self._window is None:
            raise CodaError(
                f"render_mode='human' cannot open a window: {reason.decode()}.",
                remedy="pass render_mode='rgb_array', alone or with gymnasium.wrappers.RecordVideo",
            )
        close_at_exit(self)
        glfw.make_context_current(self._window)
        # The pace is the environment's, not the screen's.
        glfw.swap_interval(0)
        self._context = mujoco.MjrContext(model, mujoco.mjtFontScale.mjFONTSCALE_100.value)
        self._cursor = glfw.get_cursor_pos(self._window)

    def _follow_mouse(self) -> None:
        cursor = glfw.get_cursor_pos(self._window)
        height = max(1, glfw.get_window_size(self._window)[1])
        across, down = ((b - a) / height for a, b in zip(self._cursor, cursor, strict=True))
        self._cursor = cursor
        for button, action in _DRAGS:
            if glfw.get_mouse_button(self._window, button) == glfw.PRESS:
                mujoco.mjv_moveCamera(self._model, action, across, down, self._camera)
