"""The memory that one cell of a benchmark gives to another."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from coda_envs.errors import RunError
from coda_trainer.memory.adopting import transferable
from coda_trainer.memory.lifting import lift_memory
from coda_trainer.memory.store import MemoryStore, new_memory
from coda_trainer.rounds.run_folder import RunFolder


class NothingToGiveError(RunError):
    """The run confirmed no mode, or none that the other family has a counterpart of."""


@contextmanager
def given_memory(run: Path, family: str) -> Iterator[Path]:
    """The memory file of a finished run, with modes of ``family``: its own where it has some, else
    lifted for as long as it is needed.

    Raises :class:`NothingToGiveError` where there is none.
    """
    memory = RunFolder(run).memory
    with MemoryStore.open_read_only(memory) as store:
        families = sorted({m.family for m in store.modes()})
        if not any(transferable(store, name) for name in families):
            raise NothingToGiveError(f"{run.name} confirmed no mode.")
        if family in families:
            if not transferable(store, family):
                raise NothingToGiveError(f"{run.name} confirmed no mode of {family}.")
            yield memory
            return
        lifted = run.with_name(f".{run.name}.{family}.sqlite")
        lifted.unlink(missing_ok=True)
        try:
            with new_memory(lifted) as target:
                found = lift_memory(store, family, target)
            if not found.modes:
                why = "; ".join(found.left_out.values())
                raise NothingToGiveError(f"no mode of {run.name} lifts to {family}: {why}.")
            yield lifted
        finally:
            lifted.unlink(missing_ok=True)
