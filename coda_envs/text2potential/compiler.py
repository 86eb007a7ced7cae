"""Deterministic compiler: a family's stage template and confirmed diagnoses → potential program.

What a diagnosis says is put in twice: the stage where episodes fail weighs more, and the stages
that lead up to it measure what the diagnosed factor asks for, by the table :data:`RULES`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from coda_envs.errors import ProgramError, suggest
from coda_envs.programs.diagnosis import Diagnosis, Direction
from coda_envs.programs.potential import (
    AllOf,
    Combine,
    Gate,
    PotentialProgram,
    PotentialStage,
    Predicate,
    Progress,
    Term,
    TermName,
)
from coda_envs.text2potential.terms import GRIPPER

#: A diagnosed stage weighs this many times what the others weigh on average.
FOCUS = 2.0
#: Most parts of one ``mean`` (the schema's limit).
MAX_PARTS = 8
MAX_NOTE = 500

#: What a factor belongs to, seen from the goal ``placed(object, receptacle)``: the object that is
#: moved, what it goes to, any other object, or the task as a whole.
Kind = Literal["object", "receptacle", "bystander", "task"]
#: Gates of the stages that carry the object over the receptacle, and put it there.
OVER = ("over", "above")
DOWN = ("placed", "inside")
EVERY: tuple[Direction, ...] = ("high", "low", "other")


@dataclass(frozen=True)
class Rule:
    """Factors of a kind → a term for the stages whose gate is one of ``gates``.

    ``roles`` are written as ``gripper``, ``object`` and ``receptacle``.
    """

    kind: Kind
    fields: tuple[str, ...]
    gates: tuple[str, ...]
    term: TermName
    roles: tuple[str, ...]
    scale: float | None = None
    directions: tuple[Direction, ...] = EVERY


RULES: tuple[Rule, ...] = (
    # Where the object is: get there exactly.
    Rule("object", ("x", "y"), ("near",), "distance", ("gripper", "object"), 0.10),
    Rule("object", ("x", "y"), ("grasped",), "distance", ("gripper", "object"), 0.02),
    # How it is turned or shaped: turn the hand before closing it.
    Rule("object", ("yaw", "shape", "size"), ("near", "grasped"), "alignment", ("object",)),
    # A wide object leaves little room between the fingers, a narrow one little to hold.
    Rule("object", ("size",), ("grasped",), "distance", ("gripper", "object"), 0.02),
    # Heavy or slippery: hold it at its middle, and see that it does not turn in the hand.
    Rule("object", ("mass", "friction"), ("grasped",), "distance", ("gripper", "object"), 0.02),
    Rule("object", ("mass", "friction"), ("lifted", *OVER), "upright", ("object",)),
    # Where the receptacle is, and how much room it leaves.
    Rule("receptacle", ("x", "y"), OVER, "distance", ("object", "receptacle"), 0.15),
    Rule(
        "receptacle", ("x", "y", "size"), DOWN, "distance", ("object", "receptacle"), 0.05
    ),
    # Walls: carry it above them.
    Rule(
        "receptacle", ("rim",), OVER, "height", ("object", "receptacle"), 0.12, ("high",)
    ),
    Rule("task", ("receptacle",), OVER, "height", ("object", "receptacle"), 0.12),
    # Others in the way: come in turned as the object is, carry it over them.
    Rule("bystander", ("x", "y", "yaw", "size", "shape"), ("near", "grasped"), "alignment",
         ("object",)),
    Rule("bystander", ("x", "y", "yaw", "size", "shape"), OVER, "height", ("object",), 0.12),
    Rule("task", ("distractors",), OVER, "height", ("object",), 0.12),
)  # fmt: skip


def compile_program(template: PotentialProgram, diagnoses: Iterable[Diagnosis]) -> PotentialProgram:
    """The template with diagnosed stages' weights raised and diagnosed factors' terms added.

    A diagnosed stage weighs ``FOCUS`` times the mean of the undiagnosed ones (all of them
    diagnosed: weights stay), never less than in the template. Each term that :data:`RULES` gives
    joins the mean of its stage's progress, in every fitting stage up to the diagnosed one. A factor
    without a rule only raises the weight. The order and repetition of diagnoses change nothing,
    nor does compiling the result again for the same diagnoses.

    Raises :class:`ProgramError` for a diagnosis of another family, an unknown stage, an abstention,
    or a template too deeply nested to be added to.
    """
    claims = sorted({_claim(template, d) for d in diagnoses})
    if not claims:
        return template
    names = template.stage_names
    focused = {stage for stage, _, _ in claims}
    others = [s.weight for s in template.stages if s.name not in focused]
    raised = FOCUS * sum(others) / len(others) if others else 0.0

    stages = []
    for index, stage in enumerate(template.stages):
        added = {
            term.canonical_json(): term
            for name, factor, direction in claims
            if index <= names.index(name)
            for term in _terms(template, stage, factor, direction)
        }
        weight = min(max(stage.weight, raised), 100.0) if stage.name in focused else stage.weight
        stages.append(
            {
                "name": stage.name,
                "gate": stage.gate.to_dict(),
                "progress": _joined(stage.progress, [added[key] for key in sorted(added)]),
                "weight": weight,
            }
        )
    note = "Compiled for " + ", ".join(f"{s}: {f} {d}" for s, f, d in claims)
    note = note if len(note) <= MAX_NOTE else note[: MAX_NOTE - 1] + "…"
    data = {"family": template.family, "stages": stages, "note": note}
    return PotentialProgram.parse(data, f"the program compiled for {template.family}")


def _claim(template: PotentialProgram, diagnosis: Diagnosis) -> tuple[str, str, Direction]:
    if diagnosis.family != template.family:
        raise ProgramError(
            f"the diagnosis of scene {diagnosis.scene_id!r} is of the family "
            f"{diagnosis.family!r}, the template of {template.family!r}.",
        )
    if diagnosis.abstain:
        raise ProgramError(
            f"the diagnosis of scene {diagnosis.scene_id!r} abstains.",
            remedy="compile confirmed diagnoses only",
        )
    if diagnosis.stage not in template.stage_names:
        raise ProgramError(
            f"the diagnosis names the stage {diagnosis.stage!r}.",
            allowed=suggest(diagnosis.stage, template.stage_names),
        )
    return diagnosis.stage, diagnosis.factor, diagnosis.direction


def _terms(
    template: PotentialProgram, stage: PotentialStage, factor: str, direction: Direction
) -> Iterator[Term]:
    """The terms that the rules give a stage for a diagnosed factor."""
    goal = next(_predicates(template.stages[-1].gate))
    known = {"gripper": GRIPPER, **dict(zip(("object", "receptacle"), goal.roles, strict=False))}
    kind, field = _kind(factor, known), factor.rpartition(".")[2]
    gates = {p.predicate for p in _predicates(stage.gate)}
    for rule in RULES:
        fits = rule.kind == kind and field in rule.fields and direction in rule.directions
        # A goal over one role has no receptacle to measure against.
        if fits and gates & set(rule.gates) and known.keys() >= set(rule.roles):
            roles = tuple(known[r] for r in rule.roles)
            yield Term(term=rule.term, roles=roles, scale=rule.scale)


def _kind(factor: str, known: dict[str, str]) -> Kind:
    """What a factor path such as ``spatial.target.x`` or ``task.distractors`` belongs to."""
    parts = factor.split(".")
    if len(parts) < 3:
        return "task"
    if parts[1] == known.get("object"):
        return "object"
    return "receptacle" if parts[1] == known.get("receptacle") else "bystander"


def _predicates(gate: Gate) -> Iterator[Predicate]:
    if isinstance(gate, Predicate):
        yield gate
        return
    for part in gate.all if isinstance(gate, AllOf) else gate.any:
        yield from _predicates(part)


def _joined(progress: Progress, added: list[Term]) -> dict[str, object]:
    """Progress as data, with the terms it lacks joined by ``mean``."""
    fresh = [term.to_dict() for term in added if not _holds(progress, term)]
    if not fresh:
        return progress.to_dict()
    flat = isinstance(progress, Combine) and progress.op == "mean"
    if isinstance(progress, Combine) and flat and len(progress.of) + len(fresh) <= MAX_PARTS:
        return {"op": "mean", "of": [*(p.to_dict() for p in progress.of), *fresh]}
    return {"op": "mean", "of": [progress.to_dict(), *fresh]}


def _holds(progress: Progress, term: Term) -> bool:
    if isinstance(progress, Combine):
        return any(_holds(part, term) for part in progress.of)
    return progress == term
