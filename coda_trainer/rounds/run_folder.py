"""RunFolder: where a run keeps everything, so that a kill at any instant costs one round at most.

docs/run_folder.md says what each file is.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import platform
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any, BinaryIO

from coda_envs.errors import RunError
from coda_envs.scene import Scene
from coda_envs.validity import engine_fingerprint
from coda_trainer.config import RunConfig
from coda_trainer.files import write_atomic
from coda_trainer.machine import code_commit
from coda_trainer.strict_json import dumps

#: Written last into a checkpoint: what belongs to it, with sizes and hashes.
SEAL = "complete.json"
#: Checkpoints that are kept; two, so that a damaged one has a predecessor.
KEEP = 2
_PACKAGES = ("coda-robotics", "gymnasium", "mujoco", "numpy", "torch")


class RunFolder:
    """Paths, manifest, metrics and checkpoints of one run."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.memory = path / "memory.sqlite"
        self.adopted = path / "adopted.sqlite"
        self.events = path / "events"
        self.checkpoints = path / "checkpoints"
        self.work = path / "work"
        self._lock: BinaryIO | None = None

    @classmethod
    def create(cls, path: Path, config: RunConfig, extra: Mapping[str, Any]) -> RunFolder:
        """A new run folder with its resolved configuration and manifest.

        ``extra`` joins the manifest. Raises :class:`RunError` where there is a run already.
        """
        path.mkdir(parents=True, exist_ok=True)
        run = cls(path)
        run.lock()
        if (path / "config.yaml").exists():
            run.close()
            raise RunError(
                f"{path} holds a run already; nothing in it was touched.",
                allowed="a folder that is empty or does not exist",
                remedy=f"choose another one, or go on with it: coda train --resume {path}",
            )
        for name in ("checkpoints", "scenes", "frames", "events"):
            (path / name).mkdir(exist_ok=True)
        write_atomic(path / "config.yaml", config.to_yaml())
        write_atomic(path / "manifest.json", dumps(_manifest(config, extra), indent=1))
        return run

    @classmethod
    def open(cls, path: Path) -> RunFolder:
        """An existing run folder, locked for training.

        Raises :class:`RunError` where it is none, or another process trains in it.
        """
        if not (path / "manifest.json").is_file():
            raise RunError(f"{path} is not a run: it has no manifest.json.")
        run = cls(path)
        run.lock()
        return run

    def lock(self) -> None:
        """Keep other processes from training in this folder."""
        handle = (self.path / ".lock").open("ab")
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            handle.close()
            raise RunError(
                f"another process is training in {self.path}.",
                remedy="wait for it, or stop it",
            ) from error
        self._lock = handle

    def close(self) -> None:
        """Release the lock and remove what only a running process needs."""
        shutil.rmtree(self.work, ignore_errors=True)
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def manifest(self) -> dict[str, Any]:
        """Versions, seed, commit and start of the run. Raises :class:`RunError`."""
        path = self.path / "manifest.json"
        try:
            data = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise RunError(f"{path} cannot be read: {error}.") from error
        if not isinstance(data, dict):
            raise RunError(f"{path} is not a manifest.")
        return data

    def drift(self) -> list[str]:
        """What has changed since the run began, in words: versions, and the physics engine.

        Numbers are the same only where nothing has.
        """
        began = self.manifest()
        before, now = dict(began.get("versions", {})), _versions()
        before["engine"], now["engine"] = began.get("engine"), engine_fingerprint()
        return [
            f"{name} was {before.get(name)} when the run began and is {value} now"
            for name, value in now.items()
            if before.get(name) != value
        ]

    def fresh_work_folder(self, name: str) -> Path:
        """An empty folder for files that workers read; gone when the run closes."""
        folder = self.work / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        return folder

    # Metrics -----------------------------------------------------------------------------------

    def append_metrics(self, record: Mapping[str, Any]) -> None:
        """Add one line to ``metrics.jsonl``; every record names its ``round`` and ``event``."""
        with (self.path / "metrics.jsonl").open("a", encoding="utf-8") as file:
            file.write(dumps(record) + "\n")
            file.flush()
            os.fsync(file.fileno())

    def metrics(self) -> list[dict[str, Any]]:
        """All records so far; a line that a kill cut short is left out."""
        path = self.path / "metrics.jsonl"
        if not path.is_file():
            return []
        records: list[dict[str, Any]] = []
        for line in path.read_text(encoding="utf-8").splitlines():
            try:
                records.append(json.loads(line))
            except json.JSONDecodeError:
                break
        return records

    def forget_after(self, round: int) -> None:
        """Drop what was written in rounds after ``round``, which will be done again.

        The results go too: they tell a finished run from one that is not.
        """
        for name in ("results.json", "report.txt"):
            (self.path / name).unlink(missing_ok=True)
        kept = [r for r in self.metrics() if r["round"] <= round]
        write_atomic(self.path / "metrics.jsonl", "".join(dumps(r) + "\n" for r in kept))
        for file in (self.path / "scenes").glob("*/round_*.jsonl"):
            if int(file.stem.removeprefix("round_")) > round:
                file.unlink()

    def append_scenes(self, round: int, family: str, source: str, scenes: Sequence[Scene]) -> None:
        """Add a family's accepted scenes to ``scenes/<family>/round_NNN.jsonl``: one library a
        round, which that family's environment can be made with."""
        folder = self.path / "scenes" / family
        folder.mkdir(exist_ok=True)
        with (folder / f"round_{round:03d}.jsonl").open("a", encoding="utf-8") as file:
            for scene in scenes:
                file.write(dumps({"source": source, "scene": scene.to_dict()}) + "\n")

    # Checkpoints -------------------------------------------------------------------------------

    @contextmanager
    def new_checkpoint(self, round: int) -> Iterator[Path]:
        """A folder to fill; it gets its name only when it is complete and on disk."""
        final = self.checkpoints / f"round_{round:03d}"
        draft = self.checkpoints / f".draft_{round:03d}"
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir(parents=True)
        yield draft
        _seal(draft)
        shutil.rmtree(final, ignore_errors=True)
        draft.rename(final)
        _sync(self.checkpoints)
        for old in self._named()[:-KEEP]:
            shutil.rmtree(old)

    def finished(self, last: int) -> bool:
        """Whether round ``last`` is complete and the results, written after it, are there."""
        found, _ = self.find_checkpoint()
        return found is not None and found[0] >= last and (self.path / "results.json").is_file()

    def find_checkpoint(self) -> tuple[tuple[int, Path] | None, list[str]]:
        """(round, folder) of the newest complete checkpoint, or None, and what is wrong with newer
        ones that were passed over."""
        problems: list[str] = []
        for folder in reversed(self._named()):
            problem = _broken(folder)
            if problem is None:
                return (int(folder.name.removeprefix("round_")), folder), problems
            problems.append(f"checkpoint {folder} is damaged ({problem})")
        return None, problems

    def last_checkpoint(self) -> tuple[int, Path, list[str]]:
        """(round, folder, problems) of :meth:`find_checkpoint`.

        Raises :class:`RunError` where none is complete.
        """
        found, problems = self.find_checkpoint()
        if found is None:
            raise RunError(
                f"{self.path} has no complete checkpoint"
                + (f": {'; '.join(problems)}." if problems else ": its first round is not done."),
                remedy=f"do that round first: coda train --resume {self.path}",
            )
        return *found, problems

    def _named(self) -> list[Path]:
        found = self.checkpoints.glob("round_*")
        return sorted(p for p in found if p.name.removeprefix("round_").isdigit())


def _seal(folder: Path) -> None:
    files = {}
    for file in sorted(p for p in folder.rglob("*") if p.is_file()):
        with file.open("rb") as handle:
            digest = hashlib.file_digest(handle, "sha256").hexdigest()
            os.fsync(handle.fileno())
        files[str(file.relative_to(folder))] = [file.stat().st_size, digest]
    for inner in (p for p in folder.rglob("*") if p.is_dir()):
        _sync(inner)
    write_atomic(folder / SEAL, dumps({"files": files}, indent=1))
    _sync(folder)


def _broken(folder: Path) -> str | None:
    """What is wrong with a checkpoint, or None."""
    try:
        listed = json.loads((folder / SEAL).read_text(encoding="utf-8"))["files"]
        files = {str(name): (int(size), str(digest)) for name, (size, digest) in listed.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return f"no usable {SEAL}"
    for name, (size, digest) in files.items():
        file = folder / name
        if not file.is_file():
            return f"{name} is missing"
        if file.stat().st_size != size:
            return f"{name} has {file.stat().st_size} bytes instead of {size}"
        with file.open("rb") as handle:
            if hashlib.file_digest(handle, "sha256").hexdigest() != digest:
                return f"{name} has changed"
    return None


def _sync(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _versions() -> dict[str, str]:
    versions = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            versions[package] = "not installed"
    return versions


def _manifest(config: RunConfig, extra: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "seed": config.seed,
        "families": list(config.families),
        "strategy": config.strategy,
        "commit": code_commit(),
        "engine": engine_fingerprint(),
        "versions": _versions(),
        "machine": {
            "system": platform.platform(),
            "processor": platform.machine(),
            "cores": os.cpu_count(),
        },
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        **extra,
    }
