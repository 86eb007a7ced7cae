"""Cells: a benchmark as a list of runs, each in a folder of its own that its settings name."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass

from coda_envs.errors import ConfigError, suggest
from coda_trainer.benchmarks.preset import AgreementSettings
from coda_trainer.config import RunConfig
from coda_trainer.rounds.branching import round_zero
from coda_trainer.strict_json import dumps


@dataclass(frozen=True)
class Cell:
    """One run of a benchmark: an arm under one seed.

    ``group``: cells that are paired with one another across arms (a family, or nothing).
    ``agreement``: how agreement is measured once it is trained, or None. ``memory``: the cell whose
    memory it is given, lifted where that one's family is another; it is run first.
    """

    arm: str
    config: RunConfig
    group: str = ""
    agreement: AgreementSettings | None = None
    memory: Cell | None = None

    @property
    def name(self) -> str:
        """What a user calls it: ``text2potential-seed0``."""
        return "-".join(part for part in (self.group, self.arm, f"seed{self.config.seed}") if part)

    @property
    def folder(self) -> str:
        """Name of its run's folder, of the run's settings alone: the same run of two arms or two
        benchmarks is done once, and a run with other settings never goes on in it."""
        run = self.config
        named = f"{run.strategy}-{run.signal}-seed{run.seed}-{fingerprint(run)}"
        return named if self.memory is None else f"{named}-of-{self.memory.folder[-8:]}"

    @property
    def start(self) -> RunConfig:
        """The fine-tuning that it starts from, shared by all cells with the same."""
        return round_zero(self.config)


def start_folder(start: RunConfig) -> str:
    """Name of the folder of a shared fine-tuning."""
    return f"sft-seed{start.seed}-{fingerprint(start)}"


def fingerprint(config: RunConfig) -> str:
    """Eight hex digits of the settings; the number of workers is none that matters."""
    data = {k: v for k, v in config.to_dict().items() if k != "workers"}
    text = dumps(dict(sorted(data.items())))
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def chosen(cells: Sequence[Cell], only: Sequence[str]) -> list[Cell]:
    """The cells named by ``only``: a cell's name, or an arm's for all of its cells; all if empty.

    Raises :class:`ConfigError` for a name that is neither.
    """
    if not only:
        return list(cells)
    names = {c.name for c in cells} | {c.arm for c in cells}
    for word in only:
        if word not in names:
            raise ConfigError(f"--only {word}: no such cell.", allowed=suggest(word, names))
    return [c for c in cells if {c.name, c.arm} & set(only)]


def check_cells(cells: Sequence[Cell]) -> None:
    """Raises :class:`ConfigError` where two cells have one name or one run, or a name is no file's
    name."""
    names = [cell.name for cell in cells]
    runs: dict[str, str] = {}
    for cell in cells:
        other = runs.setdefault(cell.folder, cell.name)
        if other != cell.name:
            raise ConfigError(
                f"the cells {other} and {cell.name} are the same run.",
                remedy="remove one of the arms, or change what it differs in",
            )
    for name in names:
        if not re.fullmatch(r"[a-z0-9][a-z0-9-]*", name):
            raise ConfigError(
                f"a cell is called {name!r}.", allowed="small letters, digits and hyphens"
            )
        if names.count(name) > 1:
            raise ConfigError(f"two cells are called {name!r}.", remedy="rename an arm")
