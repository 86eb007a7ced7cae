"""Memories in a PostgreSQL database: the same records, one schema each, and clear refusals."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from command_line import Coda, strict
from memory_samples import everything, fill
from postgres_server import PASSWORD, binaries, running
from sqlalchemy import create_engine, text
from tiny_run import quiet, tiny

from coda_envs.errors import RunError
from coda_trainer.memory import postgres
from coda_trainer.memory.making import new_memory
from coda_trainer.memory.store import MemoryStore
from coda_trainer.rounds.adopted_memory import check_adopted

NAMES = iter(range(10_000))


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    if binaries() is None:
        pytest.skip("PostgreSQL is not installed (Debian: apt-get install postgresql)")
    with running() as url:
        yield url


@pytest.fixture
def url(server: str) -> str:
    """A memory of one's own."""
    return f"{server}?memory=test_{next(NAMES)}"


def test_the_same_calls_leave_the_same_records_as_in_a_file(url: str, tmp_path: Path) -> None:
    with MemoryStore(url) as memory, MemoryStore(tmp_path / "m.sqlite") as other:
        assert fill(memory).id == fill(other).id
        assert everything(memory) == everything(other)
        assert memory.mark() == other.mark()
        assert memory.modes() == other.modes()
    with MemoryStore.open_read_only(url) as memory:
        with MemoryStore.open_read_only(tmp_path / "m.sqlite") as other:
            assert everything(memory) == everything(other)
        with pytest.raises(RunError, match="read-only"):
            memory.add_trace(1, "s", "accepted", {})


def half_a_transaction(memory: MemoryStore) -> None:
    with memory.transaction():
        memory.add_trace(1, "s", "accepted", {})
        memory.add_control(1, "0" * 12, "wrong", [], {})


def test_a_transaction_is_all_or_nothing(url: str) -> None:
    with MemoryStore(url) as memory:
        with pytest.raises(RunError, match="'wrong' is unknown"):
            half_a_transaction(memory)
        assert memory.mark() == 0
        memory.add_trace(1, "s", "accepted", {})
        memory.rewind(0)
        assert memory.records("traces") == []


def test_a_reader_sees_one_state_and_writers_take_turns(url: str) -> None:
    with MemoryStore(url) as one, MemoryStore(url) as two, MemoryStore.open_read_only(url) as seen:
        one.add_trace(1, "a", "accepted", {})
        with seen.transaction():
            before = seen.counts()
            two.add_trace(1, "b", "accepted", {})
            assert seen.counts() == before
        assert seen.counts() != before
        one.add_trace(1, "c", "accepted", {})
        assert [r["sequence"] for r in seen.records("traces")] == [1, 2, 3]


def test_memories_of_one_database_are_apart(server: str) -> None:
    with (
        MemoryStore(f"{server}?memory=left") as left,
        MemoryStore(f"{server}?memory=right") as right,
    ):
        fill(left)
        assert right.mark() == 0


def test_snapshots_are_files_and_exports_go_both_ways(url: str, tmp_path: Path) -> None:
    with MemoryStore(url) as memory, MemoryStore(tmp_path / "m.sqlite") as other:
        fill(memory)
        fill(other)
        memory.snapshot(tmp_path / "a.sqlite")
        other.snapshot(tmp_path / "b.sqlite")
        memory.export_jsonl(tmp_path / "a.jsonl")
        other.export_jsonl(tmp_path / "b.jsonl")
    assert (tmp_path / "a.jsonl").read_bytes() == (tmp_path / "b.jsonl").read_bytes()
    with (
        MemoryStore.open_read_only(tmp_path / "a.sqlite") as a,
        MemoryStore.open_read_only(tmp_path / "b.sqlite") as b,
    ):
        assert everything(a) == everything(b)
    assert not list(tmp_path.glob(".*"))


def test_from_the_command_line_to_another_run(
    coda: Coda, server: str, url: str, tmp_path: Path
) -> None:
    with MemoryStore(tmp_path / "m.sqlite") as memory:
        mode = fill(memory)
    assert coda("memory", "export", "m.sqlite", "-o", "m.jsonl").code == 0
    made = coda("memory", "import", "m.jsonl", "-o", url)
    assert made.code == 0, made.err
    shown = coda("memory", "show", url, "--json")
    assert [m["id"] for m in strict(shown.out)["modes"]] == [mode.id]
    compared = strict(coda("memory", "diff", "m.sqlite", url, "--json").out)
    assert [m["id"] for m in compared["both"]] == [mode.id]
    program = coda("program", "show", url, mode.id)
    assert program.code == 0, program.err
    again = coda("memory", "import", "m.jsonl", "-o", url)
    assert again.code == 5
    assert "exists" in again.err
    lifted = f"{server}?memory=lifted"
    words = ("memory", "lift", url, "--to", "put-inside", "-o")
    answers = [
        made,
        shown,
        again,
        coda("memory", "diff", "m.sqlite", url),
        coda("memory", "diff", "m.sqlite", url, "--json"),
        coda(*words, lifted),
        coda(*words, f"{server}?memory=lifted_too", "--json"),
    ]
    for answer in answers:
        assert PASSWORD not in answer.out + answer.err
    assert check_adopted(lifted, tiny(families=["put-inside"])) == {"put-inside": 1}


def test_an_import_that_fails_leaves_nothing(coda: Coda, url: str, tmp_path: Path) -> None:
    (tmp_path / "bad.jsonl").write_text('{"kind": "memory"}\n')
    assert coda("memory", "import", "bad.jsonl", "-o", url).code == 5
    assert not postgres.exists(postgres.place_of(url))
    with pytest.raises(ZeroDivisionError), new_memory(url):
        raise ZeroDivisionError
    assert not postgres.exists(postgres.place_of(url))


def test_what_is_no_memory_is_refused_and_left_alone(server: str, url: str) -> None:
    with pytest.raises(RunError, match="there is no memory at"):
        MemoryStore.open_read_only(url)
    assert not postgres.exists(postgres.place_of(url))
    place = postgres.place_of(f"{server}?memory=other")
    engine = create_engine(place.url)
    with engine.begin() as connection:
        connection.execute(text("CREATE SCHEMA coda_other"))
        connection.execute(text("CREATE TABLE coda_other.mine (id int)"))
    for open_it in (MemoryStore, MemoryStore.open_read_only):
        with pytest.raises(RunError, match="not a memory"):
            open_it(f"{server}?memory=other")
    with MemoryStore(url):
        pass
    schema = postgres.place_of(url).schema
    with engine.begin() as connection:
        connection.execute(text(f"UPDATE {schema}.coda_memory SET schema_version = 99"))
    engine.dispose()
    with pytest.raises(RunError, match="schema version 99"):
        MemoryStore(url)


def test_a_server_that_is_not_there_is_one_clear_error(coda: Coda) -> None:
    url = f"postgresql://me:{PASSWORD}@127.0.0.1:9/none"
    answer = coda("memory", "show", url)
    assert answer.code == 5
    assert "check that the server runs" in answer.err
    assert PASSWORD not in answer.err
    config = str(Path(__file__).parents[1] / "configs" / "demo.yaml")
    wrong = coda("train", "--config", config, "--memory", "mysql://a/b")
    assert wrong.code == 5
    assert "holds no memory" in wrong.err


def test_no_part_of_a_url_but_the_place_is_shown() -> None:
    place = postgres.place_of("postgresql://me:one@host/db?password=two&memory=mine&sslmode=x")
    assert place.shown == "postgresql://host/db?memory=mine"


def test_two_that_make_one_memory_do_not_remove_each_other_s(url: str, tmp_path: Path) -> None:
    for made in (url, tmp_path / "m.sqlite"):
        with new_memory(made) as memory:
            with pytest.raises(RunError, match="exists"), new_memory(made):
                pass
            fill(memory)
        with MemoryStore.open_read_only(made) as memory:
            assert memory.mark() > 0


@pytest.mark.parametrize(
    "rest", ["", "/", "/db?memory=A", "/db?memory=a-b", f"/db?memory={'a' * 60}"]
)
def test_urls_that_name_no_memory(rest: str) -> None:
    with pytest.raises(RunError, match="names no memory"):
        postgres.place_of(f"postgresql://me:secret@host{rest}")
    with pytest.raises(RunError) as caught:
        postgres.place_of(f"postgresql://me:secret@host{rest}")
    assert "secret" not in str(caught.value)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_run_is_given_a_memory_out_of_the_database(url: str, tmp_path: Path) -> None:
    from coda_trainer.rounds.loop import train

    train(tiny(), tmp_path / "first", reporter=quiet())
    with (
        MemoryStore.open_read_only(tmp_path / "first" / "memory.sqlite") as memory,
        new_memory(url) as target,
    ):
        memory.export_jsonl(tmp_path / "m.jsonl")
        target.import_jsonl(tmp_path / "m.jsonl")
    train(tiny(), tmp_path / "second", adopted=url, reporter=quiet())
    assert (tmp_path / "second" / "adopted.sqlite").is_file()
    assert PASSWORD not in (tmp_path / "second" / "manifest.json").read_text()
