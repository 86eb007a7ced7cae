"""The memory store: what is committed stays, and what is no memory is refused."""

from __future__ import annotations

import contextlib
import os
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from memory_samples import diagnosis, everything, fill, omega, phi

from coda_envs.errors import RunError
from coda_envs.family import get_family
from coda_trainer.memory import store
from coda_trainer.memory.modes import mode_of
from coda_trainer.memory.progress import Measurement, ProgressEstimate
from coda_trainer.memory.store import MemoryStore

# Writing and reading ---------------------------------------------------------------------------


def test_what_was_written_is_read_back_in_order(tmp_path: Path) -> None:
    with MemoryStore(f"sqlite:///{tmp_path}/memory.sqlite") as memory:
        mode = fill(memory)
    with MemoryStore(tmp_path / "memory.sqlite") as memory:
        assert memory.modes() == [mode]
        assert memory.program(mode.omega_hash) == omega()
        assert memory.program(mode.phi_hash) == phi()
        assert memory.last_measurement(mode.id) == Measurement(
            (True, True, False, False), (True,), ProgressEstimate(0.2, -0.1, 0.5, 0.8)
        )
        (trace,) = memory.records("traces")
        assert trace["data"] == {"edits": [], "seconds": None, "n": 3}
        assert memory.scene(trace["scene_id"]).id == trace["scene_id"]
        assert [r["data"]["abstain"] for r in memory.records("diagnoses")] == [False, False, True]
        (control,) = memory.records("controls", mode_id=mode.id)
        assert control["diagnoses"] == [r["sequence"] for r in memory.records("diagnoses")][:2]
        numbers = [r["sequence"] for rows in everything(memory).values() for r in rows]
        assert sorted(numbers) == list(range(1, memory.mark() + 1))
        assert [r["round"] for r in memory.records("progress", round=2)] == [2]
        assert memory.records("progress", after=memory.mark()) == []


def test_a_mode_is_kept_as_it_was_in_every_round(tmp_path: Path) -> None:
    with MemoryStore(tmp_path / "m.sqlite") as memory:
        mode = fill(memory)
        before = memory.mark()
        memory.save_mode(3, mode)
        assert memory.mark() == before, "an unchanged mode is not written again"
        assert memory.modes(at_round=0) == []
        assert memory.modes(at_round=1)[0].history == mode.history[:-1]
        other = mode_of(diagnosis(), 3, interval=(0.026, 0.031))
        memory.save_mode(3, other)
        assert len(memory.modes()) == 2
        memory.save_mode(4, mode.replaced(merged=(other.id,)))
        assert [m.id for m in memory.modes()] == [mode.id]


def test_modes_are_told_apart_by_family(tmp_path: Path) -> None:
    with MemoryStore(tmp_path / "m.sqlite") as memory:
        mode = fill(memory)
        other = mode_of(diagnosis(family="stack-insert"), 2, interval=(0.027, 0.031))
        memory.save_mode(2, other)
        memory.save_mode(3, other.replaced(magnitude=0.5))
        assert memory.modes() == [mode, other.replaced(magnitude=0.5)]
        assert memory.modes(family="pick-place") == [mode]
        assert memory.modes(family="stack-insert", at_round=2) == [other]
        assert memory.modes(family="articulated") == []


def test_programs_are_versioned_within_a_mode(tmp_path: Path) -> None:
    with MemoryStore(tmp_path / "m.sqlite") as memory:
        versions = [memory.add_program(r, "a", omega(h)) for r, h in enumerate((0.031, 0.030))]
        assert versions == [1, 2]
        assert memory.add_program(2, "a", omega(0.031)) == 1
        assert memory.add_program(2, "a", phi()) == 1
        assert memory.add_program(2, "b", omega(0.030)) == 1
        with pytest.raises(RunError, match="no program 'feed'"):
            memory.program("feed")


def test_a_transaction_is_all_or_nothing(tmp_path: Path) -> None:
    with MemoryStore(tmp_path / "m.sqlite") as memory:
        memory.add_trace(0, "kept", "accepted", {})
        with contextlib.suppress(ZeroDivisionError), memory.transaction():
            memory.add_trace(0, "lost", "accepted", {})
            assert len(memory.records("traces")) == 2
            raise ZeroDivisionError
        with memory.transaction():
            memory.add_trace(0, "second", "accepted", {})
            memory.add_trace(0, "third", "accepted", {})
        rows = memory.records("traces")
        assert [(r["sequence"], r["scene_id"]) for r in rows] == [
            (1, "kept"),
            (2, "second"),
            (3, "third"),
        ]


def test_rewinding_and_going_on_gives_the_same_bytes(tmp_path: Path) -> None:
    with MemoryStore(tmp_path / "a.sqlite") as memory:
        fill(memory)
        memory.snapshot(tmp_path / "a.snapshot")
    with MemoryStore(tmp_path / "b.sqlite") as memory:
        memory.add_scene(0, get_family("pick-place").sample(np.random.default_rng(0)))
        mark = memory.mark()
        for i in range(50):
            memory.add_trace(0, f"killed{i}", "rejected", {"why": "x" * 500})
        memory.rewind(mark)
        assert memory.counts()["traces"] == 0
        memory.rewind(0)
        fill(memory)
        memory.snapshot(tmp_path / "b.snapshot")
        with pytest.raises(RunError, match="cannot go back to 99"):
            memory.rewind(99)
    assert (tmp_path / "a.snapshot").read_bytes() == (tmp_path / "b.snapshot").read_bytes()


def test_wrong_entries_are_refused_and_leave_nothing(tmp_path: Path) -> None:
    with MemoryStore(tmp_path / "m.sqlite") as memory:
        for wrong in (
            lambda: memory.add_control(0, "m", "proven", [], {}),
            lambda: memory.add_control(0, "m", "confirmed", [7], {}),
            lambda: memory.add_trace(-1, "s", "accepted", {}),
            lambda: memory.add_trace(0, "s\ud800", "accepted", {}),
            lambda: memory.records("moods"),
            lambda: memory.records("traces", mode_id="m"),
            lambda: memory.scene("none"),
        ):
            with pytest.raises(RunError):
                wrong()
        assert memory.mark() == 0
        assert set(memory.counts().values()) == {0}


# Opening ---------------------------------------------------------------------------------------


def make(path: Path, *statements: str) -> None:
    connection = sqlite3.connect(path)
    for statement in statements:
        connection.execute(statement)
    connection.commit()
    connection.close()


@pytest.mark.parametrize("content", [b"hello", b"\x00" * 5000, b"{}" * 5000])
def test_a_file_that_is_no_database_is_refused_and_left_alone(
    tmp_path: Path, content: bytes
) -> None:
    path = tmp_path / "notes.txt"
    path.write_bytes(content)
    for open_ in (MemoryStore, MemoryStore.open_read_only):
        with pytest.raises(RunError, match=r"notes\.txt is not a memory"):
            open_(path)
    assert path.read_bytes() == content
    assert [p.name for p in tmp_path.iterdir()] == ["notes.txt"]


def test_another_program_s_database_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    make(path, "CREATE TABLE bookmarks (url TEXT)")
    content = path.read_bytes()
    for open_ in (MemoryStore, MemoryStore.open_read_only):
        with pytest.raises(RunError, match=r"other\.db is an SQLite file, but not a memory"):
            open_(path)
    assert path.read_bytes() == content


@pytest.mark.parametrize(
    ("statement", "words"),
    [
        ("UPDATE coda_memory SET schema_version = 2", "newer version"),
        ("UPDATE coda_memory SET schema_version = 0", "not a whole memory"),
        ("DELETE FROM coda_memory", "not a whole memory"),
        ("DROP TABLE modes", r"missing \['modes'\]"),
    ],
)
def test_another_version_or_half_a_memory_is_refused(
    tmp_path: Path, statement: str, words: str
) -> None:
    path = tmp_path / "m.sqlite"
    MemoryStore(path).close()
    make(path, statement)
    with pytest.raises(RunError, match=words) as caught:
        MemoryStore(path)
    assert "m.sqlite" in str(caught.value)


def test_paths_that_cannot_be_a_memory(tmp_path: Path) -> None:
    for open_, path, words in (
        (MemoryStore.open_read_only, tmp_path / "none.sqlite", "there is no memory at"),
        (MemoryStore, tmp_path, "is a folder"),
        (MemoryStore, tmp_path / "no" / "m.sqlite", "does not exist"),
        (MemoryStore, "sqlite://", "sqlite:///path"),
        (MemoryStore, "mysql://me:canary-1@host/db", "sqlite:///path"),
    ):
        with pytest.raises(RunError, match=words) as caught:
            open_(path)
        assert "canary" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_memory_says_so(tmp_path: Path) -> None:
    path = tmp_path / "m.sqlite"
    with MemoryStore(path) as memory, memory.transaction():
        for i in range(200):
            memory.add_trace(0, f"s{i}", "accepted", {"text": "x" * 400})
    os.truncate(path, path.stat().st_size // 2)
    with pytest.raises(RunError, match=r"m\.sqlite.*snapshot"), MemoryStore(path) as memory:
        memory.records("traces")


def test_read_only_reads_and_writes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "odd name?#%.sqlite"
    with MemoryStore(path) as writer:
        fill(writer)
        with MemoryStore.open_read_only(path) as reader:
            assert everything(reader) == everything(writer)
            for wrong in (
                lambda: reader.add_trace(0, "s", "accepted", {}),
                lambda: reader.rewind(0),
                lambda: reader.import_jsonl(tmp_path / "x.jsonl"),
            ):
                with pytest.raises(RunError, match="open read-only"):
                    wrong()
            with reader.transaction():
                seen = reader.counts()
                writer.add_trace(3, "later", "accepted", {})
                assert reader.counts() == seen
            assert reader.counts() != seen


# Several processes, and kills ------------------------------------------------------------------

WRITER = """
import sys
from coda_trainer.memory.store import MemoryStore
with MemoryStore(sys.argv[1]) as memory:
    for i in range(int(sys.argv[3])):
        n = memory.add_trace(i, f"{sys.argv[2]}-{i}", "accepted", {"i": i, "text": "x" * 300})
        print(n, i, flush=True)
"""


def start(path: Path, name: str, rows: int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path), name, str(rows)],
        stdout=subprocess.PIPE,
        text=True,
    )


def test_a_killed_writer_loses_nothing_that_it_committed(tmp_path: Path) -> None:
    path = tmp_path / "m.sqlite"
    committed: dict[int, str] = {}
    for kill, after in enumerate((1, 60)):
        writer = start(path, f"w{kill}", 100_000)
        assert writer.stdout is not None
        for _ in range(after):
            writer.stdout.readline()
        writer.send_signal(signal.SIGKILL)
        lines = writer.stdout.read().splitlines()
        writer.stdout.close()
        assert writer.wait() == -signal.SIGKILL
        with MemoryStore.open_read_only(path) as memory:
            rows = {r["sequence"]: r for r in memory.records("traces")}
            with memory.transaction() as connection:
                assert connection.exec_driver_sql("PRAGMA integrity_check").scalar() == "ok"
        mine = [n for n, r in rows.items() if r["scene_id"].startswith(f"w{kill}-")]
        # Every line that was printed is there, and at most the one that was not printed yet.
        assert after + len([x for x in lines if x.count(" ") == 1]) - 1 <= len(mine)
        assert all(rows[n]["data"]["text"] == "x" * 300 for n in mine)
        assert [rows[n]["data"]["i"] for n in mine] == list(range(len(mine)))
        assert sorted(rows) == list(range(1, len(rows) + 1))
        assert all(rows[n]["scene_id"] == scene for n, scene in committed.items())
        committed = {n: r["scene_id"] for n, r in rows.items()}


KILLS = """
import os, random, signal, sys, time
from coda_trainer.memory.store import MemoryStore
path, kills = sys.argv[1], int(sys.argv[2])
MemoryStore(path).close()
rng = random.Random(0)
for kill in range(kills):
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        with MemoryStore(path) as memory:
            os.write(writing, b"open ")
            for i in range(10**6):
                with memory.transaction():
                    first = memory.add_trace(kill, f"{kill}-{i}", "accepted", {"half": 1})
                    memory.add_trace(kill, f"{kill}-{i}", "accepted", {"half": 2})
                os.write(writing, b"%d " % first)
    os.close(writing)
    os.read(reading, 5)
    time.sleep(rng.random() * 0.04)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    told = b""
    while piece := os.read(reading, 65536):
        told += piece
    os.close(reading)
    # The last number may be half a number.
    print(kill, *told.decode().split()[:-1], flush=True)
"""


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_thousand_kills_lose_nothing_and_leave_nothing_half_written(tmp_path: Path) -> None:
    path = tmp_path / "m.sqlite"
    words = [sys.executable, "-c", KILLS, str(path), "1000"]
    done = subprocess.run(words, capture_output=True, text=True, check=True, timeout=550)
    told = [line.split() for line in done.stdout.splitlines()]
    assert len(told) == 1000
    with MemoryStore.open_read_only(path) as memory:
        rows = memory.records("traces")
        with memory.transaction() as connection:
            assert connection.exec_driver_sql("PRAGMA integrity_check").scalar() == "ok"
    by_sequence = {row["sequence"]: row for row in rows}
    assert sorted(by_sequence) == list(range(1, len(rows) + 1))
    # Pairs are whole, and in order.
    for first, second in zip(rows[::2], rows[1::2], strict=True):
        assert first["scene_id"] == second["scene_id"]
        assert (first["data"]["half"], second["data"]["half"]) == (1, 2)
    # What a writer was told is committed is there.
    committed = 0
    for kill, *numbers in told:
        for number in numbers:
            assert by_sequence[int(number)]["scene_id"].startswith(f"{kill}-")
            committed += 1
    # Enough of them to be killed between and in the middle of.
    assert committed > 500


def test_records_can_be_asked_for_by_number(tmp_path: Path) -> None:
    with MemoryStore(tmp_path / "m.sqlite") as memory:
        for i in range(30):
            memory.add_trace(i % 3, f"s{i}", "accepted", {"i": i})
        found = memory.records("traces", sequences={20, 3, 999}, round=2)
        assert [row["sequence"] for row in found] == [3]
        assert [r["sequence"] for r in memory.records("traces", sequences=(20, 3))] == [3, 20]
        assert memory.records("traces", sequences=()) == []


def test_more_numbers_than_one_query_may_hold(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "_PART", 4)
    with MemoryStore(tmp_path / "m.sqlite") as memory:
        for i in range(30):
            memory.add_trace(0, f"s{i}", "accepted", {"i": i})
        found = memory.records("traces", sequences=range(1, 31))
        assert [row["sequence"] for row in found] == list(range(1, 31))


def test_writers_take_turns(tmp_path: Path) -> None:
    path = tmp_path / "m.sqlite"
    writers = [start(path, f"w{i}", 40) for i in range(2)]
    for writer in writers:
        out, _ = writer.communicate(timeout=60)
        assert writer.returncode == 0
        assert len(out.splitlines()) == 40
    with MemoryStore.open_read_only(path) as memory:
        rows = memory.records("traces")
    assert [r["sequence"] for r in rows] == list(range(1, 81))
    for i in range(2):
        mine = [r["data"]["i"] for r in rows if r["scene_id"].startswith(f"w{i}-")]
        assert mine == list(range(40))


FULL = """
import resource, sys
from coda_envs.errors import RunError
from coda_trainer.memory.store import MemoryStore
with MemoryStore(sys.argv[1]) as memory:
    resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, 400_000))
    done = 0
    try:
        while True:
            memory.add_trace(0, f"s{done}", "accepted", {"text": "x" * 5000})
            done += 1
    except RunError as error:
        print(done, error)
"""


def test_a_full_disk_is_an_error_and_harms_nothing(tmp_path: Path) -> None:
    path = tmp_path / "m.sqlite"
    done = subprocess.run(
        [sys.executable, "-c", FULL, str(path)], capture_output=True, text=True, check=True
    )
    count, message = done.stdout.split(" ", 1)
    assert "m.sqlite" in message
    assert "disk" in message
    with MemoryStore(path) as memory:
        assert len(memory.records("traces")) == int(count) > 5
        memory.add_trace(0, "after", "accepted", {})


def test_a_memory_does_not_cross_a_fork(tmp_path: Path) -> None:
    code = """
import os, sys
from coda_envs.errors import RunError
from coda_trainer.memory.store import MemoryStore
memory = MemoryStore(sys.argv[1])
child = os.fork()
if child == 0:
    try:
        memory.mark()
    except RunError as error:
        os._exit(7 if "another process" in str(error) else 1)
    os._exit(0)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    path = str(tmp_path / "m.sqlite")
    assert subprocess.run([sys.executable, "-c", code, path]).returncode == 7
