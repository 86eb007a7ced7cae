"""A memory's copies: snapshots, and export and import as JSON Lines.

An export starts with a header line, ``{"kind": "memory", "schema_version", "sequence",
"records"}``, and goes on with one record a line in order of sequence, its columns and its kind.
"""

from __future__ import annotations

import json
import math
import os
import sqlite3
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from sqlalchemy import Connection, Engine, exc, insert, select, update

from coda_envs.errors import CodaError, RunError
from coda_trainer.files import write_atomic
from coda_trainer.memory.connection import broken, open_engine, transaction
from coda_trainer.memory.schema import HEADER, SCHEMA_VERSION, TABLES, Row, checked_row, dumps

#: Longest line that is read, in bytes.
MAX_LINE = 16_000_000
_HEADER = {"kind", "schema_version", "sequence", "records"}


def snapshot(engine: Engine, source: Path, target: Path) -> None:
    """Copy the memory as it stands now to ``target``, in one piece, while others may write.

    The copy appears under its name only when it is whole, and replaces an older one. Equal
    memories give equal bytes. Raises :class:`RunError` naming the file.
    """
    if target.exists() and target.samefile(source):
        raise RunError(f"{target} is the memory itself.", remedy="name another file")
    if target.with_name(target.name + "-wal").exists():
        raise RunError(
            f"{target} is open in another process and cannot be replaced.",
            remedy="close it there, or name another file",
        )

    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        temporary.unlink(missing_ok=True)
        with engine.connect() as connection:
            raw = connection.connection.driver_connection
            assert isinstance(raw, sqlite3.Connection)
            raw.execute("VACUUM INTO ?", (str(temporary),))
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except sqlite3.Error as error:
        raise broken(target, error) from error
    except OSError as error:
        raise RunError(f"{target} cannot be written: {error.strerror}.") from error
    finally:
        temporary.unlink(missing_ok=True)


def snapshot_database(engine: Engine, source: str, target: Path) -> None:
    """:func:`snapshot` of a memory in a database: a file with the same records."""
    with tempfile.TemporaryDirectory(prefix="coda-memory-") as folder:
        draft = Path(folder) / "memory.sqlite"
        made = open_engine(draft, read_only=False)
        try:
            _copy_records(engine, source, made)
            snapshot(made, draft, target)
        finally:
            made.dispose()


def _copy_records(engine: Engine, source: str, target: Engine) -> None:
    """Write every record into ``target``, an empty memory of this process alone."""
    with transaction(engine, source, write=False) as connection:
        sequence = connection.execute(select(HEADER.c.sequence)).scalar_one()
        rows = sorted(_rows(connection), key=lambda row: int(row["sequence"]))
    with transaction(target, source, write=True) as connection:
        for row in rows:
            connection.execute(insert(TABLES[row.pop("kind")]).values(**row))
        connection.execute(update(HEADER).values(sequence=sequence))


def export_jsonl(engine: Engine, source: Path | str, target: Path) -> int:
    """Write every record to ``target`` in one piece; the number of records."""
    with transaction(engine, source, write=False) as connection:
        sequence = connection.execute(select(HEADER.c.sequence)).scalar_one()
        rows = sorted(_rows(connection), key=lambda row: int(row["sequence"]))
    header = {
        "kind": "memory",
        "schema_version": SCHEMA_VERSION,
        "sequence": sequence,
        "records": len(rows),
    }

    try:
        write_atomic(target, "".join(dumps(line) + "\n" for line in (header, *rows)))
    except OSError as error:
        raise RunError(f"{target} cannot be written: {error.strerror}.") from error
    return len(rows)


def import_jsonl(engine: Engine, target: Path | str, source: Path) -> int:
    """Read an export into an empty memory, all of it or nothing; the number of records.

    Raises :class:`RunError` naming file and line where a line is not a record, the file is cut
    short, or the memory already holds records.
    """
    try:
        with source.open("rb") as file, transaction(engine, target, write=True) as connection:
            if connection.execute(select(HEADER.c.sequence)).scalar_one():
                raise RunError(
                    f"the memory {target} already holds records.",
                    remedy="import into a new memory",
                )
            return _read(connection, file, source)
    except OSError as error:
        raise RunError(f"the export {source} cannot be read: {error.strerror}.") from error


def _read(connection: Connection, file: BinaryIO, source: Path) -> int:
    lines = _lines(file, source)
    number, header = next(lines, (1, {}))
    if header.get("kind") != "memory" or set(header) != _HEADER:
        raise RunError(
            f"{source}, line {number}: not the header of an export.",
            remedy="write one with `coda memory export`",
        )
    if header["schema_version"] != SCHEMA_VERSION:
        raise RunError(
            f"{source}, line {number}: schema version {header['schema_version']!r:.60}.",
            allowed=str(SCHEMA_VERSION),
            remedy="use the version of coda-robotics that wrote it",
        )
    last, records = 0, 0
    diagnoses: set[int] = set()
    for number, line in lines:
        kind = line.pop("kind", None)
        try:
            row = checked_row(str(kind), line)
            if row["sequence"] <= last:
                raise RunError(f"sequence number {row['sequence']} after {last}.")
            if kind == "controls" and not diagnoses.issuperset(row["diagnoses"]):
                raise RunError(f"diagnoses {row['diagnoses']!r:.60} are not above it.")
            connection.execute(insert(TABLES[str(kind)]).values(**row))
        except CodaError as error:
            raise RunError(
                f"{source}, line {number}: {error.problem}",
                allowed=error.allowed,
                remedy=error.remedy,
            ) from error
        except exc.IntegrityError as error:
            raise RunError(f"{source}, line {number}: repeats a record ({error.orig}).") from error
        if kind == "diagnoses":
            diagnoses.add(row["sequence"])
        last = row["sequence"]
        records += 1
    sequence = header["sequence"]
    if header["records"] != records or type(sequence) is not int or not last <= sequence < 2**63:
        raise RunError(
            f"{source} holds {records} records up to number {last}; its header says "
            f"{header['records']!r:.60} up to {sequence!r:.60}.",
            remedy="export again: the file was cut short or changed",
        )
    connection.execute(update(HEADER).values(sequence=sequence))
    return records


def _lines(file: BinaryIO, source: Path) -> Iterator[tuple[int, Row]]:
    """(line number from 1, its object) of every line."""
    number = 0
    while raw := file.readline(MAX_LINE + 1):
        number += 1
        try:
            if len(raw) > MAX_LINE:
                raise ValueError(f"longer than {MAX_LINE} bytes")
            line = json.loads(
                raw.decode("utf-8"),
                parse_constant=_no_constant,
                parse_float=_finite,
                object_pairs_hook=_distinct,
            )
            if not isinstance(line, dict):
                raise ValueError("not an object")
        except (ValueError, RecursionError) as error:
            raise RunError(
                f"{source}, line {number}: not a record in JSON ({error}).",
                remedy="export again: the file was cut short or changed",
            ) from error
        yield number, line


def _no_constant(text: str) -> float:
    raise ValueError(f"{text} is not JSON")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"the number {text} is too large")
    return value


def _distinct(pairs: list[tuple[str, Any]]) -> Row:
    row = dict(pairs)
    if len(row) != len(pairs):
        raise ValueError("an entry is given twice")
    return row


def _rows(connection: Connection) -> Iterator[Row]:
    for kind, table in TABLES.items():
        for row in connection.execute(select(table)):
            yield {"kind": kind, **row._mapping}
