"""Training programs Φ: subgoals, a staged potential and learning tools that help with a mode."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pydantic import Field, model_validator

from coda_envs.errors import ProgramError, short, suggest
from coda_envs.programs.base import ProgramData
from coda_envs.programs.potential import PotentialProgram


class Tools(ProgramData):
    """Learning tools, a closed set; every one is off at its default.

    They change what is collected, and how often what was collected is drawn or imitated. None
    changes a reward or a potential: which policy is best stays as it is.
    """

    #: Share of the mode's episodes that start where an earlier one entered a subgoal's stage.
    stage_resets: float = Field(default=0.0, ge=0, le=0.5)
    #: Times the weight of transitions of this mode's scenes in replay draws.
    replay_weight: float = Field(default=1.0, ge=0.1, le=10)
    #: Times the exploration noise in this mode's scenes.
    exploration_noise: float = Field(default=1.0, ge=0.1, le=5)
    #: Samples of the backbone that the chunk critic picks one of while collecting; 1: the first.
    best_of_n: int = Field(default=1, ge=1, le=16)
    #: Whether a failed episode that got a subgoal done is imitated up to there.
    hindsight_subgoals: bool = False

    @model_validator(mode="before")
    @classmethod
    def _known(cls, data: Any) -> Any:
        if isinstance(data, dict):
            for name in data:
                if name not in cls.model_fields:
                    allowed = suggest(str(name), cls.model_fields)
                    raise ValueError(f"there is no tool {short(name)}, there are {allowed}")
        return data

    def only(self, names: Iterable[str]) -> Tools:
        """Those tools as they are, the others off. Raises :class:`ProgramError` for a name that is
        no tool's."""
        kept = {}
        for name in names:
            if name not in TOOLS:
                raise ProgramError(f"there is no tool {name!r}.", allowed=suggest(name, TOOLS))
            kept[name] = getattr(self, name)
        return Tools(**kept)


#: The tools' names.
TOOLS: tuple[str, ...] = tuple(Tools.model_fields)


class TrainingProgram(ProgramData):
    """Φ: what to aim at (``subgoals``, stage names), what to pay (``potential``), how to learn."""

    family: str
    subgoals: tuple[str, ...]
    potential: PotentialProgram
    tools: Tools = Tools()
    provenance: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _aims_at_its_stages(self) -> TrainingProgram:
        for name in self.subgoals:
            if name not in self.potential.stage_names:
                allowed = suggest(name, self.potential.stage_names)
                raise ValueError(f"the subgoal {short(name)} is no stage, there are {allowed}")
        return self

    def with_tools(self, names: Iterable[str]) -> TrainingProgram:
        """The same program with those of its learning tools alone, see :meth:`Tools.only`."""
        return self.model_copy(update={"tools": self.tools.only(names)})
