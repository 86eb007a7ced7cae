"""The training signals: what a learner is paid besides success, and what learns from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from coda_envs.family import TaskFamily
from coda_envs.programs.diagnosis import Diagnosis
from coda_envs.programs.potential import PotentialProgram
from coda_envs.text2potential import compile_potential, compile_program
from coda_envs.text2potential.describe import describe_program
from coda_envs.text2potential.free_form import FreeFormReward
from coda_trainer.config import Signal


@dataclass(frozen=True)
class SignalRule:
    """What one value of the setting ``signal`` stands for.

    ``potential``: what Φ is compiled from (``none``: Φ ≡ 0). ``refined``: measured evidence may
    change the program after each round. ``free_form``: a dense reward is paid on top that is no
    potential, so that another policy may become the best. ``frozen``: the backbone's weights never
    change; the critic learns, and picks among the backbone's samples.
    """

    label: str
    potential: Literal["diagnoses", "description", "none"]
    refined: bool = False
    free_form: bool = False
    frozen: bool = False


#: Every signal; the labels stand in tables.
RULES: Mapping[Signal, SignalRule] = {
    "sparse": SignalRule("sparse only", "none"),
    "description": SignalRule("potential from the task description", "description"),
    "free-form": SignalRule(
        "free-form dense reward (not policy-invariant)", "none", free_form=True
    ),
    # Shaping leaves the critic's choice as it is, and helps it to learn.
    "frozen": SignalRule(
        "frozen actor, Q-weighted selection", "diagnoses", refined=True, frozen=True
    ),
    "unrefined": SignalRule("no refinement", "diagnoses"),
    "text2potential": SignalRule("Text2potential", "diagnoses", refined=True),
}


def signal_program(
    signal: Signal, family: TaskFamily, diagnoses: Sequence[Diagnosis]
) -> PotentialProgram | None:
    """The potential program of a signal, before any refinement; None for Φ ≡ 0.

    Without diagnoses it is the family's stage template. Raises :class:`ProgramError` as the
    compiler does.
    """
    source = RULES[signal].potential
    if source == "none":
        return None
    if source == "description":
        return describe_program(family)
    return compile_program(family.template, diagnoses)


def dense_reward(signal: Signal, family: TaskFamily, discount: float) -> FreeFormReward | None:
    """The free-form reward of a signal, None for those that have none.

    It reads the family's stage template, whatever was diagnosed: a reward that changed between
    rounds would leave the critic with values of another task. Its scale is 1 − ``discount`` (per
    environment step), so that all it can ever pay, Σ γ^i·(1 − γ), is what one success pays.
    """
    if not RULES[signal].free_form:
        return None
    potential = compile_potential(family.template, family.schema)
    return FreeFormReward(potential, scale=1.0 - discount)
