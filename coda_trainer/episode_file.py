"""Episode files: records of rollouts on disk, compact, read one at a time.

A file is a ZIP archive with a member for each episode, ``000000.npz`` and so on: its arrays, and a
header as JSON. Observations are not kept: scene, seed and actions give them again, and the state
features are there. Nothing in a file is unpickled.
"""

from __future__ import annotations

import io
import json
import os
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from coda_envs.errors import CodaError, RunError
from coda_envs.family import get_family
from coda_envs.scene import parse_scene
from coda_trainer.episode import Episode
from coda_trainer.files import check_place
from coda_trainer.strict_json import dumps

FORMAT = 1
#: Longest episode and largest member that are read.
MAX_STEPS, MAX_BYTES = 100_000, 200_000_000
#: Arrays of a member: name, type of its numbers, and what it has one of for each row.
ARRAYS: dict[str, type] = {
    "actions": np.float32,
    "features": np.float32,
    "rewards": np.float64,
    "starts": np.int64,
}
_FLAGS = ("terminated", "truncated", "success")
_TEXTS = ("failure", "source", "stage")


def write_episodes(path: Path, episodes: Iterable[Episode], control_hz: int) -> int:
    """Write the episodes, which may come one by one; how many there were.

    The file appears under its name when it is whole. Equal episodes give equal bytes. Raises
    :class:`CodaError` where the folder does not exist.
    """
    check_place(path)
    draft = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    count = 0
    try:
        with zipfile.ZipFile(draft, "w", zipfile.ZIP_STORED) as archive:
            for episode in episodes:
                # Without a date: the same episodes are the same file.
                member = zipfile.ZipInfo(f"{count:06d}.npz", (1980, 1, 1, 0, 0, 0))
                archive.writestr(member, _member(episode, control_hz))
                count += 1
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
    return count


def read_episodes(path: Path) -> Iterator[tuple[Episode, int]]:
    """The episodes of a file in order, each with its control rate (Hz), one in memory at a time.

    Raises :class:`RunError` naming the file, the member and what is wrong with it.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            for member in archive.infolist():
                yield _episode(archive, member, f"{path}, {member.filename}")
    except (OSError, zipfile.BadZipFile) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise RunError(
            f"{path} is no episode file: {why}.",
            remedy="write one with `coda episode record`",
        ) from error


def read_episode(path: Path, index: int) -> tuple[Episode, int]:
    """One episode of a file and its control rate. Raises :class:`RunError`."""
    count = 0
    for found in read_episodes(path):
        if count == index:
            return found
        count += 1
    raise RunError(
        f"{path} has no episode {index}.",
        allowed=f"0 to {count - 1}" if count else "none: the file is empty",
    )


def _member(episode: Episode, control_hz: int) -> bytes:
    head: dict[str, Any] = {
        "format": FORMAT,
        "control_hz": control_hz,
        "scene": episode.scene.to_dict(),
        "seed": episode.seed,
        "began": episode.began,
        **{name: bool(getattr(episode, name)) for name in _FLAGS},
        **{name: getattr(episode, name) for name in _TEXTS},
    }
    arrays = {name: getattr(episode, name).astype(kind) for name, kind in ARRAYS.items()}
    arrays["head"] = np.frombuffer(dumps(head).encode(), dtype=np.uint8)
    buffer = io.BytesIO()
    np.savez_compressed(buffer, allow_pickle=False, **arrays)
    return buffer.getvalue()


def _episode(archive: zipfile.ZipFile, member: zipfile.ZipInfo, place: str) -> tuple[Episode, int]:
    if member.file_size > MAX_BYTES:
        raise RunError(f"{place} has {member.file_size} bytes.", allowed=f"at most {MAX_BYTES}")
    try:
        with np.load(io.BytesIO(archive.read(member)), allow_pickle=False) as data:
            head = json.loads(bytes(data["head"]).decode())
            arrays = {name: data[name] for name in ARRAYS}
        return _checked(head, arrays, place)
    except CodaError as error:
        raise RunError(
            f"{place}: {error.problem}", allowed=error.allowed, remedy=error.remedy
        ) from error
    except (OSError, ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile) as error:
        raise RunError(f"{place} is no episode: {error}.") from error


def _checked(
    head: dict[str, Any], arrays: dict[str, np.ndarray], place: str
) -> tuple[Episode, int]:
    """Raises ``ValueError`` or ``TypeError`` where header and arrays do not make an episode."""
    if head["format"] != FORMAT:
        raise ValueError(f"its format is {head['format']!r}, this version reads {FORMAT}")
    scene = parse_scene(head["scene"], place)
    size = get_family(scene.family).schema.size
    steps = len(arrays["actions"])
    shapes = {"actions": (steps, 7), "features": (steps + 1, size), "rewards": (steps,)}
    for name, kind in ARRAYS.items():
        array = arrays[name]
        if array.dtype != kind or (name in shapes and array.shape != shapes[name]):
            raise ValueError(f"its {name} are {array.dtype} of shape {array.shape}")
        if not np.isfinite(array).all():
            raise ValueError(f"its {name} hold a value that is not finite")
    starts = arrays["starts"]
    if not 0 < steps <= MAX_STEPS or starts.ndim != 1 or not (starts >= 0).all():
        raise ValueError(f"it has {steps} steps and looks at {starts.tolist()[:8]}")
    whole = [head["seed"], head["began"], head["control_hz"]]
    if not all(type(n) is int and n >= 0 for n in whole) or head["control_hz"] not in (10, 20):
        raise ValueError(f"its seed, first step and control rate are {whole}")
    if not all(type(head[n]) is bool for n in _FLAGS) or not all(
        type(head[n]) is str for n in _TEXTS
    ):
        raise ValueError("its outcome is not usable")
    episode = Episode(
        scene=scene,
        seed=head["seed"],
        observations={},
        actions=arrays["actions"],
        features=arrays["features"],
        rewards=arrays["rewards"],
        starts=starts,
        terminated=head["terminated"],
        truncated=head["truncated"],
        success=head["success"],
        failure=head["failure"],
        source=head["source"],
        stage=head["stage"],
        began=head["began"],
    )
    return episode, int(head["control_hz"])
