"""``coda scene``: scene files, without writing Python."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from coda_envs.errors import CodaError, ConfigError, PluginError, SceneError
from coda_trainer.commands.result import Assignments, Json, Result, table

if TYPE_CHECKING:
    from coda_envs.scene import Scene

SceneFile = Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="FILE")]
Out = Annotated[Path | None, tyro.conf.arg(aliases=("-o",), metavar="FILE", help_behavior_hint="")]


@dataclass(frozen=True)
class SceneNew:
    """Draw a new scene of a family and print it as YAML.

    Example: coda scene new --family pick-place --seed 3 -o my_scene.yaml
    """

    family: str = "pick-place"
    """The kind of task."""

    seed: int = 0
    """The same seed gives the same scene."""

    within: Literal["seed", "generator"] = "seed"
    """seed: the range of the demonstrations; generator: the most that training may reach."""

    out: Out = None
    """Write it to this file; by default to standard output."""

    json: Json = False

    def run(self) -> Result:
        """Draw the scene."""
        _check_seed(self.seed)
        import numpy as np

        from coda_envs.family import get_family

        family = get_family(self.family)
        return _written(family.sample(np.random.default_rng(self.seed), self.within), self.out)


@dataclass(frozen=True)
class SceneEdit:
    """Change factors of a scene and print the new scene; the file stays as it is.

    Example: coda scene edit my_scene.yaml --set spatial.target.x=0.1 -o moved.yaml
    """

    file: SceneFile
    """The scene file."""

    set: Annotated[Assignments, tyro.conf.arg(metavar="FACTOR=VALUE")] = ()
    """One factor and its new value. May be given several times."""

    out: Out = None
    """Write the new scene to this file; by default to standard output."""

    json: Json = False

    def run(self) -> Result:
        """Edit, all factors at once."""
        from coda_envs.scene import load_scene
        from coda_trainer.yaml_input import parse_assignment

        scene = load_scene(self.file)
        edits = dict(parse_assignment(text, SceneError) for text in self.set)
        return _written(scene.edit_many(edits), self.out)


@dataclass(frozen=True)
class SceneValidate:
    """Check that a scene can be built, is stable, in reach, in view and solvable.

    The checks run in order and stop at the first that fails; the exit code is then 3, or 4 where
    the family's own code broke.

    Example: coda scene validate my_scene.yaml
    """

    file: SceneFile
    """The scene file."""

    json: Json = False

    def run(self) -> Result:
        """Run the checks."""
        from coda_envs.scene import load_scene

        scene = load_scene(self.file)

        from coda_envs.validity import FAMILY_ERROR, validate

        certificate = validate(scene)
        rows = [(c.name, "ok" if c.passed else "FAIL", c.detail) for c in certificate.checks]
        data = {
            "file": str(self.file),
            "scene_id": scene.id,
            "passed": certificate.passed,
            "checks": [
                {"name": c.name, "passed": c.passed, "detail": c.detail} for c in certificate.checks
            ],
        }
        error: CodaError | None = None
        failed = certificate.checks[-1]
        if certificate.reason == FAMILY_ERROR:
            error = PluginError(
                f"{self.file} was not judged: {failed.detail}.", remedy="repair the family"
            )
        elif not certificate.passed:
            error = SceneError(
                f"{self.file} is not valid: {failed.name}: {failed.detail}.",
                allowed="a scene that passes every check",
                remedy=f"look at it with `coda scene render {self.file} -o scene.png` and move or "
                "change what the check names with `coda scene edit`",
            )
        return Result(data, table(str(self.file), ("check", "result", "found"), rows), error)


@dataclass(frozen=True)
class SceneRender:
    """Draw the picture of a scene as the main camera sees it at the start.

    Example: coda scene render my_scene.yaml -o my_scene.png
    """

    file: SceneFile
    """The scene file."""

    out: Annotated[Path, tyro.conf.arg(aliases=("-o",), metavar="PNG")]
    """The picture to write."""

    seed: int = 0
    """Seed of the episode whose start is drawn."""

    json: Json = False

    def run(self) -> Result:
        """Render one frame."""
        _check_png(self.out)
        from coda_envs.scene import load_scene

        scene = load_scene(self.file)

        import imageio.v3
        import numpy as np

        from coda_envs.env import ManipulationEnv
        from coda_trainer.files import write_atomic

        env = ManipulationEnv(scene.family, scene=scene, render_mode="rgb_array")
        try:
            env.reset(seed=self.seed)
            frame = np.asarray(env.render())
        finally:
            env.close()
        write_atomic(self.out, imageio.v3.imwrite("<bytes>", frame, extension=".png"))
        return Result(
            {"file": str(self.out), "scene_id": scene.id, "size": list(frame.shape[:2])},
            f"{self.out}\n",
        )


@dataclass(frozen=True)
class SceneStrip:
    """Draw a scene and five edits of it side by side: three places, a resize, a replacement.

    Each panel differs from the first in one factor, named under it, and is a valid scene. The
    places lie at a third, two thirds and all of the way to an end of the factor's generator range.

    Example: coda scene strip --family pick-place -o strip.png
    """

    out: Annotated[Path, tyro.conf.arg(aliases=("-o",), metavar="PNG")]
    """The picture to write."""

    family: str = "pick-place"
    """The kind of task."""

    seed: int = 0
    """The same seed gives the same scenes."""

    json: Json = False

    def run(self) -> Result:
        """Find the edits, draw them."""
        _check_seed(self.seed)
        _check_png(self.out)
        from coda_envs.family import get_family

        family = get_family(self.family)

        from coda_envs.gallery.panels import png
        from coda_envs.gallery.strip import draw_strip, find_variants
        from coda_trainer.files import write_atomic

        variants = find_variants(family, self.seed)
        write_atomic(self.out, png(draw_strip(variants)))
        data = {"file": str(self.out), "panels": [variant.to_dict() for variant in variants]}
        return Result(data, f"{self.out}\n")


def _check_seed(seed: int) -> None:
    if seed < 0:
        raise ConfigError(f"--seed is {seed}.", allowed="a whole number from 0")


def _check_png(out: Path) -> None:
    """A picture's name and place, checked before it is drawn."""
    if out.suffix.lower() != ".png":
        raise CodaError(
            f"--out {out} is not a PNG file.",
            allowed="a name ending in .png",
            remedy=f"use {out.with_suffix('.png')}",
        )
    from coda_trainer.files import check_place

    check_place(out)


def _written(scene: Scene, out: Path | None) -> Result:
    """The scene on standard output, or in a file and then its path."""
    data = {"scene_id": scene.id, "scene": scene.to_dict()}
    if out is None:
        return Result(data, scene.to_yaml())
    from coda_trainer.files import write_atomic

    write_atomic(out, scene.to_yaml())
    return Result(data | {"file": str(out)}, f"{out}\n")
