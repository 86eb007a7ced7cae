"""What a memory of 100,000 records costs: looking up a mode, and the summary that a round begins
with.

Run ``python benchmarks/memory.py``; it takes a minute or two and writes
``results/benchmarks/memory.json``. Aim: 50 ms for either.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from report import write

from coda_envs.family import get_family
from coda_envs.programs.diagnosis import Diagnosis
from coda_envs.programs.generation import GenerationProgram, SampleEdit
from coda_trainer.compile.training import compile_training
from coda_trainer.memory import lifecycle
from coda_trainer.memory.evidence import confirming, generation_program
from coda_trainer.memory.modes import Mode, mode_of
from coda_trainer.memory.progress import measurement
from coda_trainer.memory.store import MemoryStore
from coda_trainer.memory.view import show_mode

RECORDS, MODES, REPEATS = 100_000, 40, 30
#: Diagnoses for each mode that its control evaluation confirms.
SUPPORT = 30
FAMILY = get_family("pick-place")
FACTOR = "attributes.target.size"


def main() -> None:
    """Fill, measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=RECORDS)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "memory.sqlite"
        began = time.perf_counter()
        modes = fill(path, options.records)
        filled = time.perf_counter() - began
        with MemoryStore(path) as memory:
            one = modes[len(modes) // 2]
            figures: dict[str, Any] = {
                "records": memory.counts(),
                "megabytes": path.stat().st_size / 2**20,
                "seconds_to_fill": filled,
                "ms": {
                    "mode_lookup": timed(lambda: lookup(memory, one)),
                    "round_summary": timed(lambda: summary(memory)),
                    "show_mode": timed(lambda: show_mode(path, one.id)),
                    "add_record": timed(lambda: memory.add_trace(9, "x" * 64, "accepted", {})),
                },
            }
    for name, found in figures["ms"].items():
        print(f"{name:15s} {found['median']:8.2f} ms   (90%: {found['p90']:.2f})")
    print(write("memory", figures))


def diagnosis(number: int, low: float) -> Diagnosis:
    """One of many that name the same factor."""
    return Diagnosis(
        diagnostician="trace (privileged)",
        family=FAMILY.name,
        scene_id=f"{number:064x}",
        episode_seed=number,
        stage="grasp",
        failed_predicate="grasped(target)",
        factor=FACTOR,
        direction="high",
        role="target",
        confidence=0.7,
        sentence=f"grasp was not done; the half size is {low:.4f} m, which few successes have.",
    )


def fill(path: Path, records: int) -> list[Mode]:
    """Modes with their programs, controls and progress, and traces and diagnoses for the rest."""
    rng = np.random.default_rng(0)
    modes = []
    with MemoryStore(path) as memory:
        for number in range(MODES):
            low = 0.013 + 0.0004 * number
            edit = SampleEdit(edit="sample", factor=FACTOR, low=low, high=low + 0.0003)
            omega = GenerationProgram(family=FAMILY.name, roles=("target",), edits=(edit,))
            said = [diagnosis(number * SUPPORT + i, low) for i in range(SUPPORT)]
            with memory.transaction():
                mode = mode_of(said[0], 1, interval=(low, low + 0.0003))
                mode = lifecycle.judge(mode, 1, "confirmed")
                kept = [memory.add_diagnosis(1, d) for d in said]
                memory.add_control(1, mode.id, "confirmed", kept, {"verdict": "confirmed"})
                phi = compile_training(said, FAMILY)
                memory.add_program(1, mode.id, omega)
                memory.add_program(1, mode.id, phi)
                mode = lifecycle.select(mode, 1, omega_hash=omega.hash, phi_hash=phi.hash)
                memory.save_mode(1, mode)
                last = None
                for round in range(1, 11):
                    won, other = ([bool(x) for x in rng.random(64) < p] for p in (0.3, 0.6))
                    last = measurement(won, other, last, rng)
                    memory.add_measurement(round, mode.id, last)
            modes.append(mode)
        number = MODES * SUPPORT
        while memory.mark() < records:
            with memory.transaction():
                for _ in range(1000):
                    number += 1
                    if number % 3:
                        data = {"source": "wide", "checks": ["compiles", "settles"], "n": number}
                        memory.add_trace(number // 10_000, f"{number:064x}", "accepted", data)
                    else:
                        memory.add_diagnosis(number // 10_000, diagnosis(number, 0.02))
    return modes


def lookup(memory: MemoryStore, mode: Mode) -> None:
    """All that a round wants of one mode."""
    assert len(confirming(memory, mode)) == SUPPORT
    assert generation_program(memory, mode) is not None
    assert memory.last_measurement(mode.id) is not None


def summary(memory: MemoryStore) -> None:
    """Every mode of the family as it stands, with its last measurement."""
    with memory.transaction():
        modes = memory.modes(family=FAMILY.name)
        assert len(modes) == MODES
        assert all(memory.last_measurement(mode.id) for mode in modes)


def timed(what: Callable[[], Any]) -> dict[str, float]:
    """Milliseconds of the wall clock, the first call left out."""
    what()
    seconds = []
    for _ in range(REPEATS):
        began = time.perf_counter()
        what()
        seconds.append(time.perf_counter() - began)
    return {
        "median": 1000.0 * statistics.median(seconds),
        "p90": 1000.0 * float(np.quantile(seconds, 0.9)),
    }


if __name__ == "__main__":
    main()
