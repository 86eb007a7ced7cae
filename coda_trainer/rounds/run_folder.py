"""RunFolder: where a run keeps everything, so that a kill at any instant loses one round at most."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import platform
import shutil
import subprocess
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
        self.events = path / "events"
        self.checkpoints = path / "checkpoints"
        self.work = path / "work"
        self._lock: BinaryIO | None = None

    @classmethod
    def create(cls, path: Path, config: RunConfig, extra: Mapping[str, Any]) -> RunFolder:
        """A new run folder with its resolved configuration and manifest."""
        for name in ("checkpoints", "scenes", "frames", "events"):
            (path / name).mkdir(parents=True, exist_ok=True)
        run = cls(path)
        run.lock()
        write_atomic(path / "config.yaml", config.to_yaml())
        write_atomic(path / "manifest.json", dumps(_manifest(config, extra), indent=1))
        return run

    @classmethod
    def open(cls, path: Path) -> RunFolder:
        """An existing run folder. Raises :class:`RunError` where another process trains in it."""
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
        """Versions, seed, commit and start of the run."""
        data: dict[str, Any] = json.loads((self.path / "manifest.json").read_text(encoding="utf-8"))
        return data

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
        """Drop metrics and scenes of rounds after ``round``, which will be done again."""
        kept = [r for r in self.metrics() if r["round"] <= round]
        write_atomic(self.path / "metrics.jsonl", "".join(dumps(r) + "\n" for r in kept))
        for file in (self.path / "scenes").glob("round_*.jsonl"):
            if int(file.stem.removeprefix("round_")) > round:
                file.unlink()

    def append_scenes(self, round: int, source: str, scenes: Sequence[Scene]) -> None:
        """Add accepted scenes to ``scenes/round_NNN.jsonl``, one library a round."""
        with (self.path / "scenes" / f"round_{round:03d}.jsonl").open("a", encoding="utf-8") as file:
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

    def last_checkpoint(self) -> tuple[int, Path, list[str]]:
        """(round, folder, problems) of the newest complete checkpoint.

        ``problems`` names damaged ones that were passed over. Raises :class:`RunError` where none
        is complete.
        """
        problems: list[str] = []
        for folder in reversed(self._named()):
            problem = _broken(folder)
            if problem is None:
                return int(folder.name.removeprefix("round_")), folder, problems
            problems.append(f"checkpoint {folder} is damaged ({problem})")
        raise RunError(
            f"{self.path} has no complete checkpoint"
            + (f": {'; '.join(problems)}." if problems else ": it was killed in its first steps."),
            remedy="start the run anew in another folder",
        )

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
    write_atomic(folder / SEAL, dumps({"files": files}, indent=1))


def _broken(folder: Path) -> str | None:
    """What is wrong with a checkpoint, or None."""
    try:
        files = json.loads((folder / SEAL).read_text(encoding="utf-8"))["files"]
    except (OSError, ValueError, KeyError, TypeError):
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


def _manifest(config: RunConfig, extra: Mapping[str, Any]) -> dict[str, Any]:
    versions = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            versions[package] = "not installed"
    return {
        "seed": config.seed,
        "family": config.family,
        "strategy": config.strategy,
        "commit": _commit(),
        "engine": engine_fingerprint(),
        "versions": versions,
        "machine": {
            "system": platform.platform(),
            "processor": platform.machine(),
            "cores": os.cpu_count(),
        },
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        **extra,
    }


def _commit() -> str:
    """The commit of the checkout this code runs from, or "unknown"."""
    try:
        found = subprocess.run(
            ["git", "describe", "--always", "--dirty", "--abbrev=12"],
            cwd=Path(__file__).parent,
            capture_output=True,
            text=True,
            timeout=10,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return "unknown"
    return found.stdout.strip() or "unknown"
