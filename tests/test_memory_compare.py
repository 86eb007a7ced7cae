"""``coda memory diff | import``, and `coda program show` of a mode."""

from __future__ import annotations

from pathlib import Path

import pytest
from command_line import Coda, strict
from memory_samples import diagnosis, everything, fill, omega, phi

from coda_trainer.memory.compare import compare
from coda_trainer.memory.modes import mode_of
from coda_trainer.memory.store import MemoryStore

SIZE, MASS = "attributes.target.size", "attributes.target.mass"


@pytest.fixture
def two(tmp_path: Path) -> tuple[Path, Path]:
    """Two memories with one difficulty in common, found at other values."""
    paths = tmp_path / "a.sqlite", tmp_path / "b.sqlite"
    with MemoryStore(paths[0]) as memory:
        memory.save_mode(0, mode_of(diagnosis(factor=SIZE), 0, interval=(0.02, 0.03)))
        memory.save_mode(0, mode_of(diagnosis(factor=SIZE), 0, interval=(0.04, 0.05)))
    with MemoryStore(paths[1]) as memory:
        memory.save_mode(0, mode_of(diagnosis(factor=SIZE), 0, interval=(0.021, 0.03)))
        memory.save_mode(0, mode_of(diagnosis(factor=MASS), 0, interval=(0.2, 0.4)))
    return paths


def test_difficulties_of_equal_signature_and_overlap_are_paired(two: tuple[Path, Path]) -> None:
    data = compare(*two)
    (both,) = data["both"]
    assert both["overlap"] == pytest.approx(0.9)
    assert [m["label"] for m in data["only_first"]] == [f"{SIZE} high [0.04, 0.05]"]
    assert [m["label"] for m in data["only_second"]] == [f"{MASS} high [0.2, 0.4]"]
    turned = compare(*reversed(two))
    assert turned["only_first"] == data["only_second"]
    assert len(compare(two[0], two[0])["both"]) == 2


def test_diff_and_import_on_the_command_line(coda: Coda, tmp_path: Path) -> None:
    with MemoryStore(tmp_path / "a.sqlite") as memory:
        mode = fill(memory)
        records = everything(memory)
    assert coda("memory", "export", "a.sqlite", "-o", "a.jsonl").code == 0
    assert coda("memory", "import", "a.jsonl", "-o", "b.sqlite").code == 0
    with MemoryStore.open_read_only(tmp_path / "b.sqlite") as memory:
        assert everything(memory) == records
    told = strict(coda("memory", "diff", "a.sqlite", "b.sqlite", "--json").out)
    assert [m["id"] for m in told["both"]] == [mode.id]
    assert told["only_first"] == told["only_second"] == []
    again = coda("memory", "import", "a.jsonl", "-o", "b.sqlite")
    assert again.code == 5
    assert "exists" in again.err


def test_half_an_export_leaves_no_memory(coda: Coda, tmp_path: Path) -> None:
    with MemoryStore(tmp_path / "a.sqlite") as memory:
        fill(memory)
    coda("memory", "export", "a.sqlite", "-o", "a.jsonl")
    text = (tmp_path / "a.jsonl").read_text()
    (tmp_path / "half.jsonl").write_text(text[: len(text) // 2])
    before = sorted(p.name for p in tmp_path.iterdir())
    assert coda("memory", "import", "half.jsonl", "-o", "c.sqlite").code == 5
    assert sorted(p.name for p in tmp_path.iterdir()) == before


def test_the_programs_of_a_mode_are_shown(coda: Coda, tmp_path: Path) -> None:
    with MemoryStore(tmp_path / "a.sqlite") as memory:
        mode = fill(memory)
    told = strict(coda("program", "show", "a.sqlite", mode.id[:8], "--json").out)
    assert told[omega().hash] == omega().to_dict()
    assert set(told) <= {omega().hash, phi().hash}
    assert coda("program", "show", "a.sqlite", "ffff").code == 5
