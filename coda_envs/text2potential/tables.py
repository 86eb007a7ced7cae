"""The tables of docs/text2potential.md, made from the registry and the rules themselves."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Sequence

from coda_envs.text2potential.rules import RULES, Rule
from coda_envs.text2potential.terms import REGISTRY, TermSpec

_OWNERS = {
    "moved": "the object that is moved, or its handle",
    "place": "the place it goes to, or what is uncovered",
    "bystander": "a distractor",
    "surroundings": "what carries or fills: cabinet, fillers",
    "task": "the task",
}


def term_table() -> str:
    """One row a registered term: roles, unit, default scale, allowed scales, meaning."""
    rows = []
    for name, spec in REGISTRY.items():
        meaning = " ".join((inspect.getdoc(spec.function) or "").replace("``", "`").split())
        rows.append((f"`{name}`", spec.arity, *_scale(spec), meaning))
    return _table(("term", "roles", "default scale", "scales", "value in [0, 1]"), rows)


def rule_table() -> str:
    """One row a rule: whose factor, its names, the phases, the term that is added."""
    rows = []
    for rule in RULES:
        fields = ", ".join(f"`{field}`" for field in rule.fields)
        when = "" if len(rule.directions) == 3 else f" ({', '.join(rule.directions)} only)"
        rows.append((_OWNERS[rule.owner], fields + when, ", ".join(rule.phases), *_added(rule)))
    return _table(("factor of", "named", "phases", "term", "joined"), rows)


def _scale(spec: TermSpec) -> tuple[str, str]:
    if not spec.unit:
        return "none", ""
    default = "half the object's yaw period"
    if spec.default_scale is not None:
        default = f"{spec.default_scale:.3g} {spec.unit}"
    low, high = spec.scales
    return default, f"{low:.3g} to {high:.3g} {spec.unit}"


def _added(rule: Rule) -> tuple[str, str]:
    scale = [] if rule.scale is None else [f"{rule.scale:g}"]
    term = f"`{rule.term}({', '.join([*rule.slots, *scale])})`"
    return term, "to keep" if rule.keep else "mean"


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
