"""What `coda memory` prints."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from memory_samples import diagnosis, fill, omega
from rich.console import Console

from coda_envs.errors import CodaError, RunError
from coda_trainer.memory import lifecycle, view
from coda_trainer.memory.modes import mode_of
from coda_trainer.memory.progress import Measurement
from coda_trainer.memory.store import MemoryStore


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


def test_modes_of_several_families_say_which(tmp_path: Path) -> None:
    with MemoryStore(tmp_path / "memory.sqlite") as memory:
        fill(memory)
        assert "family" not in printed(view.show(tmp_path)[1])
        memory.save_mode(2, mode_of(diagnosis(family="stack-insert"), 2, interval=(0.2, 0.4)))
    text = printed(view.show(tmp_path)[1])
    for word in ("family", "pick-place", "stack-insert"):
        assert word in text


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
