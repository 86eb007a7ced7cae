"""``coda program``: generation and training programs as files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from coda_envs.errors import ConfigError, ProgramError, SceneError
from coda_trainer.commands.result import Assignments, Json, Result, table

if TYPE_CHECKING:
    from coda_envs.programs.generation import GenerationProgram
    from coda_envs.programs.training import TrainingProgram

ProgramFile = Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="FILE")]
#: Largest program file that is read, in bytes.
MAX_BYTES = 1_000_000


@dataclass(frozen=True)
class ProgramShow:
    """Check a program and print it: a file, or those of a run's difficulty mode.

    Example: coda program show runs/demo-1 3f2a9c10 --json > programs.json
    """

    source: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="FILE|RUN")]
    """A program file (JSON or YAML), a run folder or its memory.sqlite."""

    mode: Annotated[
        str | None, tyro.conf.Positional, tyro.conf.arg(metavar="MODE", help_behavior_hint="")
    ] = None
    """With a run: the mode's id, as `coda memory show` lists it."""

    json: Json = False

    def run(self) -> Result:
        """Read, check, print."""
        import yaml

        programs = _of_mode(self.source, self.mode) if self.mode else [_read(Path(self.source))]
        data = {p.hash: p.to_dict() for p in programs}
        text = yaml.safe_dump_all(
            [p.to_dict() for p in programs], sort_keys=False, allow_unicode=True, width=100
        )
        return Result(data=data, view=text)


@dataclass(frozen=True)
class ProgramApply:
    """Make scenes with a generation program: valid ones outside every held-out region.

    Example: coda program apply wide.yaml --count 8 --out scenes
    """

    file: ProgramFile
    """The generation program."""

    count: Annotated[int, tyro.conf.arg(metavar="N")] = 8
    """How many scenes."""

    seed: Annotated[int, tyro.conf.arg(metavar="N")] = 0
    """The same seed gives the same scenes."""

    out: Annotated[Path, tyro.conf.arg(metavar="FOLDER")] = Path("scenes")
    """Where the scenes go, one YAML file each."""

    json: Json = False

    def run(self) -> Result:
        """Generate and write."""
        import numpy as np

        from coda_envs.engine.check import check_program
        from coda_envs.engine.proposals import generate
        from coda_envs.family import get_family
        from coda_trainer.files import write_atomic

        if self.count < 1 or self.seed < 0:
            raise ConfigError(
                f"--count is {self.count} and --seed {self.seed}.",
                allowed="whole numbers, from 1 and from 0",
            )
        program = _generation(self.file)
        family = get_family(program.family)
        check_program(program, family.space)
        made = generate(
            family,
            self.count,
            np.random.default_rng(self.seed),
            source=program.hash,
            program=program,
            base=lambda rng: family.sample(rng, "seed"),
        )
        if not made.scenes:
            raise SceneError(
                f"the program {program.hash} made no valid scene in {len(made.traces)} proposals: "
                + ", ".join(f"{n} × {reason}" for reason, n in made.reasons.items()),
                remedy="widen its edits or its guards",
            )
        self.out.mkdir(parents=True, exist_ok=True)
        files = [self.out / f"{s.id[:12]}.yaml" for s in made.scenes]
        for scene, file in zip(made.scenes, files, strict=True):
            write_atomic(file, scene.to_yaml())
        data = {
            "program": program.hash,
            "scenes": [str(f) for f in files],
            "proposals": len(made.traces),
            "verified": made.verified,
            "edit_survival": made.edit_survival,
        }
        rows = [(str(f), s.task.instruction) for s, f in zip(made.scenes, files, strict=True)]
        title = f"{len(files)} scenes of {family.name} in {len(made.traces)} proposals"
        return Result(data=data, view=table(title, ("file", "instruction"), rows))


@dataclass(frozen=True)
class ProgramLift:
    """Carry a generation program over to another family, and list what has no counterpart there.

    Example: coda program lift wide.yaml --to stack-insert --out wide-stack.yaml
    """

    file: ProgramFile
    """The generation program."""

    to: Annotated[str, tyro.conf.arg(metavar="FAMILY")]
    """The family to lift it to."""

    role: Annotated[Assignments, tyro.conf.arg(metavar="ROLE=ROLE")] = ()
    """A role of the program's family and what it becomes; may be given several times."""

    out: Annotated[
        Path | None, tyro.conf.arg(aliases=("-o",), metavar="FILE", help_behavior_hint="")
    ] = None
    """Write the lifted program to this file; by default to standard output."""

    json: Json = False

    def run(self) -> Result:
        """Lift, write, list what was left out."""
        import sys

        import yaml

        from coda_envs.family import get_family
        from coda_envs.programs.lifting import lift
        from coda_trainer.files import write_atomic
        from coda_trainer.yaml_input import parse_assignment

        program = _generation(self.file)
        roles = {k: str(v) for k, v in (parse_assignment(t, ConfigError) for t in self.role)}
        source, target = get_family(program.family).space, get_family(self.to).space
        lifted = lift(program, source, target, roles)
        reasons = "; ".join(f"{entry}: {why}" for entry, why in lifted.left_out.items())
        if lifted.program is None:
            raise ProgramError(
                f"no edit of {program.hash} can be lifted to {self.to}: {reasons}.",
                remedy="choose another family, or say which role becomes which by --role",
            )
        text = yaml.safe_dump(lifted.program.to_dict(), sort_keys=False, allow_unicode=True)
        if self.out is not None:
            write_atomic(self.out, text)
        if reasons:
            print(f"left out: {reasons}", file=sys.stderr)
        data = {
            "program": lifted.program.to_dict(),
            "hash": lifted.program.hash,
            "left_out": dict(lifted.left_out),
            "roles": dict(lifted.roles),
        }
        return Result(data=data, view=f"Wrote {self.out}\n" if self.out else text)


def _read(path: Path) -> GenerationProgram | TrainingProgram:
    """The program in a file, by what it holds. Raises :class:`ProgramError`."""
    import yaml

    from coda_envs.programs.generation import GenerationProgram
    from coda_envs.programs.training import TrainingProgram
    from coda_envs.strict_yaml import read_yaml, yaml_problem

    try:
        if path.stat().st_size > MAX_BYTES:
            raise ProgramError(f"{path} is larger than {MAX_BYTES} bytes: no program.")
        data = read_yaml(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ProgramError(
            f"{path} cannot be read: {error.strerror}.", remedy="check the path"
        ) from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ProgramError(f"{path} is neither JSON nor YAML: {yaml_problem(error)}.") from error
    kind = GenerationProgram if isinstance(data, dict) and "edits" in data else TrainingProgram
    return kind.parse(data, str(path))


def _generation(path: Path) -> GenerationProgram:
    from coda_envs.programs.generation import GenerationProgram

    program = _read(path)
    if not isinstance(program, GenerationProgram):
        raise ProgramError(f"{path} holds a training program.", allowed="a generation program")
    return program


def _of_mode(source: str, mode: str) -> list[GenerationProgram | TrainingProgram]:
    """The programs in force of a mode of a run's memory: Ω, then Φ."""
    from coda_trainer.memory.store import MemoryStore
    from coda_trainer.memory.view import find_memory, find_mode

    with MemoryStore.open_read_only(find_memory(source)) as memory, memory.transaction():
        found = find_mode(memory, mode)
        return [memory.program(h) for h in (found.omega_hash, found.phi_hash) if h]
