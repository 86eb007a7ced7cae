"""``coda potential``: what a staged potential measures, as a table and as a picture."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args

import tyro

from coda_envs.errors import CodaError, ConfigError, ProgramError, suggest
from coda_trainer.commands.result import Assignments, Json, Result, table

if TYPE_CHECKING:
    from coda_envs.family import TaskFamily
    from coda_envs.programs.diagnosis import Diagnosis
    from coda_envs.programs.potential import PotentialProgram


@dataclass(frozen=True)
class PotentialShow:
    """Show a staged potential: its stages, gates, terms, weights and version.

    With --diagnosis the program that is compiled for those claims is shown.

    Example: coda potential show pick-place --diagnosis grasp:spatial.target.yaw:high
    """

    program: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="FAMILY|FILE.json")]
    """A family, whose own stages are shown, or a file with a potential program."""

    diagnosis: Annotated[Assignments, tyro.conf.arg(metavar="STAGE:FACTOR:DIRECTION")] = ()
    """Compile for this claim, e.g. grasp:spatial.target.yaw:high. May be given several times."""

    json: Json = False

    def run(self) -> Result:
        """Read, compile, tell."""
        from coda_envs.family import get_family
        from coda_envs.programs.potential import progress_text, read_program
        from coda_envs.text2potential import compile_potential, compile_program
        from coda_trainer.diagnosis.base import gate_text

        program: PotentialProgram
        if self.program.endswith(".json"):
            program = read_program(self.program)
            family = get_family(program.family)
        else:
            family = get_family(self.program)
            program = family.template
        claims = [_claim(text, family) for text in self.diagnosis]
        program = compile_program(program, claims)
        compile_potential(program, family.schema)
        total = sum(stage.weight for stage in program.stages)
        stages = [
            {
                "name": stage.name,
                "share": stage.weight / total,
                "gate": gate_text(stage.gate),
                "progress": progress_text(stage.progress),
            }
            for stage in program.stages
        ]
        data = {
            "family": family.name,
            "version": program.hash,
            "note": program.note,
            "stages": stages,
            "program": program.to_dict(),
        }
        rows = [(s["name"], f"{s['share']:.2f}", s["gate"], s["progress"]) for s in stages]
        title = f"{family.name}, version {program.hash}"
        title += f"\n{program.note}" if program.note else ""
        return Result(data, table(title, ("stage", "share", "done when", "progress"), rows))


@dataclass(frozen=True)
class PotentialPlot:
    """Draw Φ, the current stage and every term along an episode of the family's expert.

    Example: coda potential plot --family put-inside --seed 3 -o phi.png
    """

    out: Annotated[Path, tyro.conf.arg(aliases=("-o",), metavar="PNG")]
    """The picture to write."""

    family: str = "pick-place"
    """The kind of task."""

    seed: int = 0
    """Seed of the scene, which comes from the generator range, and of the episode."""

    program: Annotated[Path | None, tyro.conf.arg(metavar="FILE.json", help_behavior_hint="")] = (
        None
    )
    """A potential program of the family; its own stages by default."""

    json: Json = False

    def run(self) -> Result:
        """Play the episode, draw it."""
        if self.seed < 0:
            raise ConfigError(f"--seed is {self.seed}.", allowed="a whole number from 0")
        if self.out.suffix.lower() != ".png":
            raise CodaError(
                f"--out {self.out} is not a PNG file.",
                allowed="a name ending in .png",
                remedy=f"use {self.out.with_suffix('.png')}",
            )
        from coda_trainer.files import check_place, write_atomic

        check_place(self.out)
        from coda_envs.family import get_family
        from coda_envs.programs.potential import read_program
        from coda_envs.text2potential import compile_potential

        family = get_family(self.family)
        program = family.template if self.program is None else read_program(str(self.program))
        if program.family != family.name:
            raise ProgramError(
                f"{self.program} is for the family {program.family!r}.",
                allowed=repr(family.name),
                remedy=f"use --family {program.family}",
            )
        potential = compile_potential(program, family.schema)

        from coda_trainer.report.potential_picture import expert_episode, potential_picture

        features, success = expert_episode(family, self.seed)
        write_atomic(self.out, potential_picture(potential, features))
        phi = potential(features)
        data: dict[str, Any] = {
            "file": str(self.out),
            "family": family.name,
            "version": potential.version,
            "success": success,
            "steps": len(features) - 1,
            "potential": phi.tolist(),
            "stage": potential.stage(features).tolist(),
        }
        return Result(data, f"{self.out}\n")


def _claim(text: str, family: TaskFamily) -> Diagnosis:
    """A diagnosis from ``STAGE:FACTOR:DIRECTION``; the stage is checked where it is compiled."""
    from coda_envs.programs.diagnosis import Diagnosis, Direction

    parts = text.split(":")
    if len(parts) != 3:
        raise ConfigError(
            f"--diagnosis {text!r} is not understood.",
            allowed="STAGE:FACTOR:DIRECTION, e.g. grasp:spatial.target.yaw:high",
        )
    stage, factor, direction = parts
    if factor not in family.space.by_path:
        raise ProgramError(
            f"--diagnosis names the factor {factor!r}.",
            allowed=suggest(factor, family.space.by_path),
        )
    if direction not in get_args(Direction):
        raise ProgramError(
            f"--diagnosis gives the direction {direction!r}.",
            allowed=suggest(direction, get_args(Direction)),
        )
    data = {
        "diagnostician": "the command line",
        "family": family.name,
        "scene_id": "",
        "episode_seed": 0,
        "stage": stage,
        "failed_predicate": "",
        "factor": factor,
        "direction": direction,
    }
    return Diagnosis.parse(data, "--diagnosis")
