"""``coda memory``: what a run has learned about its failures."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from coda_trainer.commands.result import Json, Result

MemoryPath = Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN_OR_DB")]


@dataclass(frozen=True)
class MemoryShow:
    """List the difficulty modes: where the policy failed, why, and whether it got better.

    Example: coda memory show runs/demo-1
    """

    memory: MemoryPath
    """A run folder or its memory.sqlite."""

    json: Json = False

    def run(self) -> Result:
        """Read the modes."""
        from coda_trainer.memory.view import show

        data, view = show(self.memory)
        return Result(data, view)


@dataclass(frozen=True)
class MemoryMode:
    """Show one difficulty mode in full: diagnosis, control evaluation, programs, progress.

    Example: coda memory mode runs/demo-1 3f2a9c10
    """

    memory: MemoryPath
    """A run folder or its memory.sqlite."""

    mode: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="MODE")]
    """The mode's id, as `coda memory show` lists it."""

    json: Json = False

    def run(self) -> Result:
        """Read one mode."""
        from coda_trainer.memory.view import show_mode

        data, view = show_mode(self.memory, self.mode)
        return Result(data, view)


@dataclass(frozen=True)
class MemoryExport:
    """Write the whole memory as JSON Lines, to read it elsewhere or to start another run with.

    Example: coda memory export runs/demo-1 -o memory.jsonl
    """

    memory: MemoryPath
    """A run folder or its memory.sqlite."""

    out: Annotated[Path, tyro.conf.arg(aliases=("-o",), metavar="FILE")]
    """The file to write."""

    json: Json = False

    def run(self) -> Result:
        """Export."""
        from coda_trainer.memory.view import export

        data = export(self.memory, self.out)
        return Result(data, f"{self.out}\n")
