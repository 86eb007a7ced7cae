"""Potential programs: the staged potential Φ(s) in [0, 1] as data."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from coda_envs.errors import ProgramError
from coda_envs.programs.base import ProgramData

TermName = Literal[
    "distance",
    "height",
    "joint_fraction",
    "upright",
    "contact",
    "grasped",
    "inside_fraction",
    "alignment",
    "insertion_depth",
    "released",
    "stable",
]

#: Deepest nesting of a progress tree or a gate.
MAX_DEPTH = 6


class Term(ProgramData):
    """A leaf of a progress tree: a registered term over roles, in [0, 1].

    ``scale`` is the length or angle over which the term goes from 0 to 1 (m or rad; the term's
    own default where it is left out).
    """

    term: TermName
    roles: tuple[str, ...] = ()
    scale: float | None = Field(default=None, gt=0)


class Combine(ProgramData):
    """An inner node: ``min``, ``max``, ``mean`` or ``product`` of its parts, ``not`` of one."""

    op: Literal["min", "max", "mean", "product", "not"]
    of: tuple[Progress, ...] = Field(min_length=1, max_length=8)

    @model_validator(mode="after")
    def _not_takes_one(self) -> Combine:
        if self.op == "not" and len(self.of) != 1:
            raise ValueError("'not' takes exactly one part")
        return self


Progress = Annotated[Term | Combine, Field(union_mode="left_to_right")]


class Predicate(ProgramData):
    """A registered predicate over roles."""

    predicate: str
    roles: tuple[str, ...] = ()


class AllOf(ProgramData):
    """Holds where every part holds."""

    all: tuple[Gate, ...] = Field(min_length=1, max_length=8)


class AnyOf(ProgramData):
    """Holds where at least one part holds."""

    any: tuple[Gate, ...] = Field(min_length=1, max_length=8)


Gate = Annotated[Predicate | AllOf | AnyOf, Field(union_mode="left_to_right")]


class PotentialStage(ProgramData):
    """One stage: it is done where ``gate`` holds; ``progress`` measures the way there."""

    name: str = Field(min_length=1, max_length=40)
    gate: Gate
    progress: Progress
    weight: float = Field(default=1.0, gt=0, le=100)


class PotentialProgram(ProgramData):
    """Stages in order; the last stage's gate is the goal.

    With j the latest stage whose gate holds, the current stage is k = j + 1 (k = 0 where no gate
    holds), and Φ(s) = (Σ_{i<k} w_i + w_k·p_k(s)) / Σ w; where the goal holds, Φ = 1.
    """

    family: str
    stages: tuple[PotentialStage, ...] = Field(min_length=1, max_length=12)
    note: str = Field(default="", max_length=500)

    @model_validator(mode="after")
    def _distinct(self) -> PotentialProgram:
        names = [s.name for s in self.stages]
        if len(set(names)) != len(names):
            raise ValueError(f"stage names repeat: {names}")
        for stage in self.stages:
            if _depth(stage.progress) > MAX_DEPTH or _depth(stage.gate) > MAX_DEPTH:
                raise ValueError(f"stage {stage.name!r} is nested deeper than {MAX_DEPTH}")
        return self

    @property
    def stage_names(self) -> tuple[str, ...]:
        """Names of the stages in order."""
        return tuple(s.name for s in self.stages)


def read_program(given: str | Mapping[str, Any]) -> PotentialProgram:
    """A program given as data or as the path of a JSON file. Raises :class:`ProgramError`."""
    if isinstance(given, str):
        try:
            given = json.loads(Path(given).read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError) as error:
            raise ProgramError(f"the potential {given!r} cannot be read: {error}.") from error
    return PotentialProgram.parse(given, "potential")


def _depth(node: ProgramData) -> int:
    parts: tuple[ProgramData, ...] = ()
    if isinstance(node, Combine):
        parts = node.of
    elif isinstance(node, AllOf):
        parts = node.all
    elif isinstance(node, AnyOf):
        parts = node.any
    return 1 + max((_depth(p) for p in parts), default=0)


Combine.model_rebuild()
AllOf.model_rebuild()
AnyOf.model_rebuild()
