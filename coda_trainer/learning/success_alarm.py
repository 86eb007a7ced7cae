"""The alarm on success itself, for update rules that climb no critic whose value could warn."""

from __future__ import annotations

import math
from typing import Any

#: Smallest fall from the best success so far that counts, in points of 1, and in standard errors
#: of the difference of two such figures: the best of several small samples is partly luck.
FALL, ERRORS = 0.1, 2.5


class SuccessAlarm:
    """Rings where the rollouts succeed clearly less often than the best ones since the start."""

    def __init__(self) -> None:
        """Quiet, and without a memory of rollouts."""
        self.ringing = False
        self._best, self._count = math.nan, 0

    def observe(self, success: float, count: int) -> bool:
        """The success rate of the latest ``count`` rollouts, on scenes that compare with earlier
        ones; whether they are the best so far. Nothing is observed where ``count`` is 0."""
        if count == 0:
            return False
        if math.isnan(self._best) or success >= self._best:
            self._best, self._count, self.ringing = success, count, False
            return True
        mean = (success * count + self._best * self._count) / (count + self._count)
        error = math.sqrt(mean * (1 - mean) * (1 / count + 1 / self._count))
        self.ringing = self._best - success > max(FALL, ERRORS * error)
        return False

    def state_dict(self) -> dict[str, Any]:
        """Everything the future depends on, as plain data."""
        return {"ringing": self.ringing, "best": self._best, "count": self._count}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what :meth:`state_dict` gave."""
        self.ringing = state["ringing"]
        self._best, self._count = state["best"], state["count"]
