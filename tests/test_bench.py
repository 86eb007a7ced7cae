"""``coda bench`` for real: killed and gone on with, a failure among the cells, shared runs.

The runs are of the weak test policy, which succeeds often and is trained in seconds.
"""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from bench_cases import RUN, write_preset
from command_line import process, strict

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def bench(words: list[str], cwd: Path, env: dict[str, str] | None = None) -> tuple[int, Any, str]:
    command = process(["bench", *words, "--json"], cwd, env)
    out, err = command.communicate(timeout=500)
    return command.returncode, strict(out), err


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    """A folder in which Table 4 was run: the bench killed in one of its runs, then started again;
    and its answer."""
    cwd = tmp_path_factory.mktemp("bench")
    write_preset(cwd / "mine.yaml")
    words = ["table4", "--preset", "mine.yaml"]
    command = process(["bench", *words], cwd)
    runs = cwd / "runs" / "bench"
    # When the first signal's run has left its fine-tuning behind.
    until = time.monotonic() + 400
    while not list(runs.glob("*-sparse-*/scenes/*/round_001.jsonl")):
        assert command.poll() is None, command.communicate()[1]
        assert time.monotonic() < until
        time.sleep(0.05)
    os.kill(command.pid, signal.SIGKILL)
    command.communicate()
    (plan,) = (cwd / "results").glob("*.json")
    before = json.loads(plan.read_text())
    assert (before["figures"], before["complete"]) == (None, False)
    code, answer, err = bench(words, cwd)
    assert code == 0, err
    # The fine-tuning was not done again, and the statement is the one from before the runs.
    (line,) = (line for line in err.splitlines() if line.startswith("sft-seed0"))
    assert line.endswith(": complete")
    assert answer["expected"] == before["expected"]
    return cwd, answer


def test_a_killed_bench_goes_on_and_ends_complete(done: tuple[Path, Any]) -> None:
    cwd, answer = done
    assert answer["complete"] is True
    assert {c["status"] for c in answer["cells"].values()} == {"complete"}
    assert strict((cwd / "results" / "table4-mine.json").read_text()) == answer
    for name in ("commit", "machine", "seeds", "preset", "configurations"):
        assert answer[name]
    cell = answer["cells"]["text2potential-seed0"]
    assert cell["updates"] == [0, 10 + 2 * 10]
    assert cell["seconds"] > 0
    assert set(cell["suites"]) == {"seed", "wide", "ood-dev", "ood"}


def test_its_figures_are_those_of_the_run_folders(done: tuple[Path, Any]) -> None:
    cwd, answer = done
    for name, cell in answer["cells"].items():
        run = cwd / "runs" / "bench" / cell["folder"]
        suites = {s["suite"]: s for s in strict((run / "results.json").read_text())["suites"]}
        for suite, curve in cell["suites"].items():
            assert [p["rate"] for p in curve] == [p["rate"] for p in suites[suite]["rounds"]]
        found = answer["figures"][cell["arm"]]["success"]["ood-dev"]
        assert found["n"] == 3, name
    shaped = answer["figures"]["text2potential"]
    assert shaped["gain"]["n"] == 3
    # Measured on the run's own data, never without success.
    (family,) = answer["cells"]["text2potential-seed0"]["agreement"]["families"]
    assert family["successes"] > 0
    assert [point["updates"] for point in family["curve"]] == [10, 20]


def test_the_runs_start_from_one_fine_tuning(done: tuple[Path, Any]) -> None:
    cwd, answer = done
    runs = cwd / "runs" / "bench"
    (start,) = runs.glob("sft-seed0-*")
    for cell in answer["cells"].values():
        manifest = json.loads((runs / cell["folder"] / "manifest.json").read_text())
        assert manifest["round_zero_of"] == start.name


def test_figure_4_reuses_the_runs(done: tuple[Path, Any]) -> None:
    cwd, _ = done
    (cwd / "figure.yaml").write_text("like: mine\n")
    folders = sorted((cwd / "runs" / "bench").iterdir())
    code, answer, err = bench(["figure4", "--preset", "figure.yaml"], cwd)
    assert code == 0, err
    assert "training" not in err
    assert sorted((cwd / "runs" / "bench").iterdir()) == folders
    assert set(answer["figures"]["success"]) == {"wide", "seed", "ood"}
    assert len(answer["figures"]["agreement"]) == 2
    picture = cwd / "results" / "figure4-figure.png"
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_a_cell_that_fails_is_named_and_the_others_are_kept(done: tuple[Path, Any]) -> None:
    """The weak policy has one chunk for an observation, which `frozen` cannot pick among."""
    cwd, _ = done
    write_preset(cwd / "more.yaml", signals=["frozen", "sparse", "text2potential"])
    code, answer, err = bench(["table4", "--preset", "more.yaml", "--jobs", "2"], cwd)
    assert code == 7
    assert "1 cells failed: frozen-seed0" in answer["error"]["problem"]
    assert "nothing to pick among" in answer["cells"]["frozen-seed0"]["problem"]
    assert "nothing to pick among" in err
    assert answer["cells"]["sparse-seed0"]["status"] == "complete"
    page = (cwd / "results" / "table4-more.md").read_text()
    rows = [line for line in page.splitlines() if line.startswith("| frozen actor")]
    assert rows
    assert all("not measured" in row for row in rows)


def test_only_the_named_cells_are_run(done: tuple[Path, Any]) -> None:
    cwd, _ = done
    write_preset(cwd / "other.yaml", run={**RUN, "distil": {"episodes": 0}})
    code, answer, err = bench(
        ["table4", "--preset", "other.yaml", "--only", "sparse", "--out", "elsewhere"], cwd
    )
    assert code == 0, err
    status = {name: cell["status"] for name, cell in answer["cells"].items()}
    assert status == {"sparse-seed0": "complete", "text2potential-seed0": "not run"}
    assert answer["complete"] is False
    assert (cwd / "elsewhere" / "table4-other.md").is_file()
