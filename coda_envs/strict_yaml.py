"""YAML as people write it: strict about keys, kind about numbers, and able to say which line."""

from __future__ import annotations

import re
from collections.abc import Hashable, Sequence
from typing import Any

import yaml


class _Loader(yaml.SafeLoader):
    """The safe loader without duplicate keys and aliases, and with ``1e-4`` read as a number."""

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        # A few nested aliases can stand for billions of entries, or for themselves.
        if self.check_event(yaml.AliasEvent):
            event = self.peek_event()  # type: ignore[no-untyped-call]
            raise yaml.MarkedYAMLError(
                problem="aliases (*name) are not read", problem_mark=event.start_mark
            )
        return super().compose_node(parent, index)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        # YAML's own loader keeps the last of two equal keys, so that the first one is silently
        # without effect.
        seen: set[str] = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                continue
            if key.value in seen:
                raise yaml.MarkedYAMLError(
                    problem=f"the key {key.value!r} is given twice", problem_mark=key.start_mark
                )
            seen.add(key.value)
        return super().construct_mapping(node, deep=deep)


# YAML 1.1 wants a dot in a number with an exponent and reads `1e-4` as a word.
_EXPONENT = r"^[-+]?[0-9][0-9_]*(\.[0-9]*)?[eE][-+]?[0-9]+$"
_Loader.add_implicit_resolver("tag:yaml.org,2002:float", re.compile(_EXPONENT), None)


def read_yaml(text: str) -> Any:
    """Plain data from YAML text.

    Raises :class:`yaml.YAMLError`, :class:`ValueError`, or :class:`RecursionError` where it is
    nested too deeply.
    """
    # _Loader derives from the safe loader: it makes plain data only.
    return yaml.load(text, Loader=_Loader)


def yaml_problem(error: Exception) -> str:
    """One line that says what is wrong with the YAML, and in which line."""
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or " ".join(str(error).split())
    return f"line {mark.line + 1}: {problem}" if mark is not None else problem


def line_of(text: str, path: Sequence[str | int]) -> int | None:
    """The line (from 1) of the entry at ``path`` in YAML ``text``, or None where it has none."""
    node = yaml.compose(text, Loader=_Loader)
    line: int | None = None
    for part in path:
        if isinstance(node, yaml.MappingNode):
            found = [(k, v) for k, v in node.value if k.value == str(part)]
            if not found:
                return line
            key, node = found[0]
            line = key.start_mark.line + 1
        elif isinstance(node, yaml.SequenceNode) and isinstance(part, int):
            node = node.value[part]
            line = node.start_mark.line + 1
        else:
            return line
    return line
