"""Branching: a run that starts from the fine-tuning of another, so that it is done once a seed."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

from coda_envs.errors import RunError
from coda_trainer.config import CollectConfig, RunConfig
from coda_trainer.config_file import load_run_config
from coda_trainer.files import write_atomic
from coda_trainer.rounds.adopted_memory import check_adopted, copy_adopted
from coda_trainer.rounds.run_folder import RunFolder
from coda_trainer.strict_json import dumps


def round_zero(config: RunConfig) -> RunConfig:
    """The run that ends where the rounds of ``config`` begin.

    It has every setting that round 0 depends on and the defaults of all others, so that runs which
    differ in their rounds alone share it.
    """
    return RunConfig(
        seed=config.seed,
        families=config.families,
        # It learns, so that the demonstrations go into a replay.
        strategy="uniform",
        rounds=0,
        control_hz=config.control_hz,
        workers=config.workers,
        backbone=config.backbone,
        demonstrations=config.demonstrations,
        sft=config.sft,
        collect=CollectConfig(replay_megabytes=config.collect.replay_megabytes),
        evaluation=config.evaluation,
    )


def branch(source: Path, out: Path, config: RunConfig, adopted: Path | None = None) -> None:
    """Make ``out`` a run of ``config`` whose round 0 is that of the finished run ``source``.

    ``adopted``: a memory file that it is given, see :func:`coda_trainer.rounds.loop.train`.

    ``coda train --resume`` goes on with it, and it ends with the numbers of a run that did its own
    round 0. ``out`` gets its name only when it is complete. Raises :class:`RunError` where
    ``source`` is no finished run of :func:`round_zero`, or ``out`` exists.
    """
    # The numbers do not depend on the workers.
    same = {"workers": config.workers}
    given, wanted = load_run_config(source).model_copy(update=same), round_zero(config)
    if given != wanted:
        differs = [k for k in RunConfig.model_fields if getattr(given, k) != getattr(wanted, k)]
        raise RunError(
            f"{source} cannot start {out}: its settings differ in {', '.join(differs)}.",
            remedy="start it from the fine-tuning of its own settings",
        )
    if out.exists():
        raise RunError(f"{out} exists; nothing in it was touched.", remedy="choose another folder")
    _, checkpoint, _ = RunFolder(source).last_checkpoint()
    draft = out.with_name(f".{out.name}.draft")
    shutil.rmtree(draft, ignore_errors=True)
    taken = None if adopted is None else check_adopted(adopted, config)
    if adopted is not None:
        copy_adopted(adopted, draft)
    extra = {"scene": None, "round_zero_of": source.name, "adopted": taken}
    run = RunFolder.create(draft, config, extra)
    shutil.copytree(checkpoint, run.checkpoints / checkpoint.name)
    shutil.copytree(source / "scenes", draft / "scenes", dirs_exist_ok=True)
    _copy_memory(RunFolder(source).memory, run.memory)
    # Its pictures are of its own last round.
    records = [r for r in RunFolder(source).metrics() if r["event"] != "frames"]
    write_atomic(draft / "metrics.jsonl", "".join(dumps(r) + "\n" for r in records))
    run.close()
    draft.rename(out)


def _copy_memory(source: Path, target: Path) -> None:
    """By SQLite's own means: a part of the memory may be in a side file."""
    reader = sqlite3.connect(f"file:{quote(str(source.absolute()))}?mode=ro", uri=True)
    with closing(reader) as old, closing(sqlite3.connect(target)) as new:
        old.backup(new)
