"""``sft``: demonstrations only; the reference that every other strategy starts from."""

from __future__ import annotations

from coda_envs.errors import ConfigError
from coda_trainer.rounds.context import RoundContext
from coda_trainer.strategies.base import RoundPlan


class SFT:
    """No rounds follow the fine-tuning."""

    learns = False

    def plan(self, context: RoundContext) -> RoundPlan:
        """Never asked for. Raises :class:`ConfigError`."""
        raise ConfigError("the strategy 'sft' has no rounds.", remedy="set strategy to coda")

    def measure(self, context: RoundContext) -> None:
        """Nothing to measure."""
