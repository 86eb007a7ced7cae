"""The policy that a run trains, checked before anything is written."""

from __future__ import annotations

from coda_envs.errors import PluginError
from coda_trainer.backbone import TrainableBackbone
from coda_trainer.config import BackboneConfig
from coda_trainer.discovery import make_backbone
from coda_trainer.learning.reader import backbone_reader

#: What a policy must answer with.
ACTION_DIM = 7


def make_policy(
    config: BackboneConfig, seed: int, *, learns: bool, frozen: bool = False
) -> TrainableBackbone:
    """The configured backbone.

    Raises :class:`ConfigError` and :class:`PluginError` as ``make_backbone`` does, and
    :class:`PluginError` where the loop could not train it: it cannot learn, or, where rounds follow
    the fine-tuning (``learns``), lends the residual actor nothing to read, or, where it stays
    ``frozen`` in them, gives the critic nothing to pick among.
    """
    backbone = make_backbone(config.name, seed=seed, **config.options)
    if not isinstance(backbone, TrainableBackbone):
        raise PluginError(
            f"backbone {config.name!r} cannot be trained.",
            allowed="a backbone with update, save and load",
            remedy="choose a trainable backbone",
        )
    spec = backbone.spec
    if spec.action_dim != ACTION_DIM:
        raise PluginError(
            f"backbone {config.name!r} predicts actions of {spec.action_dim} numbers.",
            allowed=str(ACTION_DIM),
        )
    if frozen and not spec.multi_sample:
        raise PluginError(
            f"backbone {config.name!r} has one chunk for an observation: with signal 'frozen' the "
            "critic has nothing to pick among.",
            allowed="a backbone whose spec says multi_sample",
            remedy="choose another signal, or a backbone that draws its chunks, as flow_chunk does",
        )
    if learns:
        backbone_reader(backbone, spec.execute, seed)
    return backbone
