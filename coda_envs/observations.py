"""Which observations an environment gives in each mode, as a Gymnasium space."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Literal

import numpy as np
from gymnasium import spaces

from coda_envs.cameras import image_spaces
from coda_envs.instruction import INSTRUCTION_BYTES
from coda_envs.rendering import Channel
from coda_envs.sensing import FEATURE_BOUND, N_SLOTS, PROPRIO_BOUND, SLOT_BOUND

Obs = dict[str, np.ndarray]
ObsMode = Literal["state", "rgb", "rgb+state", "privileged"]
OBS_MODES = ("state", "rgb", "rgb+state", "privileged")
#: The modes that draw.
WITH_IMAGES = ("rgb", "rgb+state")


def observation_space(
    obs_mode: ObsMode, n_features: int, image_size: int, image_channels: Collection[Channel]
) -> spaces.Dict:
    """The flat Dict that :class:`coda_envs.env.ManipulationEnv` describes."""

    def within(bound: np.ndarray) -> spaces.Box:
        return spaces.Box(-bound, bound, dtype=np.float32)

    parts: dict[str, spaces.Space[Any]] = {"proprio": within(PROPRIO_BOUND)}
    if obs_mode != "rgb":
        # Flat, as SB3 wants vectors; sensing.object_table() gives the rows back.
        parts["objects"] = within(np.tile(SLOT_BOUND, N_SLOTS))
    parts["instruction"] = spaces.Box(0, 255, (INSTRUCTION_BYTES,), np.uint8)
    if obs_mode in WITH_IMAGES:
        parts |= image_spaces(image_size, image_channels)
    if obs_mode == "privileged":
        parts["features"] = within(np.full(n_features, FEATURE_BOUND, dtype=np.float32))
    return spaces.Dict(parts)
