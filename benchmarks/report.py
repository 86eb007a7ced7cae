"""What the benchmarks share: where they ran, and the JSON file of what they measured."""

from __future__ import annotations

import platform
import subprocess
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

from coda_trainer.files import write_atomic
from coda_trainer.machine import describe_machine
from coda_trainer.strict_json import dumps

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "results" / "benchmarks"
_PACKAGES = ("gymnasium", "mujoco", "numpy", "torch")


def circumstances() -> dict[str, Any]:
    """Commit, versions and machine: what a measured time depends on besides the code."""
    commit = subprocess.run(
        ["git", "describe", "--always", "--dirty", "--abbrev=12"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    return {
        "commit": commit.stdout.strip() or "unknown",
        "versions": {
            "python": platform.python_version(),
            **{name: metadata.version(name) for name in _PACKAGES},
        },
        "machine": describe_machine(),
    }


def write(name: str, figures: Mapping[str, Any]) -> Path:
    """Write ``results/benchmarks/<name>.json``."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    path = FOLDER / f"{name}.json"
    write_atomic(path, dumps({**circumstances(), "figures": figures}, indent=1) + "\n")
    return path
