"""Files that are either the old one or the new one, never half of one."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from coda_envs.errors import CodaError


def check_place(path: Path) -> None:
    """Raise :class:`CodaError` where no file can be: ask before the work that fills it."""
    if path.is_dir() or not path.parent.is_dir():
        raise CodaError(
            f"{path} cannot be written: "
            + ("it is a folder." if path.is_dir() else f"{path.parent} is not a folder."),
            allowed="a file in a folder that exists",
            remedy="correct the path or make the folder first",
        )


def write_atomic(path: Path, content: str | bytes) -> None:
    """Write a file through a temporary neighbour and a rename.

    What was at ``path`` stays until the new content is on disk. Raises :class:`CodaError` where
    the folder does not exist, :class:`OSError` where the disk is full or may not be written.
    """
    data = content.encode() if isinstance(content, str) else content
    check_place(path)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        # mkstemp makes files that only their owner reads; take the usual permissions.
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(name, 0o666 & ~mask)
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
