"""What ``coda memory`` prints: plain data for ``--json``, and tables for people."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from coda_envs.errors import RunError, suggest
from coda_trainer.memory.modes import Mode, Reason
from coda_trainer.memory.postgres import is_postgres, place_of
from coda_trainer.memory.progress import Measurement
from coda_trainer.memory.schema import Row
from coda_trainer.memory.store import MemoryStore
from coda_trainer.statistics import wilson

if TYPE_CHECKING:
    from rich.console import Group
    from rich.table import Table

#: The memory's name inside a run's folder.
FILE = "memory.sqlite"
#: Digits of an id in a table; any start of an id names a mode where it fits only one.
SHORT = 8


def find_memory(run_or_db: Path | str) -> Path | str:
    """The memory of a run's folder, the file itself, or a database's URL as it is.

    Raises :class:`RunError` where there is no such file.
    """
    if is_postgres(run_or_db):
        return run_or_db
    run_or_db = Path(run_or_db)
    path = run_or_db / FILE if run_or_db.is_dir() else run_or_db
    if not path.is_file():
        raise RunError(
            f"{run_or_db} holds no memory: {path} does not exist.",
            allowed=f"a run's folder with a {FILE}, or such a file",
            remedy="check the path; a run writes its memory when its first round starts",
        )
    return path


def shown_memory(run_or_db: Path | str) -> str:
    """What a memory is called in an answer: its file, or its URL without the user."""
    found = find_memory(run_or_db)
    return place_of(found).shown if isinstance(found, str) else str(found)


def show(run_or_db: Path | str) -> tuple[dict[str, Any], Group]:
    """All modes with their numbers, and what each round did to them; data and tables."""
    path = find_memory(run_or_db)
    with MemoryStore.open_read_only(path) as memory, memory.transaction():
        modes = memory.modes()
        data = {
            "memory": str(memory.path),
            "records": memory.counts(),
            "modes": [_brief(memory, mode) for mode in modes],
            "rounds": round_counts(modes),
        }
    return data, _show_view(data)


def show_mode(run_or_db: Path | str, mode_id: str) -> tuple[dict[str, Any], Group]:
    """One mode in full, by its id or the start of it; data and tables.

    Raises :class:`RunError` where no mode, or more than one, has an id that starts so.
    """
    path = find_memory(run_or_db)
    with MemoryStore.open_read_only(path) as memory, memory.transaction():
        mode = find_mode(memory, mode_id)
        controls = memory.records("controls", mode_id=mode.id)
        tested = {sequence for control in controls for sequence in control["diagnoses"]}
        diagnoses = memory.records("diagnoses", sequences=tested)
        measured = memory.records("progress", mode_id=mode.id)
        data = {
            **_brief(memory, mode),
            "probes": len(mode.probes),
            "control_scenes": len(mode.controls),
            "merged": list(mode.merged),
            "history": [event.to_dict() for event in mode.history],
            "diagnoses": [{"round": r["round"], **r["data"]} for r in diagnoses],
            "controls": [_control(r) for r in controls],
            "measurements": [{"round": r["round"], **_measured(r)} for r in measured],
            "programs": [
                {name: row[name] for name in ("round", "program", "version", "hash", "data")}
                for row in memory.records("programs", mode_id=mode.id)
            ],
        }
    return data, _mode_view(data)


def export(run_or_db: Path | str, out: Path) -> dict[str, Any]:
    """Write the memory as JSON Lines; which file, and how many records."""
    path = find_memory(run_or_db)
    with MemoryStore.open_read_only(path) as memory:
        return {"memory": str(memory.path), "out": str(out), "records": memory.export_jsonl(out)}


def round_counts(modes: list[Mode]) -> list[dict[str, int]]:
    """For each round: modes newly selected, retained from before, removed, and come back."""
    last = max((event.round for mode in modes for event in mode.history), default=-1)
    counts = []
    for number in range(last + 1):
        events = [(m.id, e.event) for m in modes for e in m.history if e.round == number]
        selected = {mode for mode, event in events if event == "selected"}
        kept = {m.id for m in modes if _state_at(m, number) in ("selected", "retained")}
        counts.append(
            {
                "round": number,
                "selected": len(selected),
                "retained": len(kept - selected),
                "removed": len({mode for mode, event in events if event in get_args(Reason)}),
                "returned": len({mode for mode, event in events if event == "returned"}),
            }
        )
    return counts


def _state_at(mode: Mode, round: int) -> str | None:
    """The state a mode had at the end of a round, None before it was made."""
    states = [event.state for event in mode.history if event.round <= round]
    return states[-1] if states else None


def find_mode(memory: MemoryStore, mode_id: str) -> Mode:
    """The mode whose id starts so. Raises :class:`RunError` where none does, or several do."""
    modes = memory.modes()
    found = [mode for mode in modes if mode_id and mode.id.startswith(mode_id)]
    if len(found) != 1:
        problem = "fits several modes" if found else "is no mode"
        raise RunError(
            f"{mode_id!r} {problem} of {memory.path}.",
            allowed=suggest(mode_id, [m.id for m in found or modes]) or "none: it has no modes yet",
            remedy="list the modes with `coda memory show`",
        )
    return found[0]


def _brief(memory: MemoryStore, mode: Mode) -> dict[str, Any]:
    controls = memory.records("controls", mode_id=mode.id)
    measured = memory.records("progress", mode_id=mode.id)
    versions = {row["hash"]: row["version"] for row in memory.records("programs", mode_id=mode.id)}
    return {
        "id": mode.id,
        "family": mode.family,
        "state": mode.state,
        "reason": mode.tombstone.reason if mode.tombstone else None,
        "stage": mode.stage,
        "failed_predicate": mode.failed_predicate,
        "factor": mode.factor,
        "direction": mode.direction,
        "role": mode.role,
        "interval": None if mode.interval is None else list(mode.interval),
        "choices": list(mode.choices),
        "label": mode.label,
        "round_created": mode.round_created,
        "magnitude": mode.magnitude,
        "measured": _measured(measured[-1]) if measured else None,
        "control": _control(controls[-1]) if controls else None,
        "omega": _program(mode.omega_hash, versions),
        "phi": _program(mode.phi_hash, versions),
    }


def _program(hash: str, versions: Mapping[str, int]) -> dict[str, Any] | None:
    return {"hash": hash, "version": versions.get(hash)} if hash else None


def _measured(row: Row) -> dict[str, Any]:
    """Success on the probes with n and its interval, and the progress."""
    measurement = Measurement.from_dict(row["data"])
    successes, trials = measurement.successes, measurement.trials
    interval = wilson(successes, trials)
    return {
        "successes": successes,
        "trials": trials,
        "rate": successes / trials if trials else None,
        "interval": None if interval is None else list(interval),
        "progress": row["data"]["progress"],
    }


def _control(row: Row) -> dict[str, Any]:
    return {"round": row["round"], "verdict": row["verdict"], "result": row["data"]}


# For people ------------------------------------------------------------------------------------


def _show_view(data: Mapping[str, Any]) -> Group:
    from rich.console import Group
    from rich.markup import escape

    # Two tables, because one would not fit a terminal of 80 columns.
    # One family needs no column that says so.
    several = len({mode["family"] for mode in data["modes"]}) > 1
    first = ("mode", "family") if several else ("mode",)
    modes = _table("Difficulty modes", *first, "state", "stage", "difficulty", "Ω", "Φ")
    figures = _table(
        "Figures", "mode", "control", "solved", "rate [95%]", "LP [90%]", "P(|LP|>.05)"
    )
    for mode in data["modes"]:
        state = f"{mode['state']} ({mode['reason']})" if mode["reason"] else mode["state"]
        name = mode["id"][:SHORT]
        versions = (_version(mode["omega"]), _version(mode["phi"]))
        named = (name, mode["family"]) if several else (name,)
        _row(modes, *named, state, mode["stage"], mode["label"], *versions)
        control = mode["control"]["verdict"] if mode["control"] else None
        _row(figures, name, control, *_figures(mode["measured"]))
    rounds = _table("Modes by round", "round", "selected", "retained", "removed", "returned")
    for counts in data["rounds"]:
        _row(rounds, *counts.values())
    # A mode has one record for each of its changes.
    names = {"progress": "measurements", "modes": "versions of modes"}
    records = ", ".join(f"{n} {names.get(kind, kind)}" for kind, n in data["records"].items())
    return Group(f"Memory {escape(data['memory'])}: {records}.", "", modes, "", figures, "", rounds)


def _mode_view(data: Mapping[str, Any]) -> Group:
    from rich.console import Group
    from rich.markup import escape

    state = f"{data['state']} ({data['reason']})" if data["reason"] else data["state"]
    lines = [
        f"Mode {data['id']} of {data['family']}: {state}",
        f"Stage {data['stage']}, failed {data['failed_predicate']}",
        f"Difficulty: {data['label']} at magnitude {data['magnitude']:g}",
        f"{data['probes']} probes, {data['control_scenes']} matched control scenes",
    ]
    history = _table("History", "round", "event", "state", "note")
    for event in data["history"]:
        _row(history, event["round"], event["event"], event["state"], event["note"])
    diagnoses = _table("Diagnoses tested", "round", "diagnostician", "confidence", "sentence")
    for claim in data["diagnoses"]:
        confidence = f"{claim['confidence']:.2f}"
        _row(diagnoses, claim["round"], claim["diagnostician"], confidence, claim["sentence"])
    controls = _table("Control evaluations", "round", "verdict", "figure", "value")
    for control in data["controls"]:
        for line, (name, value) in enumerate(_flat(control["result"])):
            head = (control["round"], control["verdict"]) if line == 0 else ("", "")
            _row(controls, *head, name, value)
    measured = _table("Measurements", "round", "solved", "rate [95%]", "LP [90%]", "P(|LP|>.05)")
    for entry in data["measurements"]:
        _row(measured, entry["round"], *_figures(entry))
    programs = _table("Programs", "round", "program", "version", "hash")
    for program in data["programs"]:
        _row(programs, *(program[name] for name in ("round", "program", "version", "hash")))
    tables = (history, diagnoses, controls, measured, programs)
    shown = [part for table in tables if table.row_count for part in ("", table)]
    return Group(*map(escape, lines), *shown)


def _figures(measured: Mapping[str, Any] | None) -> tuple[str | None, ...]:
    """Probes solved, their rate with its interval, LP with its interval, P(|LP| > 0.05)."""
    if measured is None or measured["interval"] is None:
        return None, None, None, None
    low, high = measured["interval"]
    solved = f"{measured['successes']}/{measured['trials']}"
    rate = f"{measured['rate']:.2f} [{low:.2f}, {high:.2f}]"
    progress = measured["progress"]
    if progress is None:
        return solved, rate, None, None
    lp = f"{progress['mean']:+.2f} [{progress['low']:+.2f}, {progress['high']:+.2f}]"
    return solved, rate, lp, f"{progress['p_material']:.2f}"


def _version(program: Mapping[str, Any] | None) -> str:
    return f"v{program['version']}" if program else "none"


def _flat(data: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """The figures of nested data, one a row: ``("arms.T.reached", 3)``; lists are left out."""
    if isinstance(data, Mapping):
        for key, value in data.items():
            yield from _flat(value, f"{name}.{key}" if name else str(key))
    elif not isinstance(data, list):
        yield name, f"{data:.3g}" if isinstance(data, float) else data


def _table(title: str, *columns: str) -> Table:
    from rich.markup import escape
    from rich.table import Table

    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    for column in columns:
        table.add_column(escape(column), overflow="fold")
    return table


def _row(table: Table, *cells: Any) -> None:
    from rich.markup import escape

    table.add_row(*(escape("not measured" if cell is None else str(cell)) for cell in cells))
