"""``coda memory``: what a run has learned about its failures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from coda_trainer.commands.result import Json, Result, table

MemoryPath = Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="RUN_OR_DB")]
#: A string, because a path would lose one of a URL's slashes.
NewMemory = Annotated[str, tyro.conf.arg(aliases=("-o",), metavar="FILE_OR_URL")]


@dataclass(frozen=True)
class MemoryShow:
    """List the difficulty modes: where the policy failed, why, and whether it got better.

    Example: coda memory show runs/demo-1
    """

    memory: MemoryPath
    """A run folder, its memory.sqlite, or postgresql://host/database?memory=NAME."""

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
    """A run folder, its memory.sqlite, or postgresql://host/database?memory=NAME."""

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
    """A run folder, its memory.sqlite, or postgresql://host/database?memory=NAME."""

    out: Annotated[Path, tyro.conf.arg(aliases=("-o",), metavar="FILE")]
    """The file to write."""

    json: Json = False

    def run(self) -> Result:
        """Export."""
        from coda_trainer.memory.view import export

        data = export(self.memory, self.out)
        return Result(data, f"{self.out}\n")


@dataclass(frozen=True)
class MemoryImport:
    """Make a memory of an export: a new file, which other runs can read.

    Example: coda memory import memory.jsonl -o shared.sqlite
    """

    file: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="FILE")]
    """An export, see `coda memory export`."""

    out: NewMemory
    """The memory to make; it must not exist."""

    json: Json = False

    def run(self) -> Result:
        """Import, all or nothing."""
        from coda_trainer.memory.making import new_memory

        with new_memory(self.out) as memory:
            records, made = memory.import_jsonl(self.file), str(memory.path)
        return Result({"memory": made, "records": records}, f"{records} records in {made}\n")


@dataclass(frozen=True)
class MemoryLift:
    """Lift a memory's difficulty modes to another family: a new memory, to start a run there with.

    A factor becomes the one with the same part in the other family, its values keep their place
    between the ranges. What has no counterpart is left out, and listed.

    Example: coda memory lift runs/demo-1 --to put-inside -o lifted.sqlite
    """

    memory: MemoryPath
    """A run folder, its memory.sqlite, or postgresql://host/database?memory=NAME."""

    to: Annotated[str, tyro.conf.arg(metavar="FAMILY")]
    """The family to lift to."""

    out: NewMemory
    """The memory to make; it must not exist."""

    json: Json = False

    def run(self) -> Result:
        """Lift, all or nothing."""
        from coda_envs.family import get_family
        from coda_trainer.memory.lifting import lift_memory
        from coda_trainer.memory.making import new_memory
        from coda_trainer.memory.store import MemoryStore
        from coda_trainer.memory.view import find_memory

        family = get_family(self.to).name
        with MemoryStore.open_read_only(find_memory(self.memory)) as source:
            names = {m.id: (m.family, m.label) for m in source.modes()}
            with new_memory(self.out) as target:
                found, made = lift_memory(source, family, target), str(target.path)
        rows = [(*names[old], mode.stage, mode.label) for old, mode in found.modes.items()]
        rows += [(*names[old], "left out", why) for old, why in found.left_out.items()]
        data = {
            "memory": made,
            "modes": {old: mode.to_dict() for old, mode in found.modes.items()},
            "left_out": dict(found.left_out),
        }
        columns = ("from", "difficulty", "stage", f"in {family}")
        return Result(data, table("Lifted modes", columns, rows))


@dataclass(frozen=True)
class MemoryDiff:
    """Compare two memories: the difficulties that both know, and those that only one does.

    Example: coda memory diff runs/demo-1 runs/demo-2
    """

    first: MemoryPath
    """A run folder, its memory.sqlite, or postgresql://host/database?memory=NAME."""

    second: MemoryPath
    """Another one."""

    json: Json = False

    def run(self) -> Result:
        """Compare."""
        from coda_trainer.memory.compare import compare

        data = compare(self.first, self.second)
        rows = [
            (m["family"], m["stage"], m["label"], _standing(m), _standing(m, "_second"))
            for m in data["both"]
        ]
        for name, place in (("only_first", 3), ("only_second", 4)):
            for m in data[name]:
                row = [m["family"], m["stage"], m["label"], "–", "–"]
                row[place] = _standing(m)
                rows.append(tuple(row))
        columns = ("family", "stage", "difficulty", data["first"], data["second"])
        return Result(data, table("Difficulty modes", columns, rows))


def _standing(mode: Mapping[str, Any], which: str = "") -> str:
    """State and success of a mode, in a few words."""
    success = mode[f"success{which}"]
    measured = "not measured" if success is None else f"{success:.2f}"
    return f"{mode[f'state{which}']}, {measured}"
