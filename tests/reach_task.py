"""A point that is to reach a goal, with a base policy that aims beside it: small and fast."""

from __future__ import annotations

import numpy as np

from coda_envs.scene import Goal, Scene, Task
from coda_trainer.backbone import BackboneSpec
from coda_trainer.episode import Episode

EXECUTE, HORIZON, ACTIONS, FEATURES = 4, 6, 2, 4
STEP, RADIUS, LIMIT = 0.1, 0.035, 20
BIAS = np.array([0.06, -0.03], dtype=np.float32)


class Distance:
    """Φ = 1 − distance to the goal, as far as ``scale``."""

    def __init__(self, scale: float = 1.0) -> None:
        self.scale = scale
        self.version = f"distance-{scale}"

    def __call__(self, features: np.ndarray) -> np.ndarray:
        gap = np.hypot(*(features[:, :2] - features[:, 2:]).T)
        return 1.0 - np.minimum(gap / self.scale, 1.0)


class BiasedBase:
    """A backbone that steers to a point beside the goal within a chunk."""

    def __init__(self, bias: np.ndarray = BIAS) -> None:
        self.bias = bias
        self.spec = BackboneSpec(
            "biased", HORIZON, EXECUTE, ACTIONS, state_keys=("state",), seedable=True
        )

    def reset(self, env_ids=None) -> None:
        pass

    def close(self) -> None:
        pass

    def encode(self, obs):
        return np.asarray(obs["state"], dtype=np.float32)

    def sample(self, obs, n=1, *, seed=None):
        state = np.asarray(obs["state"], dtype=np.float32)
        gap = state[:, 2:] + self.bias - state[:, :2]
        action = np.clip(gap / (STEP * EXECUTE), -1, 1)
        return np.broadcast_to(action[:, None, None], (len(state), n, HORIZON, ACTIONS)).copy()


def scene(goal) -> Scene:
    return Scene(
        family="reach",
        task=Task(goal=Goal(predicate="near", roles=("goal",)), instruction="reach the goal"),
        spatial={"goal": {"x": float(goal[0]), "y": float(goal[1])}},
        attributes={},
    )


def rollouts(act, seeds, noise=None, source="wide") -> list[Episode]:
    """An episode a seed: ``act(obs) -> [B, ≥ h, A]``, then ``noise(chunk, rngs)``."""
    rngs = [np.random.default_rng(s) for s in seeds]
    state = np.array([r.uniform(-0.5, 0.5, 4) for r in rngs], dtype=np.float32)
    count = len(seeds)
    states, actions, rewards = [state.copy()], [], []
    length = np.full(count, LIMIT)
    success = np.zeros(count, dtype=bool)
    for t in range(LIMIT):
        if t % EXECUTE == 0:
            chunk = act({"state": state})[:, :EXECUTE]
            if noise is not None:
                chunk = noise(chunk, rngs)
        action = np.clip(chunk[:, t % EXECUTE], -1, 1)
        state[:, :2] += STEP * action
        reached = np.hypot(*(state[:, :2] - state[:, 2:]).T) < RADIUS
        first = reached & (length == LIMIT) & ~success
        success |= first
        length[first] = t + 1
        states.append(state.copy())
        actions.append(action.astype(np.float32))
        rewards.append(first.astype(np.float32))
    states, actions, rewards = np.array(states), np.array(actions), np.array(rewards)
    episodes = []
    for i, seed in enumerate(seeds):
        t = length[i]
        episodes.append(
            Episode(
                scene=scene(states[0, i, 2:]),
                seed=int(seed),
                observations={"state": states[: t + 1, i]},
                actions=actions[:t, i],
                features=states[: t + 1, i],
                rewards=rewards[:t, i],
                starts=np.arange(0, t, EXECUTE),
                terminated=bool(success[i]),
                truncated=not success[i],
                success=bool(success[i]),
                source=source,
            )
        )
    return episodes
