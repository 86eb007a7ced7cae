"""Report: what a benchmark left behind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from coda_trainer.benchmarks.tables import Table


@dataclass(frozen=True)
class Report:
    """What a benchmark left: its result as data, its tables, its files, and what went wrong."""

    result: Mapping[str, Any]
    tables: Sequence[Table]
    files: Sequence[Path]
    failed: Mapping[str, str]
