"""Training programs Φ: subgoals, a staged potential and learning tools that help with a mode."""

from __future__ import annotations

from pydantic import Field

from coda_envs.programs.base import ProgramData
from coda_envs.programs.potential import PotentialProgram


class Tools(ProgramData):
    """Learning tools, a closed set; every one is off at its default."""

    #: Times the weight of transitions of this mode's scenes in replay draws.
    replay_weight: float = Field(default=1.0, ge=0.1, le=10)
    #: Times the exploration noise in this mode's scenes.
    exploration_noise: float = Field(default=1.0, ge=0.1, le=5)


class TrainingProgram(ProgramData):
    """Φ: what to aim at (``subgoals``, stage names), what to pay (``potential``), how to learn."""

    family: str
    subgoals: tuple[str, ...]
    potential: PotentialProgram
    tools: Tools = Tools()
    provenance: tuple[str, ...] = ()
