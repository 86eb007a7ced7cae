"""``coda doctor``: say whether everything is here that training needs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from coda_envs.errors import CodaError
from coda_trainer.commands.result import Json, Result, table


@dataclass(frozen=True)
class Doctor:
    """Check versions, rendering, plugins and disk, and say what to do about what is wrong.

    The exit code is 1 if something that CoDA needs does not work.
    """

    json: Json = False

    def run(self) -> Result:
        """Run all checks."""
        from coda_trainer.health import Finding, examine

        findings: Sequence[Finding] = examine()
        rows = [(f.status, f.name, f.found, f.remedy) for f in findings]
        failed = [f for f in findings if f.status == "fail"]
        data = {
            "ok": not failed,
            "findings": [
                {"name": f.name, "status": f.status, "found": f.found, "remedy": f.remedy}
                for f in findings
            ],
        }
        error = None
        if failed:
            error = CodaError(
                "; ".join(f"{f.name}: {f.found}" for f in failed) + ".",
                remedy="; ".join(f.remedy for f in failed),
            )
        return Result(data, table("coda doctor", ("", "what", "found", "remedy"), rows), error)
