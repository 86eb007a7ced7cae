"""Opening a memory's SQLite file: checked before it is touched, then WAL and short transactions."""

from __future__ import annotations

import json
import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

from sqlalchemy import Connection, Engine, create_engine, event, exc, insert
from sqlalchemy.pool import StaticPool

from coda_envs.errors import RunError
from coda_trainer.memory.schema import ALL_TABLES, HEADER, SCHEMA_VERSION, dumps

#: Seconds a writer waits for another process's transaction.
BUSY_SECONDS = 30.0
#: The execution option that says whether a transaction writes.
WRITE = "coda_write"


def memory_path(path: Path | str) -> Path:
    """The file behind a path or a ``sqlite:///path`` URL. Raises :class:`RunError` for any other
    URL; those of PostgreSQL are :mod:`coda_trainer.memory.postgres`'s."""
    text = os.fspath(path)
    scheme, found, rest = text.partition("://")
    if found:
        text = rest.removeprefix("/")
        if scheme != "sqlite" or not rest.startswith("/") or not text:
            raise RunError(
                f"{without_user(path)} cannot hold a memory.",
                allowed="a path, or a URL of the form sqlite:///path or postgresql://host/database",
            )
    return Path(text)


def open_engine(path: Path, *, read_only: bool) -> Engine:
    """An engine on the memory at ``path``, made first where there is none and it may be.

    Nothing is written to a file that is not a memory. Raises :class:`RunError` naming the file.
    """
    if read_only and not path.is_file():
        raise RunError(
            f"there is no memory at {path}.", remedy="name a run's folder or its memory.sqlite"
        )
    if path.is_dir():
        raise RunError(
            f"{path} is a folder, not a memory.", remedy=f"name {path / 'memory.sqlite'}"
        )
    if not path.parent.is_dir():
        raise RunError(
            f"the folder of {path} does not exist.", remedy=f"make the folder {path.parent} first"
        )
    mode = "ro" if read_only else "rwc"
    uri = f"file:{quote(str(path.absolute()))}?mode={mode}"

    def connect() -> sqlite3.Connection:
        # isolation_level=None: transactions are begun below, with the kind that is meant.
        connection = sqlite3.connect(uri, uri=True, timeout=BUSY_SECONDS, isolation_level=None)
        connection.execute("PRAGMA synchronous=FULL")
        return connection

    engine = create_engine(
        "sqlite://",
        creator=connect,
        poolclass=StaticPool,
        json_serializer=dumps,
        json_deserializer=json.loads,
    )

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        write = connection.get_execution_options().get(WRITE, False)
        # A writer takes its lock at once: one that starts as a reader cannot wait for it.
        connection.exec_driver_sql("BEGIN IMMEDIATE" if write else "BEGIN")

    try:
        with transaction(engine, path, write=False) as connection:
            empty = _is_empty(connection, path)
        if empty and read_only:
            raise RunError(f"{path} is empty: not a memory.")
        if not read_only:
            _use_wal(engine, path)
        if empty:
            _create(engine, path)
    except BaseException:
        engine.dispose()
        raise
    return engine


@contextmanager
def transaction(engine: Engine, path: Path | str, *, write: bool) -> Iterator[Connection]:
    """One transaction, committed at the end and rolled back on any exception.

    What the database cannot do becomes a :class:`RunError` that names the memory.
    """
    try:
        with (
            engine.connect().execution_options(**{WRITE: write}) as connection,
            connection.begin(),
        ):
            yield connection
    except exc.DBAPIError as error:
        raise broken(path, error.orig or error) from error


def broken(path: Path | str, error: BaseException) -> RunError:
    """What a failure of the database means to the person at the keyboard."""
    text = " ".join(str(error).split())
    if "not a database" in text:
        return RunError(f"{path} is not a memory: it is no SQLite file.")
    remedies = {
        "locked": "wait for the other process that writes to it, or end it",
        "full": "free some disk space; what was committed is safe",
        "I/O": "check the disk and its free space; what was committed is safe",
        "malformed": "use the last snapshot of the run, or import an export",
        "readonly": "make the file and its folder writable",
        "unable to open": "check the permissions of the file and of its folder",
        "resolve host": "check the host's name",
        "connection": "check that the server runs, and the host, the user and the password",
        "permission denied": "ask for the right to create a schema in that database",
    }
    remedy = next((r for word, r in remedies.items() if word in text), None)
    return RunError(f"the memory {path} cannot be used: {text}.", remedy=remedy)


def _is_empty(connection: Connection, path: Path) -> bool:
    """Whether the file holds no tables yet; raises where it holds others than a memory's."""
    names = set(connection.exec_driver_sql("SELECT name FROM sqlite_master").scalars())
    if not names:
        return True
    if HEADER.name not in names:
        raise RunError(f"{path} is an SQLite file, but not a memory.")
    check_version(connection, path, names)
    return False


def check_version(connection: Connection, path: Path | str, names: set[str]) -> None:
    """Raises :class:`RunError` for a memory of a newer version, or half a one. ``names``: of its
    tables, the header's among them."""
    rows = connection.execute(HEADER.select()).all()
    version = rows[0].schema_version if len(rows) == 1 else None
    if isinstance(version, int) and version > SCHEMA_VERSION:
        raise RunError(
            f"{path} has the schema version {version}.",
            allowed=f"up to {SCHEMA_VERSION}",
            remedy="open it with the newer version of coda-robotics that wrote it",
        )
    missing = sorted(set(ALL_TABLES.tables) - names)
    if version != SCHEMA_VERSION or missing:
        raise RunError(f"{path} is not a whole memory (version {version!r}, missing {missing}).")


def _use_wal(engine: Engine, path: Path) -> None:
    """Switch to write-ahead logging: readers and one writer then work side by side."""
    # SQLite does not wait for a lock here, so two processes that open a new file would collide.
    for attempt in range(200):
        try:
            with engine.connect() as connection:
                raw = connection.connection.driver_connection
                assert isinstance(raw, sqlite3.Connection)
                raw.execute("PRAGMA journal_mode=WAL")
            return
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or attempt == 199:
                raise broken(path, error) from error
            time.sleep(0.02)


def _create(engine: Engine, path: Path) -> None:
    with transaction(engine, path, write=True) as connection:
        # Another process may have made it since we looked.
        if _is_empty(connection, path):
            ALL_TABLES.create_all(connection, checkfirst=False)
            connection.execute(
                insert(HEADER).values(id=1, schema_version=SCHEMA_VERSION, sequence=0)
            )


def without_user(url: Path | str) -> str:
    """A URL without the part that may hold a password."""
    scheme, found, rest = os.fspath(url).partition("://")
    return f"{scheme}{found}{rest.rpartition('@')[2]}"
