"""Strategies by name; one file each, imported where one is made."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING

from coda_envs.errors import ConfigError, suggest

if TYPE_CHECKING:
    from coda_trainer.strategies.base import Strategy

#: Every strategy: its module and class.
STRATEGIES: Mapping[str, str] = {
    "sft": "coda_trainer.strategies.sft:SFT",
    "uniform": "coda_trainer.strategies.uniform:Uniform",
    "graded": "coda_trainer.strategies.graded:Graded",
    "coda": "coda_trainer.strategies.coda:CoDA",
    "given": "coda_trainer.strategies.given:Given",
}


def make_strategy(name: str) -> Strategy:
    """The strategy of that name. Raises :class:`ConfigError` for an unknown one."""
    if name not in STRATEGIES:
        raise ConfigError(f"unknown strategy {name!r}.", allowed=suggest(name, STRATEGIES))
    module, _, kind = STRATEGIES[name].partition(":")
    made: Strategy = getattr(import_module(module), kind)()
    return made


__all__ = ["STRATEGIES", "make_strategy"]
