"""`coda doctor`, and third-party distributions that are broken or left over."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from command_line import ROOT, process, strict

#: Entry points as broken or left-over third-party distributions have them.
PLUGIN = """
import sys
print("noise on standard output")
if "{what}" == "raises": import a_library_that_is_not_there
if "{what}" == "leaves": sys.exit("bye")
def make(seed=0): raise RuntimeError("not today")
"""


@pytest.fixture
def installed(tmp_path: Path) -> dict[str, str]:
    """A folder of installed distributions with bad entry points; the environment to see it."""
    site = tmp_path / "site"
    for what in ("raises", "leaves", "prints"):
        info = site / f"third_{what}-1.2.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: third-{what}\nVersion: 1.2\n")
        entries = "".join(
            f"[{group}]\n{what}-{kind} = third_{what}:make\n"
            + f"gone-{what}-{kind} = third_nowhere:make\n"
            + (f"{own} = third_{what}:make\n" if what == "prints" else "")
            for group, kind, own in (
                ("coda.backbones", "backbone", "flow_chunk"),
                ("coda.families", "family", "pick-place"),
                ("coda.diagnosticians", "diagnostician", "trace"),
            )
        )
        (info / "entry_points.txt").write_text(entries)
        (site / f"third_{what}.py").write_text(PLUGIN.format(what=what))
    return {"PYTHONPATH": f"{ROOT}{os.pathsep}{site}"}


def test_broken_plugins_break_nothing_and_are_named(
    tmp_path: Path, installed: dict[str, str]
) -> None:
    (tmp_path / "run.yaml").write_text("rounds: 1\n")
    done = process(["doctor", "--json"], tmp_path, installed)
    out, err = done.communicate(timeout=100)
    document = strict(out)
    assert done.returncode == (0 if document["ok"] else 1), err
    findings = {f["name"]: f for f in document["findings"]}
    for kind in ("backbone", "family", "diagnostician"):
        for what, cause in (("raises", "a_library_that_is_not_there"), ("leaves", "bye")):
            finding = findings[f"{kind} {what}-{kind}"]
            assert finding["status"] == "warn"
            assert cause in finding["found"]
            assert f"third-{what} 1.2" in finding["found"]
            assert findings[f"{kind} gone-{what}-{kind}"]["status"] == "warn"
        own = {"backbone": "flow_chunk", "family": "pick-place", "diagnostician": "trace"}[kind]
        assert "built-in" in findings[f"{kind} {own}"]["found"]
        assert findings[f"{kind} prints-{kind}"]["status"] == "ok"
    assert "noise" in err

    words = ["train", "--config", "run.yaml", "--backbone", "raises-backbone", "--out", "out"]
    done = process(words, tmp_path, installed)
    out, err = done.communicate(timeout=60)
    assert done.returncode == 4
    assert out == ""
    for word in ("raises-backbone", "third-raises 1.2", "a_library_that_is_not_there"):
        assert word in err
    assert not (tmp_path / "out").exists()


def test_doctor_says_what_to_install_when_nothing_can_be_drawn(tmp_path: Path) -> None:
    done = process(["doctor", "--json"], tmp_path, {"MUJOCO_GL": "no-such-driver"})
    out, err = done.communicate(timeout=60)
    assert done.returncode == 1, err
    document = strict(out)
    assert document["ok"] is False
    finding = next(f for f in document["findings"] if f["name"] == "rendering")
    assert finding["status"] == "fail"
    assert "no-such-driver" in finding["found"]
    assert "apt-get install libegl1 libgl1" in finding["remedy"]
    assert "apt-get install libegl1 libgl1" in document["error"]["remedy"]
