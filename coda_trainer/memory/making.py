"""Making a memory that is filled whole, or not at all."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from coda_envs.errors import RunError
from coda_trainer.files import check_place
from coda_trainer.memory import postgres
from coda_trainer.memory.store import MemoryStore


@contextmanager
def new_memory(path: Path | str) -> Iterator[MemoryStore]:
    """A memory in a new file or schema, for what fills it whole: where that fails, nothing stays.

    Raises :class:`RunError` where it exists or cannot be made.
    """
    if postgres.is_postgres(path):
        with _new_schema(str(path)) as made:
            yield made
        return
    path = Path(path)
    check_place(path)
    try:
        # Claimed first: what another process makes at the same time is not removed here.
        path.open("x").close()
    except FileExistsError as error:
        raise RunError(f"{path} exists.", remedy="name a new file") from error
    try:
        with MemoryStore(path) as memory:
            yield memory
    except BaseException:
        for name in (path.name, f"{path.name}-wal", f"{path.name}-shm"):
            path.with_name(name).unlink(missing_ok=True)
        raise


@contextmanager
def _new_schema(url: str) -> Iterator[MemoryStore]:
    place = postgres.place_of(url)
    postgres.claim(place)
    try:
        with MemoryStore(url) as memory:
            yield memory
    except BaseException:
        postgres.drop(place)
        raise
