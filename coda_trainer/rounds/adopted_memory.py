"""The memory that a run was given: checked, copied into its folder, and opened read-only."""

from __future__ import annotations

from pathlib import Path

from coda_envs.errors import ConfigError, RunError
from coda_envs.family import get_family
from coda_trainer.config import RunConfig
from coda_trainer.memory.adopting import transferable
from coda_trainer.memory.evidence import generation_program, program_flaw
from coda_trainer.memory.modes import Mode
from coda_trainer.memory.store import MemoryStore
from coda_trainer.rounds.run_folder import RunFolder


def check_adopted(memory: Path | str, config: RunConfig) -> dict[str, int]:
    """How many modes of each of the run's families a memory file has for it.

    Raises :class:`ConfigError` where the configuration does not use one or it has none for it,
    :class:`RunError` where the file is no memory or has a program that does not fit its family.
    """
    if config.strategy != "coda" or config.coda.memory != "programs":
        raise ConfigError(
            f"a memory is given, but the strategy is {config.strategy!r} and coda.memory "
            f"{config.coda.memory!r}.",
            allowed="strategy: coda with coda.memory: programs",
        )
    with MemoryStore.open_read_only(memory) as store:
        found = {}
        for name in config.families:
            modes = transferable(store, name)
            for mode in modes:
                _check_program(store, mode)
            found[name] = len(modes)
        known = sorted({m.family for m in store.modes()})
    if not any(found.values()):
        raise ConfigError(
            f"{store.path} has no confirmed mode of {', '.join(config.families)}.",
            allowed=f"its modes are of: {', '.join(known) or 'no family'}",
            remedy="lift them: coda memory lift MEMORY --to FAMILY -o LIFTED",
        )
    return found


def _check_program(memory: MemoryStore, mode: Mode) -> None:
    program = generation_program(memory, mode)
    assert program is not None
    flaw = program_flaw(program, get_family(mode.family).space)
    if flaw:
        raise RunError(
            f"{memory.path}, mode {mode.id}: its generation program cannot be used: {flaw}",
            remedy="use a memory that a run of this version wrote",
        )


def copy_adopted(memory: Path | str, out: Path) -> None:
    """Copy the memory into a run's folder, so that a resumed run needs nothing outside it.

    Raises :class:`RunError` where there is a run already.
    """
    if (out / "config.yaml").exists():
        raise RunError(
            f"{out} holds a run already; nothing in it was touched.",
            allowed="a folder that is empty or does not exist",
            remedy=f"choose another one, or go on with it: coda train --resume {out}",
        )
    out.mkdir(parents=True, exist_ok=True)
    with MemoryStore.open_read_only(memory) as store:
        store.snapshot(RunFolder(out).adopted)


def open_adopted(run: RunFolder) -> MemoryStore | None:
    """The run's copy, read-only; None where it was given no memory.

    Raises :class:`RunError` where its manifest names one and the copy is missing.
    """
    if not run.manifest().get("adopted"):
        return None
    if not run.adopted.is_file():
        raise RunError(
            f"{run.adopted} is missing: the run was given a memory.",
            remedy="start the run again in another folder",
        )
    return MemoryStore.open_read_only(run.adopted)
