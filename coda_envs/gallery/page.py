"""The gallery of a family: three pictures and a Markdown page that shows them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from PIL import Image

from coda_envs.errors import SceneError
from coda_envs.family import TaskFamily
from coda_envs.gallery import facts
from coda_envs.gallery.film import shoot
from coda_envs.gallery.panels import Panel, png, sheet
from coda_envs.gallery.strip import draw_strip, find_variants
from coda_envs.gallery.views import Views
from coda_envs.scene import Scene
from coda_envs.validity import validate

#: Rows and columns of sampled scenes, and the width of each picture (pixels).
GRID = (3, 4)
WIDTH = 360
#: Draws for each scene of the grid before giving up.
TRIES = 50

SCENES, STRIP, FILM = "scene.png", "strip.png", "film.gif"
OVERVIEW = "families.png"


def folder_name(family: TaskFamily) -> str:
    """What the family's page and the folder of its pictures are called."""
    return family.name.replace("-", "_")


@dataclass(frozen=True)
class Gallery:
    """What is drawn of a family.

    ``files``: content by path below the gallery's folder: ``<name>/scene.png``,
    ``<name>/strip.png``, ``<name>/film.gif`` and ``<name>.md``, which shows them. ``still``: one
    of the scenes, for :func:`overview`.
    """

    files: Mapping[str, bytes]
    still: Panel


def draw_gallery(family: TaskFamily, seed: int = 0) -> Gallery:
    """Draw a family. The same seed gives the same files.

    Raises :class:`SceneError` where no scene suits, :class:`CodaError` where nothing can be
    rendered.
    """
    name = folder_name(family)
    scenes = sampled(family, seed, GRID[0] * GRID[1])
    film = shoot(family, seed)
    files = {
        f"{name}/{SCENES}": png(draw_scenes(family, scenes)),
        f"{name}/{STRIP}": png(draw_strip(find_variants(family, seed))),
        f"{name}/{FILM}": film.gif(),
        f"{name}.md": page(family, film.instruction).encode(),
    }
    # The fullest scene says most about the family.
    fullest = max(scenes, key=lambda scene: len(scene.attributes))
    with Views(family) as views:
        picture = views.pictures([fullest], WIDTH)[0]
    return Gallery(files, Panel(picture, family.name, (fullest.task.instruction,)))


def overview(galleries: Sequence[Gallery]) -> bytes:
    """A PNG of several families, a scene of each."""
    return png(sheet([gallery.still for gallery in galleries], GRID[1]))


def sampled(family: TaskFamily, seed: int, count: int) -> list[Scene]:
    """Valid scenes of the generator range. The expert is not asked."""
    rng = np.random.default_rng(seed)
    found: list[Scene] = []
    for _ in range(TRIES * count):
        scene = family.sample(rng, "generator")
        if validate(scene, solve_tries=0).passed:
            found.append(scene)
        if len(found) == count:
            return found
    raise SceneError(f"of {TRIES * count} scenes of {family.name!r} only {len(found)} are valid.")


def draw_scenes(family: TaskFamily, scenes: Sequence[Scene]) -> Image.Image:
    """The scenes in rows, each over its instruction."""
    with Views(family) as views:
        pictures = views.pictures(scenes, WIDTH)
    panels = [
        Panel(picture, "", (scene.task.instruction,))
        for picture, scene in zip(pictures, scenes, strict=True)
    ]
    return sheet(panels, GRID[1])


def page(family: TaskFamily, instruction: str) -> str:
    """The page in Markdown; ``instruction`` is that of the film."""
    return "\n".join(_lines(family, instruction))


def _lines(family: TaskFamily, instruction: str) -> Iterator[str]:
    name = folder_name(family)
    yield f"# {family.name}: `{family.env_id}`"
    yield ""
    yield facts.summary(family)
    yield ""
    yield "Written by `coda envs gallery`; changes belong into the family's files."
    yield ""
    yield f"![the expert: {instruction}]({name}/{FILM})"
    yield ""
    yield f"The scripted expert, main camera and wrist camera: *{instruction}*."
    yield ""
    yield f"![scenes of the generator range]({name}/{SCENES})"
    yield ""
    yield "Scenes of the generator range."
    yield ""
    yield f"![one factor edited at a time]({name}/{STRIP})"
    yield ""
    yield (
        "One factor edited at a time: a place at three magnitudes m (the share of the way to an "
        "end of the generator range), a size, an identity."
    )
    yield ""
    yield "## Success"
    yield ""
    for goal, words in facts.success_rules(family):
        yield f"`{goal}`: {words}"
        yield ""
    yield "## Stages"
    yield ""
    yield from table(facts.STAGE_COLUMNS, facts.stage_rows(family))
    yield ""
    rows = facts.interaction_rows(family)
    if rows:
        yield "## Interactions"
        yield ""
        yield (
            "Compositions of factors that are declared to be hard; suites are stratified over them."
        )
        yield ""
        yield from table(facts.INTERACTION_COLUMNS, rows)
        yield ""
    yield "## Factors"
    yield ""
    yield from table(facts.FACTOR_COLUMNS, facts.factor_rows(family))
    yield ""
    yield f"Held-out regions are cut from {_keys(family)}."
    yield ""


def _keys(family: TaskFamily) -> str:
    """The key factors by group."""
    return "; ".join(
        f"{group}: {', '.join(f'`{path}`' for path in paths)}"
        for group, paths in family.space.keys.items()
        if paths
    )


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """The lines of a table in Markdown."""
    for cells in (columns, ["---"] * len(columns), *rows):
        yield "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
