"""Memories in a PostgreSQL database: one schema each, so that a lab keeps many in one place.

``postgresql://user@host/database?memory=NAME``; NAME is ``main`` where the URL names none. A run
itself writes to the SQLite file in its folder; a database is where memories are imported to, looked
into, compared, lifted and given to other runs from.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event, exc, insert, inspect, text
from sqlalchemy.engine import make_url
from sqlalchemy.schema import CreateSchema, DropSchema

from coda_envs.errors import ConfigError, RunError
from coda_trainer.memory.connection import (
    WRITE,
    broken,
    check_version,
    without_user,
)
from coda_trainer.memory.schema import ALL_TABLES, HEADER, SCHEMA_VERSION, dumps

SCHEMES = ("postgresql://", "postgres://")
#: The memory that a URL without a name means, and what its schema's name begins with.
DEFAULT, PREFIX = "main", "coda_"
_NAME = re.compile(r"[a-z][a-z0-9_]{0,47}")


@dataclass(frozen=True)
class Place:
    """Where a memory is: the database's URL for SQLAlchemy, and its schema there. ``shown`` is for
    messages: it has no user and no password."""

    url: Any
    schema: str
    shown: str


def is_postgres(memory: object) -> bool:
    """Whether a memory is named by a URL of PostgreSQL."""
    return isinstance(memory, str) and memory.startswith(SCHEMES)


def place_of(memory: str) -> Place:
    """What a URL means. Raises :class:`RunError` for one that names no database or memory."""
    shown, _, asked = without_user(memory).partition("?")
    # Of the rest of a URL only the memory's name is shown: a password may stand there, too.
    named = [part for part in asked.split("&") if part.startswith("memory=")]
    shown = "?".join([shown, *named[:1]])
    try:
        url = make_url(memory)
    except (exc.ArgumentError, ValueError) as error:
        raise RunError(f"{shown} is no URL of a database.") from error
    query = dict(url.query)
    name = query.pop("memory", DEFAULT)
    if not isinstance(name, str) or not _NAME.fullmatch(name) or not url.database:
        raise RunError(
            f"{shown} names no memory.",
            allowed="postgresql://host/database?memory=NAME, the name of small letters, digits "
            "and _, at most 48",
        )
    return Place(url.set(drivername="postgresql+psycopg", query=query), PREFIX + name, shown)


def open_engine(place: Place, *, read_only: bool) -> Engine:
    """An engine on the memory, made first where there is none and it may be.

    Raises :class:`RunError` naming the memory, :class:`ConfigError` without the driver.
    """
    engine = _engine(
        place,
        pool_size=1,
        max_overflow=0,
        json_serializer=dumps,
        json_deserializer=json.loads,
    ).execution_options(schema_translate_map={None: place.schema})

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        options = connection.get_execution_options()
        if options.get(WRITE) is None:
            return
        if options[WRITE]:
            # Writers take turns, so that records are numbered in the order of their commits.
            quoted = connection.dialect.identifier_preparer.quote(place.schema)
            connection.exec_driver_sql(f"LOCK TABLE {quoted}.{HEADER.name} IN EXCLUSIVE MODE")
        else:
            # A reader sees one state throughout.
            connection.exec_driver_sql("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")

    try:
        _make_or_check(engine, place, read_only=read_only)
    except BaseException:
        engine.dispose()
        raise
    return engine


def exists(place: Place) -> bool:
    """Whether there is a memory at the place already. Raises :class:`RunError`."""
    with _connected(place) as connection:
        return bool(_tables(connection, place))


def claim(place: Place) -> None:
    """Make the memory's schema, still empty. Raises :class:`RunError` where there is one."""
    with _connected(place) as connection:
        if place.schema in inspect(connection).get_schema_names():
            raise RunError(f"{place.shown} exists.", remedy="name a new memory: …?memory=NAME")
        # Without IF NOT EXISTS: of two that claim it at once, one fails.
        connection.execute(CreateSchema(place.schema))


def drop(place: Place) -> None:
    """Remove the memory with all that it holds. Raises :class:`RunError`."""
    with _connected(place) as connection:
        connection.execute(DropSchema(place.schema, cascade=True, if_exists=True))


@contextmanager
def _connected(place: Place) -> Iterator[Connection]:
    """A transaction on the database itself, outside any memory."""
    engine = _engine(place)
    try:
        with engine.begin() as connection:
            yield connection
    except exc.DBAPIError as error:
        raise broken(place.shown, error.orig or error) from error
    finally:
        engine.dispose()


def _engine(place: Place, **options: Any) -> Engine:
    try:
        return create_engine(place.url, **options)
    except ImportError as error:
        raise ConfigError(
            "the package psycopg is not installed.", remedy='pip install "coda-robotics[postgres]"'
        ) from error


def _make_or_check(engine: Engine, place: Place, *, read_only: bool) -> None:
    try:
        with engine.connect() as connection, connection.begin():
            names = _tables(connection, place)
            if not names and read_only:
                raise RunError(
                    f"there is no memory at {place.shown}.",
                    remedy="import one: coda memory import FILE -o URL",
                )
            if not names:
                # Two that make it at once: the second one waits, and finds it made.
                lock = text("SELECT pg_advisory_xact_lock(hashtext(:schema))")
                connection.execute(lock, {"schema": place.schema})
                names = _tables(connection, place)
            if not names:
                connection.execute(CreateSchema(place.schema, if_not_exists=True))
                ALL_TABLES.create_all(connection, checkfirst=False)
                connection.execute(
                    insert(HEADER).values(id=1, schema_version=SCHEMA_VERSION, sequence=0)
                )
                return
            if HEADER.name not in names:
                raise RunError(f"{place.shown} is a schema, but not a memory.")
            check_version(connection, place.shown, names)
    except exc.DBAPIError as error:
        raise broken(place.shown, error.orig or error) from error


def _tables(connection: Connection, place: Place) -> set[str]:
    return set(inspect(connection).get_table_names(schema=place.schema))
