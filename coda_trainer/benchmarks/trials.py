"""Benchmarks of trials: short measurements that train nothing for long, resumable one by one."""

from __future__ import annotations

import hashlib
import json
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Generic, TypeVar

from coda_envs.errors import ConfigError, RunError, suggest
from coda_trainer.benchmarks.preset import Settings, load_preset
from coda_trainer.benchmarks.report import Report
from coda_trainer.benchmarks.tables import Table, markdown
from coda_trainer.files import write_atomic
from coda_trainer.learning.rollout import EnvSpec, RolloutPool
from coda_trainer.machine import code_commit, describe_machine
from coda_trainer.strict_json import dumps

P = TypeVar("P", bound=Settings)
Trial = Mapping[str, Any]

#: Every benchmark of trials: its module and class.
TRIAL_BENCHES = {
    "diagnosis": "coda_trainer.benchmarks.diagnosis:DiagnosisBench",
    "table8": "coda_trainer.benchmarks.table8:Table8",
}


class TrialBench(ABC, Generic[P]):
    """One file a benchmark; :data:`TRIAL_BENCHES` finds it by name."""

    name: str
    heading: str
    preset_type: type[P]

    @abstractmethod
    def trials(self, preset: P) -> dict[str, tuple[str, ...]]:
        """Every trial by its name, with the words by which ``--only`` finds it and others. Raises
        :class:`ConfigError` or another :class:`CodaError` for a preset that cannot be run."""

    @abstractmethod
    def settings(self, preset: P) -> Mapping[str, Any]:
        """What the figures of a trial depend on, besides its name."""

    @abstractmethod
    def run(self, preset: P, name: str, pool: RolloutPool, folder: Path) -> dict[str, Any]:
        """One trial as plain data; ``folder`` is a place for files of its own."""

    @abstractmethod
    def combine(self, preset: P, trials: Sequence[Trial]) -> dict[str, Any]:
        """The figures of the trials that are done."""

    @abstractmethod
    def tables(self, figures: Mapping[str, Any]) -> list[Table]:
        """The figures as tables, the paper's beside them where it has some."""

    @abstractmethod
    def draw(self, figures: Mapping[str, Any], path: Path) -> None:
        """The figures as one picture."""


def make_trial_bench(name: str) -> TrialBench[Any]:
    """The benchmark of trials of that name, one of :data:`TRIAL_BENCHES`."""
    module, _, kind = TRIAL_BENCHES[name].partition(":")
    made: TrialBench[Any] = getattr(import_module(module), kind)()
    return made


def run_trial_bench(
    name: str,
    preset_name: str,
    *,
    runs: Path,
    out: Path,
    only: Sequence[str] = (),
    jobs: int = 1,
    say: Callable[[str], None],
) -> Report:
    """Run the trials that are missing and write ``<name>-<preset>.json``, ``.md`` and ``.png``.

    ``only``: trials, or words for all of theirs. ``jobs``: worker processes; no figure depends on
    them. Raises :class:`CodaError` before anything runs.
    """
    bench = make_trial_bench(name)
    preset = load_preset(bench.preset_type, name, preset_name)
    trials = bench.trials(preset)
    words = {word for trial, more in trials.items() for word in (trial, *more)}
    for word in only:
        if word not in words:
            raise ConfigError(f"--only {word}: no such trial.", allowed=suggest(word, words))
    digest = hashlib.sha256(dumps(bench.settings(preset)).encode()).hexdigest()[:8]
    folder = runs / f"{name}-{digest}"
    folder.mkdir(parents=True, exist_ok=True)
    out.mkdir(parents=True, exist_ok=True)
    with RolloutPool(EnvSpec(), workers=jobs) as pool:
        for trial, more in trials.items():
            file = folder / f"{trial}.json"
            if file.is_file() or (only and not {trial, *more} & set(only)):
                continue
            began = time.monotonic()
            told = bench.run(preset, trial, pool, folder / trial)
            told |= {"commit": code_commit(), "seconds": time.monotonic() - began}
            write_atomic(file, dumps(told, indent=1) + "\n")
            say(f"{trial}: {told.get('left_out') or 'complete'} after {told['seconds']:.0f} s")
    done = {t: _read(folder / f"{t}.json") for t in trials if (folder / f"{t}.json").is_file()}
    figures = bench.combine(preset, list(done.values()))
    result = {
        "bench": name,
        "preset": preset.model_dump(mode="json"),
        "commit": code_commit(),
        "machine": describe_machine(),
        "seeds": list(getattr(preset, "seeds", ())),
        "trials": done,
        "figures": figures,
        "complete": len(done) == len(trials),
    }
    stem = f"{name}-{Path(preset_name).stem}"
    files = out / f"{stem}.json", out / f"{stem}.md", out / f"{stem}.png"
    write_atomic(files[0], dumps(result, indent=1) + "\n")
    shown = bench.tables(figures)
    bench.draw(figures, files[2])
    write_atomic(files[1], markdown(shown, bench.heading, [files[2].name]))
    return Report(result, shown, files, {})


def number_of(*words: str) -> int:
    """A number for words, the same wherever they stand in a preset: a trial's seed has it."""
    return int.from_bytes(hashlib.sha256(" ".join(words).encode()).digest()[:4], "big")


def _read(path: Path) -> Trial:
    try:
        data: Trial = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(data, dict) or "seconds" not in data:
            raise ValueError("it is no trial")
        return data
    except (OSError, ValueError, RecursionError) as error:
        raise RunError(f"{path} is not usable: {error}.", remedy="remove that file") from error
