"""Gymnasium ids: one a family, and one for every scene of a registered library."""

from __future__ import annotations

from pathlib import Path

import gymnasium as gym

from coda_envs.errors import SceneError
from coda_envs.family import BUILT_IN, get_family
from coda_envs.scene_source import load_library

ENTRY_POINT = "coda_envs.env:ManipulationEnv"

#: Ids of the built-in families, known without importing any of them.
BUILT_IN_IDS = {
    "pick-place": "CoDA-PickPlace-v0",
}


def register_built_in() -> None:
    """Register the built-in ids; called once by ``import coda_envs``."""
    assert set(BUILT_IN_IDS) == set(BUILT_IN)
    for family, env_id in BUILT_IN_IDS.items():
        if env_id not in gym.registry:
            gym.register(id=env_id, entry_point=ENTRY_POINT, kwargs={"family": family})


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
            gym.register(
                id=env_id,
                entry_point=ENTRY_POINT,
                kwargs={"family": scene.family, "scene": scene.to_dict()},
            )
        ids.append(env_id)
    return ids
