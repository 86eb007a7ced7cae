"""Tables as data, drawn for a terminal and as Markdown, with one way to write each figure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table as RichTable

NOT_MEASURED = "not measured"


@dataclass(frozen=True)
class Table:
    """Title, columns and rows of text; ``notes`` stand below."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    notes: Sequence[str] = ()


def markdown(tables: Sequence[Table], heading: str, pictures: Sequence[str]) -> str:
    """A page with the tables and pictures."""
    parts = [f"# {heading}"]
    for table in tables:
        lines = [f"## {table.title}", "", _line(table.columns), _line(["---"] * len(table.columns))]
        lines += [_line(row) for row in table.rows]
        parts.append("\n".join(lines))
        parts += table.notes
    parts += [f"![{heading}]({name})" for name in pictures]
    return "\n\n".join(parts) + "\n"


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def terminal(tables: Sequence[Table]) -> Group:
    """The tables for a terminal."""
    shown: list[RenderableType] = []
    for table in tables:
        made = RichTable(title=f"\n{table.title}", title_justify="left", box=None, pad_edge=False)
        for column in table.columns:
            made.add_column(column, overflow="fold")
        for row in table.rows:
            made.add_row(*map(escape, row))
        shown += [made, *(escape(note) for note in table.notes)]
    return Group(*shown)


def percent(found: Mapping[str, Any] | None) -> str:
    """A success rate in per cent: ``27.6 ± 0.5 [25.1, 30.2]``; the error over seeds, the interval
    over episodes."""
    if found is None:
        return NOT_MEASURED
    low, high = found["interval95"]
    mean = with_error(100 * found["mean"], _times(100, found["standard_error"]))
    return f"{mean} [{100 * low:.1f}, {100 * high:.1f}]"


def points(found: Mapping[str, Any] | None) -> str:
    """A paired gain in points: ``+4.5 [+1.0, +8.0]``, or a tie."""
    if found is None:
        return NOT_MEASURED
    low, high = found["interval95"]
    tie = ", tie" if found["tie"] else ""
    return f"{100 * found['gain']:+.1f} [{100 * low:+.1f}, {100 * high:+.1f}]{tie}"


def reached(found: Mapping[str, Any] | None, digits: int = 0) -> str:
    """When a target was first reached (:func:`.summary.updates_to`), where all runs did."""
    if found is None:
        return NOT_MEASURED
    if found["mean"] is not None:
        return with_error(found["mean"], found["standard_error"], digits=digits)
    did = sum(n is not None for n in found["by_run"].values())
    return f"not reached ({did} of {len(found['by_run'])} runs did)"


def steps(found: Mapping[str, Any] | None) -> str:
    """Simulated control steps of a run, the mean over runs."""
    return NOT_MEASURED if found is None else f"{found['mean']:,.0f}"


def with_error(value: float, error: float | None, digits: int = 1) -> str:
    """``27.6 ± 0.5``; without the error where one seed gives none."""
    parts = [value] if error is None else [value, error]
    return " ± ".join(f"{part:,.{digits}f}" for part in parts)


def _times(factor: float, value: float | None) -> float | None:
    return None if value is None else factor * value
