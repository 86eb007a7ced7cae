"""Φ along the experts' successes, of every family's template and of compiled programs.

The families' own tests hold their gates' order in scenes of every kind; here is what all share.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from expert_runs import FAMILIES, compiled_programs, successes

from coda_envs import predicates
from coda_envs.family import get_family
from coda_envs.text2potential import compile_potential, terms
from coda_envs.view import View

#: The most that Φ may fall from one step to the next.
FALL = 0.05
#: How far (m) the hand comes off in a step that is a setback.
SLIP = 0.005
RATES = (10, 20)


def along(family: str, runs: list[np.ndarray]) -> Iterator[tuple[str, list[np.ndarray]]]:
    """Φ ``[T + 1]`` along each run, of the template and of every compiled program in turn."""
    at = get_family(family)
    ends = np.cumsum([len(rows) for rows in runs])[:-1]
    for name, program in {"template": at.template, **compiled_programs(family)}.items():
        potential = compile_potential(program, at.schema)
        yield name, np.split(potential(np.concatenate(runs)), ends)


def falls(phi: np.ndarray) -> list[int]:
    """Steps after which Φ ``[T + 1]`` is lower by more than ``FALL``."""
    return np.flatnonzero(np.diff(phi) < -FALL).tolist()


def setback(family: str, rows: np.ndarray, step: int) -> bool:
    """In this step the hand slid or was pushed away from a thing that it had reached, which an
    approach never does, and later it has to come back."""
    at = get_family(family)
    view = View(at.schema, rows)
    for role in at.roles:
        gap = 1.0 - terms.distance(view, (terms.GRIPPER, role), 1.0)
        comes_off = predicates.near(view, role)[step] and gap[step + 1] > gap[step] + SLIP
        if comes_off and gap[step + 1 :].min() < gap[step + 1] - SLIP:
            return True
    return False


@pytest.mark.parametrize("control_hz", RATES)
@pytest.mark.parametrize("family", FAMILIES)
def test_phi_rises_to_one_and_never_falls_on_an_experts_success(family, control_hz):
    for name, values in along(family, successes(family, 8, control_hz)):
        for phi in values:
            assert phi[0] < 0.5, name
            assert phi[-1] == 1.0, name
            assert falls(phi) == [], name


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("control_hz", RATES)
@pytest.mark.parametrize("region", ["generator", "ood"])
@pytest.mark.parametrize("family", FAMILIES)
def test_phi_falls_only_where_an_expert_loses_what_it_had(family, region, control_hz):
    """In 100 scenes at each rate. Φ is of the state alone, so that where the hand slips off a
    handle it has to fall: that is rare, and nothing else lowers it."""
    runs = successes(family, 50, control_hz, region, seed=7)
    for name, values in along(family, runs):
        lost = 0
        for rows, phi in zip(runs, values, strict=True):
            assert phi[-1] == 1.0, name
            steps = falls(phi)
            assert all(setback(family, rows, step) for step in steps), name
            lost += bool(steps)
        assert lost <= 0.04 * len(runs), name
