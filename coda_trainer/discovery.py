"""How a backbone is found: by name, by ``module:Class`` or by the path of a Python file.

A plugin is code that its user chose to install or to name; it is imported here, and whatever goes
wrong with it becomes a :class:`PluginError` that says which plugin, from where, and why.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib
import importlib.metadata
import importlib.util
import inspect
import sys
import typing
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

from coda_envs.errors import CodaError, ConfigError, PluginError, suggest
from coda_trainer.backbone import (
    BUILT_IN,
    GROUP,
    REGISTERED,
    Backbone,
    BackboneFactory,
    BackboneSpec,
)

#: What every backbone, and what a trainable one, must be able to do.
_METHODS = ("reset", "sample", "close")
_TRAINABLE_METHODS = ("update", "save", "load")
#: The option types that are checked before a backbone is made; others are the plugin's own matter.
_CHECKED_TYPES = (bool, int, float, str)


@dataclass(frozen=True)
class BackboneSource:
    """Where a backbone's name comes from. Nothing was imported to find this out.

    ``target``: ``module:attribute``. ``distribution``: name and version of what installed it.
    ``problem``: why this source is not used (its name is taken), or empty.
    """

    name: str
    origin: Literal["built-in", "registered", "entry point"]
    target: str
    distribution: str = ""
    problem: str = ""


def backbone_sources() -> list[BackboneSource]:
    """Every source of a backbone name: built-in, registered, installed; shadowed ones too."""
    found = [BackboneSource(name, "built-in", target) for name, target in BUILT_IN.items()]
    for name, factory in sorted(REGISTERED.items()):
        target = f"{getattr(factory, '__module__', '?')}:{getattr(factory, '__qualname__', '?')}"
        found.append(BackboneSource(name, "registered", target))
    entries = _entry_points()
    for entry in entries:
        problem = ""
        rivals = [_owner(e) for e in entries if e.name == entry.name and e is not entry]
        if entry.name in BUILT_IN:
            problem = f"the name {entry.name!r} belongs to a built-in, which is used instead"
        elif entry.name in REGISTERED:
            problem = f"{entry.name!r} was registered in this process, which is used instead"
        elif rivals:
            problem = f"the name {entry.name!r} is also taken by {', '.join(rivals)}"
        found.append(BackboneSource(entry.name, "entry point", entry.value, _owner(entry), problem))
    return found


def check_backbone_sources() -> list[tuple[BackboneSource, str]]:
    """Try to import every installed backbone: each with its error message, or an empty one."""
    checked: list[tuple[BackboneSource, str]] = []
    sources = [s for s in backbone_sources() if s.origin == "entry point"]
    for source, entry in zip(sources, _entry_points(), strict=True):
        error = source.problem
        try:
            _check_signature(_load_entry(entry), _entry_label(entry))
        except PluginError as failure:
            error = "; ".join(filter(None, (error, str(failure))))
        checked.append((source, error))
    return checked


def make_backbone(name: str, *, seed: int, **options: Any) -> Backbone:
    """The backbone that ``name`` stands for, made from ``seed`` and the options.

    ``name`` is a built-in, registered or installed name, ``module:Class``, ``file.py`` or
    ``file.py:Class``. Raises :class:`ConfigError` for an unknown name or option or a value of the
    wrong type, and :class:`PluginError` where the plugin does not load or is no backbone.
    """
    factory, label = _find(name)
    _check_options(factory, label, options)
    with foreign_code(f"{label} cannot be made from {options!r}"):
        backbone = factory(seed=seed, **options)
    return _checked(backbone, label)


def load_plugin(path: Path) -> ModuleType:
    """Import a plugin's Python file, once a process. Raises :class:`PluginError`."""
    path = path.expanduser().resolve()
    name = f"coda_plugin_{path.stem}_{hashlib.sha256(str(path).encode()).hexdigest()[:8]}"
    if name in sys.modules:
        return sys.modules[name]
    if not path.is_file():
        raise PluginError(f"the plugin file {path} does not exist.", remedy="correct the path")
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise PluginError(f"the plugin file {path} is no Python file.", allowed="a file ….py")
    module = importlib.util.module_from_spec(spec)
    # Registered first, as an import does, so that dataclasses in the file find their module.
    sys.modules[name] = module
    try:
        remedy = "install what it imports, or correct the file"
        with foreign_code(f"the plugin file {path} does not load", remedy):
            spec.loader.exec_module(module)
    except PluginError:
        del sys.modules[name]
        raise
    return module


# Finding a factory ----------------------------------------------------------------------------


def _find(name: str) -> tuple[BackboneFactory, str]:
    """The factory that ``name`` stands for, and how to call it in a message."""
    if name in BUILT_IN:
        return _attribute(BUILT_IN[name], f"the built-in backbone {name!r}"), f"backbone {name!r}"
    if name in REGISTERED:
        return REGISTERED[name], f"the registered backbone {name!r}"
    file, _, attribute = name.rpartition(":") if ".py:" in name else (name, "", "")
    if file.endswith(".py"):
        return _from_file(Path(file), attribute), f"the backbone {name}"
    if ":" in name:
        return _attribute(name, f"the backbone {name}"), f"the backbone {name}"
    entries = [e for e in _entry_points() if e.name == name]
    if len(entries) > 1:
        raise PluginError(
            f"the backbone name {name!r} is ambiguous: {', '.join(map(_entry_label, entries))}.",
            remedy="uninstall all but one, or name the class as 'module:Class'",
        )
    if entries:
        return _load_entry(entries[0]), _entry_label(entries[0])
    raise ConfigError(
        f"unknown backbone {name!r}.",
        allowed=suggest(name, {s.name for s in backbone_sources()}),
        remedy="use one of these, 'module:Class' or the path of a Python file",
    )


def _from_file(path: Path, attribute: str) -> BackboneFactory:
    module = load_plugin(path)
    own = {
        name: value
        for name, value in vars(module).items()
        if inspect.isclass(value)
        and value.__module__ == module.__name__
        and all(callable(getattr(value, method, None)) for method in _METHODS)
    }
    if not attribute and len(own) == 1:
        return typing.cast(BackboneFactory, next(iter(own.values())))
    if not attribute:
        raise PluginError(
            f"{path} defines {len(own)} backbone classes{': ' if own else ''}{', '.join(own)}.",
            allowed="a file with one class that has reset, sample and close",
            remedy=f"name the class: '{path}:Class'",
        )
    return _named(module, attribute, str(path), own)


def _attribute(target: str, label: str) -> BackboneFactory:
    """The object that ``module:Class`` names."""
    module_name, _, attribute = target.partition(":")
    with foreign_code(f"{label} does not load", f"check that `import {module_name}` works"):
        module = importlib.import_module(module_name)
    return _named(module, attribute, module_name, vars(module))


def _named(
    module: ModuleType, attribute: str, where: str, known: Mapping[str, object]
) -> BackboneFactory:
    value: object = module
    for part in attribute.split("."):
        value = getattr(value, part, None)
    if not callable(value):
        classes = {n for n, v in known.items() if inspect.isclass(v) and not n.startswith("_")}
        raise PluginError(
            f"{where} has no class or function {attribute!r}.",
            allowed=suggest(attribute, classes) if classes else None,
        )
    return typing.cast(BackboneFactory, value)


def _entry_points() -> list[importlib.metadata.EntryPoint]:
    return sorted(importlib.metadata.entry_points(group=GROUP), key=lambda e: (e.name, _owner(e)))


def _owner(entry: importlib.metadata.EntryPoint) -> str:
    return f"{entry.dist.name} {entry.dist.version}" if entry.dist else "an unknown distribution"


def _entry_label(entry: importlib.metadata.EntryPoint) -> str:
    return f"the backbone {entry.name!r} of {_owner(entry)} ({entry.value})"


def _load_entry(entry: importlib.metadata.EntryPoint) -> BackboneFactory:
    label = _entry_label(entry)
    with foreign_code(f"{label} does not load", f"repair or uninstall {_owner(entry)}"):
        factory = entry.load()
    if not callable(factory):
        raise PluginError(f"{label} is {factory!r}.", allowed="a class or function")
    return typing.cast(BackboneFactory, factory)


@contextlib.contextmanager
def foreign_code(problem: str, remedy: str | None = None) -> Iterator[None]:
    """Run foreign code: its prints go to stderr (stdout may be carrying JSON), and whatever it
    raises becomes a :class:`PluginError` with its cause. Our own errors pass unchanged."""
    try:
        with contextlib.redirect_stdout(sys.stderr):
            yield
    except CodaError:
        raise
    except (Exception, SystemExit) as error:
        raise PluginError(f"{problem}: {type(error).__name__}: {error}", remedy=remedy) from error


# Checking what was found ----------------------------------------------------------------------


def _check_signature(factory: BackboneFactory, label: str) -> Mapping[str, inspect.Parameter]:
    """The parameters that can be given by keyword; ``seed`` must be among them."""
    try:
        parameters = inspect.signature(factory).parameters
    except (TypeError, ValueError) as error:
        raise PluginError(f"{label} has no readable signature: {error}") from error
    kinds = {p.kind for p in parameters.values()}
    if "seed" not in parameters and inspect.Parameter.VAR_KEYWORD not in kinds:
        raise PluginError(
            f"{label} takes no 'seed'.",
            allowed="a class or function that takes seed and its options by keyword",
            remedy="add the parameter seed: int = 0",
        )
    return parameters


def _check_options(factory: BackboneFactory, label: str, options: Mapping[str, Any]) -> None:
    parameters = _check_signature(factory, label)
    by_keyword = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    known = {n: p for n, p in parameters.items() if p.kind in by_keyword and n != "seed"}
    if not any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters.values()):
        for option in options:
            if option not in known:
                raise ConfigError(
                    f"{label} has no option {option!r}.",
                    allowed=suggest(option, known) if known else "no options",
                    remedy="remove it or correct its spelling",
                )
    for option, parameter in known.items():
        if parameter.default is inspect.Parameter.empty and option not in options:
            raise ConfigError(f"{label} needs the option {option!r}.", remedy="add it")
    for option, value in options.items():
        wanted = _annotation(factory, option)
        if wanted in _CHECKED_TYPES and not _fits(value, wanted):
            raise ConfigError(
                f"option {option!r} of {label} is {value!r}.", allowed=f"a value of type {wanted!s}"
            )


def _annotation(factory: BackboneFactory, option: str) -> Any:
    while isinstance(factory, functools.partial):
        factory = factory.func
    target = factory.__init__ if inspect.isclass(factory) else factory
    try:
        return typing.get_type_hints(target).get(option)
    except (NameError, TypeError, AttributeError):
        return None  # annotations that only a type checker can resolve


def _fits(value: object, wanted: type) -> bool:
    if isinstance(value, bool):
        return wanted is bool
    return isinstance(value, (int, float) if wanted is float else wanted)


def _checked(backbone: object, label: str) -> Backbone:
    spec = getattr(backbone, "spec", None)
    if not isinstance(spec, BackboneSpec):
        raise PluginError(
            f"{label} made a {type(backbone).__name__} whose spec is {spec!r}.",
            allowed="an object with the attribute spec, a BackboneSpec",
        )
    needed = _METHODS + (_TRAINABLE_METHODS if spec.trainable else ())
    missing = [m for m in needed if not callable(getattr(backbone, m, None))]
    if missing:
        raise PluginError(
            f"{label} made a {type(backbone).__name__} without {', '.join(missing)}.",
            allowed=f"an object with the methods {', '.join(needed)}",
            remedy="set spec.trainable to False if it cannot learn" if spec.trainable else None,
        )
    return typing.cast(Backbone, backbone)
