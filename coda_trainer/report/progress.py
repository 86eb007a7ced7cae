"""Reporter: progress bars on a terminal, plain lines elsewhere; always on standard error."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn


class Reporter:
    """Says what a run is doing."""

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or Console(stderr=True, highlight=False)

    def headline(self, text: str) -> None:
        """A line that starts a new part."""
        self.console.print(text, style="bold", markup=False, soft_wrap=True)

    def line(self, text: str) -> None:
        """A line of its own."""
        self.console.print(f"  {text}", markup=False, soft_wrap=True)

    @contextmanager
    def bar(self, what: str, total: int) -> Iterator[Callable[[int], None]]:
        """A bar that the yielded function sets; without a terminal, one line at the end."""
        if not self.console.is_terminal:
            yield lambda done: None
            self.line(f"{what}: {total}")
            return
        columns = (
            TextColumn("  {task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
        )
        with Progress(*columns, console=self.console) as progress:
            task = progress.add_task(what, total=total)
            yield lambda done: progress.update(task, completed=done)
