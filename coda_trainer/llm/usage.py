"""Usage: the calls, tokens and money that a client has spent, and the caps on them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from coda_trainer.llm.question import Answer
from coda_trainer.llm.settings import LLMSettings

#: Counted for an answer of a server that does not say how many tokens it took: an upper bound for
#: common text, so that a cap on tokens holds there, too.
CHARACTERS_A_TOKEN = 2


@dataclass
class Usage:
    """What was spent so far. ``uncounted``: calls whose tokens the server did not tell."""

    settings: LLMSettings
    calls: int = 0
    recorded: int = 0
    failed: int = 0
    repaired: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    uncounted: int = 0

    def count(self, answer: Answer, characters: int) -> None:
        """Add an answer to a question of that many ``characters``."""
        if answer.recorded:
            self.recorded += 1
            return
        if answer.tokens_in is None or answer.tokens_out is None:
            self.uncounted += 1
        self.tokens_in += _tokens(answer.tokens_in, characters)
        self.tokens_out += _tokens(answer.tokens_out, len(answer.text))

    @property
    def cost(self) -> float | None:
        """Money, in the currency of the prices; None without prices."""
        prices = self.settings.price_in, self.settings.price_out
        if prices[0] is None or prices[1] is None:
            return None
        return (self.tokens_in * prices[0] + self.tokens_out * prices[1]) / 1e6

    @property
    def exhausted(self) -> str:
        """Which cap is reached, in words; empty where none is."""
        limits = self.settings
        if self.calls >= limits.max_calls:
            return f"the cap of {limits.max_calls} calls is reached"
        if self.tokens_in + self.tokens_out >= limits.max_tokens:
            return f"the cap of {limits.max_tokens} tokens is reached"
        cost = self.cost
        if limits.max_cost is not None and cost is not None and cost >= limits.max_cost:
            return f"the cap of {limits.max_cost:g} on the cost is reached"
        return ""

    def to_dict(self) -> dict[str, Any]:
        """Plain data; the cost is null where it was not measured."""
        return {
            "calls": self.calls,
            "recorded": self.recorded,
            "failed": self.failed,
            "repaired": self.repaired,
            "tokens_in": self.tokens_in,
            "tokens_out": self.tokens_out,
            "uncounted_calls": self.uncounted,
            "cost": self.cost,
        }


def _tokens(told: int | None, characters: int) -> int:
    return told if told is not None else characters // CHARACTERS_A_TOKEN
