"""Reading a run's configuration: file, ``--set`` overrides, errors in the user's terms."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from coda_envs.errors import ConfigError, RunError, suggest
from coda_envs.strict_yaml import line_of, read_yaml, yaml_problem
from coda_trainer.config import RunConfig
from coda_trainer.yaml_input import parse_assignment, shown

#: Largest configuration file that is read, in bytes.
MAX_BYTES = 1_000_000


def load_config(path: Path | str, overrides: Sequence[str] = ()) -> RunConfig:
    """Read a configuration file, apply ``overrides`` (``"learner.batch_size=64"``), check it all.

    Raises :class:`ConfigError` that names the file and line or the ``--set``, the setting, its
    value and what is allowed.
    """
    path = Path(path)
    text = _read(path)
    try:
        data = read_yaml(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ConfigError(
            f"{path} is not YAML: {yaml_problem(error)}.",
            remedy="correct that line; configs/demo.yaml is an example",
        ) from error
    if data is None:
        data = {}
    if not isinstance(data, dict):
        raise ConfigError(
            f"{path} holds {type(data).__name__}, not settings.",
            allowed="a mapping of settings to values",
            remedy="compare with configs/demo.yaml",
        )
    assignments: dict[str, Any] = {}
    for override in overrides:
        _refuse_secret_key(re.split("[=:]", override, maxsplit=1)[0], "--set")
        key, value = parse_assignment(override, ConfigError)
        if key in _RENAMED:
            raise _renamed(key, "--set")
        assignments[key] = value
    for key, value in assignments.items():
        _refuse_secrets(value, key, "--set")
        _assign(data, key, value)
    _refuse_secrets(data, "", str(path))
    for key in data.keys() & _RENAMED.keys():
        raise _renamed(key, f"{path}, line {line_of(text, [key])}")
    try:
        return RunConfig.model_validate(data)
    except ValidationError as error:
        raise _explain(error, path, text, assignments) from error


def load_run_config(run: Path | str) -> RunConfig:
    """The configuration of a run folder. Raises :class:`RunError` where it is not one."""
    run = Path(run)
    missing = [n for n in ("config.yaml", "manifest.json") if not (run / n).is_file()]
    if missing:
        problem = (
            f"{run} has no {' and no '.join(missing)}" if run.is_dir() else f"{run} is not a folder"
        )
        raise RunError(
            f"{problem}: not a run.",
            allowed="a folder that `coda train --out` wrote",
            remedy="check the path, or start a run with `coda train --config configs/demo.yaml`",
        )
    return load_config(run / "config.yaml")


def _read(path: Path) -> str:
    try:
        if path.stat().st_size > MAX_BYTES:
            raise ConfigError(
                f"{path} is larger than {MAX_BYTES} bytes: not a configuration.",
                remedy="compare with configs/demo.yaml",
            )
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(
            f"configuration {path} cannot be read: {error.strerror}.",
            remedy="check the path; configs/demo.yaml is an example",
        ) from error
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"{path} is not UTF-8 text: {error.reason} at byte {error.start}.",
            remedy="save it as UTF-8",
        ) from error


def _assign(data: dict[str, Any], key: str, value: Any) -> None:
    """Put ``value`` at the dotted ``key``. Raises :class:`ConfigError` on a misspelt part."""
    *groups, last = key.split(".")
    for depth, part in enumerate(key.split(".")):
        known = _allowed(key.split(".")[:depth])
        if known is not None and part not in known:
            raise ConfigError(
                f"--set {key}: {part!r} is not a setting.",
                allowed=suggest(part, known),
                remedy="correct its spelling",
            )
    for part in groups:
        inner = data.setdefault(part, {})
        if not isinstance(inner, dict):
            raise ConfigError(
                f"--set {key}: {part!r} is {shown(inner)} in the file, not a group of settings.",
                remedy=f"correct {part!r} in the file",
            )
        data = inner
    data[last] = value


def _allowed(groups: Sequence[str | int]) -> tuple[str, ...] | None:
    """The settings of a group: names, none below a plain setting, None where all are allowed."""
    model: type[BaseModel] = RunConfig
    for name in groups:
        field = model.model_fields.get(str(name))
        kind = field.annotation if field else None
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            model = kind
        elif name in ("options", "given"):
            return None
        else:
            return ()
    return tuple(model.model_fields)


def _explain(
    error: ValidationError, path: Path, text: str, assignments: Mapping[str, Any]
) -> ConfigError:
    """The first problem of a validation, in the user's terms."""
    details: ErrorDetails = error.errors()[0]
    # Pydantic marks a key that is itself wrong with "[key]".
    location = [part for part in details["loc"] if part != "[key]"]
    key = ".".join(map(str, location))
    value = details["input"]
    line = line_of(text, location)
    given = any(key == k or key.startswith(f"{k}.") or k.startswith(f"{key}.") for k in assignments)
    source = f"--set {key}" if given else f"{path}, line {line}" if line else str(path)
    count = error.error_count() - 1
    more = f" ({count} more problem{'s' if count > 1 else ''})" if count else ""
    if details["type"] in ("extra_forbidden", "invalid_key"):
        known = _allowed(location[:-1]) or ()
        return ConfigError(
            f"{source}: {key!r} is not a setting{more}.",
            allowed=suggest(str(location[-1]), known),
            remedy="correct its spelling or remove it",
        )
    now = _RENAMED_VALUES.get((key, value)) if isinstance(value, str) else None
    return ConfigError(
        f"{source}: {key} is {shown(value)}{more}.",
        allowed=_expected(details),
        remedy=f"set {key} to {now or 'such a value'}",
    )


#: Values that are called otherwise now.
_RENAMED_VALUES = {("signal", "shaped"): "text2potential"}

#: Settings that are called otherwise now, with an example of what is written today.
_RENAMED = {"family": "families: [pick-place]"}


def _renamed(key: str, source: str) -> ConfigError:
    """The error for the old name of a setting, which says the new one."""
    return ConfigError(
        f"{source}: {key!r} is not a setting any more.",
        allowed=f"now {_RENAMED[key]}",
        remedy=f"write {_RENAMED[key]}",
    )


def _expected(details: ErrorDetails) -> str:
    """What a setting may be, in a user's words rather than in pydantic's."""
    message = details["msg"].removeprefix("Input should be ").removeprefix("Value error, ")
    return _WORDS.get(details["type"], message[:1].lower() + message[1:])


_WORDS = {
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "string_type": "a text",
    "string_too_short": "a text that is not empty",
    "dict_type": "a group of options",
    "model_type": "a group of settings",
    "tuple_type": "a list",
    "too_short": "a list of at least one",
}


#: A key with such a part would carry a secret into the run folder's config.yaml.
_SECRET = re.compile(
    r"(^|[._-])(api[_-]?key|key|token|secret|password|passwd|credentials?|authorization)$",
    re.I,
)
_USER_INFO = re.compile(r"[a-z][a-z0-9+.-]*://[^/?#\s]*@", re.I)


def _refuse_secrets(value: Any, key: str, source: str) -> None:
    """Raise :class:`ConfigError` for a secret in ``value`` or below it, without showing it."""
    if isinstance(value, Mapping):
        for name, inner in value.items():
            _refuse_secrets(inner, f"{key}.{name}" if key else str(name), source)
        return
    _refuse_secret_key(key, source)
    if isinstance(value, list):
        for inner in value:
            _refuse_secrets(inner, key, source)
    if isinstance(value, str) and _USER_INFO.search(value):
        raise ConfigError(
            f"{source}: {key} is a URL with a user name or password in it.",
            allowed="a URL without a user part: the configuration is copied into the run folder",
            remedy="give the key by the environment variable OPENAI_API_KEY",
        )


def _refuse_secret_key(key: str, source: str) -> None:
    if _SECRET.search(key.strip()):
        raise ConfigError(
            f"{source}: {key.strip()} looks like a secret; its value is not read.",
            allowed="no keys, tokens or passwords: the configuration is copied into the run folder",
            remedy="give the key by the environment variable OPENAI_API_KEY",
        )
