"""Running cells: each in a process of its own, resumed where it stopped, failures kept apart."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import wait
from multiprocessing.context import SpawnProcess
from pathlib import Path

from coda_envs.errors import CodaError
from coda_trainer.benchmarks.cells import Cell, start_folder
from coda_trainer.benchmarks.critics import agreement_file, write_agreement
from coda_trainer.benchmarks.given_memory import NothingToGiveError, given_memory
from coda_trainer.benchmarks.preset import AgreementSettings
from coda_trainer.config import RunConfig
from coda_trainer.learning.rollout import end_with_parent
from coda_trainer.rounds.branching import branch
from coda_trainer.rounds.run_folder import RunFolder
from coda_trainer.strategies import make_strategy

#: How what is told of a cell begins that cannot be run, though nothing went wrong.
LEFT_OUT = "left out: "


@dataclass(frozen=True)
class Task:
    """One run to bring to its end, in ``folder``.

    ``start``: the folder of the fine-tuning that it branches from, None for a fine-tuning itself;
    that one is called like its folder. ``memory``: name and folder of the run whose memory it is
    given.
    """

    name: str
    folder: Path
    config: RunConfig
    start: Path | None
    agreement: AgreementSettings | None = None
    memory: tuple[str, Path] | None = None

    @property
    def needs(self) -> list[str]:
        """Names of the tasks that come before it."""
        return [name for name in (self.start and self.start.name, self.memory and self.memory[0])
                if name]  # fmt: skip

    def complete(self) -> bool:
        """Whether nothing is left to do."""
        learns = make_strategy(self.config.strategy).learns
        run = RunFolder(self.folder)
        if not run.finished(self.config.rounds if learns else 0):
            return False
        return self.agreement is None or agreement_file(self.folder, self.agreement).is_file()

    def prepare(self) -> None:
        """Make its run folder, unless there is one. Raises :class:`RunError`."""
        if self.folder.exists():
            return
        if self.start is not None:
            if self.memory is None:
                branch(self.start, self.folder, self.config)
                return
            with given_memory(self.memory[1], self.config.families[0]) as memory:
                branch(self.start, self.folder, self.config, memory)
            return
        draft = self.folder.with_name(f".{self.folder.name}.draft")
        shutil.rmtree(draft, ignore_errors=True)
        RunFolder.create(draft, self.config, {"scene": None}).close()
        draft.rename(self.folder)


def run_cells(
    cells: Sequence[Cell], runs: Path, jobs: int, say: Callable[[str], None]
) -> dict[str, str]:
    """Bring every cell's run in the folder ``runs`` to its end, ``jobs`` at a time.

    What is complete is left alone; what was stopped goes on. A run that fails is told with the file
    that has its output, and the others go on. Returns what went wrong by the cells' names, empty
    for those that are complete; it begins with :data:`LEFT_OUT` where the memory that a cell is to
    be given has nothing for it.
    """
    (runs / "logs").mkdir(parents=True, exist_ok=True)
    waiting = _tasks(cells, runs)
    ended: dict[str, str] = {}
    running: dict[str, _Running] = {}
    try:
        while waiting or running:
            # Nothing needs what comes after it, so that one can always begin.
            ready = [t for t in waiting.values() if all(name in ended for name in t.needs)]
            for task in ready[: jobs - len(running)]:
                del waiting[task.name]
                problem = next((f"{n}: {ended[n]}" for n in task.needs if ended[n]), "")
                begun = _begin(task, problem, say)
                if isinstance(begun, str):
                    ended[task.name] = begun
                else:
                    running[task.name] = begun
            if running:
                # Of nothing it would wait for ever.
                wait([r.process.sentinel for r in running.values()])
            for name in [n for n, r in running.items() if r.process.exitcode is not None]:
                ended[name] = running.pop(name).problem(say)
    finally:
        for left in running.values():
            left.process.terminate()
            left.process.join()
    return {cell.name: ended[cell.name] for cell in cells}


@dataclass(frozen=True)
class _Running:
    """A task under way in a process, since ``began`` (monotonic seconds)."""

    task: Task
    process: SpawnProcess
    began: float

    def problem(self, say: Callable[[str], None]) -> str:
        """What went wrong, now that its process has ended; empty where nothing did."""
        told = ""
        if self.process.exitcode != 0:
            log = _log(self.task.folder)
            lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
            said = next((x for x in reversed(lines) if x.startswith("error: ")), "")
            why = said.removeprefix("error: ") or f"its process ended ({self.process.exitcode})"
            told = f"failed: {why} (see {log})"
        say(f"{self.task.name}: {told or f'complete after {time.monotonic() - self.began:.0f} s'}")
        return told


def _begin(task: Task, problem: str, say: Callable[[str], None]) -> _Running | str:
    """Start a task in a process of its own; or what is wrong with it, empty where it is complete
    already. ``problem``: of a run that it needs."""
    told = f"it needs {problem}" if problem else ""
    if not told and task.complete():
        say(f"{task.name}: complete")
        return ""
    if not told:
        try:
            task.prepare()
        except NothingToGiveError as error:
            told = f"{LEFT_OUT}{error}"
        except CodaError as error:
            told = str(error)
    if told:
        say(f"{task.name}: {told}")
        return told
    say(f"{task.name}: training in {task.folder}")
    # Not a daemon: it has worker processes of its own.
    process = multiprocessing.get_context("spawn").Process(
        target=_work, args=(task,), name=task.name
    )
    process.start()
    return _Running(task, process, time.monotonic())


def seconds(folder: Path) -> float | None:
    """Seconds that a run's attempts took, those that a kill cut short left out; None: unknown."""
    file = _log(folder).with_suffix(".seconds")
    if not file.is_file():
        return None
    return sum(float(line) for line in file.read_text(encoding="utf-8").split())


def _tasks(cells: Sequence[Cell], runs: Path) -> dict[str, Task]:
    """Every run by its name: the fine-tunings that the cells share, the runs whose memories they
    are given, then the cells."""
    tasks: dict[str, Task] = {}
    # A cell that was not asked for is run where its memory is needed.
    first = [c.memory for c in cells if c.memory is not None]
    for cell in (*first, *cells):
        start = start_folder(cell.start)
        tasks.setdefault(start, Task(start, runs / start, cell.start, None))
    for cell in (*first, *cells):
        tasks[cell.name] = _task(cell, runs)
    return tasks


def _task(cell: Cell, runs: Path) -> Task:
    source = runs / start_folder(cell.start)
    given = None if cell.memory is None else (cell.memory.name, runs / cell.memory.folder)
    return Task(cell.name, runs / cell.folder, cell.config, source, cell.agreement, given)


def _work(task: Task) -> None:
    """In the process of a run: train to the end, then measure."""
    threading.Thread(target=end_with_parent, daemon=True).start()
    log = os.open(_log(task.folder), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
    for descriptor in (1, 2):
        os.dup2(log, descriptor)
    began = time.monotonic()
    # As `coda train` does it: its errors and exit codes are the run's.
    from coda_trainer.cli import main

    code = main(["train", "--resume", str(task.folder)])
    if code == 0 and task.agreement is not None:
        code = _measure(task.folder, task.agreement)
    with _log(task.folder).with_suffix(".seconds").open("a", encoding="utf-8") as file:
        file.write(f"{time.monotonic() - began:.1f}\n")
    sys.exit(code)


def _measure(folder: Path, settings: AgreementSettings) -> int:
    try:
        write_agreement(folder, settings)
    except CodaError as error:
        print(f"error: {error}", file=sys.stderr, flush=True)
        return error.exit_code
    return 0


def _log(folder: Path) -> Path:
    return folder.parent / "logs" / f"{folder.name}.log"
