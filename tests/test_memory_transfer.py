"""Copies of a memory: snapshots, export and import are exact, whole, or refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from memory_samples import everything, fill

from coda_envs.errors import CodaError, RunError
from coda_trainer.memory.store import MemoryStore


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
