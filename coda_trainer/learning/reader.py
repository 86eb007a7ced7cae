"""How a frozen base reads observations for the residual actor."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from coda_envs.errors import PluginError
from coda_trainer.backbone import Backbone, EncodingBackbone, ObsBatch

#: Reads B observations with the frozen base: ``(encoding [B, E], base chunk [B, h, A])``.
Reader = Callable[[ObsBatch], tuple[np.ndarray, np.ndarray]]


def backbone_reader(backbone: Backbone, execute: int, seed: int) -> Reader:
    """Reads observations with a backbone: its encoding and one sampled chunk, cut to ``execute``.

    A backbone without ``encode`` lends its state observations instead, flattened. Raises
    :class:`PluginError` where it has neither, or predicts fewer actions than ``execute``.
    """
    spec = backbone.spec
    if spec.horizon < execute:
        raise PluginError(
            f"backbone {spec.name!r} predicts {spec.horizon} actions.",
            allowed=f"at least execute = {execute}",
        )
    if not isinstance(backbone, EncodingBackbone) and not spec.state_keys:
        raise PluginError(
            f"backbone {spec.name!r} gives the residual actor nothing to read.",
            allowed="encode(obs), or state_keys in its spec",
            remedy="add encode(obs) -> [B, E]",
        )

    def read(obs: ObsBatch) -> tuple[np.ndarray, np.ndarray]:
        base = backbone.sample(obs, seed=seed if spec.seedable else None)[:, 0, :execute]
        return encode(backbone, obs), base.astype(np.float32)

    return read


def encode(backbone: Backbone, obs: ObsBatch) -> np.ndarray:
    """What the residual actor reads of B observations, ``[B, E]`` float32: the backbone's own
    encoding, or its state observations, flattened."""
    if isinstance(backbone, EncodingBackbone):
        return backbone.encode(obs).astype(np.float32)
    flat = [np.asarray(obs[key]) for key in backbone.spec.state_keys]
    return np.concatenate([v.reshape(len(v), -1) for v in flat], axis=1).astype(np.float32)
