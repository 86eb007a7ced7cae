"""``coda suites``: the frozen scenes that everything is measured on."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from coda_envs.errors import CodaError, ConfigError, SceneError, suggest
from coda_trainer.commands.result import Json, Result, table

if TYPE_CHECKING:
    from coda_envs.family import TaskFamily

FamilyName = Annotated[str | None, tyro.conf.arg(metavar="NAME", help_behavior_hint="")]


@dataclass(frozen=True)
class SuitesList:
    """List the frozen suites: size, region, strata, and the engine that certified them.

    Example: coda suites list
    """

    family: FamilyName = None
    """Only this family's."""

    json: Json = False

    def run(self) -> Result:
        """Read the stored records."""
        from coda_envs.suites import SUITES, read_records

        listed: list[dict[str, Any]] = []
        for family, name in _chosen(self.family, None):
            records = read_records(family, name)
            listed.append(
                {
                    "family": family.name,
                    "suite": name,
                    "n": len(records),
                    "region": SUITES[name].region,
                    "strata": dict(Counter(_stratum(record) for record in records)),
                    "engines": sorted({record["certificate"]["engine"] for record in records}),
                }
            )
        rows = [
            (
                one["family"],
                one["suite"],
                one["n"],
                one["region"],
                ", ".join(f"{name} {n}" for name, n in one["strata"].items()),
                "; ".join(one["engines"]),
            )
            for one in listed
        ]
        columns = ("family", "suite", "n", "region", "strata", "certified by")
        return Result({"suites": listed}, table("suites", columns, rows))


@dataclass(frozen=True)
class SuitesVerify:
    """Certify the scenes of the frozen suites again, and say what has drifted.

    Compares every check, the settled state, the region and the engine with what is stored. The
    exit code is 1 if anything differs: then figures measured here do not compare with older ones.

    Example: coda suites verify --family pick-place --suite ood --first 20
    """

    family: FamilyName = None
    """Only this family's."""

    suite: Annotated[str | None, tyro.conf.arg(metavar="NAME", help_behavior_hint="")] = None
    """Only this suite of each family."""

    first: Annotated[int | None, tyro.conf.arg(metavar="N", help_behavior_hint="")] = None
    """Only the first N scenes of each suite."""

    jobs: int = 1
    """Processes that share the suites."""

    json: Json = False

    def run(self) -> Result:
        """Verify one suite after the other, or some at a time."""
        for flag, number in (("--first", self.first), ("--jobs", self.jobs)):
            if number is not None and number < 1:
                raise ConfigError(f"{flag} is {number}.", allowed="a whole number from 1")
        chosen = [(family.name, name) for family, name in _chosen(self.family, self.suite)]
        results: list[SuiteResult] = []
        for result in _verified(chosen, self.first, self.jobs):
            words = f"{len(result.problems)} differ" if result.problems else "as stored"
            print(f"{result.family} {result.suite}: {words}", file=sys.stderr, flush=True)
            results.append(result)
        rows = [
            (r.family, r.suite, r.n, len(r.problems), r.problems[0] if r.problems else "")
            for r in results
        ]
        drifted = [r for r in results if r.problems]
        data = {"ok": not drifted, "suites": [asdict(result) for result in results]}
        error = None
        if drifted:
            error = CodaError(
                f"{len(drifted)} of {len(results)} suites have drifted: "
                + ", ".join(f"{r.family} {r.suite}" for r in drifted)
                + ".",
                allowed="certificates as they are stored",
                remedy="install the versions that certified them (`coda suites list`), or freeze "
                "the suites anew and measure everything again",
            )
        columns = ("family", "suite", "verified", "differences", "the first")
        return Result(data, table("coda suites verify", columns, rows), error)


@dataclass(frozen=True)
class SuiteResult:
    """How many scenes of a suite were verified, and what differs, in words."""

    family: str
    suite: str
    n: int
    problems: tuple[str, ...]


def verify_suite(family_name: str, name: str, first: int | None) -> SuiteResult:
    """Verify one suite; a function of names, to be called in any process."""
    from coda_envs.family import get_family
    from coda_envs.suites import read_records, verify

    family = get_family(family_name)
    n = len(read_records(family, name)[:first])
    return SuiteResult(family_name, name, n, tuple(verify(family, name, first)))


def _verified(chosen: list[tuple[str, str]], first: int | None, jobs: int) -> Iterator[SuiteResult]:
    if jobs == 1:
        yield from (verify_suite(family, name, first) for family, name in chosen)
        return
    import multiprocessing
    from concurrent.futures import ProcessPoolExecutor

    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(jobs, spawn) as pool:
        futures = [pool.submit(verify_suite, family, name, first) for family, name in chosen]
        for future in futures:
            yield future.result()


def _chosen(family_name: str | None, suite: str | None) -> list[tuple[TaskFamily, str]]:
    """(family, suite) of all that is asked for, in the order in which suites are declared.

    Raises :class:`SceneError` where no such suite is frozen.
    """
    from coda_envs.family import family_names, get_family
    from coda_envs.scene_source import suite_names
    from coda_envs.suites import SUITES

    names = family_names() if family_name is None else (family_name,)
    families = [get_family(name) for name in names]
    frozen = [
        (family, name) for family in families for name in SUITES if name in suite_names(family)
    ]
    chosen = [(family, name) for family, name in frozen if suite in (None, name)]
    if not chosen:
        what = "suites" if suite is None else f"suite {suite!r}"
        known = sorted({name for _, name in frozen})
        raise SceneError(
            f"no frozen {what} of {family_name or 'any family'}.",
            allowed=suggest(suite or "", known) if known else None,
        )
    return chosen


def _stratum(record: dict[str, Any]) -> str:
    interaction: str = record["stratum"]["interaction"]
    return interaction
