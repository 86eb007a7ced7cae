"""Strategies by name; one file each."""

from __future__ import annotations

from coda_envs.errors import ConfigError, suggest
from coda_trainer.strategies.base import Strategy
from coda_trainer.strategies.coda import CoDA
from coda_trainer.strategies.given import Given
from coda_trainer.strategies.graded import Graded
from coda_trainer.strategies.sft import SFT
from coda_trainer.strategies.uniform import Uniform

STRATEGIES: dict[str, type[Strategy]] = {
    "sft": SFT,
    "uniform": Uniform,
    "graded": Graded,
    "coda": CoDA,
    "given": Given,
}


def make_strategy(name: str) -> Strategy:
    """The strategy of that name. Raises :class:`ConfigError` for an unknown one."""
    if name not in STRATEGIES:
        raise ConfigError(f"unknown strategy {name!r}.", allowed=suggest(name, STRATEGIES))
    return STRATEGIES[name]()


__all__ = ["STRATEGIES", "make_strategy"]
