"""The end of a run: ``results.json``, and the tables a person reads."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterable, Mapping
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.table import Table

from coda_envs.errors import RunError
from coda_envs.programs.training import Tools
from coda_trainer.config import ALL, RunConfig
from coda_trainer.evaluation import paired_gain
from coda_trainer.files import write_atomic
from coda_trainer.memory.modes import Mode
from coda_trainer.memory.store import MemoryStore
from coda_trainer.report.progress import Reporter
from coda_trainer.rounds.run_folder import RunFolder
from coda_trainer.strict_json import dumps, plain

Records = list[dict[str, Any]]


def write_report(run: RunFolder, config: RunConfig, report: Reporter) -> None:
    """Collect the run's results into ``report.txt`` and ``results.json``, and print the former.

    They hold no time and no path but the run's own. ``results.json`` comes last: where it is, the
    run is finished.
    """
    results = plain(collect_results(run, config))
    write_atomic(run.path / "report.txt", _text(results))
    write_atomic(run.path / "results.json", dumps(results, indent=1) + "\n")
    print_results(run, report)


def print_results(run: RunFolder, report: Reporter) -> None:
    """Print the tables of a finished run on standard output.

    Raises :class:`RunError` where its ``results.json`` is not one.
    """
    path = run.path / "results.json"
    try:
        text = _text(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RunError(
            f"{path} cannot be read: {error}.",
            remedy=f"remove it, then `coda train --resume {run.path}` writes it anew",
        ) from error
    report.headline("Results")
    sys.stdout.write(text)
    sys.stdout.flush()


def _text(results: Mapping[str, Any]) -> str:
    """The tables as plain text."""
    # No markup: instructions and intervals may hold brackets.
    console = Console(
        width=110, file=io.StringIO(), color_system=None, markup=False, emoji=False, highlight=False
    )
    with console.capture() as capture:
        console.print(Group(*_tables(results)))
    return "\n".join(line.rstrip() for line in capture.get().splitlines()) + "\n"


def collect_results(run: RunFolder, config: RunConfig) -> dict[str, Any]:
    """Everything the run measured, as plain data; the same for equal configurations."""
    metrics = run.metrics()
    evaluations = [r for r in metrics if r["event"] == "evaluation"]
    last = max((r["round"] for r in evaluations), default=0)
    with MemoryStore.open_read_only(run.memory) as memory:
        controls = [
            {"round": row["round"], "mode": row["mode_id"], **row["data"]}
            for row in memory.records("controls")
            # Those of an adopted memory are another run's.
            if not row["data"].get("adopted")
        ]
        # Tested claims that no generation program could be compiled from.
        controls += [{"mode": None, **r} for r in metrics if r["event"] == "no program"]
        modes = []
        for mode in memory.modes():
            measured = memory.last_measurement(mode.id)
            modes.append(
                {
                    "mode": mode.to_dict(),
                    "omega": memory.program(mode.omega_hash).to_dict() if mode.omega_hash else None,
                    "phi": memory.program(mode.phi_hash).to_dict() if mode.phi_hash else None,
                    "probes": None if measured is None else measured.to_dict(),
                }
            )
    manifest = run.manifest()
    # Grouped by family, in the order of the configuration.
    order = {name: place for place, name in enumerate((*config.families, ALL))}
    return {
        "config": config.to_dict(),
        "commit": manifest["commit"],
        "engine": manifest["engine"],
        "strategy": config.strategy,
        "rounds": last,
        "suites": [
            _suite(evaluations, family, name, last)
            for family in order
            for name in dict.fromkeys(r["suite"] for r in evaluations if r["family"] == family)
        ],
        "critic_at_test_time": [
            _choice(r, evaluations)
            for r in metrics
            if r["event"] == "critic at test time" and r["round"] == last
        ],
        "controls": sorted(controls, key=lambda c: order[c["family"]]),
        "modes": sorted(modes, key=lambda m: order[m["mode"]["family"]]),
        "frames": [r for r in metrics if r["event"] == "frames"],
    }


def _suite(evaluations: Records, family: str, name: str, last: int) -> dict[str, Any]:
    mine = {r["round"]: r for r in evaluations if (r["family"], r["suite"]) == (family, name)}
    keep = ("n", "successes", "rate", "interval95")
    rounds = [{"round": r, **{k: mine[r][k] for k in keep}} for r in sorted(mine)]
    gain = None
    if 0 in mine and last in mine and last > 0:
        gain = paired_gain(mine[0]["outcomes"], mine[last]["outcomes"])
    return {"family": family, "suite": name, "rounds": rounds, "gain": gain}


def _choice(chosen: Mapping[str, Any], evaluations: Records) -> dict[str, Any]:
    """Success where the critic picks among the backbone's samples; ``gain``: over the backbone
    alone, in the same round and episodes."""
    names = ("round", "family", "suite")
    (alone,) = (r for r in evaluations if all(r[k] == chosen[k] for k in names))
    gain = paired_gain(alone["outcomes"], chosen["outcomes"])
    keep = (*names, "candidates", "n", "successes", "rate", "interval95")
    return {**{k: chosen[k] for k in keep}, "gain": gain}


def _tables(results: Mapping[str, Any]) -> Iterable[RenderableType]:
    # One family needs no column that says so.
    several = len(results["config"]["families"]) > 1
    yield _success_table(results, several)
    if results["critic_at_test_time"]:
        yield _choice_table(results["critic_at_test_time"], several)
    if results["strategy"] == "coda":
        yield _control_table(results["controls"], several)
        yield _mode_table(results["modes"], several)
    yield _frames_table(results["frames"], several)


class _Rows:
    """A table whose first column is the family, where the run has several."""

    def __init__(self, title: str, several: bool, *columns: str) -> None:
        self.table = Table(
            title=title, title_justify="left", box=None, pad_edge=False, padding=(0, 2, 0, 0)
        )
        self._several = several
        for column in ("family", *columns) if several else columns:
            self.table.add_column(column, overflow="fold")

    def add(self, family: str, *cells: str) -> None:
        """A row of a family."""
        self.table.add_row(*((family, *cells) if self._several else cells))

    def finished(self, nothing: str = "", caption: str = "") -> Table:
        """The table: ``nothing`` stands in one that is empty, ``caption`` under it."""
        if not self.table.row_count and nothing:
            self.table.add_row(nothing)
        if caption:
            self.table.caption, self.table.caption_justify = caption, "left"
        return self.table


def _success_table(results: Mapping[str, Any], several: bool) -> Table:
    strategy = {"coda": "CoDA"}.get(results["strategy"], results["strategy"])
    after = f"after {strategy}, {results['rounds']} round(s)"
    title = "\nSuccess, backbone alone"
    rows = _Rows(title, several, "suite", "n", "after SFT", after, "gain (paired)")
    for suite in results["suites"]:
        first, last = suite["rounds"][0], suite["rounds"][-1]
        learned = len(suite["rounds"]) > 1
        rows.add(
            suite["family"],
            suite["suite"],
            str(first["n"]),
            _rate(first),
            _rate(last) if learned else "not measured",
            "not measured"
            if suite["gain"] is None
            else "{:+.3f} [{:+.3f}, {:+.3f}]".format(*suite["gain"]),
        )
    return rows.finished(
        caption="[low, high]: 95% interval (Wilson; of the gain: Agresti-Min, paired by episode)"
    )


def _choice_table(choices: Records, several: bool) -> Table:
    title = "\nSuccess, critic at test time: it picks among the backbone's samples"
    rows = _Rows(title, several, "suite", "n", "samples", "success", "against the backbone alone")
    for choice in choices:
        gain = "{:+.3f} [{:+.3f}, {:+.3f}]".format(*choice["gain"])
        cells = choice["suite"], str(choice["n"]), str(choice["candidates"]), _rate(choice), gain
        rows.add(choice["family"], *cells)
    return rows.finished(
        caption="No figure of the policy: the critic reads the simulator's state, a robot's cannot"
    )


def _rate(record: Mapping[str, Any]) -> str:
    if record["rate"] is None:
        return "not measured"
    low, high = record["interval95"]
    return f"{record['rate']:.3f} [{low:.3f}, {high:.3f}]"


def _control_table(controls: Records, several: bool) -> Table:
    rows = _Rows(
        "\nControl evaluation of every diagnosis tested", several,
        "round", "stage", "factor", "seen", "T", "C", "P", "P(Δ>.15)", "verdict",
    )  # fmt: skip
    for control in controls:
        rows.add(control["family"], *_control_row(control))
    return rows.finished(
        "none was tested",
        "Episodes that reach the diagnosed stage: T condition present, C its factor reset, "
        "P another factor reset",
    )


def _control_row(control: Mapping[str, Any]) -> tuple[str, ...]:
    signature, episodes = control["signature"], control["episodes"]
    reached = [f"{r}/{episodes}" for r in control["reached"]] if episodes else ["not run"] * 3
    return (
        str(control["round"]),
        signature[0],
        f"{signature[2]} {signature[3]}",
        str(control["support"]),
        *reached,
        f"{control['p_material'][0]:.2f}" if episodes else "not run",
        control["verdict"],
    )


def _mode_table(modes: Records, several: bool) -> Table:
    columns = ("mode", "difficulty", "state", "probes", "Ω edits", "Φ tools")
    rows = _Rows("\nDifficulty modes", several, *columns)
    for entry in modes:
        mode, omega, phi, probes = (entry[k] for k in ("mode", "omega", "phi", "probes"))
        measured = "not measured"
        if probes is not None:
            measured = f"{sum(probes['probes'])}/{len(probes['probes'])}"
            if probes["progress"] is not None:
                measured += f", LP {probes['progress']['mean']:+.2f}"
        rows.add(
            mode["family"],
            mode["id"],
            f"{mode['stage']}: {Mode.parse(mode, 'mode').label}",
            mode["state"],
            measured,
            "none" if omega is None else "; ".join(_edit(e) for e in omega["edits"]),
            "none" if phi is None else _tools(phi),
        )
    return rows.finished("none was confirmed")


def _edit(edit: Mapping[str, Any]) -> str:
    factor = edit.get("factor", edit.get("role", ""))
    if edit.get("choices"):
        return f"{edit['edit']} {factor} from {', '.join(map(str, edit['choices']))}"
    if edit.get("low") is not None:
        return f"{edit['edit']} {factor} in [{edit['low']:.3g}, {edit['high']:.3g}]"
    return f"{edit['edit']} {factor}"


def _tools(phi: Mapping[str, Any]) -> str:
    focus = ", ".join(phi["subgoals"])
    off = Tools().to_dict()
    used = [
        name.replace("_", " ") if value is True else f"{name.replace('_', ' ')} {value:g}"
        for name, value in phi["tools"].items()
        if value != off[name]
    ]
    return "; ".join([f"aim at {focus}", *used])


def _frames_table(frames: Records, several: bool) -> Table:
    rows = _Rows("\nPictures", several, "outcome", "file in the run folder", "instruction", "why")
    for frame in frames:
        cells = (frame[name] for name in ("outcome", "file", "instruction", "reason"))
        rows.add(frame["family"], *cells)
    return rows.finished("none was drawn")
