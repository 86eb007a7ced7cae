"""The diagnosis benchmark: diagnosticians on failures whose cause is known."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field

from coda_envs.errors import ConfigError, RunError, suggest
from coda_envs.family import get_family
from coda_trainer.benchmarks.diagnosis_figures import combine, draw, tables
from coda_trainer.benchmarks.preset import Settings, as_tuple, distinct, load_preset
from coda_trainer.benchmarks.report import Report
from coda_trainer.benchmarks.tables import markdown
from coda_trainer.config import Count, Option, Positive
from coda_trainer.diagnosis.base import make_diagnostician
from coda_trainer.diagnosis.fault_trials import TrialSize, run_trial
from coda_trainer.diagnosis.faults import FAULTS
from coda_trainer.files import write_atomic
from coda_trainer.learning.rollout import EnvSpec, RolloutPool
from coda_trainer.machine import code_commit, describe_machine
from coda_trainer.strict_json import dumps

Names = Annotated[
    tuple[str, ...], BeforeValidator(as_tuple), Field(min_length=1), AfterValidator(distinct)
]


class DiagnosisPreset(Settings):
    """Sizes of the benchmark: one trial for each family, fault and seed."""

    seeds: Annotated[
        tuple[Count, ...], BeforeValidator(as_tuple), Field(min_length=1), AfterValidator(distinct)
    ]
    families: Names
    faults: Names = tuple(FAULTS)
    episodes: Positive = 256
    """Episodes of a trial's population."""
    claims: Count = 3
    """Claims of a diagnostician that are tested in each trial."""
    per_arm: Positive = 32
    """Most rollouts in each arm of a control evaluation."""
    diagnosticians: dict[str, dict[str, Option]] = Field(min_length=1)
    """By name, each with its options."""
    reference: str = "random_factor"
    """The diagnostician that the others are compared with."""


def run_diagnosis_bench(
    preset_name: str,
    *,
    runs: Path,
    out: Path,
    only: Sequence[str] = (),
    jobs: int = 1,
    say: Callable[[str], None],
) -> Report:
    """Run the trials that are missing and write ``diagnosis-<preset>.json``, ``.md``, ``.png``.

    ``only``: trials, or families or faults for all of theirs. ``jobs``: worker processes; no figure
    depends on them. Raises :class:`ConfigError` before anything runs.
    """
    preset = load_preset(DiagnosisPreset, "diagnosis", preset_name)
    _check(preset)
    trials = {
        f"{family}-{fault.replace('_', '-')}-seed{seed}": (family, fault, seed)
        for family in preset.families
        for fault in preset.faults
        for seed in preset.seeds
    }
    words = {w for name, (family, fault, _) in trials.items() for w in (name, family, fault)}
    for word in only:
        if word not in words:
            raise ConfigError(f"--only {word}: no such trial.", allowed=suggest(word, words))
    folder = runs / f"diagnosis-{_fingerprint(preset)}"
    folder.mkdir(parents=True, exist_ok=True)
    out.mkdir(parents=True, exist_ok=True)
    size = TrialSize(preset.episodes, preset.claims, preset.per_arm)
    with RolloutPool(EnvSpec(), workers=jobs) as pool:
        for name, (family, fault, seed) in trials.items():
            file = folder / f"{name}.json"
            if file.is_file() or (only and not {name, family, fault} & set(only)):
                continue
            began = time.monotonic()
            place = (seed, *(_number(x) for x in (family, fault)))
            told = run_trial(pool, family, fault, size, preset.diagnosticians, place)
            told |= {"seed": seed, "commit": code_commit(), "seconds": time.monotonic() - began}
            write_atomic(file, dumps(told, indent=1) + "\n")
            say(f"{name}: {told['left_out'] or 'complete'} after {told['seconds']:.0f} s")
    done = {n: _read(folder / f"{n}.json") for n in trials if (folder / f"{n}.json").is_file()}
    figures = combine(list(done.values()), preset.reference)
    result = {
        "bench": "diagnosis",
        "preset": preset.model_dump(mode="json"),
        "commit": code_commit(),
        "machine": describe_machine(),
        "seeds": list(preset.seeds),
        "trials": done,
        "figures": figures,
        "complete": len(done) == len(trials),
    }
    stem = f"diagnosis-{Path(preset_name).stem}"
    files = out / f"{stem}.json", out / f"{stem}.md", out / f"{stem}.png"
    write_atomic(files[0], dumps(result, indent=1) + "\n")
    shown = tables(figures)
    draw(figures, files[2])
    write_atomic(files[1], markdown(shown, "Diagnoses of known causes", [files[2].name]))
    return Report(result, shown, files, {})


def _number(name: str) -> int:
    """A number for a name, the same wherever it stands in a preset: a trial's seed has it."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], "big")


def _check(preset: DiagnosisPreset) -> None:
    for family in preset.families:
        get_family(family)
    for fault in preset.faults:
        if fault not in FAULTS:
            raise ConfigError(f"unknown fault {fault!r}.", allowed=suggest(fault, FAULTS))
    for name, options in preset.diagnosticians.items():
        make_diagnostician(name, **options)
    if preset.reference not in preset.diagnosticians:
        raise ConfigError(
            f"the reference is {preset.reference!r}.",
            allowed=suggest(preset.reference, preset.diagnosticians),
        )


def _fingerprint(preset: DiagnosisPreset) -> str:
    """Of what a trial depends on: which trials there are may change."""
    data = preset.model_dump(mode="json", include={"episodes", "claims", "per_arm"})
    data["diagnosticians"] = preset.diagnosticians
    return hashlib.sha256(dumps(data).encode()).hexdigest()[:8]


def _read(path: Path) -> Mapping[str, Any]:
    try:
        data: Mapping[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(data, dict) or "left_out" not in data:
            raise ValueError("it is no trial")
        return data
    except (OSError, ValueError, RecursionError) as error:
        raise RunError(f"{path} is not usable: {error}.", remedy="remove that file") from error
