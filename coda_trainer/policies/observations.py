"""ObservationReader: what turns observations into the features that a policy's head acts on."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor, nn

from coda_envs.errors import PluginError
from coda_trainer.backbone import ObsBatch


class ObservationReader(nn.Module, ABC):
    """Reads :data:`ObsBatch` into features ``[B, size]`` float32.

    ``images`` and ``state_keys`` are those of the :class:`BackboneSpec`: what it needs to see.
    Normalisation statistics are buffers, so that they travel with the weights. ``forward`` and
    ``fit`` raise :class:`PluginError` for observations that are missing or do not fit.
    """

    size: int
    images: Mapping[str, tuple[int, int, int]]
    state_keys: tuple[str, ...]

    @abstractmethod
    def fit(self, obs: ObsBatch) -> None:
        """Take the normalisation statistics from the observations of demonstrations."""

    @abstractmethod
    def forward(self, obs: ObsBatch) -> Tensor:
        """Features ``[B, size]``."""


def observed(obs: ObsBatch, key: str, *row: int | None) -> np.ndarray:
    """The observation ``key``, checked to be ``[B, *row]`` (None: any length).

    Raises :class:`PluginError` where it is missing or of another shape.
    """
    if key not in obs:
        raise PluginError(
            f"the policy needs the observation {key!r}; it was given {', '.join(sorted(obs))}.",
            remedy="make the environment with an obs_mode that has it ('rgb+state' has all)",
        )
    array = np.asarray(obs[key])
    fits = array.ndim == len(row) + 1 and all(
        want in (None, have) for want, have in zip(row, array.shape[1:], strict=True)
    )
    if not fits:
        wanted = ", ".join("any" if want is None else str(want) for want in row)
        raise PluginError(
            f"the policy was given {key!r} of shape {array.shape}.", allowed=f"[B, {wanted}]"
        )
    return array


def observed_numbers(obs: ObsBatch, key: str, *row: int | None) -> Tensor:
    """The same as a float32 tensor."""
    return torch.as_tensor(observed(obs, key, *row), dtype=torch.float32)


def rotation_columns(axis_angle: Tensor) -> Tensor:
    """First two columns of the rotation matrix, ``[..., 3]`` → ``[..., 6]`` (Rodrigues' formula).

    Continuous where the axis-angle vector flips its sign, near a half turn: the hand points down
    there all the time.
    """
    angle = axis_angle.norm(dim=-1, keepdim=True)
    axis = axis_angle / angle.clamp_min(1e-8)
    sine, versine = torch.sin(angle), 1 - torch.cos(angle)
    columns = []
    for i in range(2):
        unit = torch.zeros_like(axis)
        unit[..., i] = 1.0
        # R e = e cos + (k × e) sin + k (k·e) (1 - cos)
        turned = unit * (1 - versine) + torch.linalg.cross(axis, unit, dim=-1) * sine
        columns.append(turned + axis * axis[..., i : i + 1] * versine)
    return torch.cat(columns, dim=-1)
