"""``coda envs``: what environments there are, whether they are sound, how fast, how they look."""

from __future__ import annotations

import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from coda_envs.errors import CodaError, ConfigError
from coda_trainer.commands.result import Json, Result, table

if TYPE_CHECKING:
    from coda_trainer.env_speed import Speed

Ids = Annotated[
    tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="[ID …]", help_behavior_hint="")
]
Library = Annotated[Path | None, tyro.conf.arg(metavar="PATH", help_behavior_hint="")]
All = Annotated[bool, tyro.conf.FlagCreatePairsOff]


@dataclass(frozen=True)
class EnvsList:
    """List the environments: id, what it is, number of factors, frozen suites.

    An installed family that does not load is listed with the reason.

    Example: coda envs list
    """

    json: Json = False

    def run(self) -> Result:
        """Load every family and describe it."""
        from coda_envs.gallery.facts import summary
        from coda_envs.scene_source import suite_names
        from coda_trainer.env_ids import load_families

        families, broken = load_families()
        listed: list[dict[str, Any]] = []
        rows: list[tuple[Any, ...]] = []
        for family in families:
            what, factors = summary(family), len(family.space.factors)
            suites = suite_names(family)
            listed.append(
                {
                    "id": family.env_id,
                    "family": family.name,
                    "summary": what,
                    "factors": factors,
                    "suites": list(suites),
                }
            )
            rows.append((family.env_id, family.name, factors, ", ".join(suites) or "none", what))
        rows += [("does not load", name, "", "", error) for name, error in broken.items()]
        view = table("environments", ("id", "family", "factors", "suites", "what it is"), rows)
        # To be copied: an id must not be broken.
        view.columns[0].no_wrap = True
        data = {
            "environments": listed,
            "broken": {name: str(error) for name, error in broken.items()},
        }
        return Result(data, view)


@dataclass(frozen=True)
class EnvsCheck:
    """Try what users of an environment rely on, for real.

    Gymnasium's and Stable-Baselines3's checkers with warnings as errors, observations in their
    spaces, the same bytes for the same seed, exact states, an expert that succeeds. The exit code
    is 1 if a check fails.

    Examples: coda envs check CoDA-PickPlace-v0
              coda envs check --all
              coda envs check --library my_scenes/
    """

    ids: Ids = ()
    """Ids of environments; module:ID for one that a module of yours registers."""

    all: All = False
    """Check the environments of all families."""

    library: Library = None
    """Check the scenes of a library: a folder of scene files or a .jsonl file."""

    json: Json = False

    def run(self) -> Result:
        """Run all checks on each environment."""
        from coda_trainer.env_ids import load_families, resolve

        chosen = resolve(self.ids, self.library, self.all)
        # Not before: it loads Gymnasium's checkers and MuJoCo.
        from coda_trainer.env_checks import EnvCheck, examine_env

        found: dict[str, list[EnvCheck]] = {}
        for env_id in chosen:
            _progress(f"checking {env_id}")
            found[env_id] = examine_env(env_id)
        if self.all:
            for name, problem in load_families()[1].items():
                found[name] = [EnvCheck("loads", "FAIL", str(problem))]
        rows = [(i, c.name, c.status, c.found) for i, checks in found.items() for c in checks]
        failed = [(env_id, name, what) for env_id, name, status, what in rows if status == "FAIL"]
        data = {
            "ok": not failed,
            "environments": [
                {"id": env_id, "checks": [asdict(check) for check in checks]}
                for env_id, checks in found.items()
            ],
        }
        error = None
        if failed:
            error = CodaError(
                "; ".join(f"{env_id} fails {name}: {what}" for env_id, name, what in failed) + ".",
                allowed="environments that pass every check",
            )
        view = table("coda envs check", ("environment", "check", "result", "found"), rows)
        view.columns[0].no_wrap = True
        return Result(data, view, error)


@dataclass(frozen=True)
class EnvsBench:
    """Measure roughly how fast environments are on this machine.

    Medians: control steps a second, a step against the physics that it runs, a reset to a new
    scene, a camera's picture. Times depend on the machine and on what else it does; the ratio
    hardly does.

    Example: coda envs bench CoDA-PickPlace-v0
    """

    ids: Ids = ()
    """Ids of environments; by default those of all families."""

    library: Library = None
    """Measure the scenes of a library: a folder of scene files or a .jsonl file."""

    json: Json = False

    def run(self) -> Result:
        """Measure one environment after the other."""
        from coda_trainer.env_ids import resolve

        chosen = resolve(self.ids, self.library, not self.ids and self.library is None)

        from coda_trainer.env_speed import circumstances, measure

        here = circumstances()
        speeds: list[Speed] = []
        for env_id in chosen:
            _progress(f"measuring {env_id}")
            speeds.append(measure(env_id))
        rows = [
            (
                s.env_id,
                s.control_hz,
                f"{s.steps_per_second:.0f}",
                f"{s.ratio:.2f}",
                f"{s.reset_ms:.1f}",
                s.render_problem if s.render_ms is None else f"{s.render_ms:.1f}",
            )
            for s in speeds
        ]
        machine = here["machine"]
        n = ", ".join(f"{count} {what}" for what, count in speeds[0].n.items())
        title = (
            f"medians of {n}; {machine['processor']}, {machine['cores']} cores, "
            f"load {machine['load']}, MuJoCo {here['mujoco']}"
        )
        columns = ("environment", "Hz", "steps/s", "× physics", "reset ms", "picture ms")
        data = here | {"environments": [speed.to_dict() for speed in speeds]}
        return Result(data, table(title, columns, rows))


@dataclass(frozen=True)
class EnvsGallery:
    """Draw a family: sampled scenes, edited scenes, a film of the expert, and a page with them.

    Writes <family>.md and, in a folder of the family's name, scene.png, strip.png and film.gif;
    with --all families.png too, which shows all of them at work.

    Example: coda envs gallery --family pick-place -o gallery
    """

    out: Annotated[Path, tyro.conf.arg(aliases=("-o",), metavar="FOLDER")]
    """The folder to write to; it is made where it does not exist."""

    family: Annotated[str | None, tyro.conf.arg(metavar="NAME", help_behavior_hint="")] = None
    """The family to draw."""

    all: All = False
    """Draw all families."""

    seed: int = 0
    """The same seed gives the same files."""

    json: Json = False

    def run(self) -> Result:
        """Draw one family after the other."""
        if self.all == (self.family is not None):
            raise ConfigError(
                "--family and --all are both given." if self.all else "no family is named.",
                allowed="either --family NAME or --all",
            )
        if self.seed < 0:
            raise ConfigError(f"--seed is {self.seed}.", allowed="a whole number from 0")
        if self.out.exists() and not self.out.is_dir():
            raise CodaError(f"--out {self.out} is a file.", allowed="a folder")
        from coda_envs.family import family_names, get_family

        names = family_names() if self.family is None else (self.family,)
        families = [get_family(name) for name in names]

        from coda_envs.gallery.page import OVERVIEW, draw_gallery, overview
        from coda_trainer.files import write_atomic

        written: list[str] = []

        def write(name: str, content: bytes) -> None:
            path = self.out / name
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomic(path, content)
            written.append(str(path))

        galleries = []
        for family in families:
            _progress(f"drawing {family.name}")
            galleries.append(draw_gallery(family, self.seed))
            for name, content in galleries[-1].files.items():
                write(name, content)
        if self.all:
            write(OVERVIEW, overview(galleries))
        return Result({"files": written}, "".join(f"{path}\n" for path in written))


def _progress(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
