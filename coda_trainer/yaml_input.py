"""``path=value`` on the command line, read as YAML, and values as messages show them."""

from __future__ import annotations

import reprlib
from typing import Any

import yaml

from coda_envs.errors import CodaError
from coda_envs.strict_yaml import read_yaml, yaml_problem


def parse_assignment(text: str, kind: type[CodaError]) -> tuple[str, Any]:
    """``(path, value)`` of a ``--set path=value``; the value is read as YAML.

    Raises ``kind`` where the text has no ``=``, no path, or a value that is not YAML.
    """
    path, equals, value = text.partition("=")
    path = path.strip()
    if not equals or not all(path.split(".")):
        raise kind(
            f"--set {shown(text)} is not an assignment.",
            allowed="path=value, for instance a.b=3",
            remedy="put an equals sign between a dotted path and its value, without spaces",
        )
    try:
        return path, read_yaml(value)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise kind(
            f"--set {path}: the value {shown(value)} is not YAML ({yaml_problem(error)}).",
            remedy="put the value in quotes",
        ) from error


def shown(value: Any) -> str:
    """A value as an error message shows it: bounded in depth and length."""
    return _SHORT.repr(value)


_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = 60
_SHORT.maxlevel = 2
