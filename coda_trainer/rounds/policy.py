"""The policy that a run trains, checked before anything is written."""

from __future__ import annotations

from coda_envs.errors import PluginError
from coda_trainer.backbone import TrainableBackbone
from coda_trainer.config import BackboneConfig
from coda_trainer.discovery import make_backbone
from coda_trainer.learning.reader import backbone_reader

#: What rollouts give a policy to see (``obs_mode="state"``), and what it must answer with.
OBSERVATIONS = ("proprio", "objects", "instruction")
ACTION_DIM = 7


def make_policy(config: BackboneConfig, seed: int, *, learns: bool) -> TrainableBackbone:
    """The configured backbone.

    Raises :class:`ConfigError` and :class:`PluginError` as ``make_backbone`` does, and
    :class:`PluginError` where the loop could not train it: it cannot learn, asks for observations
    that rollouts do not give, or, where rounds follow the fine-tuning (``learns``), lends the
    residual actor nothing to read.
    """
    backbone = make_backbone(config.name, seed=seed, **config.options)
    if not isinstance(backbone, TrainableBackbone):
        raise PluginError(
            f"backbone {config.name!r} cannot be trained.",
            allowed="a backbone with update, save and load",
            remedy="choose a trainable backbone",
        )
    spec = backbone.spec
    missing = sorted({*spec.images, *spec.state_keys} - {*OBSERVATIONS})
    if missing:
        raise PluginError(
            f"backbone {config.name!r} needs the observation {missing[0]!r}.",
            allowed=f"what rollouts give: {', '.join(OBSERVATIONS)}",
        )
    if spec.action_dim != ACTION_DIM:
        raise PluginError(
            f"backbone {config.name!r} predicts actions of {spec.action_dim} numbers.",
            allowed=str(ACTION_DIM),
        )
    if learns:
        backbone_reader(backbone, spec.execute, seed)
    return backbone
