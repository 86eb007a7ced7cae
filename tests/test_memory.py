"""The memory store: what is committed stays, copies are exact, and what is no memory is refused."""

from __future__ import annotations

import contextlib
import json
import math
import os
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rich.console import Console

from coda_envs.errors import CodaError, RunError
from coda_envs.family import get_family
from coda_envs.programs.diagnosis import Diagnosis
from coda_envs.programs.generation import GenerationProgram, SampleEdit
from coda_envs.programs.potential import PotentialProgram
from coda_envs.programs.training import TrainingProgram
from coda_trainer.memory import lifecycle, view
from coda_trainer.memory.modes import Mode, Probe, mode_of
from coda_trainer.memory.progress import Measurement, ProgressEstimate
from coda_trainer.memory.schema import Row
from coda_trainer.memory.store import MemoryStore

POTENTIAL = PotentialProgram.parse(
    {
        "family": "pick-place",
        "stages": [
            {
                "name": "grasp",
                "gate": {"predicate": "grasped", "roles": ["target"]},
                "progress": {"term": "grasped", "roles": ["target"]},
            }
        ],
    }
)


def omega(high: float = 0.031) -> GenerationProgram:
    edit = SampleEdit(edit="sample", factor="attributes.target.size", low=0.027, high=high)
    return GenerationProgram(family="pick-place", roles=("target",), edits=(edit,))


def phi() -> TrainingProgram:
    return TrainingProgram(family="pick-place", subgoals=("grasp",), potential=POTENTIAL)


def diagnosis(scene_id: str = "s0", factor: str = "attributes.target.size") -> Diagnosis:
    return Diagnosis(
        diagnostician="trace (privileged)",
        family="pick-place",
        scene_id=scene_id,
        episode_seed=3,
        stage="grasp",
        failed_predicate="grasped",
        factor=factor,
        direction="high",
        role="target",
        confidence=0.7,
        sentence="The target is too wide [for the hand].",
    )


def selected_mode() -> Mode:
    mode = lifecycle.judge(mode_of(diagnosis(), 1, interval=(0.027, 0.031)), 1, "confirmed")
    return lifecycle.select(
        mode,
        1,
        omega_hash=omega().hash,
        phi_hash=phi().hash,
        probes=(Probe(scene_id="s0", seed=5),),
    )


def fill(memory: MemoryStore) -> Mode:
    """One record of each kind at least, as two rounds would leave them."""
    scene = get_family("pick-place").sample(np.random.default_rng(0))
    memory.add_scene(0, scene)
    memory.add_trace(0, scene.id, "accepted", {"edits": [], "seconds": math.nan, "n": np.int64(3)})
    tested = [memory.add_diagnosis(1, diagnosis(scene.id)) for _ in range(2)]
    memory.add_diagnosis(1, Diagnosis(**{**dict(diagnosis()), "abstain": True, "factor": ""}))
    mode = selected_mode()
    memory.save_mode(1, mode_of(diagnosis(), 1, interval=(0.027, 0.031)))
    memory.add_control(1, mode.id, "confirmed", tested, {"arms": {"T": 2, "C": 14}, "p": 0.97})
    memory.add_program(1, mode.id, omega())
    memory.add_program(1, mode.id, phi())
    memory.save_mode(1, mode)
    first = Measurement((True, False, False, False), (True,))
    memory.add_measurement(1, mode.id, first)
    mode = lifecycle.measure(mode, 1, first)
    memory.save_mode(1, mode)
    second = Measurement((True, True, False, False), (True,), ProgressEstimate(0.2, -0.1, 0.5, 0.8))
    memory.add_measurement(2, mode.id, second)
    mode = lifecycle.measure(mode, 2, second)
    memory.save_mode(2, mode)
    return mode


def everything(memory: MemoryStore) -> dict[str, list[Row]]:
    return {kind: memory.records(kind) for kind in memory.counts()}


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
        (MemoryStore, "postgresql://me:canary-1@host/db", "sqlite:///path"),
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


# Copies ----------------------------------------------------------------------------------------


def test_a_snapshot_is_one_whole_file(tmp_path: Path) -> None:
    target = tmp_path / "round_001.sqlite"
    with MemoryStore(tmp_path / "m.sqlite") as memory:
        memory.add_trace(0, "early", "accepted", {})
        memory.snapshot(target)
        fill(memory)
        memory.snapshot(target)
        kept = everything(memory)
        memory.add_trace(3, "late", "accepted", {})
        with memory.transaction(), pytest.raises(RunError, match="inside a transaction"):
            memory.snapshot(tmp_path / "x.sqlite")
        with pytest.raises(RunError, match="is the memory itself"):
            memory.snapshot(memory.path)
        with pytest.raises(RunError, match="cannot be used"):
            memory.snapshot(tmp_path / "no" / "x.sqlite")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["m.sqlite", target.name]
    with MemoryStore.open_read_only(target) as frozen:
        assert everything(frozen) == kept
    assert sorted(p.name for p in tmp_path.iterdir()) == ["m.sqlite", target.name]


def test_export_and_import_are_exact(tmp_path: Path) -> None:
    with MemoryStore(tmp_path / "a.sqlite") as memory:
        fill(memory)
        count = memory.export_jsonl(tmp_path / "a.jsonl")
        memory.snapshot(tmp_path / "a.snapshot")
        assert count == memory.mark()
    for line in (tmp_path / "a.jsonl").read_text().splitlines():
        json.loads(line, parse_constant=pytest.fail)
    with MemoryStore(tmp_path / "b.sqlite") as memory:
        assert memory.import_jsonl(tmp_path / "a.jsonl") == count
        memory.export_jsonl(tmp_path / "b.jsonl")
        memory.snapshot(tmp_path / "b.snapshot")
        with pytest.raises(RunError, match="already holds records"):
            memory.import_jsonl(tmp_path / "a.jsonl")
    assert (tmp_path / "a.jsonl").read_bytes() == (tmp_path / "b.jsonl").read_bytes()
    assert (tmp_path / "a.snapshot").read_bytes() == (tmp_path / "b.snapshot").read_bytes()


leaf = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(max_size=5)
)
plain = st.recursive(
    leaf,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=8,
)


@settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.lists(st.dictionaries(st.text(max_size=4), plain, max_size=3), max_size=3))
def test_any_trace_survives_export_and_import(
    tmp_path: Path, data: list[dict[str, object]]
) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.sqlite").unlink(missing_ok=True)
    with MemoryStore(tmp_path / "a.sqlite") as a, MemoryStore(tmp_path / "b.sqlite") as b:
        with a.transaction():
            for entry in data:
                a.add_trace(0, "s", "accepted", entry)
        a.export_jsonl(tmp_path / "a.jsonl")
        b.import_jsonl(tmp_path / "a.jsonl")
        assert everything(b) == everything(a)


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder = tmp_path_factory.mktemp("export")
    with MemoryStore(folder / "m.sqlite") as memory:
        fill(memory)
        memory.export_jsonl(folder / "m.jsonl")
    return (folder / "m.jsonl").read_text().splitlines()


def refused(tmp_path: Path, lines: list[str]) -> RunError:
    """The error of importing these lines; nothing may be left of them."""
    (tmp_path / "bad.jsonl").write_text("\n".join(lines) + "\n")
    with MemoryStore(tmp_path / "m.sqlite") as memory:
        with pytest.raises(RunError) as caught:
            memory.import_jsonl(tmp_path / "bad.jsonl")
        assert memory.mark() == 0
        assert set(memory.counts().values()) == {0}
    return caught.value


def changed(line: str, **changes: object) -> str:
    return json.dumps({**json.loads(line), **changes})


TRACE = (
    '{"kind": "traces", "sequence": 2, "round": %s, "scene_id": "%s", "outcome": "a", "data": {}}'
)


def test_another_record_in_a_line_s_place_is_imported(tmp_path: Path, exported: list[str]) -> None:
    lines = [*exported[:2], TRACE % (0, "s"), *exported[3:]]
    (tmp_path / "good.jsonl").write_text("\n".join(lines))
    with MemoryStore(tmp_path / "m.sqlite") as memory:
        assert memory.import_jsonl(tmp_path / "good.jsonl") == len(lines) - 1


@pytest.mark.parametrize(
    "bad",
    [
        "",
        "no json",
        "[]",
        '{"kind": "traces"}',
        '{"kind": "moods", "sequence": 2}',
        '{"kind": ["traces"], "sequence": 2}',
        "[" * 100_000,
        TRACE % ("NaN", "s"),
        TRACE % ("1e999", "s"),
        TRACE % ('0, "round": 0', "s"),
        TRACE % ("9223372036854775808", "s"),
        TRACE % ("0", "\\ud800"),
    ],
)
def test_a_malformed_line_is_named_and_nothing_is_imported(
    tmp_path: Path, exported: list[str], bad: str
) -> None:
    error = refused(tmp_path, [*exported[:2], bad, *exported[3:]])
    assert "bad.jsonl, line 3" in str(error)


@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        ("traces", {"round": True}),
        ("traces", {"data": []}),
        ("scenes", {"scene_id": "0" * 64}),
        ("diagnoses", {"factor": "attributes.target.mass"}),
        ("diagnoses", {"data": {}}),
        ("controls", {"verdict": "proven"}),
        ("controls", {"diagnoses": [1]}),
        ("controls", {"diagnoses": ["3"]}),
        ("progress", {"successes": 9}),
        ("progress", {"data": {"probes": []}}),
        ("modes", {"state": "removed"}),
        ("modes", {"data": {"id": "x"}}),
        ("programs", {"hash": "0" * 16}),
        ("programs", {"program": "reward"}),
        ("programs", {"data": {"family": "pick-place"}}),
        ("modes", {"sequence": 1}),
    ],
)
def test_a_record_that_contradicts_itself_is_named(
    tmp_path: Path, exported: list[str], kind: str, changes: dict[str, object]
) -> None:
    place = next(i for i, line in enumerate(exported) if json.loads(line)["kind"] == kind)
    lines = [*exported]
    lines[place] = changed(lines[place], **changes)
    assert f"bad.jsonl, line {place + 1}:" in str(refused(tmp_path, lines))


def test_a_cut_or_headless_export_is_refused(tmp_path: Path, exported: list[str]) -> None:
    assert "cut short" in str(refused(tmp_path, exported[:-1]))
    assert "line 1" in str(refused(tmp_path, exported[1:]))
    assert "line 1" in str(refused(tmp_path, []))
    newer = [changed(exported[0], schema_version=2), *exported[1:]]
    assert "schema version 2" in str(refused(tmp_path, newer))
    for sequence in (3, "9", None, 2**63, True):
        lines = [changed(exported[0], sequence=sequence), *exported[1:]]
        assert "its header says" in str(refused(tmp_path, lines))
    twice = [exported[0], exported[1], changed(exported[1], sequence=2)]
    assert "line 3: repeats a record" in str(refused(tmp_path, twice))
    with MemoryStore(tmp_path / "m.sqlite") as memory, pytest.raises(RunError, match="cannot be"):
        memory.import_jsonl(tmp_path / "none.jsonl")


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(place=st.integers(0, 12), junk=st.one_of(plain, st.binary(max_size=20)))
def test_junk_in_an_export_never_gets_past_our_errors(
    tmp_path: Path, exported: list[str], place: int, junk: object
) -> None:
    lines = [line.encode() for line in exported]
    lines[place] = junk if isinstance(junk, bytes) else json.dumps(junk).encode()
    (tmp_path / "junk.jsonl").write_bytes(b"\n".join(lines))
    with MemoryStore(tmp_path / "m.sqlite") as memory:
        with pytest.raises(CodaError, match=r"junk\.jsonl"):
            memory.import_jsonl(tmp_path / "junk.jsonl")
        assert memory.mark() == 0


# What `coda memory` prints ---------------------------------------------------------------------


def printed(renderable: object) -> str:
    console = Console(width=200, record=True, file=open(os.devnull, "w"))  # noqa: SIM115
    console.print(renderable)
    console.file.close()
    return console.export_text()


def test_show_lists_the_modes_with_their_numbers(tmp_path: Path) -> None:
    with MemoryStore(tmp_path / "memory.sqlite") as memory:
        mode = fill(memory)
        unmeasured = mode_of(diagnosis(factor="attributes.target.mass"), 2, interval=(0.2, 0.4))
        memory.save_mode(2, unmeasured)
    data, table = view.show(tmp_path)
    assert view.show(tmp_path / "memory.sqlite")[0] == data
    json.dumps(data, allow_nan=False)
    first, second = data["modes"]
    assert first["id"] == mode.id
    assert first["state"] == "retained"
    assert first["measured"]["successes"] == 2
    assert first["measured"]["interval"] == pytest.approx([0.150, 0.850], abs=1e-3)
    assert first["measured"]["progress"]["p_material"] == 0.8
    assert first["control"]["verdict"] == "confirmed"
    assert first["control"]["result"]["arms"] == {"T": 2, "C": 14}
    assert first["omega"] == {"hash": omega().hash, "version": 1}
    assert second["measured"] is second["control"] is second["omega"] is None
    assert data["rounds"][1:] == [
        {"round": 1, "selected": 1, "retained": 0, "removed": 0, "returned": 0},
        {"round": 2, "selected": 0, "retained": 1, "removed": 0, "returned": 0},
    ]
    text = printed(table)
    for words in (
        mode.id[:8],
        "attributes.target.size high [0.027, 0.031]",
        "2/4",
        "0.50 [0.15, 0.85]",
        "+0.20 [-0.10, +0.50]",
        "not measured",
        "v1",
    ):
        assert words in text


def test_rounds_count_removals_and_returns() -> None:
    mode = lifecycle.judge(mode_of(diagnosis(), 0, interval=(0.0, 1.0)), 1, "refuted")
    mode = lifecycle.measure(mode, 2, Measurement((True,) * 64, ()))
    mode = lifecycle.measure(mode, 3, Measurement((False,) * 64, ()))
    assert [(c["removed"], c["returned"]) for c in view.round_counts([mode])] == [
        (0, 0),
        (1, 0),
        (0, 0),
        (0, 1),
    ]
    assert view.round_counts([]) == []


def test_show_mode_tells_its_whole_story(tmp_path: Path) -> None:
    with MemoryStore(tmp_path / "memory.sqlite") as memory:
        mode = fill(memory)
    data, table = view.show_mode(tmp_path, mode.id[:6])
    json.dumps(data, allow_nan=False)
    assert len(data["diagnoses"]) == 2
    assert [m["round"] for m in data["measurements"]] == [1, 2]
    assert {p["program"] for p in data["programs"]} == {"generation", "training"}
    text = printed(table)
    for words in ("too wide [for the hand]", "arms.C", "14", "+0.20 [-0.10, +0.50]", "retained"):
        assert words in text
    for wrong in ("zzz", ""):
        with pytest.raises(RunError, match=mode.id):
            view.show_mode(tmp_path, wrong)


def test_commands_name_what_is_no_memory(tmp_path: Path) -> None:
    for wrong in (tmp_path, tmp_path / "none"):
        with pytest.raises(RunError, match=r"memory\.sqlite"):
            view.show(wrong)
    MemoryStore(tmp_path / "memory.sqlite").close()
    assert view.show(tmp_path)[0]["modes"] == []
    with pytest.raises(RunError, match="none: it has no modes yet"):
        view.show_mode(tmp_path, "abc")


def test_export_from_a_run_folder(tmp_path: Path) -> None:
    with MemoryStore(tmp_path / "memory.sqlite") as memory:
        fill(memory)
        records = memory.mark()
    data = view.export(tmp_path, tmp_path / "out.jsonl")
    assert data["records"] == records
    assert len((tmp_path / "out.jsonl").read_text().splitlines()) == records + 1
    with pytest.raises(CodaError, match="not a folder"):
        view.export(tmp_path, tmp_path / "no" / "out.jsonl")
