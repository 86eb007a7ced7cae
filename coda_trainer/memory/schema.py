"""The memory's tables, and the check of a row that comes from outside.

Every record is written once and never changed. Its ``sequence`` number orders it among all
records, its ``round`` says when it was made; there is no wall clock. A mode is a chain of records,
one a change, of which the last one holds. So the memory as it stood at any sequence number is a
prefix of what it holds now.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from typing import Any

from sqlalchemy import JSON, BigInteger, Column, Integer, MetaData, String, Table

from coda_envs.errors import RunError, suggest
from coda_envs.programs.base import ProgramData
from coda_envs.programs.diagnosis import Diagnosis
from coda_envs.programs.generation import GenerationProgram
from coda_envs.programs.training import TrainingProgram
from coda_trainer.memory.lifecycle import VERDICTS
from coda_trainer.memory.modes import Mode
from coda_trainer.memory.progress import Measurement
from coda_trainer.strict_json import plain

#: Raised with every change of the tables; a memory of a newer version is refused.
SCHEMA_VERSION = 1

#: Largest integer that a column holds.
MAX_INTEGER = 2**63 - 1

#: A whole number of 64 bits; SQLite keeps its own kind of primary key for ``Integer`` alone.
_WHOLE = BigInteger().with_variant(Integer, "sqlite")

_metadata = MetaData()

#: One row: the schema version, and the last sequence number given out.
HEADER = Table(
    "coda_memory",
    _metadata,
    Column("id", _WHOLE, primary_key=True),
    Column("schema_version", _WHOLE, nullable=False),
    Column("sequence", _WHOLE, nullable=False),
)


def _records(name: str, *columns: Column[Any]) -> Table:
    return Table(
        name,
        _metadata,
        Column("sequence", _WHOLE, primary_key=True, autoincrement=False),
        Column("round", _WHOLE, nullable=False),
        *columns,
        Column("data", JSON, nullable=False),
    )


def _text(name: str, *, index: bool = False) -> Column[Any]:
    return Column(name, String, nullable=False, index=index)


def _integer(name: str) -> Column[Any]:
    return Column(name, _WHOLE, nullable=False)


#: Every kind of record by its name.
TABLES: dict[str, Table] = {
    table.name: table
    for table in (
        # Scenes that probes and a run's own diagnoses name by id.
        _records("scenes", Column("scene_id", String, nullable=False, unique=True)),
        # Construction traces: proposal, edits, checks, repairs, outcome.
        _records("traces", _text("scene_id", index=True), _text("outcome")),
        # Diagnosed failures, abstentions included.
        _records("diagnoses", _text("scene_id"), _text("factor")),
        # Control evaluations; ``diagnoses`` lists the sequence numbers of those they tested.
        _records(
            "controls",
            _text("mode_id", index=True),
            _text("verdict"),
            Column("diagnoses", JSON, nullable=False),
        ),
        # Measurements of a mode's probes and matched control scenes.
        _records(
            "progress", _text("mode_id", index=True), _integer("successes"), _integer("trials")
        ),
        # Modes: the last record of an id holds.
        _records("modes", _text("mode_id", index=True), _text("family"), _text("state")),
        # Ω and Φ programs of a mode, numbered from 1 within mode and kind.
        _records(
            "programs",
            _text("mode_id", index=True),
            _text("program"),
            _integer("version"),
            Column("hash", String, nullable=False, index=True),
        ),
    )
}

#: Every table, the header included.
ALL_TABLES = _metadata

#: The two kinds of program, by the name in the column ``program``.
PROGRAMS: dict[str, type[ProgramData]] = {
    "generation": GenerationProgram,
    "training": TrainingProgram,
}

Row = dict[str, Any]


def table_of(kind: str) -> Table:
    """The table of a kind of record. Raises :class:`RunError` for an unknown one."""
    if kind not in TABLES:
        raise RunError(f"{kind!r} is no kind of record.", allowed=suggest(kind, TABLES))
    return TABLES[kind]


def dumps(data: Any) -> str:
    """Strict JSON with sorted keys in ASCII; NaN and infinity become null (not measured)."""
    return json.dumps(plain(data), sort_keys=True, allow_nan=False, separators=(",", ":"))


def checked_row(kind: str, row: Mapping[str, Any]) -> Row:
    """A row from outside, as it can be stored.

    Columns must be those of the kind's table, each of its type, and agree with the entries in
    ``data`` that they repeat. Raises :class:`~coda_envs.errors.CodaError` naming the column.
    """
    table = table_of(kind)
    names = {column.name for column in table.columns}
    if set(row) != names:
        odd = sorted(set(row) ^ names)
        raise RunError(
            f"a record of {kind} has the wrong entries {odd}.", allowed=str(sorted(names))
        )
    for column in table.columns:
        value = row[column.name]
        if isinstance(column.type, Integer):
            fits = _is_count(value)
        elif isinstance(column.type, String):
            fits = isinstance(value, str) and value.isprintable()
        else:
            fits = isinstance(value, list if column.name == "diagnoses" else dict)
        if not fits:
            raise RunError(f"{kind}.{column.name} is {value!r:.60}, not of its type.")
    for name, value in _REPEATED[kind](row).items():
        if row[name] != value:
            raise RunError(
                f"{kind}.{name} is {row[name]!r:.60}, but its data say {value!r:.60}.",
                remedy="export the memory again: this record was changed or damaged",
            )
    return dict(row)


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_INTEGER


def scene_columns(data: Mapping[str, Any]) -> Row:
    """``scene_id``: the sha256 of the canonical JSON, as :attr:`coda_envs.scene.Scene.id`."""
    text = json.dumps(data, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return {"scene_id": hashlib.sha256(text.encode()).hexdigest()}


def diagnosis_columns(diagnosis: Diagnosis) -> Row:
    """The columns that repeat entries of a diagnosis."""
    return {"scene_id": diagnosis.scene_id, "factor": diagnosis.factor}


def progress_columns(measurement: Measurement) -> Row:
    """The columns that repeat entries of a measurement."""
    return {"successes": measurement.successes, "trials": measurement.trials}


def mode_columns(mode: Mode) -> Row:
    """The columns that repeat entries of a mode."""
    return {"mode_id": mode.id, "family": mode.family, "state": mode.state}


def _of_control(row: Mapping[str, Any]) -> Row:
    if row["verdict"] not in VERDICTS:
        raise RunError(
            f"verdict {row['verdict']!r} is unknown.", allowed=suggest(row["verdict"], VERDICTS)
        )
    if not all(map(_is_count, row["diagnoses"])):
        raise RunError("controls.diagnoses is not a list of sequence numbers.")
    return {}


def _of_program(row: Mapping[str, Any]) -> Row:
    if row["program"] not in PROGRAMS:
        raise RunError(
            f"{row['program']!r} is no kind of program.", allowed=suggest(row["program"], PROGRAMS)
        )
    program = PROGRAMS[row["program"]].parse(row["data"])
    return {"hash": program.hash}


_REPEATED: dict[str, Callable[[Mapping[str, Any]], Row]] = {
    "scenes": lambda row: scene_columns(row["data"]),
    "traces": lambda row: {},
    "diagnoses": lambda row: diagnosis_columns(Diagnosis.parse(row["data"], "diagnosis")),
    "controls": _of_control,
    "progress": lambda row: progress_columns(Measurement.from_dict(row["data"])),
    "modes": lambda row: mode_columns(Mode.parse(row["data"], "mode")),
    "programs": _of_program,
}
