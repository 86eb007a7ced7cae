"""Construction traces: what became of each proposal, what it cost, and the figures over many."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from coda_envs.factor import Value
from coda_envs.scene import Scene
from coda_envs.validity import Certificate, Repair

#: Outcomes of a proposal besides the reason codes of a certificate.
ACCEPTED = "accepted"
NO_BASE = "no base"


@dataclass(frozen=True)
class Trace:
    """The construction trace of one proposal.

    ``outcome``: ``accepted``, ``no base`` (no scene that the program applies to was found), or the
    reason code of the last certificate; ``detail`` says more of a rejection. ``program``: hash of
    the generation program, empty where there was none. ``edits``: what the program decided, with
    the values. ``certificates``: the scene as proposed, then after each repair, with all checks.
    ``repairs``: each attempt; the last may have found nothing. ``bases``: scenes drawn until one
    could be edited.
    """

    source: str
    program: str
    outcome: str
    detail: str = ""
    edits: Mapping[str, Value] = field(default_factory=dict)
    certificates: tuple[Certificate, ...] = ()
    repairs: tuple[Repair, ...] = ()
    bases: int = 0

    @property
    def accepted(self) -> bool:
        """Whether a scene came of it."""
        return self.outcome == ACCEPTED

    @property
    def first_try(self) -> bool:
        """Valid without repair."""
        return self.accepted and not self.repairs

    @property
    def first_reason(self) -> str:
        """Why the scene as proposed was not valid, or ``no base``; empty where it was."""
        return self.certificates[0].reason if self.certificates else self.outcome

    @property
    def scene_id(self) -> str:
        """The last version's id, empty where there was none."""
        return self.certificates[-1].scene_id if self.certificates else ""

    @property
    def simulated(self) -> int:
        """Physics steps that all checks took."""
        return sum(c.simulated for c in self.certificates)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {
            "source": self.source,
            "program": self.program,
            "outcome": self.outcome,
            "detail": self.detail,
            "first_try": self.first_try,
            "scene_id": self.scene_id,
            "edits": dict(self.edits),
            "checks": [
                {"scene_id": c.scene_id, "checks": [[k.name, k.passed, k.detail] for k in c.checks]}
                for c in self.certificates
            ],
            "repairs": [r.to_dict() for r in self.repairs],
            "cost": {
                "bases": self.bases,
                "redraws": sum(r.draws for r in self.repairs),
                "simulated": self.simulated,
            },
        }


@dataclass(frozen=True)
class Generated:
    """Accepted scenes and the traces of all proposals."""

    scenes: tuple[Scene, ...]
    traces: tuple[Trace, ...]

    @property
    def verified(self) -> float | None:
        """Verification share: first-try valid / proposals; None where nothing was proposed."""
        return self._share(sum(t.first_try for t in self.traces))

    @property
    def verified_after_repair(self) -> float | None:
        """Valid at the first try or after repair / proposals; None where nothing was proposed."""
        return self._share(sum(t.accepted for t in self.traces))

    @property
    def edit_survival(self) -> float | None:
        """Of the factors that a program edited, the share that is in an accepted scene; None where
        there were none."""
        made = sum(len(t.edits) for t in self.traces)
        kept = sum(len(t.edits) for t in self.traces if t.accepted)
        return kept / made if made else None

    @property
    def reasons(self) -> dict[str, int]:
        """How many proposals were not valid at the first try, by reason code."""
        return _counted(t.first_reason for t in self.traces if not t.first_try)

    @property
    def rejections(self) -> dict[str, int]:
        """How many proposals came to nothing, by the reason code of their last version."""
        return _counted(t.outcome for t in self.traces if not t.accepted)

    def _share(self, count: int) -> float | None:
        return count / len(self.traces) if self.traces else None


def _counted(reasons: Iterable[str]) -> dict[str, int]:
    return dict(sorted(Counter(reasons).items()))
