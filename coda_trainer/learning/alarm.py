"""The alarm on the critic's mean target value: the learner may be chasing its own optimism."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class AlarmConfig:
    """When the alarm rings.

    Values are those of Q in [0, 1] (target + Φ), so that one rule serves sparse and shaped
    training and stays right when the potential changes. The alarm rings where the success of the
    rollouts has fallen by ``fall`` from its best so far while the mean value of the last
    ``window`` batches has risen by ``jump`` since then, or lies above ``ceiling``. Neither is a
    sign alone: a policy that succeeds always has values near 1, and small samples vary.
    """

    window: int = 100
    ceiling: float = 0.9
    jump: float = 0.15
    fall: float = 0.1


class ValueAlarm:
    """While it rings, the learner leaves the actor as it is and the critic goes on.

    The critic's errors are then corrected by what the policy really achieves. The alarm stops by
    itself once the mean value is back, by a margin so that it does not flutter, or once the
    rollouts succeed again.
    """

    def __init__(self, config: AlarmConfig) -> None:
        """Quiet, and without a memory of rollouts."""
        self.config = config
        self._ringing = False
        self._recent: deque[float] = deque(maxlen=config.window)
        self._best_success = math.nan
        self._value_then = math.nan

    @property
    def ringing(self) -> bool:
        """Whether the actor is to be left as it is."""
        return self._ringing

    @property
    def value(self) -> float:
        """Mean value of the recent batches; not a number before the first."""
        return math.fsum(self._recent) / len(self._recent) if self._recent else math.nan

    def observe_value(self, value: float) -> None:
        """The mean value of one batch of targets."""
        self._recent.append(value)
        back = min(self._value_then + self.config.jump / 2, self.config.ceiling - 0.05)
        if self._ringing and self.value < back:
            self._ringing = False

    def observe_success(self, success: float) -> None:
        """Success of the rollouts since the last call, on scenes that compare with earlier ones."""
        value = self.value
        if math.isnan(value):
            return
        if math.isnan(self._best_success) or success >= self._best_success:
            self._best_success, self._value_then = success, value
        fallen = success <= self._best_success - self.config.fall
        high = value >= min(self._value_then + self.config.jump, self.config.ceiling)
        self._ringing = fallen and high

    def state_dict(self) -> dict[str, Any]:
        """Everything the future depends on, as plain data."""
        return {
            "ringing": self._ringing,
            "recent": list(self._recent),
            "best_success": self._best_success,
            "value_then": self._value_then,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what :meth:`state_dict` gave."""
        self._ringing = state["ringing"]
        self._recent = deque(state["recent"], maxlen=self.config.window)
        self._best_success = state["best_success"]
        self._value_then = state["value_then"]
