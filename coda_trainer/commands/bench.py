"""``coda bench``: run the tables and figures that are compared with the paper's."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from coda_envs.errors import ConfigError, LearningError
from coda_trainer.commands.result import Json, Result

Names = tyro.conf.UseAppendAction[tuple[str, ...]]


@dataclass(frozen=True)
class Bench:
    """Run a benchmark: many training runs, resumable, combined into one table and picture.

    Writes <benchmark>-<preset>.json, .md and .png. Stopped or killed, the same command goes on.
    A run that fails is named and does not stop the others. docs/benchmarks.md says what each is.

    Example: coda bench table4 --preset small --jobs 2
    """

    benchmark: Annotated[
        Literal[
            "table4",
            "table5",
            "table6",
            "table7",
            "table8",
            "figure4",
            "pilot",
            "tools",
            "diagnosis",
        ],
        tyro.conf.Positional,
    ]
    """table4: six training signals; table5: kinds of memory; table6: programs lifted between
    families; table7: one backbone's memory for another; table8: the engine's scenes for a policy's
    difficulties; figure4: shaped against sparse over updates; pilot: aimed scenes and potentials,
    apart and together, against uniform scenes; tools: each learning tool of training programs on
    and off; diagnosis: diagnosticians on failures with a known cause."""

    preset: Annotated[str, tyro.conf.arg(metavar="NAME|FILE")] = "small"
    """Its sizes: smoke (minutes, shows that it works) or small, or a YAML file of yours."""

    only: Annotated[Names, tyro.conf.arg(metavar="CELL")] = ()
    """Run this cell, or all cells of this arm, now; may be given several times."""

    jobs: Annotated[Literal[1, 2], tyro.conf.arg(metavar="1|2")] = 1
    """Runs at a time; each has the workers that its settings say besides."""

    out: Annotated[Path, tyro.conf.arg(metavar="FOLDER")] = Path("results")
    """Where the result goes."""

    runs: Annotated[Path, tyro.conf.arg(metavar="FOLDER")] = Path("runs/bench")
    """Where the run folders are; a run that two benchmarks share is done once."""

    json: Json = False

    def run(self) -> Result:
        """Run what is missing, then combine."""
        for path in (self.out, self.runs):
            if path.exists() and not path.is_dir():
                raise ConfigError(f"{path} is a file.", allowed="a folder, or a new name")
        # Imported here: torch takes seconds.
        from coda_trainer.benchmarks.bench import run_bench
        from coda_trainer.benchmarks.tables import terminal
        from coda_trainer.benchmarks.trials import TRIAL_BENCHES, run_trial_bench

        run = run_trial_bench if self.benchmark in TRIAL_BENCHES else run_bench
        report = run(
            self.benchmark,
            self.preset,
            runs=self.runs,
            out=self.out,
            only=self.only,
            jobs=self.jobs,
            say=lambda text: print(text, file=sys.stderr, flush=True),
        )
        print("Wrote " + ", ".join(str(path) for path in report.files), file=sys.stderr)
        error = None
        if report.failed:
            error = LearningError(
                f"{len(report.failed)} cells failed: {', '.join(sorted(report.failed))}.",
                remedy="read the named logs, then run the same command again",
            )
        return Result(report.result, terminal(report.tables), error)
