"""What the engine's wide proposals are worth: time for an accepted scene, shares that are valid,
and the reasons of those that are not.

Run ``python benchmarks/proposals.py``; it takes some minutes and writes
``results/benchmarks/proposals.json``.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections import Counter
from typing import Any

import numpy as np
from report import write

from coda_envs.engine.proposals import propose
from coda_envs.engine.trace import Generated, Trace
from coda_envs.factor import DIGITS
from coda_envs.family import BUILT_IN, TaskFamily, get_family
from coda_envs.scene import Scene
from coda_trainer.statistics import wilson

#: Proposals for each family without and with the check that the expert solves the scene.
PLAIN, SOLVED = 1000, 200
#: Tries of the expert.
TRIES = 2
#: Draws of values for the share that can be laid out.
DRAWS = 2000
#: Seed of the draws; no other part of the project uses it.
SEED = 91_000


def main() -> None:
    """Measure, print the table, write the file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--plain", type=int, default=PLAIN, help="proposals without the expert")
    parser.add_argument("--solved", type=int, default=SOLVED, help="proposals with the expert")
    options = parser.parse_args()
    figures: dict[str, Any] = {}
    for name in BUILT_IN:
        family = get_family(name)
        figures[name] = found = {
            "draws": draws(family),
            "plain": proposals(family, options.plain, solve_tries=0),
            "solved": proposals(family, options.solved, solve_tries=TRIES),
        }
        print(name, _draws_line(found["draws"]), sep="\n")
        for kind in ("plain", "solved"):
            print(f"  {kind:6s} {_line(found[kind])}")
    print(write("proposals", figures))


def draws(family: TaskFamily) -> dict[str, Any]:
    """Of values drawn uniformly, the share that training may use, and the share of those that can
    be laid out and described. The engine proposes only such scenes."""
    rng = np.random.default_rng(SEED)
    inside = sound = 0
    for _ in range(DRAWS):
        values = family.space.sample(rng, "generator")
        values = {p: round(v, DIGITS) if isinstance(v, float) else v for p, v in values.items()}
        if family.space.region(values) == "generator":
            inside += 1
            sound += family.flaw(values) is None
    return {"n": DRAWS, "in_region": inside / DRAWS, "laid_out": sound / inside}


def proposals(family: TaskFamily, n: int, solve_tries: int) -> dict[str, Any]:
    """``n`` wide proposals: shares with Wilson's 95% interval, reasons, and what they cost.

    Times are this thread's on the processor.
    """
    rng = np.random.default_rng(SEED)
    # The first proposal pays for what is made once.
    propose(family, np.random.default_rng(0), source="warm-up", solve_tries=solve_tries)
    scenes: list[Scene] = []
    traces: list[Trace] = []
    seconds: list[float] = []
    for _ in range(n):
        began = time.thread_time()
        scene, trace = propose(family, rng, source="uniform", solve_tries=solve_tries)
        seconds.append(time.thread_time() - began)
        traces.append(trace)
        if scene is not None:
            scenes.append(scene)
    made = Generated(tuple(scenes), tuple(traces))
    first, kept = sum(t.first_try for t in traces), len(scenes)
    return {
        "n": n,
        "ms_per_accepted": 1000.0 * sum(seconds) / kept if kept else None,
        "ms_per_proposal": 1000.0 * statistics.median(seconds),
        "ms_quartiles": [1000.0 * float(q) for q in np.quantile(seconds, (0.25, 0.75))],
        "simulated_per_accepted": sum(t.simulated for t in traces) / kept if kept else None,
        "verified": made.verified,
        "verified_interval95": wilson(first, n),
        "verified_after_repair": made.verified_after_repair,
        "after_repair_interval95": wilson(kept, n),
        "reasons": made.reasons,
        "rejections": made.rejections,
        "details": _details(traces),
    }


def _details(traces: list[Trace]) -> dict[str, str]:
    """For each reason of a first version's failure, in words the first case of it."""
    found: dict[str, str] = {}
    for trace in traces:
        if trace.first_reason and trace.certificates:
            found.setdefault(trace.first_reason, trace.certificates[0].checks[-1].detail)
    return found


def _draws_line(found: dict[str, Any]) -> str:
    return (
        f"  draws  {100 * found['in_region']:.1f}% in the generator region,"
        f" {100 * found['laid_out']:.1f}% of these laid out (n={found['n']})"
    )


def _line(found: dict[str, Any]) -> str:
    low, high = found["verified_interval95"]
    cost = found["ms_per_accepted"]
    reasons = Counter(found["reasons"]).most_common()
    return (
        f"{'not measured' if cost is None else f'{cost:.1f} ms'} an accepted scene,"
        f" verified {100 * found['verified']:.1f}% [{100 * low:.1f}, {100 * high:.1f}],"
        f" after repair {100 * found['verified_after_repair']:.1f}% (n={found['n']});"
        f" {', '.join(f'{count} {reason}' for reason, count in reasons) or 'no failure'}"
    )


if __name__ == "__main__":
    main()
