"""TensorBoard events of a run, written from ``metrics.jsonl`` when a round is complete."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self


class EventLog:
    """Scalars by round; blocks of a round count as fractions of it, in hundredths."""

    def __init__(self, folder: Path) -> None:
        # Imported here: TensorBoard takes a second, and only training writes events.
        from torch.utils.tensorboard.writer import SummaryWriter

        self._writer = SummaryWriter(str(folder))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._writer.close()

    def write(self, records: Iterable[Mapping[str, Any]]) -> None:
        """Every number of the records under ``event/family/source/name``."""
        for record in records:
            step = 100 * int(record["round"]) + int(record.get("block", 0))
            group = str(record.get("suite") or record.get("source") or record.get("mode") or "")
            parts = (str(record["event"]), str(record["family"]), group)
            prefix = "/".join(part for part in parts if part)
            for name, value in record.items():
                number = isinstance(value, (int, float)) and not isinstance(value, bool)
                if number and name not in ("round", "block"):
                    self._writer.add_scalar(f"{prefix}/{name}", value, step)


def rewrite_events(folder: Path, records: Iterable[Mapping[str, Any]]) -> None:
    """Write all events anew, so that a round which is done again does not appear twice."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    with EventLog(folder) as events:
        events.write(records)
