"""An examination as a folder: a page, its figures as data, and a film strip for each difficulty."""

from __future__ import annotations

from pathlib import Path

import yaml

from coda_envs.env import ManipulationEnv
from coda_envs.errors import CodaError, ProgramError
from coda_trainer.compile.generation import compile_candidate
from coda_trainer.diagnosis.examine import Difficulty, Examination
from coda_trainer.files import write_atomic
from coda_trainer.report.frames import draw_strip
from coda_trainer.strict_json import dumps

#: What each verdict means to a reader.
MEANING = {
    "confirmed": "with that factor changed back the stage is reached more often, and more often "
    "than with another factor changed as far",
    "refuted": "changing that factor back does not help, or any change does",
    "inconclusive": "too few episodes to tell",
    "untestable": "the policy seldom reaches the stage without that factor either, or no such "
    "scenes can be made",
}


def write_examination(found: Examination, out: Path) -> list[Path]:
    """Write ``diagnosis.json``, ``report.md``, and for each difficulty ``difficulty-<n>.png`` and
    its generation program, ``difficulty-<n>.yaml``, into the folder ``out``.

    Where rendering is not available the page has no pictures, and says so; a claim that no program
    can recreate has no program. Returns the files.
    """
    out.mkdir(parents=True, exist_ok=True)
    files = [out / "diagnosis.json", out / "report.md"]
    write_atomic(files[0], dumps(found.to_dict(), indent=1) + "\n")
    pictures: dict[int, Path] = {}
    problem = ""
    env = ManipulationEnv(found.family.name, control_hz=found.context.control_hz)
    try:
        for number, difficulty in enumerate(found.difficulties, start=1):
            path = out / f"difficulty-{number}.png"
            draw_strip(env, difficulty.failures[0], path)
            pictures[number] = path
    except CodaError as error:
        problem = f"No pictures: {error}"
    finally:
        env.close()
    programs = _programs(found, out)
    write_atomic(files[1], _page(found, pictures, programs, problem))
    return [*files, *pictures.values(), *programs.values()]


def _programs(found: Examination, out: Path) -> dict[int, Path]:
    written = {}
    for number, difficulty in enumerate(found.difficulties, start=1):
        try:
            program = compile_candidate(difficulty.candidate, found.context)
        except ProgramError:
            continue
        path = out / f"difficulty-{number}.yaml"
        write_atomic(path, yaml.safe_dump(program.to_dict(), sort_keys=False, allow_unicode=True))
        written[number] = path
    return written


def _page(
    found: Examination, pictures: dict[int, Path], programs: dict[int, Path], problem: str
) -> str:
    told = found.to_dict()
    low, high = told["interval95"]
    parts = [
        f"# What the policy cannot do in {found.family.name}",
        f"{told['successes']} of {told['episodes']} episodes succeeded "
        f"({told['successes'] / told['episodes']:.2f} [{low:.2f}, {high:.2f}]), on scenes of the "
        "demonstrations' range with one to three factors drawn from the whole range. Of "
        f"{told['failures']} failures {told['abstained']} have no diagnosis. Claims by "
        f"{found.diagnostician}.",
    ]
    if problem:
        parts.append(problem)
    if not found.difficulties:
        parts.append("No claim was made: nothing sets the failures apart, or there are too few.")
    for number, difficulty in enumerate(found.difficulties, start=1):
        parts += _section(number, difficulty, pictures.get(number), programs.get(number))
    return "\n\n".join(parts) + "\n"


def _section(
    number: int, difficulty: Difficulty, picture: Path | None, program: Path | None
) -> list[str]:
    told = difficulty.to_dict()
    n, reached = told["episodes_per_arm"], told["reached"]
    title = f"{told['factor']} ({told['direction']}) at {told['stage']}"
    parts = [
        f"## {number}. {title}: {told['verdict']}",
        f"{told['failures']} of {told['of_episodes']} episodes failed like this. "
        f"{difficulty.sentence}",
        f"{told['verdict'].capitalize()}: {MEANING[told['verdict']]}.",
    ]
    if n:
        parts.append(
            f"| scene | reached {told['stage']} |\n| --- | --- |\n"
            f"| as it was | {reached['with']} of {n} |\n"
            f"| {told['factor']} changed back | {reached['without']} of {n} |\n"
            f"| another factor changed as far | {reached['other_change']} of {n} |"
        )
    if picture is not None:
        task = difficulty.failures[0].scene.task.instruction
        parts.append(f"![{title}]({picture.name})\n\nA failure: “{task}”")
    if program is not None:
        parts.append(f"Scenes that show it: `coda program apply {program.name} --out scenes`")
    return parts
