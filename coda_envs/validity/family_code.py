"""The border to a family's own code, which a third party may have written."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import mujoco

from coda_envs.errors import CodaError, PluginError
from coda_envs.family import TaskFamily


class FamilyCodeError(PluginError):
    """A family's own code raised something that is not its word on a scene."""


@contextmanager
def family_code(family: TaskFamily, what: str) -> Iterator[None]:
    """While the family's ``what`` runs: turn what it raises into a :class:`FamilyCodeError`.

    :class:`CodaError` passes as it is, being what the family has to say of the scene, and so does
    MuJoCo's own error.
    """
    try:
        yield
    except (CodaError, mujoco.FatalError):
        raise
    # A third party's code may raise anything, and must not take the caller down.
    except Exception as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        raise FamilyCodeError(
            f"{what} of the family {family.name!r} raises {type(error).__name__}: "
            f"{one_line(error)} ({Path(last.filename).name}, line {last.lineno})",
            remedy="repair the family; the scene was not judged",
        ) from error


def one_line(error: Exception) -> str:
    """The error's text in one line of bounded length."""
    text = " ".join(str(error).split())
    return text if len(text) <= 300 else text[:297] + "..."
