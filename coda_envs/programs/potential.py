"""Potential programs: the staged potential Φ(s) in [0, 1] as data."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from pydantic import Discriminator, Field, Tag, field_validator, model_validator

from coda_envs.errors import ProgramError, short, suggest
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

OpName = Literal["min", "max", "mean", "product", "not"]

#: Deepest nesting of a progress tree or a gate.
MAX_DEPTH = 8


class Term(ProgramData):
    """A leaf of a progress tree: a registered term over roles, in [0, 1].

    ``scale`` is the length or angle over which the term goes from 0 to 1 (m or rad; the term's
    own default where it is left out).
    """

    term: TermName
    roles: tuple[str, ...] = ()
    scale: float | None = Field(default=None, gt=0)

    @field_validator("term", mode="before")
    @classmethod
    def _known(cls, name: Any) -> Any:
        return _one_of("term", name, get_args(TermName))


class Combine(ProgramData):
    """An inner node: ``min``, ``max``, ``mean`` or ``product`` of its parts, ``not`` of one."""

    op: OpName
    of: tuple[Progress, ...] = Field(min_length=1, max_length=8)

    @field_validator("op", mode="before")
    @classmethod
    def _known(cls, name: Any) -> Any:
        return _one_of("op", name, get_args(OpName))

    @model_validator(mode="after")
    def _not_takes_one(self) -> Combine:
        if self.op == "not" and len(self.of) != 1:
            raise ValueError("'not' takes exactly one part")
        return self


def _one_of(what: str, name: Any, known: tuple[str, ...]) -> Any:
    if name not in known:
        word = name if isinstance(name, str) else ""
        raise ValueError(f"unknown {what} {short(name)}; allowed: {suggest(word, known)}")
    return name


def _form(*keys: str) -> Discriminator:
    """Tells the forms of a node apart by the key that each alone has; the first where none has it.

    So an error speaks of the form that was meant, not of every form that there is.
    """

    def which(node: Any) -> str:
        given = node if isinstance(node, Mapping) else getattr(node, "__dict__", {})
        return next((key for key in keys if key in given), keys[0])

    return Discriminator(which)


Progress = Annotated[
    Annotated[Term, Tag("term")] | Annotated[Combine, Tag("op")], _form("term", "op")
]


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


Gate = Annotated[
    Annotated[Predicate, Tag("predicate")]
    | Annotated[AllOf, Tag("all")]
    | Annotated[AnyOf, Tag("any")],
    _form("predicate", "all", "any"),
]


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


def leaves(progress: Progress) -> Iterator[Term]:
    """Every term of a progress tree, from left to right; one that occurs twice comes twice."""
    if isinstance(progress, Term):
        yield progress
        return
    for part in progress.of:
        yield from leaves(part)


def progress_text(node: Progress) -> str:
    """A progress tree in words: ``mean(distance(gripper, target, 0.05), not height(target))``."""
    if isinstance(node, Term):
        scale = [] if node.scale is None else [f"{node.scale:g}"]
        return f"{node.term}({', '.join([*node.roles, *scale])})"
    inner = ", ".join(progress_text(part) for part in node.of)
    return f"not {inner}" if node.op == "not" else f"{node.op}({inner})"


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
