"""Where an environment's scenes come from: one scene, a suite, a library, or a fresh draw."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from coda_envs.errors import SceneError, suggest
from coda_envs.factor import RangeName
from coda_envs.family import TaskFamily
from coda_envs.scene import Scene, load_scene, parse_scene


@dataclass(frozen=True)
class SceneSource:
    """A fixed list of scenes, or fresh draws from a range of the generator region."""

    family: TaskFamily
    fixed: tuple[Scene, ...] = ()
    within: RangeName = "seed"

    def draw(self, rng: np.random.Generator) -> Scene:
        """The next scene: picked from the list by ``rng``, or sampled fresh."""
        if self.fixed:
            return self.fixed[int(rng.integers(len(self.fixed)))]
        return self.family.sample(rng, self.within)

    def choose(self, rng: np.random.Generator, options: Mapping[str, Any]) -> Scene:
        """The scene that a reset's options ask for, ``scene`` or ``index``; else the next one."""
        unknown = set(options) - {"scene", "index"}
        if unknown:
            raise SceneError(
                f"unknown reset option {sorted(unknown)[0]!r}.", allowed="'index', 'scene'"
            )
        if "scene" in options:
            return make_source(self.family, scene=options["scene"]).fixed[0]
        if "index" in options:
            return self.at(int(options["index"]))
        return self.draw(rng)

    def at(self, index: int) -> Scene:
        """Scene ``index`` of the list. Raises :class:`SceneError` outside it."""
        if not self.fixed or not 0 <= index < len(self.fixed):
            raise SceneError(
                f"scene index {index} was asked for.",
                allowed=f"0 to {len(self.fixed) - 1}" if self.fixed else "none: scenes are drawn",
                remedy="pass suite= or library= to the environment",
            )
        return self.fixed[index]


def make_source(
    family: TaskFamily,
    *,
    scene: str | Mapping[str, Any] | Scene | None = None,
    suite: str | None = None,
    library: str | None = None,
    within: RangeName = "seed",
) -> SceneSource:
    """The source that the environment's keyword arguments ask for; at most one of the three."""
    sources = {"scene": scene, "suite": suite, "library": library}
    given = [name for name, value in sources.items() if value is not None]
    if len(given) > 1:
        raise SceneError(
            f"{' and '.join(f'{n}=' for n in given)} are both set.",
            allowed="one of scene=, suite=, library=",
        )
    if within not in ("seed", "generator"):
        raise SceneError(f"within={within!r} is not a range.", allowed="'generator', 'seed'")
    scenes: Sequence[Scene] = ()
    if isinstance(scene, Scene):
        scenes = (family.checked(scene),)
    elif isinstance(scene, Mapping):
        scenes = (parse_scene(scene, "scene="),)
    elif scene is not None:
        scenes = (load_scene(scene),)
    elif suite is not None:
        scenes = load_suite(family, suite)
    elif library is not None:
        scenes = load_library(Path(library))
    for found in scenes:
        if found.family != family.name:
            raise SceneError(
                f"the scene {found.id[:8]} is of the family {found.family!r}.",
                allowed=f"family {family.name!r} for {family.env_id}",
            )
    return SceneSource(family, tuple(scenes), within)


def suite_names(family: TaskFamily) -> tuple[str, ...]:
    """Names of the frozen suites that ship with the family."""
    return tuple(sorted(file.stem for file in (family.folder / "suites").glob("*.jsonl")))


def load_suite(family: TaskFamily, name: str) -> tuple[Scene, ...]:
    """The frozen scenes of a suite, in order. Raises :class:`SceneError` on an unknown name."""
    names = suite_names(family)
    if name not in names:
        raise SceneError(
            f"unknown suite {name!r} of the family {family.name!r}.", allowed=suggest(name, names)
        )
    return _load_suite(family.folder / "suites" / f"{name}.jsonl")


@lru_cache(maxsize=32)
def _load_suite(file: Path) -> tuple[Scene, ...]:
    lines = file.read_text(encoding="utf-8").splitlines()
    return tuple(Scene.model_validate(json.loads(line)["scene"]) for line in lines)


def load_library(path: Path) -> tuple[Scene, ...]:
    """Scenes of a library: a folder of scene files (by name), or a JSON Lines file."""
    if path.is_dir():
        files = sorted(p for p in path.iterdir() if p.suffix in (".yaml", ".yml", ".json"))
        scenes = [load_scene(p) for p in files]
    elif path.is_file():
        scenes = []
        for number, line in enumerate(_lines(path), 1):
            try:
                data = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise SceneError(f"{path}, line {number} is not JSON: {error}.") from error
            if isinstance(data, Mapping) and "scene" in data:
                data = data["scene"]
            scenes.append(parse_scene(data, f"{path}, line {number}"))
    else:
        raise SceneError(
            f"library {str(path)!r} does not exist.",
            allowed="a folder of scene files or a .jsonl file",
        )
    if not scenes:
        raise SceneError(f"library {str(path)!r} holds no scene.", allowed="at least one scene")
    return tuple(scenes)


def _lines(path: Path) -> list[str]:
    """Lines of a JSON Lines file, without the empty ones at its end."""
    try:
        # Not splitlines(): an instruction may hold a line separator other than a newline.
        text = path.read_text(encoding="utf-8").rstrip()
        return text.split("\n") if text else []
    except (OSError, UnicodeDecodeError) as error:
        raise SceneError(f"library {str(path)!r} cannot be read: {error}.") from error
