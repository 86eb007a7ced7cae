"""Gymnasium ids: one a family, and one for every scene of a registered library."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium as gym

from coda_envs import family as families
from coda_envs.errors import SceneError
from coda_envs.family import BUILT_IN, TaskFamily, get_family
from coda_envs.scene_source import load_library

ENTRY_POINT = "coda_envs.env:ManipulationEnv"
#: What ``gym.make_vec`` makes, where it is not told otherwise.
VECTOR_ENTRY_POINT = "coda_envs.vector:ManipulationVectorEnv"

#: Ids of the built-in families, known without importing any of them.
BUILT_IN_IDS = {
    "pick-place": "CoDA-PickPlace-v0",
    "articulated": "CoDA-Articulated-v0",
    "put-inside": "CoDA-PutInside-v0",
    "stack-insert": "CoDA-StackInsert-v0",
}


def register_built_in() -> None:
    """Register the built-in ids; called once by ``import coda_envs``."""
    assert set(BUILT_IN_IDS) == set(BUILT_IN)
    for family, env_id in BUILT_IN_IDS.items():
        if env_id not in gym.registry:
            _register(env_id, family=family)


def register_family(family: TaskFamily) -> str:
    """Make a family of your own known, and register its id with Gymnasium. Returns the id.

    Call it where the family's module is imported, so that ``gym.make("module:ID")`` resolves in any
    process. Raises :class:`PluginError` for the name of a built-in, :class:`SceneError` for an id
    that belongs to another family.
    """
    taken = gym.registry.get(family.env_id)
    if taken is not None and taken.kwargs.get("family") != family.name:
        raise SceneError(
            f"the id {family.env_id!r} belongs to the family {taken.kwargs.get('family')!r}.",
            remedy="give your family another env_id",
        )
    families.register_family(family)
    _register(family.env_id, family=family.name)
    return family.env_id


def register_library(path: str | Path) -> list[str]:
    """Give every scene of a library an id of its own, e.g. ``CoDA-PickPlace-3f2a9c10-v0``.

    Each spec carries the scene itself, so that it resolves in any process, whatever becomes of the
    library's files. Returns the ids in the library's order.
    """
    path = Path(path).expanduser().resolve()
    ids: list[str] = []
    for scene in load_library(path):
        stem, version = get_family(scene.family).env_id.rsplit("-", 1)
        env_id = f"{stem}-{scene.id[:8]}-{version}"
        if env_id in gym.registry:
            same = gym.registry[env_id].kwargs.get("scene") == scene.to_dict()
            if not same:
                raise SceneError(
                    f"two scenes share the id {env_id}.", remedy="put them into different libraries"
                )
        else:
            _register(env_id, family=scene.family, scene=scene.to_dict())
        ids.append(env_id)
    return ids


def _register(env_id: str, **kwargs: Any) -> None:
    gym.register(
        id=env_id, entry_point=ENTRY_POINT, vector_entry_point=VECTOR_ENTRY_POINT, kwargs=kwargs
    )
