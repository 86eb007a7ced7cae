"""The gate that keeps held-out scenes out of training."""

from __future__ import annotations

from coda_envs.errors import HeldOutError
from coda_envs.family import get_family
from coda_envs.scene import Scene


def accept_for_training(scene: Scene) -> Scene:
    """The scene itself if it lies in the generator region.

    Raises :class:`HeldOutError` otherwise; every scene that training, controls, probes or stage
    resets use passes through here.
    """
    region = get_family(scene.family).region(scene)
    if region != "generator":
        raise HeldOutError(
            f"scene {scene.id[:8]} lies in the region {region!r}.",
            allowed="the region 'generator' for training, controls and probes",
            remedy="draw it with region='generator'",
        )
    return scene
