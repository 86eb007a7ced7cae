"""A window on a running environment, for ``render_mode="human"``: MuJoCo's own viewer."""

from __future__ import annotations

import copy
import os
import sys
import time
import warnings
from typing import Any

import mujoco

from coda_envs.errors import CodaError


def display_expected() -> bool:
    """Whether a window can be thought of here: everywhere but on Linux without a display."""
    return not sys.platform.startswith("linux") or any(
        os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY")
    )


class Window:
    """MuJoCo's passive viewer, kept across scenes and paced to real time.

    It shows copies of model and data. So nothing that a person does in it reaches the simulation:
    an episode that is watched is the same as one that is not.
    """

    def __init__(self, fps: float) -> None:
        self._pause = 1.0 / fps
        self._due = 0.0
        self._viewer: Any = None
        self._scene_id = ""

    def show(self, scene_id: str, model: mujoco.MjModel, data: mujoco.MjData) -> None:
        """Show this state, then wait until the next one is due.

        The first call opens the window; raises :class:`CodaError` where that is not possible. Once
        a person has closed it, calls do nothing and do not wait.
        """
        if self._viewer is not None and not self._viewer.is_running():
            return
        fresh = self._scene_id != scene_id
        if fresh:
            self._scene_id = scene_id
            self._model, self._data = copy.copy(model), mujoco.MjData(model)
        mujoco.mj_copyData(self._data, self._model, data)
        mujoco.mj_forward(self._model, self._data)
        if self._viewer is None:
            self._viewer = _launch(self._model, self._data)
        elif fresh:
            # The handle itself cannot load; a new window would open in another place.
            self._viewer._sim().load(self._model, self._data, "")
        self._viewer.sync()
        time.sleep(max(0.0, self._due - time.monotonic()))
        self._due = time.monotonic() + self._pause

    def close(self) -> None:
        """Close the window."""
        if self._viewer is not None:
            self._viewer.close()
            self._viewer, self._scene_id = None, ""


def _launch(model: mujoco.MjModel, data: mujoco.MjData) -> Any:
    """Open the viewer's window, without its panels (Tab and Shift+Tab bring them)."""
    try:
        import mujoco.viewer

        _try_window()
        return mujoco.viewer.launch_passive(model, data, show_left_ui=False, show_right_ui=False)
    except (ImportError, OSError, RuntimeError) as error:
        remedy = "pass render_mode='rgb_array', alone or with gymnasium.wrappers.RecordVideo"
        if sys.platform == "darwin":
            remedy += ", or run the program with mjpython"
        raise CodaError(
            f"render_mode='human' cannot open a window: {error}.", remedy=remedy
        ) from error


def _try_window() -> None:
    """Raise where no window opens: the viewer, whose window is its own thread's, would hang."""
    import glfw

    with warnings.catch_warnings():
        # GLFW warns of what is raised here.
        warnings.simplefilter("ignore")
        window = None
        if glfw.init():
            glfw.window_hint(glfw.VISIBLE, False)
            window = glfw.create_window(16, 16, "", None, None)
            glfw.default_window_hints()
        # Bytes or None, whatever its type stub says.
        reason: Any = glfw.get_error()[1]
    if not window:
        raise RuntimeError(reason.decode() if reason else "GLFW gives no reason")
    glfw.destroy_window(window)
