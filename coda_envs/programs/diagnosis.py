"""Diagnosis: a structured claim why an episode failed."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from coda_envs.programs.base import ProgramData

Direction = Literal["high", "low", "other"]


class Alternative(ProgramData):
    """A second guess: another factor, with its own confidence."""

    factor: str
    direction: Direction
    confidence: float = Field(ge=0, le=1)


class Diagnosis(ProgramData):
    """Why an episode failed, as a claim that control evaluations can test.

    ``direction`` says where the factor's value stands relative to the scenes that succeed
    (``other``: a choice). Where ``abstain`` is true no claim is made and ``factor`` is empty.
    """

    diagnostician: str
    family: str
    scene_id: str
    episode_seed: int
    stage: str
    failed_predicate: str
    factor: str = ""
    direction: Direction = "other"
    role: str = ""
    evidence: tuple[int, ...] = Field(default=(), max_length=8)
    confidence: float = Field(default=0.0, ge=0, le=1)
    alternatives: tuple[Alternative, ...] = Field(default=(), max_length=2)
    abstain: bool = False
    sentence: str = Field(default="", max_length=500)

    @model_validator(mode="after")
    def _claims_or_abstains(self) -> Diagnosis:
        if self.abstain == bool(self.factor):
            raise ValueError("a diagnosis names a factor, or abstains and names none")
        return self

    @property
    def signature(self) -> tuple[str, str, str, str, str]:
        """(stage, failed predicate, factor, direction, role): what a mode groups by."""
        return (self.stage, self.failed_predicate, self.factor, self.direction, self.role)
