"""Which environment the rollouts of a policy need: what it reads decides what is observed."""

from __future__ import annotations

from coda_envs.cameras import CAMERAS
from coda_envs.errors import PluginError
from coda_envs.observations import ObsMode
from coda_trainer.backbone import BackboneSpec
from coda_trainer.learning.jobs import EnvSpec

#: The state observations that every policy can ask for.
STATE_KEYS = ("proprio", "objects", "instruction")


def env_spec(spec: BackboneSpec, control_hz: int) -> EnvSpec:
    """The environment that shows what the backbone reads: ``state`` where it reads no image,
    ``rgb`` where it reads no table of objects, else both; images of the size it asks for.

    Raises :class:`PluginError` where it asks for what no environment shows: another observation,
    or images that are not square or of two sizes.
    """
    missing = sorted(({*spec.state_keys} - {*STATE_KEYS}) | ({*spec.images} - {*CAMERAS}))
    if missing:
        raise PluginError(
            f"backbone {spec.name!r} needs the observation {missing[0]!r}.",
            allowed=f"{', '.join(STATE_KEYS)}, and the images {', '.join(CAMERAS)}",
        )
    if not spec.images:
        return EnvSpec(control_hz)
    name, shape = next(iter(spec.images.items()))
    size = shape[0]
    for other, wanted in spec.images.items():
        if wanted != (size, size, 3):
            raise PluginError(
                f"backbone {spec.name!r} asks for {other!r} of shape {tuple(wanted)} and for "
                f"{name!r} of shape {tuple(shape)}.",
                allowed="square images of one size, (S, S, 3)",
            )
    mode: ObsMode = "rgb+state" if "objects" in spec.state_keys else "rgb"
    return EnvSpec(control_hz, mode, size)
