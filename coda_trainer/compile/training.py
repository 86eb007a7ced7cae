"""Confirmed diagnoses → training program Φ: subgoals, a staged potential and learning tools."""

from __future__ import annotations

from collections.abc import Sequence

from coda_envs.errors import ProgramError
from coda_envs.family import TaskFamily
from coda_envs.programs.diagnosis import Diagnosis
from coda_envs.programs.training import Tools, TrainingProgram
from coda_envs.text2potential.compiler import compile_program

#: Failures of a mode are rare in replay; this makes them count without crowding out the rest.
REPLAY_WEIGHT = 2.0
#: Where another motion is needed. Noise much above this makes rollouts collapse.
EXPLORATION_NOISE = 1.5
#: Factors that ask for another motion; the others ask for more practice of the same one.
MOTION = ("x", "y", "yaw", "shape", "size", "rim", "receptacle", "distractors")


def compile_training(
    diagnoses: Diagnosis | Sequence[Diagnosis], family: TaskFamily
) -> TrainingProgram:
    """What helps with a mode whose confirmed diagnoses are given (at least one).

    Subgoals are the diagnosed stages in the family's order; the potential comes from
    :func:`coda_envs.text2potential.compile_program`; tools weigh the mode's transitions up in
    replay, and explore more where a factor of :data:`MOTION` is to blame. Deterministic; order and
    repetition of diagnoses change nothing.

    Raises :class:`ProgramError` as ``compile_program`` does, and where there is no diagnosis.
    """
    given = (diagnoses,) if isinstance(diagnoses, Diagnosis) else tuple(diagnoses)
    if not given:
        raise ProgramError("there is no diagnosis to compile.", allowed="at least one")
    potential = compile_program(family.template, given)
    stages = {d.stage for d in given}
    moves = any(d.factor.rpartition(".")[2] in MOTION for d in given)
    return TrainingProgram(
        family=family.name,
        subgoals=tuple(name for name in potential.stage_names if name in stages),
        potential=potential,
        tools=Tools(
            replay_weight=REPLAY_WEIGHT,
            exploration_noise=EXPLORATION_NOISE if moves else 1.0,
        ),
        provenance=tuple(sorted({f"diagnosis:{d.hash}" for d in given})),
    )
