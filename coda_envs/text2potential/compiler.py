"""Deterministic compiler: a family's stage template and confirmed diagnoses → potential program.

What a diagnosis says is put in twice: the stage where episodes fail weighs more, and the stages
that lead up to it measure what the diagnosed factor asks for, by the table
:data:`coda_envs.text2potential.rules.RULES`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from coda_envs.errors import ProgramError, suggest
from coda_envs.programs.diagnosis import Diagnosis, Direction
from coda_envs.programs.potential import (
    Combine,
    PotentialProgram,
    PotentialStage,
    Progress,
    leaves,
)
from coda_envs.text2potential.acts import stage_acts
from coda_envs.text2potential.rules import Addition, additions

#: A diagnosed stage weighs this many times what the others that are not light weigh on average.
FOCUS = 1.6
#: A stage that weighs less than this share of the heaviest is light: its gate is a touch that comes
#: and goes, and weight on it would make Φ drop whenever a finger loses hold for an instant.
LIGHT = 0.5
#: Most parts of one ``mean`` (the schema's limit).
MAX_PARTS = 8
MAX_NOTE = 500


def compile_program(template: PotentialProgram, diagnoses: Iterable[Diagnosis]) -> PotentialProgram:
    """The template with diagnosed stages' weights raised and diagnosed factors' terms added.

    A diagnosed stage weighs ``FOCUS`` times the mean of the undiagnosed ones that are not light
    (all of them diagnosed: weights stay), never less than in the template; a light one passes this
    on to the nearest stage before it that is not. Each term that the rules give joins its stage's
    progress, in every fitting stage up to the diagnosed one. A factor without a rule only raises
    the weight. The order and repetition of diagnoses change nothing; nor does compiling the result
    again for the same diagnoses, where the stages that are not light weigh the same.

    Raises :class:`ProgramError` for a diagnosis of another family, an unknown stage, an abstention,
    or a template too deeply nested to be added to.
    """
    claims = sorted({_claim(template, d) for d in diagnoses})
    if not claims:
        return template
    names = template.stage_names
    weights = _weights(template.stages, {names.index(stage) for stage, _, _ in claims})
    acts = stage_acts(template)
    named = frozenset(role for own in acts for act in own for role in (act.moved, act.place))

    stages = []
    for index, stage in enumerate(template.stages):
        added = {
            addition.term.canonical_json(): addition
            for name, factor, direction in claims
            if index <= names.index(name)
            for addition in additions(acts[index], named, factor, direction)
        }
        stages.append(
            {
                "name": stage.name,
                "gate": stage.gate.to_dict(),
                "progress": _joined(stage.progress, [added[key] for key in sorted(added)]),
                "weight": weights[index],
            }
        )
    note = "Compiled for " + ", ".join(f"{s}: {f} {d}" for s, f, d in claims)
    note = note if len(note) <= MAX_NOTE else note[: MAX_NOTE - 1] + "…"
    data = {"family": template.family, "stages": stages, "note": note}
    return PotentialProgram.parse(data, f"the program compiled for {template.family}")


def _weights(stages: Sequence[PotentialStage], diagnosed: set[int]) -> list[float]:
    """The stages' weights with those of the diagnosed ones (indices) raised."""
    weights = [stage.weight for stage in stages]
    heavy = [weight >= LIGHT * max(weights) for weight in weights]
    focused = {_nearest(heavy, index) for index in diagnosed}
    others = [weight for i, weight in enumerate(weights) if heavy[i] and i not in focused]
    raised = min(FOCUS * sum(others) / len(others), 100.0) if others else 0.0
    return [max(w, raised) if i in focused else w for i, w in enumerate(weights)]


def _nearest(heavy: Sequence[bool], index: int) -> int:
    """The stage itself, or the nearest heavy one before it; the first heavy one if none is."""
    before = [i for i in range(index + 1) if heavy[i]]
    return before[-1] if before else heavy.index(True)


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


def _joined(progress: Progress, added: Sequence[Addition]) -> dict[str, Any]:
    """Progress as data, with what it lacks joined: terms by ``mean``, those to keep as factors."""
    present = set(leaves(progress))
    fresh = [addition for addition in added if addition.term not in present]
    joined = _mean(progress, [a.term.to_dict() for a in fresh if not a.keep])
    kept = [a.term.to_dict() for a in fresh if a.keep]
    if not kept:
        return joined
    return {"op": "mean", "of": [joined, {"op": "product", "of": [joined, *kept]}]}


def _mean(progress: Progress, fresh: list[dict[str, Any]]) -> dict[str, Any]:
    if not fresh:
        return progress.to_dict()
    flat = isinstance(progress, Combine) and progress.op == "mean"
    if isinstance(progress, Combine) and flat and len(progress.of) + len(fresh) <= MAX_PARTS:
        return {"op": "mean", "of": [*(p.to_dict() for p in progress.of), *fresh]}
    return {"op": "mean", "of": [progress.to_dict(), *fresh]}
