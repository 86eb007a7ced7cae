"""MemoryStore: everything a run has learned about where its policy fails, in one SQLite file."""

from __future__ import annotations

import operator
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from sqlalchemy import Connection, func, insert, select, update

from coda_envs.errors import RunError
from coda_envs.programs.diagnosis import Diagnosis
from coda_envs.programs.generation import GenerationProgram
from coda_envs.programs.training import TrainingProgram
from coda_envs.scene import Scene, parse_scene
from coda_trainer.memory import connection as sqlite
from coda_trainer.memory import postgres, schema, transfer
from coda_trainer.memory.modes import Mode
from coda_trainer.memory.progress import Measurement
from coda_trainer.memory.schema import HEADER, PROGRAMS, TABLES, Row

#: Most values in one query; SQLite allows 32,766.
_PART = 10_000


def _parts(numbers: list[int]) -> Iterator[list[int]]:
    return (numbers[i : i + _PART] for i in range(0, len(numbers), _PART))


class MemoryStore:
    """A memory, opened for reading and writing; made where it does not exist.

    ``path`` is a file, a ``sqlite:///`` URL, or one of a PostgreSQL database
    (:mod:`coda_trainer.memory.postgres`). Records are only ever added. Each ``add_…`` commits
    on its own, and what it returned for is safe from a kill of the process; inside
    ``with memory.transaction():`` all of them commit together or not at all. Several processes
    may write: each opens the file itself, in one thread, and waits its turn. Records then come in
    the order of their commits, so a run that must repeat exactly writes from one process.

    Raises :class:`RunError` for a file that is not a memory, or that a newer version wrote.
    """

    def __init__(self, path: Path | str) -> None:
        self._open(path, read_only=False)

    @classmethod
    def open_read_only(cls, path: Path | str) -> Self:
        """Open an existing memory, a snapshot say, that must not be changed; writing raises."""
        store = cls.__new__(cls)
        store._open(path, read_only=True)
        return store

    def _open(self, path: Path | str, *, read_only: bool) -> None:
        self.read_only = read_only
        #: The file, or what messages call a memory in a database.
        self.path: Path | str
        if postgres.is_postgres(path):
            place = postgres.place_of(str(path))
            self.path = place.shown
            self.engine = postgres.open_engine(place, read_only=read_only)
        else:
            self.path = sqlite.memory_path(path)
            self.engine = sqlite.open_engine(self.path, read_only=read_only)
        self._connection: Connection | None = None
        self._pid = os.getpid()

    def close(self) -> None:
        """Release the file."""
        self.engine.dispose()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        """Everything inside commits together, or not at all; one inside another joins it.

        On a memory that is open read-only, everything inside sees one and the same state.
        """
        with self._begin(write=not self.read_only) as connection:
            outer, self._connection = self._connection, connection
            try:
                yield connection
            finally:
                self._connection = outer

    @contextmanager
    def _begin(self, *, write: bool) -> Iterator[Connection]:
        """The transaction under way, or a new one; a reader takes no lock from a writer."""
        if os.getpid() != self._pid:
            raise RunError(
                f"the memory {self.path} was opened by another process.",
                remedy="open it with MemoryStore(path) in the process that uses it",
            )
        if self._connection is not None:
            yield self._connection
            return
        with sqlite.transaction(self.engine, self.path, write=write) as connection:
            yield connection

    # Writing -----------------------------------------------------------------------------------

    def add_scene(self, round: int, scene: Scene) -> str:
        """Keep a scene that probes, traces or diagnoses name by its id, once; its id."""
        with self.transaction() as connection:
            scenes = TABLES["scenes"]
            known = select(scenes.c.sequence).where(scenes.c.scene_id == scene.id)
            if connection.execute(known).first() is None:
                self._add("scenes", round, {"scene_id": scene.id, "data": scene.to_dict()})
        return scene.id

    def add_trace(self, round: int, scene_id: str, outcome: str, data: Mapping[str, Any]) -> int:
        """Keep a construction trace: proposal, edits, checks, repairs; its sequence number."""
        row = {"scene_id": scene_id, "outcome": outcome, "data": dict(data)}
        return self._add("traces", round, row)

    def add_diagnosis(self, round: int, diagnosis: Diagnosis) -> int:
        """Keep a diagnosed failure, or an abstention; its sequence number."""
        row = {**schema.diagnosis_columns(diagnosis), "data": diagnosis.to_dict()}
        return self._add("diagnoses", round, row)

    def add_control(
        self,
        round: int,
        mode_id: str,
        verdict: str,
        diagnoses: Sequence[int],
        data: Mapping[str, Any],
    ) -> int:
        """Keep a control evaluation of the diagnoses with these sequence numbers.

        ``data`` is the result's ``to_dict()``. Raises :class:`RunError` for a verdict or a
        diagnosis that does not exist.
        """
        row = {
            "mode_id": mode_id,
            "verdict": verdict,
            "diagnoses": [int(d) for d in diagnoses],
            "data": dict(data),
        }
        with self.transaction() as connection:
            table = TABLES["diagnoses"]
            known = select(func.count()).where(table.c.sequence.in_(row["diagnoses"]))
            if connection.execute(known).scalar_one() != len(set(row["diagnoses"])):
                raise RunError(f"control of {mode_id}: a diagnosis of {diagnoses!r} is not kept.")
            return self._add("controls", round, row)

    def add_measurement(self, round: int, mode_id: str, measurement: Measurement) -> int:
        """Keep a measurement of a mode's probes; its sequence number."""
        columns = schema.progress_columns(measurement)
        row = {"mode_id": mode_id, **columns, "data": measurement.to_dict()}
        return self._add("progress", round, row)

    def add_program(
        self, round: int, mode_id: str, program: GenerationProgram | TrainingProgram
    ) -> int:
        """Keep a mode's Ω or Φ program and return its version.

        Versions count from 1 within mode and kind; a program that the mode already has keeps the
        version it had. Where it came from is in the program's own ``provenance``.
        """
        kind = next(name for name, cls in PROGRAMS.items() if type(program) is cls)
        table = TABLES["programs"]
        mine = (table.c.mode_id == mode_id) & (table.c.program == kind)
        with self.transaction() as connection:
            same = select(table.c.version).where(mine & (table.c.hash == program.hash))
            known = connection.execute(same).scalar()
            if known is not None:
                return int(known)
            count = select(func.count()).select_from(table).where(mine)
            version = int(connection.execute(count).scalar_one()) + 1
            row = {"program": kind, "version": version, "hash": program.hash}
            self._add("programs", round, {"mode_id": mode_id, **row, "data": program.to_dict()})
            return version

    def save_mode(self, round: int, mode: Mode) -> None:
        """Keep the mode as it is now; nothing is written where it has not changed."""
        with self.transaction() as connection:
            table = TABLES["modes"]
            last = select(table.c.data).where(table.c.mode_id == mode.id)
            last = last.order_by(table.c.sequence.desc()).limit(1)
            data = mode.to_dict()
            if connection.execute(last).scalar() != data:
                self._add("modes", round, {**schema.mode_columns(mode), "data": data})

    def _add(self, kind: str, round: int, row: Row) -> int:
        self._writable()
        row = {**row, "round": operator.index(round)}
        with self.transaction() as connection:
            step = update(HEADER).values(sequence=HEADER.c.sequence + 1)
            sequence = connection.execute(step.returning(HEADER.c.sequence)).scalar_one()
            checked = schema.checked_row(kind, {**row, "sequence": sequence})
            connection.execute(insert(TABLES[kind]).values(**checked))
        return int(sequence)

    # Reading -----------------------------------------------------------------------------------

    def records(
        self,
        kind: str,
        *,
        round: int | None = None,
        mode_id: str | None = None,
        after: int = 0,
        sequences: Collection[int] | None = None,
    ) -> list[Row]:
        """Records of a kind (a key of ``schema.TABLES``) in order, as plain dicts.

        Only those of a round or a mode where given, with a sequence number above ``after``, and
        with one of ``sequences`` where given. Raises :class:`RunError` for an unknown kind, or one
        that has no modes.
        """
        table = schema.table_of(kind)
        query = select(table).where(table.c.sequence > after).order_by(table.c.sequence)
        if round is not None:
            query = query.where(table.c.round == round)
        if mode_id is not None:
            if "mode_id" not in table.c:
                raise RunError(f"records of {kind} belong to no mode.")
            query = query.where(table.c.mode_id == mode_id)
        wanted = [None] if sequences is None else list(_parts(sorted(sequences)))
        with self._begin(write=False) as connection:
            return [
                dict(row._mapping)
                for part in wanted
                for row in connection.execute(
                    query if part is None else query.where(table.c.sequence.in_(part))
                )
            ]

    def counts(self) -> dict[str, int]:
        """How many records of each kind there are."""
        with self._begin(write=False) as connection:
            return {
                kind: int(connection.execute(select(func.count()).select_from(table)).scalar_one())
                for kind, table in TABLES.items()
            }

    def modes(self, *, family: str | None = None, at_round: int | None = None) -> list[Mode]:
        """Every mode as it stands now, or stood at the end of a round, by (round created, id).

        Only those of a family where one is given. Those that were merged into another are left out.
        """
        table = TABLES["modes"]
        last = select(func.max(table.c.sequence)).group_by(table.c.mode_id)
        if at_round is not None:
            last = last.where(table.c.round <= at_round)
        if family is not None:
            last = last.where(table.c.family == family)
        query = select(table.c.data).where(table.c.sequence.in_(last))
        with self._begin(write=False) as connection:
            found = [Mode.parse(data, "mode") for data in connection.execute(query).scalars()]
        merged = {gone for mode in found for gone in mode.merged}
        alive = [mode for mode in found if mode.id not in merged]
        return sorted(alive, key=lambda mode: (mode.round_created, mode.id))

    def last_measurement(self, mode_id: str) -> Measurement | None:
        """The mode's last measurement, to pair the next one with; None before the first."""
        rows = self.records("progress", mode_id=mode_id)
        return Measurement.from_dict(rows[-1]["data"]) if rows else None

    def program(self, hash: str) -> GenerationProgram | TrainingProgram:
        """The program with this content hash. Raises :class:`RunError` where there is none."""
        table = TABLES["programs"]
        query = select(table.c.program, table.c.data).where(table.c.hash == hash).limit(1)
        with self._begin(write=False) as connection:
            row = connection.execute(query).first()
        if row is None:
            raise RunError(f"the memory {self.path} has no program {hash!r}.")
        parsed = PROGRAMS[row.program].parse(row.data, f"program {hash}")
        assert isinstance(parsed, (GenerationProgram, TrainingProgram))
        return parsed

    def scene(self, scene_id: str) -> Scene:
        """The scene with this id. Raises :class:`RunError` where there is none."""
        table = TABLES["scenes"]
        query = select(table.c.data).where(table.c.scene_id == scene_id)
        with self._begin(write=False) as connection:
            data = connection.execute(query).scalar()
        if data is None:
            raise RunError(f"the memory {self.path} has no scene {scene_id!r}.")
        return parse_scene(data, f"scene {scene_id[:12]}")

    # Going back ---------------------------------------------------------------------------------

    def mark(self) -> int:
        """The last sequence number: a checkpoint keeps it, and :meth:`rewind` returns to it."""
        with self._begin(write=False) as connection:
            return int(connection.execute(select(HEADER.c.sequence)).scalar_one())

    def rewind(self, mark: int) -> None:
        """Forget everything after ``mark``; what is written next is numbered as if it were new.

        A resumed run goes back to its last checkpoint's mark and ends with the same bytes as one
        that was never killed. Raises :class:`RunError` where the memory does not reach that far.
        """
        self._writable()
        with self.transaction() as connection:
            here = self.mark()
            if not 0 <= mark <= here:
                raise RunError(
                    f"the memory {self.path} ends at {here} and cannot go back to {mark}.",
                    remedy="use the memory.sqlite that belongs to this checkpoint",
                )
            for table in TABLES.values():
                connection.execute(table.delete().where(table.c.sequence > mark))
            connection.execute(update(HEADER).values(sequence=mark))

    # Copies -------------------------------------------------------------------------------------

    def snapshot(self, path: Path | str) -> None:
        """Copy the memory as it stands to a file, in one piece, also while others write to it.
        One in a database becomes a file, too.

        The copy is one file without side files, so it can be read from read-only media. Equal
        memories give equal bytes. Raises :class:`RunError` naming the file.
        """
        self._outside("copied")
        if isinstance(self.path, Path):
            transfer.snapshot(self.engine, self.path, Path(path))
            return
        transfer.snapshot_database(self.engine, self.path, Path(path))

    def export_jsonl(self, path: Path | str) -> int:
        """Write every record as JSON Lines, in one piece; how many there were."""
        self._outside("exported")
        return transfer.export_jsonl(self.engine, self.path, Path(path))

    def import_jsonl(self, path: Path | str) -> int:
        """Read an export into this memory, which must be empty; how many records there were.

        All or nothing. Raises :class:`RunError` naming the line that is not a record.
        """
        self._writable()
        self._outside("filled from an export")
        return transfer.import_jsonl(self.engine, self.path, Path(path))

    def _writable(self) -> None:
        if self.read_only:
            raise RunError(
                f"the memory {self.path} is open read-only.",
                remedy="open it with MemoryStore(path), or work on a copy",
            )

    def _outside(self, what: str) -> None:
        if self._connection is not None:
            raise RunError(f"the memory {self.path} cannot be {what} inside a transaction.")
