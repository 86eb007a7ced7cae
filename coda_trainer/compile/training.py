"""Confirmed diagnoses → training program Φ: subgoals, a staged potential and learning tools.

Which tools a diagnosis asks for is a table over two things: where in the task episodes fail, and
whether the factor to blame asks for another motion or for the same one done exactly
(docs/training_programs.md).
"""

from __future__ import annotations

from collections.abc import Sequence

from coda_envs.errors import ProgramError
from coda_envs.family import TaskFamily
from coda_envs.programs.diagnosis import Diagnosis
from coda_envs.programs.training import Tools, TrainingProgram
from coda_envs.text2potential.compiler import compile_program

#: Factors that ask for another motion; the others ask for the same one, more exactly.
MOTION = ("x", "y", "yaw", "shape", "size", "rim", "receptacle", "distractors")
#: What each tool is set to where a diagnosis asks for it.
#:
#: Failures of a mode are rare in replay: twice their weight counts without crowding out the rest.
#: Noise much above 1.5 makes rollouts collapse. A quarter of resets leaves most of a mode's
#: episodes to the whole task, which is what is measured.
STRENGTH = Tools(
    stage_resets=0.25,
    replay_weight=2.0,
    exploration_noise=1.5,
    best_of_n=4,
    hindsight_subgoals=True,
)


def compile_training(
    diagnoses: Diagnosis | Sequence[Diagnosis], family: TaskFamily
) -> TrainingProgram:
    """What helps with a mode whose confirmed diagnoses are given (at least one).

    Subgoals are the diagnosed stages in the family's order; the potential comes from
    :func:`coda_envs.text2potential.compile_program`; the tools are those that :func:`tools_for`
    gives for any of the diagnoses, at their :data:`STRENGTH`. Deterministic; order and repetition
    of diagnoses change nothing.

    Raises :class:`ProgramError` as ``compile_program`` does, and where there is no diagnosis.
    """
    given = (diagnoses,) if isinstance(diagnoses, Diagnosis) else tuple(diagnoses)
    if not given:
        raise ProgramError("there is no diagnosis to compile.", allowed="at least one")
    potential = compile_program(family.template, given)
    stages = {d.stage for d in given}
    wanted = {tool for d in given for tool in tools_for(d, family)}
    return TrainingProgram(
        family=family.name,
        subgoals=tuple(name for name in potential.stage_names if name in stages),
        potential=potential,
        tools=STRENGTH.only(sorted(wanted)),
        provenance=tuple(sorted({f"diagnosis:{d.hash}" for d in given})),
    )


def tools_for(diagnosis: Diagnosis, family: TaskFamily) -> tuple[str, ...]:
    """The tools that a diagnosis of the family asks for, by name.

    ==================  =========================================================================
    replay_weight       always
    stage_resets        the stage is not the first: episodes cannot start later than they do
    hindsight_subgoals  the stage is not the last: what gets that done has succeeded
    exploration_noise   the factor asks for another motion (:data:`MOTION`), which must be found
    best_of_n           it asks for the same motion done exactly: some samples do it already
    ==================  =========================================================================
    """
    names = family.template.stage_names
    moves = diagnosis.factor.rpartition(".")[2] in MOTION
    asked = {
        "stage_resets": diagnosis.stage != names[0],
        "replay_weight": True,
        "exploration_noise": moves,
        "best_of_n": not moves,
        "hindsight_subgoals": diagnosis.stage != names[-1],
    }
    return tuple(tool for tool, wanted in asked.items() if wanted)
