"""CoDA environment suite: MuJoCo manipulation scenes whose factors are edited one at a time."""

from __future__ import annotations

import os
import sys

# MuJoCo chooses its renderer when it is imported; without a display only EGL can draw.
if sys.platform.startswith("linux") and not os.environ.get("DISPLAY"):
    os.environ.setdefault("MUJOCO_GL", "egl")

from coda_envs.registration import register_built_in, register_family, register_library

register_built_in()

__all__ = ["register_family", "register_library"]
__version__ = "0.1.0"
