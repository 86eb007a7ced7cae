"""The memory that one cell of a benchmark gives to another."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from coda_envs.errors import RunError
from coda_trainer.memory.adopting import transferable
from coda_trainer.memory.lifting import NothingLiftsError, lift_memory
from coda_trainer.memory.making import new_memory
from coda_trainer.memory.store import MemoryStore
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
        with tempfile.TemporaryDirectory(prefix="coda-lifted-") as folder:
            lifted = Path(folder) / "memory.sqlite"
            try:
                with new_memory(lifted) as target:
                    lift_memory(store, family, target)
            except NothingLiftsError as error:
                raise NothingToGiveError(error.problem) from error
            yield lifted
