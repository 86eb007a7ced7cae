"""Generation programs Ω: typed edits that recreate a mode's difficulty in a scene."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from coda_envs.programs.base import ProgramData

Number = float
MAX_EDITS = 32


class Guard(ProgramData):
    """The program applies only to scenes whose factor has this value (or lies in this range)."""

    factor: str
    equals: int | str | None = None
    low: Number | None = None
    high: Number | None = None


class SetEdit(ProgramData):
    """Give a factor one value."""

    edit: Literal["set"]
    factor: str
    value: float | int | str


class ShiftEdit(ProgramData):
    """Add an amount, times the magnitude m."""

    edit: Literal["shift"]
    factor: str
    amount: Number


class ScaleEdit(ProgramData):
    """Multiply by 1 + m·(by − 1)."""

    edit: Literal["scale"]
    factor: str
    by: Number = Field(gt=0, le=10)


class SampleEdit(ProgramData):
    """Draw uniformly: from ``[low, high]`` pulled towards ``easy`` as m falls below 1 (at m = 0
    the value is ``easy``), or from ``choices``."""

    edit: Literal["sample"]
    factor: str
    low: Number | None = None
    high: Number | None = None
    easy: Number | None = None
    choices: tuple[int | str, ...] = ()

    @model_validator(mode="after")
    def _one_form(self) -> SampleEdit:
        interval = self.low is not None and self.high is not None
        if interval == bool(self.choices):
            raise ValueError("a sample edit gives low and high, or choices")
        if interval and self.low > self.high:  # type: ignore[operator]
            raise ValueError("low is above high")
        return self


class SwapEdit(ProgramData):
    """Exchange the spatial factors of two roles."""

    edit: Literal["swap"]
    role: str
    other: str


class AddDistractorEdit(ProgramData):
    """One distractor more, near a role."""

    edit: Literal["add_distractor"]
    near: str = "target"


Edit = Annotated[
    SetEdit | ShiftEdit | ScaleEdit | SampleEdit | SwapEdit | AddDistractorEdit,
    Field(discriminator="edit"),
]


class GenerationProgram(ProgramData):
    """Ω: guards, then edits, at a magnitude m in [0, 1] (1: the full difficulty)."""

    family: str
    roles: tuple[str, ...]
    guards: tuple[Guard, ...] = Field(default=(), max_length=8)
    edits: tuple[Edit, ...] = Field(min_length=1, max_length=MAX_EDITS)
    magnitude: float = Field(default=1.0, ge=0, le=1)
    provenance: tuple[str, ...] = ()
