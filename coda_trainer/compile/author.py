"""Who writes programs: the deterministic compiler, or a language model checked against the same
schema.

What a model writes is data, held to the rules that a program by hand is held to; where it gives
none (no server, a cap, an answer that is wrong after one repair) the compiler's stands. A written
potential cannot change which policy is best: it is bounded, and paid as a difference.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from coda_envs.errors import ConfigError, LLMError
from coda_envs.family import TaskFamily
from coda_envs.programs.diagnosis import Diagnosis
from coda_envs.programs.generation import GenerationProgram
from coda_envs.programs.potential import PotentialProgram
from coda_trainer.compile.author_prompt import (
    generation_question,
    potential_question,
    read_generation,
    read_potential,
)
from coda_trainer.config import ProgramsConfig, RunConfig
from coda_trainer.diagnosis.base import DiagnosisContext
from coda_trainer.diagnosis.control import Candidate
from coda_trainer.llm.client import LLM
from coda_trainer.llm.settings import read_settings

#: The author's name where no model is asked.
COMPILER = "compiler"


class ModelAuthor:
    """A language model that writes programs. ``problems``: why it gave none, in words."""

    def __init__(self, **settings: Any) -> None:
        """``settings``: see :mod:`coda_trainer.llm.settings`. Raises :class:`ConfigError`."""
        self._llm = LLM(read_settings(settings, "programs.options."))
        self.name = self._llm.settings.model
        self.problems: list[str] = []

    def usage(self) -> dict[str, Any]:
        """Calls, tokens and cost so far."""
        return self._llm.usage.to_dict()

    def generation(
        self, candidate: Candidate, context: DiagnosisContext
    ) -> GenerationProgram | None:
        """The generation program of a claim; None where the model gave none."""
        try:
            return self._llm.ask_for(
                generation_question(candidate, context),
                lambda data: read_generation(data, candidate, context, self.name),
            )
        except LLMError as error:
            self.problems.append(error.problem)
            return None

    def potential(
        self, family: TaskFamily, diagnoses: Sequence[Diagnosis], compiled: PotentialProgram
    ) -> PotentialProgram | None:
        """The potential of confirmed difficulties; None where the model gave none."""
        try:
            return self._llm.ask_for(
                potential_question(family, diagnoses, compiled),
                lambda data: read_potential(data, family, compiled, self.name),
            )
        except LLMError as error:
            self.problems.append(error.problem)
            return None


def check_author(config: RunConfig) -> None:
    """Raises :class:`ConfigError` where a model shall write programs that the run has none of, or
    cannot be asked with its options."""
    used = config.strategy == "coda" and config.coda.memory == "programs"
    if config.programs.author != COMPILER and not used:
        raise ConfigError(
            f"programs.author is {config.programs.author!r}, but the strategy is "
            f"{config.strategy!r} and coda.memory {config.coda.memory!r}.",
            allowed="strategy: coda with coda.memory: programs",
        )
    make_author(config.programs)


def make_author(config: ProgramsConfig) -> ModelAuthor | None:
    """The model that writes programs, or None where the compiler does.

    Raises :class:`ConfigError` for options that a model cannot be asked with, or that nobody uses.
    """
    if config.author == COMPILER:
        if config.options:
            raise ConfigError(
                f"programs.options are given ({', '.join(sorted(config.options))}), but the "
                "compiler has none.",
                remedy="set programs.author to model, or remove the options",
            )
        return None
    return ModelAuthor(**config.options)
