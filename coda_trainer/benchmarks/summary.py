"""What several seeds of an arm say together, and against the reference arm."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from coda_trainer.benchmarks.reading import RunFigures, Success
from coda_trainer.evaluation import paired_gain
from coda_trainer.statistics import mean_and_error, wilson

#: Runs of one arm by (group, seed): what is paired with what.
Runs = Mapping[tuple[str, int], RunFigures]


def by_arm(figures: Sequence[RunFigures]) -> dict[str, Runs]:
    """The runs of each arm, in the order in which arms come first."""
    arms: dict[str, dict[tuple[str, int], RunFigures]] = {}
    for run in figures:
        key = run.cell.group, run.cell.config.seed
        arms.setdefault(run.cell.arm, {})[key] = run
    return dict(arms)


def success(last: Mapping[tuple[str, int], Success]) -> dict[str, Any] | None:
    """Success over runs: mean ± standard error of the seeds' rates (groups pooled within a seed),
    and Wilson's interval over all episodes. None where there is no run."""
    if not last:
        return None
    seeds: dict[int, list[int]] = {}
    for (_, seed), found in last.items():
        seeds.setdefault(seed, []).extend(found.outcomes)
    rates = {seed: sum(outcomes) / len(outcomes) for seed, outcomes in seeds.items()}
    mean, error = mean_and_error(list(rates.values()))
    n = sum(len(outcomes) for outcomes in seeds.values())
    successes = sum(sum(outcomes) for outcomes in seeds.values())
    return {
        "mean": mean,
        "standard_error": error,
        "seeds": {str(seed): rate for seed, rate in rates.items()},
        "n": n,
        "successes": successes,
        "interval95": wilson(successes, n),
    }


def against(
    reference: Mapping[tuple[str, int], Success], arm: Mapping[tuple[str, int], Success]
) -> dict[str, Any] | None:
    """The arm's gain over the reference, paired by suite episode, seed and group.

    Only runs that both have count; None where there is none. A ``tie`` is a gain whose interval
    includes 0.
    """
    shared = [key for key in reference if key in arm]
    if not shared:
        return None
    before = [o for key in shared for o in reference[key].outcomes]
    after = [o for key in shared for o in arm[key].outcomes]
    gain, low, high = paired_gain(before, after)
    return {
        "gain": gain,
        "interval95": (low, high),
        "tie": low <= 0.0 <= high,
        "runs": len(shared),
        "n": len(before),
    }


def compared(runs: Runs, reference: Runs, suites: Sequence[str]) -> dict[str, Any]:
    """What an arm's runs say on each suite: success after the last round, gain over the reference
    arm, the curve; and the steps."""
    last = {suite: last_success(runs, suite) for suite in suites}
    before = {suite: last_success(reference, suite) for suite in suites}
    return {
        "success": {suite: success(last[suite]) for suite in suites},
        "gain": {suite: against(before[suite], last[suite]) for suite in suites},
        "curves": {suite: curve(runs, suite) for suite in suites},
        "steps": steps_of(runs),
    }


def last_success(runs: Runs, suite: str) -> dict[tuple[str, int], Success]:
    """Each run's success on a suite after its last round, the backbone alone."""
    return {key: run.curves[suite][-1] for key, run in runs.items()}


def updates_to(runs: Runs, suite: str, target: float) -> dict[str, Any]:
    """Critic updates until success on the suite first reached ``target`` at a round's end.

    ``by_run``: None where a run did not reach it; ``mean`` and ``standard_error`` only where all
    did.
    """
    return _first_reached(runs, suite, target, lambda run: run.updates)


def rounds_to(runs: Runs, suite: str, target: float) -> dict[str, Any]:
    """Rounds until success on the suite first reached ``target``, as :func:`updates_to` tells it;
    0 where the fine-tuning did."""
    return _first_reached(runs, suite, target, lambda run: range(run.rounds + 1))


def _first_reached(
    runs: Runs, suite: str, target: float, counts: Callable[[RunFigures], Sequence[int]]
) -> dict[str, Any]:
    found: dict[str, int | None] = {}
    for (group, seed), run in runs.items():
        reached = (
            count
            for count, success in zip(counts(run), run.curves[suite], strict=True)
            if success.rate >= target
        )
        found[f"{group}-{seed}" if group else str(seed)] = next(reached, None)
    numbers = [n for n in found.values() if n is not None]
    told: dict[str, Any] = {"target": target, "by_run": found, "mean": None, "standard_error": None}
    if numbers and len(numbers) == len(found):
        told["mean"], told["standard_error"] = mean_and_error(numbers)
    return told


def curve(runs: Runs, suite: str) -> list[dict[str, Any]]:
    """Success by round: updates, mean and standard error over runs, and how many runs there are.

    Rounds that some run does not have are left out.
    """
    if not runs:
        return []
    points = []
    for round in range(min(run.rounds for run in runs.values()) + 1):
        rates = [run.curves[suite][round].rate for run in runs.values()]
        mean, error = mean_and_error(rates)
        updates = next(iter(runs.values())).updates[round]
        point = {"round": round, "updates": updates, "mean": mean, "standard_error": error}
        points.append({**point, "runs": len(rates)})
    return points


def agreement_curve(runs: Runs) -> list[dict[str, Any]]:
    """Agreement with the sparse critic by updates, over the runs and families that measured it.

    Per cent: ``mean`` and ``standard_error`` over them, the ``ceiling`` of two sparse critics,
    ``chance``; ``informative`` and ``uninformative`` states in all. ``interval95`` is the bootstrap
    interval where there is one run and family alone. Points without an informative state are left
    out. ``success``: of the episodes that the states come from.
    """
    families = [
        family
        for run in runs.values()
        if run.agreement is not None
        for family in run.agreement["families"]
        if family["curve"] is not None
    ]
    points = []
    for at in zip(*(family["curve"] for family in families), strict=False):
        told = [a for a in at if a["compared"]["percent"] is not None]
        if not told:
            continue
        mean, error = mean_and_error([a["compared"]["percent"] for a in told])
        ceiling, _ = mean_and_error([a["ceiling"]["percent"] for a in told])
        episodes = sum(family["episodes"] for family in families)
        points.append(
            {
                "updates": told[0]["updates"],
                "mean": mean,
                "standard_error": error,
                "interval95": told[0]["compared"]["interval95"] if len(told) == 1 else None,
                "ceiling": ceiling,
                "chance": told[0]["chance"],
                "measured": len(told),
                "informative": sum(a["compared"]["n"] for a in told),
                "uninformative": sum(a["uninformative"] for a in at),
                "success": sum(family["successes"] for family in families) / episodes,
            }
        )
    return points


def steps_of(runs: Runs) -> dict[str, Any] | None:
    """Simulated control steps a run took: the mean in all, and by purpose."""
    if not runs:
        return None
    purposes = dict.fromkeys(p for run in runs.values() for p in run.steps)
    by = {p: sum(run.steps.get(p, 0) for run in runs.values()) / len(runs) for p in purposes}
    return {"mean": sum(by.values()), "by_purpose": by}
