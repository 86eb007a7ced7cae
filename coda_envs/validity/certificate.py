"""The certificate: the record of a scene's checks, and what it depends on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import gymnasium
import mujoco

#: Bumped whenever a check or the physics changes, so that stored certificates show their age.
RULES = 2

#: The checks in order. Their names are the reason codes that certificates and traces carry.
CHECKS = (
    "factors",
    "language",
    "layout",
    "compiles",
    "penetration",
    "not_solved",
    "settles",
    "workspace",
    "reachable",
    "visible",
    "solvable",
)
#: Reason code in place of a check's where the family's own code broke: the scene was not judged.
FAMILY_ERROR = "family_error"
REASONS = (*CHECKS, FAMILY_ERROR)


@dataclass(frozen=True)
class Check:
    """One named check: whether it passed, and in words what was found."""

    name: str
    passed: bool
    detail: str


@dataclass(frozen=True)
class Certificate:
    """The record that a scene passed (or where it failed), with its settled state.

    ``checks``: those that ran, the last of them failed or all passed. ``settled``: MuJoCo's
    ``qpos`` after one simulated second, empty where a check failed. ``engine``: fingerprint of the
    physics that certified it. ``simulated``: physics steps that the checks took.
    """

    scene_id: str
    checks: tuple[Check, ...]
    settled: tuple[float, ...] = ()
    engine: str = ""
    simulated: int = 0

    @property
    def passed(self) -> bool:
        """Whether every check that ran passed."""
        return all(c.passed for c in self.checks)

    @property
    def reason(self) -> str:
        """Reason code of the failure, one of :data:`REASONS`, or empty."""
        return next((c.name for c in self.checks if not c.passed), "")

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {
            "scene_id": self.scene_id,
            "passed": self.passed,
            "checks": [[c.name, c.passed, c.detail] for c in self.checks],
            "settled": list(self.settled),
            "engine": self.engine,
            "simulated": self.simulated,
        }


def engine_fingerprint() -> str:
    """What a stored state depends on: MuJoCo's version and this suite's physics rules."""
    return f"mujoco {mujoco.__version__}, gymnasium {gymnasium.__version__}, rules {RULES}"
