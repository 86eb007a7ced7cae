"""A PostgreSQL server of the tests' own, in a folder of its own, gone when they are done."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

USER, PASSWORD = "coda", "not-to-be-shown"


def binaries() -> Path | None:
    """The folder with PostgreSQL's programs, or None where it is not installed."""
    found = shutil.which("initdb")
    places = [Path(found).parent] if found else []
    places += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    return next((p for p in places if (p / "initdb").is_file() and (p / "pg_ctl").is_file()), None)


@contextmanager
def running() -> Iterator[str]:
    """The URL of a running server, with user and password."""
    programs = binaries()
    assert programs is not None
    folder = Path(tempfile.mkdtemp(prefix="coda-postgres-"))
    # It refuses to run as root; the package brings a user of its own.
    root = os.geteuid() == 0
    before = ["runuser", "-u", "postgres", "--"] if root else []
    if root:
        shutil.chown(folder, "postgres")

    def call(*words: str) -> None:
        subprocess.run([*before, *words], check=True, capture_output=True, text=True, cwd=folder)

    password = folder / "password"
    password.write_text(PASSWORD)
    password.chmod(0o644)
    data = str(folder / "data")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    try:
        call(
            str(programs / "initdb"), "-D", data, "-U", USER, "--auth=scram-sha-256",
            f"--pwfile={password}", "--no-sync", "-E", "UTF8", "--locale=C",
        )  # fmt: skip
        options = f"-p {port} -k {folder} -c listen_addresses=127.0.0.1 -c fsync=off"
        call(
            str(programs / "pg_ctl"), "-D", data, "-w", "-l", str(folder / "log"),
            "-o", options, "start",
        )  # fmt: skip
        try:
            yield f"postgresql://{USER}:{PASSWORD}@127.0.0.1:{port}/postgres"
        finally:
            call(str(programs / "pg_ctl"), "-D", data, "-m", "immediate", "stop")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
