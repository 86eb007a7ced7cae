"""Runs the checks in order and writes the certificate."""

from __future__ import annotations

import mujoco

from coda_envs.family import get_family
from coda_envs.scene import Scene
from coda_envs.validity.certificate import (
    CHECKS,
    FAMILY_ERROR,
    Certificate,
    Check,
    engine_fingerprint,
)
from coda_envs.validity.checks import FUNCTIONS
from coda_envs.validity.family_code import FamilyCodeError, one_line
from coda_envs.validity.inspection import CheckFailedError, Inspection


def validate(scene: Scene, *, solve_tries: int = 2) -> Certificate:
    """Run the checks in order and stop at the first failure.

    ``solve_tries``: how often the family's expert may try; 0 leaves the check ``solvable`` out.
    Every check is bounded in simulated time. None raises: what goes wrong in one is its failure,
    and where the family's own code breaks, the reason is ``family_error``. Only a family that is
    unknown or does not load raises, as :func:`coda_envs.family.get_family` says.
    """
    inspection = Inspection(scene, get_family(scene.family), solve_tries)
    done: list[Check] = []
    for name in CHECKS:
        if name == "solvable" and solve_tries == 0:
            continue
        try:
            found = FUNCTIONS[name](inspection)
        except FamilyCodeError as error:
            failed = Check(FAMILY_ERROR, False, f"{name}: {error.problem}")
        except (CheckFailedError, ValueError, mujoco.FatalError) as error:
            # CodaErrors are ValueErrors.
            failed = Check(name, False, one_line(error))
        else:
            done.append(Check(name, True, found))
            continue
        return _certificate(inspection, [*done, failed], settled=())
    return _certificate(inspection, done, settled=inspection.settled)


def _certificate(
    inspection: Inspection, checks: list[Check], settled: tuple[float, ...]
) -> Certificate:
    return Certificate(
        inspection.scene.id, tuple(checks), settled, engine_fingerprint(), inspection.simulated
    )
