"""Running cells: each in a process of its own, resumed where it stopped, failures kept apart."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.connection import wait
from multiprocessing.context import SpawnProcess
from pathlib import Path

from coda_envs.errors import CodaError
from coda_trainer.benchmarks.cells import Cell, start_folder
from coda_trainer.benchmarks.preset import AgreementSettings
from coda_trainer.config import RunConfig
from coda_trainer.learning.rollout import end_with_parent
from coda_trainer.rounds.branching import branch
from coda_trainer.rounds.run_folder import RunFolder
from coda_trainer.strategies import make_strategy


@dataclass(frozen=True)
class Outcome:
    """How a cell's run stands: ``problem`` is empty where it is complete."""

    folder: Path
    problem: str = ""


@dataclass(frozen=True)
class Task:
    """One run to bring to its end, in ``folder``; ``start``: the folder of the fine-tuning that it
    branches from, None for a fine-tuning itself."""

    name: str
    folder: Path
    config: RunConfig
    start: Path | None
    agreement: AgreementSettings | None = None

    def complete(self) -> bool:
        """Whether nothing is left to do."""
        # Imported here: it imports this package's other half.
        from coda_trainer.benchmarks.critics import agreement_file

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
            branch(self.start, self.folder, self.config)
            return
        draft = self.folder.with_name(f".{self.folder.name}.draft")
        shutil.rmtree(draft, ignore_errors=True)
        RunFolder.create(draft, self.config, {"scene": None}).close()
        draft.rename(self.folder)


def run_cells(
    cells: Sequence[Cell], runs: Path, jobs: int, say: Callable[[str], None]
) -> dict[str, Outcome]:
    """Bring every cell's run in the folder ``runs`` to its end, ``jobs`` at a time.

    What is complete is left alone; what was stopped goes on. A run that fails is named, with the
    file that has its output, and the others go on. The outcomes by the cells' names.
    """
    (runs / "logs").mkdir(parents=True, exist_ok=True)
    tasks = _tasks(cells, runs)
    outcomes: dict[str, Outcome] = {}
    running: dict[str, SpawnProcess] = {}
    began: dict[str, float] = {}
    waiting = dict(tasks)
    try:
        while waiting or running:
            for name, task in list(waiting.items()):
                if len(running) == jobs:
                    break
                needed = next((n for n, t in tasks.items() if t.folder == task.start), None)
                if needed is not None and needed not in outcomes:
                    continue
                del waiting[name]
                failed = "" if needed is None else outcomes[needed].problem
                if failed:
                    outcomes[name] = Outcome(task.folder, f"its fine-tuning failed: {failed}")
                elif task.complete():
                    outcomes[name] = Outcome(task.folder)
                    say(f"{name}: complete")
                else:
                    try:
                        task.prepare()
                    except CodaError as error:
                        outcomes[name] = Outcome(task.folder, str(error))
                        say(f"{name}: {error}")
                        continue
                    say(f"{name}: training in {task.folder}")
                    began[name] = time.monotonic()
                    running[name] = _start(task)
            wait([process.sentinel for process in running.values()])
            for name, process in list(running.items()):
                if process.exitcode is None:
                    continue
                del running[name]
                took = time.monotonic() - began[name]
                outcomes[name] = _outcome(tasks[name], process.exitcode)
                say(f"{name}: {outcomes[name].problem or f'complete after {took:.0f} s'}")
    finally:
        for process in running.values():
            process.terminate()
            process.join()
    return {cell.name: outcomes[cell.name] for cell in cells}


def seconds(folder: Path) -> float | None:
    """Seconds that a run's attempts took, those that a kill cut short left out; None: unknown."""
    file = _log(folder).with_suffix(".seconds")
    if not file.is_file():
        return None
    return sum(float(line) for line in file.read_text(encoding="utf-8").split())


def _tasks(cells: Sequence[Cell], runs: Path) -> dict[str, Task]:
    """Every run by its name: the fine-tunings that the cells share, then the cells."""
    tasks: dict[str, Task] = {}
    for cell in cells:
        start = start_folder(cell.start)
        tasks.setdefault(start, Task(start, runs / start, cell.start, None))
    for cell in cells:
        source = runs / start_folder(cell.start)
        folder = runs / cell.folder
        tasks[cell.name] = Task(cell.name, folder, cell.config, source, cell.agreement)
    return tasks


def _start(task: Task) -> SpawnProcess:
    # Not a daemon: it has worker processes of its own.
    process = multiprocessing.get_context("spawn").Process(
        target=_work, args=(task,), name=task.name
    )
    process.start()
    return process


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
    from coda_trainer.benchmarks.critics import write_agreement

    try:
        write_agreement(folder, settings)
    except CodaError as error:
        print(f"error: {error}", file=sys.stderr, flush=True)
        return error.exit_code
    return 0


def _outcome(task: Task, code: int) -> Outcome:
    if code == 0:
        return Outcome(task.folder)
    log = _log(task.folder)
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    said = next((x for x in reversed(lines) if x.startswith("error: ")), "")
    why = said.removeprefix("error: ") or f"its process ended with code {code}"
    return Outcome(task.folder, f"failed: {why} (see {log})")


def _log(folder: Path) -> Path:
    return folder.parent / "logs" / f"{folder.name}.log"


def problems(outcomes: Mapping[str, Outcome]) -> list[str]:
    """What went wrong, a line each."""
    return [f"{name}: {o.problem}" for name, o in outcomes.items() if o.problem]
