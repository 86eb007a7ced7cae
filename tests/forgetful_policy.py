"""A plugin for the tests of the loop: a policy that too much teaching spoils."""

from __future__ import annotations

import numpy as np
from weak_policy import WeakPolicy

from coda_trainer.backbone import ObsBatch


class ForgetfulPolicy(WeakPolicy):
    """Knows the task from the start, and holds still after ``most`` updates."""

    def __init__(self, seed: int = 0, most: int = 60) -> None:
        super().__init__(seed, lessons=0)
        self.most = most

    def sample(self, obs: ObsBatch, n: int = 1, *, seed: int | None = None) -> np.ndarray:
        chunks = super().sample(obs, n, seed=seed)
        return chunks if self.updates <= self.most else np.zeros_like(chunks)
