"""Updates of Stable-Baselines3's TD3 and SAC on random data, to hold the learner's beside."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from coda_trainer.learning.learner import LearnerConfig

#: Transitions in the replay: enough that a batch is drawn from all over it.
TRANSITIONS = 5000


class _Shapes(gym.Env[np.ndarray, np.ndarray]):
    """Never stepped: it says how long observations and actions are."""

    def __init__(self, observation: int, action: int) -> None:
        self.observation_space = spaces.Box(-5.0, 5.0, (observation,), np.float32)
        self.action_space = spaces.Box(-1.0, 1.0, (action,), np.float32)


def sb3_updates(
    kind: Literal["td3", "sac"], observation: int, action: int, config: LearnerConfig, seed: int
) -> Callable[[int], None]:
    """A function that does a number of updates, with the learner's widths, number of critics,
    batch size and, for TD3, delay of the actor."""
    # Imported here: it takes seconds.
    from stable_baselines3 import SAC, TD3
    from stable_baselines3.common.logger import Logger

    shared: dict[str, Any] = {
        "policy": "MlpPolicy",
        "env": _Shapes(observation, action),
        "batch_size": config.batch_size,
        "buffer_size": TRANSITIONS,
        "policy_kwargs": {"net_arch": [config.width] * 2, "n_critics": config.members},
        "seed": seed,
        "device": "cpu",
    }
    model = TD3(**shared, policy_delay=config.actor_every) if kind == "td3" else SAC(**shared)
    model.set_logger(Logger(None, []))
    rng = np.random.default_rng(seed)
    buffer = model.replay_buffer
    assert buffer is not None
    for _ in range(TRANSITIONS):
        now, later = rng.standard_normal((2, 1, observation), dtype=np.float32)
        taken = rng.uniform(-1.0, 1.0, (1, action)).astype(np.float32)
        buffer.add(now, later, taken, rng.random(1), np.zeros(1), [{}])
    return lambda count: model.train(gradient_steps=count, batch_size=config.batch_size)
