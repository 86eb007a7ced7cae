"""The ``coda`` command: parses the line, runs the command, prints its answer, sets the exit code.

With ``--json`` standard output carries one JSON document and nothing else, errors included;
progress, warnings and whatever a plugin prints go to standard error. docs/commands.md lists the
exit codes.
"""

from __future__ import annotations

import contextlib
import errno
import os
import sys
import traceback
from collections.abc import Iterator, Sequence
from typing import Annotated, Any

import tyro

from coda_envs import __version__
from coda_envs.errors import CodaError
from coda_trainer.commands.annotate import AnnotateAgree, AnnotateLabel
from coda_trainer.commands.bench import Bench
from coda_trainer.commands.diagnose import Diagnose
from coda_trainer.commands.doctor import Doctor
from coda_trainer.commands.envs import EnvsBench, EnvsCheck, EnvsGallery, EnvsList
from coda_trainer.commands.episode import EpisodeRecord, EpisodeShow
from coda_trainer.commands.evaluate import Evaluate
from coda_trainer.commands.memory import (
    MemoryDiff,
    MemoryExport,
    MemoryImport,
    MemoryLift,
    MemoryMode,
    MemoryShow,
)
from coda_trainer.commands.potential import PotentialPlot, PotentialShow
from coda_trainer.commands.program import ProgramApply, ProgramLift, ProgramShow
from coda_trainer.commands.result import Command, Result
from coda_trainer.commands.scene import (
    SceneEdit,
    SceneNew,
    SceneRender,
    SceneStrip,
    SceneValidate,
)
from coda_trainer.commands.suites import SuitesList, SuitesVerify
from coda_trainer.commands.train import Train

USAGE = 2
#: A full disk, a file that may not be written.
SYSTEM = 8
INTERRUPTED = 130
BROKEN_PIPE = 141

_SYSTEM_ERRORS = (
    errno.ENOSPC,
    errno.EDQUOT,
    errno.EFBIG,
    errno.EACCES,
    errno.EPERM,
    errno.EROFS,
)

_DESCRIPTION = """CoDA: train a robot policy on the situations in which it fails.

Start with `coda doctor`, then `coda train --config configs/demo.yaml`.
Each command has its own --help."""


def _command(kind: type[Command], name: str) -> Any:
    return Annotated[kind, tyro.conf.subcommand(name)]


def _group(name: str, description: str, commands: dict[str, type[Command]]) -> Any:
    """Subcommands below a common word, as in ``coda scene new``."""
    members = tuple(_command(kind, sub) for sub, kind in commands.items())
    union: Any = members[0]
    for member in members[1:]:
        union = union | member
    return Annotated[union, tyro.conf.subcommand(name, description=description)]


_COMMANDS: Any = (
    _command(Doctor, "doctor")
    | _command(Train, "train")
    | _command(Evaluate, "evaluate")
    | _command(Diagnose, "diagnose")
    | _command(Bench, "bench")
    | _group(
        "envs",
        "List, check, measure or draw the environments.",
        {"list": EnvsList, "check": EnvsCheck, "bench": EnvsBench, "gallery": EnvsGallery},
    )
    | _group(
        "suites",
        "List or verify the frozen suites that everything is measured on.",
        {"list": SuitesList, "verify": SuitesVerify},
    )
    | _group(
        "scene",
        "Write, change, check or draw scenes.",
        {
            "new": SceneNew,
            "edit": SceneEdit,
            "validate": SceneValidate,
            "render": SceneRender,
            "strip": SceneStrip,
        },
    )
    | _group(
        "potential",
        "Show what a staged potential measures, or draw it along an episode.",
        {"show": PotentialShow, "plot": PotentialPlot},
    )
    | _group(
        "episode",
        "Record episodes of a policy, and see what happened in them.",
        {"record": EpisodeRecord, "show": EpisodeShow},
    )
    | _group(
        "annotate",
        "Label failures by people, blind, and compare what they said.",
        {"label": AnnotateLabel, "agree": AnnotateAgree},
    )
    | _group(
        "program",
        "Check, apply or lift generation and training programs.",
        {"show": ProgramShow, "apply": ProgramApply, "lift": ProgramLift},
    )
    | _group(
        "memory",
        "Look into the memory of a run: what failed, why, and what helped.",
        {
            "show": MemoryShow,
            "mode": MemoryMode,
            "diff": MemoryDiff,
            "lift": MemoryLift,
            "export": MemoryExport,
            "import": MemoryImport,
        },
    )
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit code.

    ``argv`` are the words after ``coda``; those of the process by default.
    """
    words = list(sys.argv[1:] if argv is None else argv) or ["--help"]
    as_json = "--json" in words
    try:
        return _run(words, as_json)
    except BrokenPipeError:
        # The reader went away (`coda scene new | head`).
        _abandon_stdout()
        return BROKEN_PIPE
    except OSError as error:
        # Standard output goes to a full disk.
        if error.errno not in _SYSTEM_ERRORS:
            raise
        _abandon_stdout()
        return int(_system_error(error)["error"]["exit_code"])


def _run(words: list[str], as_json: bool) -> int:
    if words == ["--version"]:
        print(__version__)
        return 0
    try:
        command: Command = tyro.cli(
            _COMMANDS,
            args=words,
            prog="coda",
            description=_DESCRIPTION,
            config=(tyro.conf.OmitSubcommandPrefixes, tyro.conf.OmitArgPrefixes),
        )
    except SystemExit as leaving:
        # tyro has printed the help (0) or what is wrong with the words (2).
        if as_json and leaving.code:
            _print_json(
                _error_document(
                    "UsageError",
                    USAGE,
                    "the command line is not understood; see standard error",
                    remedy=f"coda {' '.join(words[:1])} --help",
                )
            )
        return int(leaving.code or 0)
    with _own_stdout(as_json):
        result, failure = _attempt(command)
    if failure is not None:
        if as_json:
            _print_json(failure)
        return int(failure["error"]["exit_code"])
    if as_json:
        data = dict(result.data)
        if result.error is not None:
            data |= _document_of(result.error)
        _print_json(data)
    else:
        _print_view(result.view)
        if result.error is not None:
            print(f"error: {result.error}", file=sys.stderr)
    return result.error.exit_code if result.error is not None else 0


def _attempt(command: Command) -> tuple[Result, dict[str, Any] | None]:
    """The command's result, or the error document; an error is told on standard error too."""
    try:
        return command.run(), None
    except CodaError as error:
        print(f"error: {error}", file=sys.stderr)
        return Result(), _document_of(error)
    except KeyboardInterrupt:
        remedy = "`coda train --resume RUN` goes on from a run's last completed step"
        print(f"error: interrupted. Remedy: {remedy}.", file=sys.stderr)
        return Result(), _error_document("Interrupted", INTERRUPTED, "interrupted", remedy=remedy)
    except BrokenPipeError:
        raise
    except OSError as error:
        if error.errno not in _SYSTEM_ERRORS:
            return Result(), _unexpected(error)
        return Result(), _system_error(error)
    except Exception as error:
        return Result(), _unexpected(error)


def _unexpected(error: Exception) -> dict[str, Any]:
    traceback.print_exc()
    message = f"{type(error).__name__}: {error}"
    print(f"error: this is a fault in coda, please report it: {message}", file=sys.stderr)
    return _error_document("InternalError", 1, message)


def _system_error(error: OSError) -> dict[str, Any]:
    message = f"{error.filename or 'the output'} cannot be read or written: {error.strerror}."
    remedy = "free some space or choose a place that you may write to"
    print(f"error: {message} Remedy: {remedy}.", file=sys.stderr)
    return _error_document("SystemError", SYSTEM, message, remedy=remedy)


def _abandon_stdout() -> None:
    """Send what is still buffered nowhere: Python would try it again at exit, and complain."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _document_of(error: CodaError) -> dict[str, Any]:
    return _error_document(
        type(error).__name__, error.exit_code, error.problem, error.allowed, error.remedy
    )


def _error_document(
    kind: str, exit_code: int, problem: str, allowed: str | None = None, remedy: str | None = None
) -> dict[str, Any]:
    return {
        "error": {
            "kind": kind,
            "exit_code": exit_code,
            "problem": problem,
            "allowed": allowed,
            "remedy": remedy,
        }
    }


@contextlib.contextmanager
def _own_stdout(active: bool) -> Iterator[None]:
    """While ``active``, all that this process and its children print goes to standard error."""
    if not active:
        yield
        return
    sys.stdout.flush()
    # The descriptor too, for workers and C libraries, which know nothing of sys.stdout.
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        with contextlib.redirect_stdout(sys.stderr):
            yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)


def _print_json(data: dict[str, Any]) -> None:
    from coda_trainer.strict_json import dumps

    print(dumps(data, indent=2), flush=True)


def _print_view(view: Any) -> None:
    if isinstance(view, str):
        sys.stdout.write(view)
        sys.stdout.flush()
        return
    from rich.console import Console

    console = Console(file=sys.stdout, highlight=False)
    console.print(view)
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
