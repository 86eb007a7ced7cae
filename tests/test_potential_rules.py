"""The deterministic compiler over every family, stage, factor and direction that a diagnosis names.

That Φ rises to 1 and does not fall on the experts' successes is in test_potential_experts.py.
"""

from __future__ import annotations

import functools
import itertools

import numpy as np
import pytest
from expert_runs import FAMILIES, successes
from program_cases import diagnosis

from coda_envs.family import get_family
from coda_envs.features import FeatureSchema
from coda_envs.programs.potential import PotentialProgram, Term, leaves
from coda_envs.text2potential import compile_potential, compile_program
from coda_envs.text2potential.acts import Act, stage_acts
from coda_envs.text2potential.rules import RULES
from coda_envs.text2potential.terms import resolve
from coda_envs.view import View

DIRECTIONS = ("high", "low", "other")
Claim = tuple[str, str, str]


@functools.cache
def programs(family: str) -> dict[Claim, PotentialProgram]:
    """The program compiled for each (stage, factor, direction) alone."""
    at = get_family(family)
    claims = itertools.product(at.template.stage_names, at.space.by_path, DIRECTIONS)
    return {
        (stage, factor, direction): compile_program(
            at.template, [diagnosis(factor, direction, stage, family=family)]
        )
        for stage, factor, direction in claims
    }


def added(family: str, program: PotentialProgram) -> list[set[Term]]:
    """For each stage the terms that the template lacks."""
    template = get_family(family).template
    pairs = zip(template.stages, program.stages, strict=True)
    return [{*leaves(after.progress)} - {*leaves(before.progress)} for before, after in pairs]


@pytest.mark.parametrize("family", FAMILIES)
def test_every_claim_compiles_to_a_program_that_fits_the_family(family: str) -> None:
    at = get_family(family)
    assert len(programs(family)) == len(at.template.stages) * len(at.space.factors) * 3
    for (stage, factor, direction), program in programs(family).items():
        compile_potential(program, at.schema)
        assert PotentialProgram.parse(program.to_dict()) == program
        assert [s.gate for s in program.stages] == [s.gate for s in at.template.stages]
        assert f"{stage}: {factor} {direction}" in program.note
        before = np.array([s.weight for s in at.template.stages])
        after = np.array([s.weight for s in program.stages])
        raised = np.flatnonzero(after > before)
        # The diagnosed stage, or the one before a light one.
        index = at.template.stage_names.index(stage)
        assert len(raised) == 1
        assert raised[0] <= index
        assert (before[raised[0] + 1 : index + 1] < before.max() / 2).all()
        assert not any(added(family, program)[index + 1 :])


@pytest.mark.parametrize("family", FAMILIES)
def test_all_claims_at_once_compile_too_and_twice_is_once(family: str) -> None:
    at = get_family(family)
    every = [diagnosis(f, d, s, family=family) for s, f, d in programs(family)]
    program = compile_program(at.template, every)
    compile_potential(program, at.schema)
    assert compile_program(program, every) == program


@pytest.mark.parametrize("family", FAMILIES)
def test_only_colours_and_wording_have_no_rule(family: str) -> None:
    """What else a family declares, some stage measures."""
    for factor in get_family(family).space.by_path:
        mine = [p for (_, named, _), p in programs(family).items() if named == factor]
        ruled = any(any(added(family, p)) for p in mine)
        field = factor.rpartition(".")[2]
        assert ruled == (field not in ("color", "reference", "verb")), factor


def test_every_rule_is_of_use_to_a_family() -> None:
    used = {
        (term.term, term.scale)
        for family in FAMILIES
        for program in programs(family).values()
        for terms in added(family, program)
        for term in terms
    }
    assert {(rule.term, rule.scale) for rule in RULES} == used
    fields = {f.rpartition(".")[2] for family in FAMILIES for f in get_family(family).space.by_path}
    assert {field for rule in RULES for field in rule.fields} <= fields


# What the added terms pay for --------------------------------------------------------------------


def shifted(schema: FeatureSchema, rows: np.ndarray, changes: dict[str, np.ndarray]) -> np.ndarray:
    rows = rows.copy()
    for name, value in changes.items():
        rows[:, schema.index(name)] = value
    return rows


def worse_and_better(
    term: Term, schema: FeatureSchema, rows: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """States that differ only in what a person would say the term is about."""
    view = View(schema, rows)
    role = term.roles[-1] if term.roles[0] == "gripper" else term.roles[0]
    if term.term == "alignment":
        yaw = view.of(role, "yaw")
        askew = shifted(schema, rows, {"gripper.yaw": yaw + 0.3})
        return askew, shifted(schema, rows, {"gripper.yaw": yaw})
    if term.term == "upright":
        name, ones = f"{role}.upright", np.ones(len(rows))
        return shifted(schema, rows, {name: np.cos(0.3) * ones}), shifted(
            schema, rows, {name: ones}
        )
    if term.term in ("height", "insertion_depth"):
        by = 0.01 if term.term == "height" else -0.003
        # The hand that holds it goes along.
        lifted = {f"{who}.z": rows[:, schema.index(f"{who}.z")] + by for who in (role, "gripper")}
        return rows, shifted(schema, rows, lifted)
    mover, to = term.roles
    carried = {}
    for axis in ("x", "y"):
        at, goal = (rows[:, schema.index(f"{who}.{axis}")] for who in (mover, to))
        for who in {mover, "gripper"}:
            carried[f"{who}.{axis}"] = rows[:, schema.index(f"{who}.{axis}")] + 0.2 * (goal - at)
    return rows, shifted(schema, rows, carried)


@pytest.mark.parametrize("family", FAMILIES)
def test_what_a_rule_asks_for_is_paid_more_than_in_the_template(family: str) -> None:
    at = get_family(family)
    plain = compile_potential(at.template, at.schema)
    rows = np.concatenate(successes(family, 12, 10))
    cases = {
        (index, term): program
        for program in programs(family).values()
        for index, terms in enumerate(added(family, program))
        for term in terms
    }
    assert cases
    for (index, term), program in cases.items():
        worse, better = worse_and_better(term, at.schema, rows[plain.stage(rows) == index])
        measure = resolve(term, at.schema)
        low, high = (measure(View(at.schema, states)) for states in (worse, better))
        assert (high >= low).all(), term
        # Within the term's reach; a term to keep is paid as a share of the way made.
        clear = (high - low > 1e-3) & (low > 0) & (plain.progress(worse)[:, index] > 1e-3)
        assert clear.any(), (index, term)
        told = compile_potential(program, at.schema)
        paid, before = (
            phi.progress(better)[clear, index] - phi.progress(worse)[clear, index]
            for phi in (told, plain)
        )
        assert (paid > 0).all(), (index, term)
        assert (paid > before).mean() > 0.9, (index, term)


# Roles -------------------------------------------------------------------------------------------


def test_the_gates_tell_what_each_stage_does_to_what() -> None:
    def told(family: str) -> dict[str, set[tuple[str, ...]]]:
        template = get_family(family).template
        acts = zip(template.stage_names, stage_acts(template), strict=True)
        return {name: {(a.phase, a.moved, a.place) for a in own} for name, own in acts}

    assert told("put-inside") == {
        "uncover": {(p, "cover", "receptacle") for p in ("reach", "clear")},
        "reach": {("reach", "target", "")},
        "grasp": {("hold", "target", "")},
        "lift": {("lift", "target", "")},
        "transport": {("carry", "target", "receptacle")},
        "place": {("settle", "target", "receptacle")},
    }
    assert told("articulated") == {
        "reach": {("reach", "target", "")},
        "engage": {("hold", "target", "")},
        "move": {("operate", "target", "")},
        "release": {("leave", "target", "")},
    }
    tower = told("stack-insert")
    assert tower["fetch"] == {(p, "second", "target") for p in ("reach", "hold", "lift", "carry")}
    assert tower["assemble"] == {("settle", "second", "target")}
    assert stage_acts(get_family("pick-place").template)[-1] == (
        Act("settle", "target", "receptacle"),
    )


@pytest.mark.parametrize(
    ("family", "claim", "expected"),
    [
        # A factor is measured on the object it belongs to, in the stages that have to do with it.
        ("put-inside", ("place", "attributes.cover.mass"), {("uncover", "distance", "cover")}),
        ("put-inside", ("place", "spatial.receptacle.yaw"),
         {("uncover", "distance", "cover"), ("uncover", "alignment", "cover"),
          ("transport", "distance", "target"), ("place", "distance", "target")}),
        ("stack-insert", ("assemble", "spatial.second.yaw"), {("fetch", "alignment", "second")}),
        ("stack-insert", ("reach", "spatial.second.yaw"), set()),
        ("stack-insert", ("place", "attributes.receptacle.clearance"),
         {("place", "distance", "target"), ("place", "upright", "target")}),
        ("articulated", ("engage", "spatial.cabinet.yaw"),
         {("reach", "alignment", "target"), ("engage", "alignment", "target")}),
        ("articulated", ("engage", "spatial.cabinet.y"), {("reach", "distance", "target")}),
        ("articulated", ("move", "attributes.target.damping"), {("move", "distance", "target")}),
    ],
)  # fmt: skip
def test_a_factor_is_measured_where_its_role_plays(
    family: str, claim: tuple[str, str], expected: set[tuple[str, str, str]]
) -> None:
    program = programs(family)[(*claim, "high")]
    names = program.stage_names
    found = {
        (name, term.term, next(r for r in term.roles if r != "gripper"))
        for name, terms in zip(names, added(family, program), strict=True)
        for term in terms
    }
    assert found == expected
