"""The typed schemas that pass between the parts: data, checked on arrival, never executed."""

from coda_envs.programs.diagnosis import Alternative, Diagnosis
from coda_envs.programs.generation import GenerationProgram
from coda_envs.programs.potential import PotentialProgram, PotentialStage
from coda_envs.programs.training import Tools, TrainingProgram

__all__ = [
    "Alternative",
    "Diagnosis",
    "GenerationProgram",
    "PotentialProgram",
    "PotentialStage",
    "Tools",
    "TrainingProgram",
]
