"""What a family declares, in words and rows: summary, success, stages, factors, interactions."""

from __future__ import annotations

import inspect
import re
import sys

import numpy as np

from coda_envs import predicates
from coda_envs.factor import ContinuousFactor, DiscreteFactor, When
from coda_envs.family import TaskFamily
from coda_envs.interactions import Choice, Condition, Gap, load_interactions
from coda_envs.programs.potential import AllOf, Gate, Predicate
from coda_envs.scene import Goal

#: Scenes that are looked at for the goals a family has.
_SCENES = 64

FACTOR_COLUMNS = ("factor", "type", "unit", "seed", "generator", "far", "meaning")
STAGE_COLUMNS = ("stage", "done when")
INTERACTION_COLUMNS = ("interaction", "needs", "where")


def summary(family: TaskFamily) -> str:
    """What the family is, in one line: the first paragraph that its module or class begins with."""
    kind = type(family)
    for text in (sys.modules[kind.__module__].__doc__, kind.__doc__):
        if text:
            return " ".join(inspect.cleandoc(text).partition("\n\n")[0].split())
    return ""


def goals(family: TaskFamily) -> list[Goal]:
    """The goals that scenes of the family have."""
    rng = np.random.default_rng(0)
    found = (family.sample(rng, "generator").task.goal for _ in range(_SCENES))
    return list(dict.fromkeys(found))


def meaning(predicate: str) -> str:
    """What a registered predicate says, constants with their values."""
    text = " ".join(inspect.cleandoc(predicates.REGISTRY[predicate].function.__doc__ or "").split())

    def named(found: re.Match[str]) -> str:
        name = found[1]
        value = getattr(predicates, name, None) if name.isupper() else None
        return f"`{name}`" if value is None else f"`{name}` ({value:g})"

    return re.sub(r"``([^`]+)``", named, text)


def success_rules(family: TaskFamily) -> list[tuple[str, str]]:
    """(goal, what it says) of each goal."""
    return [
        (f"{goal.predicate}({', '.join(goal.roles)})", meaning(goal.predicate))
        for goal in goals(family)
    ]


def stage_rows(family: TaskFamily) -> list[tuple[str, ...]]:
    """One row a stage, as in :data:`STAGE_COLUMNS`."""
    return [(stage.name, _gate(stage.gate)) for stage in family.template.stages]


def _gate(gate: Gate) -> str:
    if isinstance(gate, Predicate):
        return f"`{gate.predicate}({', '.join(gate.roles)})`"
    parts, word = (gate.all, " and ") if isinstance(gate, AllOf) else (gate.any, " or ")
    return word.join(map(_gate, parts))


def factor_rows(family: TaskFamily) -> list[tuple[str, ...]]:
    """One row a factor, as in :data:`FACTOR_COLUMNS`."""
    return [
        (
            f"`{factor.path}`",
            factor.type,
            "" if isinstance(factor, DiscreteFactor) else factor.unit,
            *_ranges(factor),
            factor.meaning + (f"; {_condition(factor.when)}" if factor.when else ""),
        )
        for factor in family.space.factors
    ]


def _ranges(factor: ContinuousFactor | DiscreteFactor) -> tuple[str, str, str]:
    if isinstance(factor, DiscreteFactor):
        seed, generator, far = (
            ", ".join(map(str, choices)) for choices in (factor.seed, factor.generator, factor.far)
        )
        return seed, generator, far
    far = "" if factor.far is None else _interval(factor.far)
    return _interval(factor.seed), _interval(factor.generator), far


def _interval(ends: tuple[float, float]) -> str:
    return f"{ends[0]:g} to {ends[1]:g}"


def _condition(when: When) -> str:
    value = f"at least {when.min}" if when.min is not None else str(when.equals)
    return f"only where `{when.factor}` is {value}"


def interaction_rows(family: TaskFamily) -> list[tuple[str, ...]]:
    """One row a declared interaction, as in :data:`INTERACTION_COLUMNS`."""
    return [
        (interaction.name, interaction.needs, "; ".join(map(_where, interaction.conditions)))
        for interaction in load_interactions(family)
    ]


def _where(condition: Condition) -> str:
    if isinstance(condition, Choice):
        return f"`{condition.factor}` is {' or '.join(map(str, condition.values))}"
    if isinstance(condition, Gap):
        what = f"distance of {condition.gap[0]} and {condition.gap[1]}"
    else:
        what = f"`{condition.factor}`" + (", either way," if condition.absolute else "")
    return f"{what} from {condition.easy:g} (easy) to {condition.hard:g} (hard)"
