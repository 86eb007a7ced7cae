"""Environment ids as the command line takes them: a family's, a library's, or ``module:ID``."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from pathlib import Path

import gymnasium as gym

from coda_envs import register_library
from coda_envs.errors import ConfigError, PluginError, suggest
from coda_envs.family import TaskFamily, family_names, get_family
from coda_envs.registration import ENTRY_POINT
from coda_trainer.discovery import foreign_code


def load_families() -> tuple[list[TaskFamily], dict[str, PluginError]]:
    """Every family that loads, and by name why each of the others does not."""
    loaded: list[TaskFamily] = []
    broken: dict[str, PluginError] = {}
    for name in family_names():
        try:
            loaded.append(get_family(name))
        except PluginError as error:
            broken[name] = error
    return loaded, broken


def family_ids() -> list[str]:
    """The id of every family that loads, registered where it was not yet."""
    families, _ = load_families()
    for family in families:
        # An installed family may leave that to us: no module of it has been asked for by its id.
        if family.env_id not in gym.registry:
            gym.register(id=family.env_id, entry_point=ENTRY_POINT, kwargs={"family": family.name})
    return [family.env_id for family in families]


def resolve(ids: Sequence[str], library: Path | None, every: bool) -> list[str]:
    """The ids that a command is to work on; ``every``: those of all families.

    With a ``library`` and no ids, its scenes'. Raises :class:`ConfigError` for an unknown id or
    none at all, :class:`PluginError` for a module that does not load, and what
    :func:`coda_envs.register_library` raises.
    """
    own = register_library(library) if library is not None else []
    known = [*family_ids(), *own]
    chosen = [*ids, *(family_ids() if every else ())] or own
    if not chosen:
        raise ConfigError(
            "no environment is named.",
            allowed="ids, --all, or --library PATH",
            remedy=f"name one of {', '.join(known)}",
        )
    return list(dict.fromkeys(_registered(env_id, known) for env_id in chosen))


def _registered(env_id: str, known: Sequence[str]) -> str:
    """An id that is there and ours; of ``module:ID`` the module is imported first."""
    module, _, name = env_id.rpartition(":")
    if module:
        with foreign_code(f"the module of {env_id!r} does not load", "correct or install it"):
            importlib.import_module(module)
    spec = gym.registry.get(name)
    if spec is None:
        raise ConfigError(
            f"the environment {env_id!r} is not known.",
            allowed=suggest(name, known),
            remedy="name the module that registers it too, as in my_module:MyFamily-v0",
        )
    if spec.entry_point != ENTRY_POINT:
        raise ConfigError(f"{name!r} is not an environment of CoDA.", allowed=suggest(name, known))
    return name
