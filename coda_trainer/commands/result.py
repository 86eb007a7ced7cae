"""What a command hands back: one answer, in a form for people and in one for programs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, Protocol

import tyro

from coda_envs.errors import CodaError

if TYPE_CHECKING:
    from rich.table import Table


@dataclass(frozen=True)
class Result:
    """The answer of a command that ran to its end.

    ``data``: plain data, printed as one JSON document with ``--json``. ``view``: what a person
    reads instead, a text printed as it is or a rich renderable. ``error``: set where the command
    worked and its finding is bad news (a scene that is not valid); its exit code is the command's.
    """

    data: Mapping[str, Any] = field(default_factory=dict)
    view: Any = ""
    error: CodaError | None = None


class Command(Protocol):
    """A parsed command line, ready to run."""

    def run(self) -> Result:
        """Do it. Raises :class:`CodaError` on bad input."""


#: The flag of every command that reads something.
Json = Annotated[
    bool,
    tyro.conf.FlagCreatePairsOff,
    tyro.conf.arg(help="Print one JSON document on standard output."),
]

#: ``--set path=value``, as often as needed.
Assignments = tyro.conf.UseAppendAction[tuple[str, ...]]


def table(title: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> Table:
    """A plain table for people; ``None`` is shown as "not measured"."""
    from rich.markup import escape
    from rich.table import Table

    made = Table(title=title, title_justify="left", box=None, pad_edge=False)
    for column in columns:
        made.add_column(column, overflow="fold")
    for row in rows:
        made.add_row(*(escape("not measured" if v is None else str(v)) for v in row))
    return made
