"""The errors a user can cause, each with what is allowed and what to do about it."""

from __future__ import annotations

import difflib
import reprlib
from collections.abc import Iterable


class _ShortRepr(reprlib.Repr):
    """Bounded in depth and length, and safe for whole numbers that Python refuses to write out."""

    def __init__(self) -> None:
        super().__init__()
        self.maxlevel = 3

    def repr_int(self, x: int, level: int) -> str:
        """A number's digits, or how many bits it has."""
        del level
        return repr(x) if x.bit_length() < 128 else f"a number of {x.bit_length()} bits"


_REPR = _ShortRepr()


#: Most characters of a message's first part.
LONGEST = 1_000


class CodaError(ValueError):
    """Bad input from outside: a file, a configuration, a plugin, a run folder, a program.

    The message names the thing and its value, then what is allowed, then the remedy. The command
    line prints it without a traceback and exits with ``exit_code``.
    """

    exit_code = 1

    def __init__(
        self, problem: str, *, allowed: str | None = None, remedy: str | None = None
    ) -> None:
        # It may quote what came from outside, which may be of any length.
        problem = _bounded(problem)
        self.problem = problem
        self.allowed = allowed
        self.remedy = remedy
        parts = [problem]
        if allowed:
            parts.append(f"Allowed: {allowed}.")
        if remedy:
            parts.append(f"Remedy: {remedy}.")
        super().__init__(" ".join(parts))

    def __reduce__(self) -> tuple[object, ...]:
        """Survive the trip between processes with all three parts."""
        return _rebuild, (type(self), self.problem, self.allowed, self.remedy)


def _bounded(text: str) -> str:
    """The text, without its middle where it is too long to be read."""
    half = LONGEST // 2
    return text if len(text) <= LONGEST else f"{text[:half]} … {text[-half:]}"


def _rebuild(
    kind: type[CodaError], problem: str, allowed: str | None, remedy: str | None
) -> CodaError:
    return kind(problem, allowed=allowed, remedy=remedy)


class ConfigError(CodaError):
    """A configuration file or a ``--set`` that cannot be used."""

    exit_code = 2


class SceneError(CodaError):
    """A scene, factor or scene file that cannot be used."""

    exit_code = 3


class PluginError(CodaError):
    """A backbone, family or diagnostician that does not load or breaks its protocol."""

    exit_code = 4


class RunError(CodaError):
    """A run folder or checkpoint that cannot be used."""

    exit_code = 5


class ProgramError(CodaError):
    """A diagnosis, generation program or training program that does not fit its schema or scene."""

    exit_code = 6


class LearningError(CodaError):
    """Training that cannot go on: an empty replay, a value that is not finite, nothing to learn."""

    exit_code = 7


class LLMError(CodaError):
    """A language model that cannot be asked, or whose answer is of no use."""


class HeldOutError(SceneError):
    """A scene meant for training lies in a region that is kept for testing."""


def short(value: object) -> str:
    """``value`` as a message shows it: a few dozen characters of its ``repr``.

    What comes from a file may be too large to write out in full, or refuse: a whole number of
    thousands of digits, lists that hold one another a billion times.
    """
    text = _REPR.repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def suggest(word: str, allowed: Iterable[str]) -> str:
    """The allowed words in order, led by the closest match: ``'a', 'b' (did you mean 'b'?)``."""
    words = sorted(allowed)
    word = word[:200]
    listed = ", ".join(repr(w) for w in words)
    close = difflib.get_close_matches(word, words, n=1)
    return f"{listed} (did you mean {close[0]!r}?)" if close else listed
