"""One state alone, which the environment asks about at every step, and states in a batch agree."""

from __future__ import annotations

import numpy as np
import pytest

from coda_envs.env import ManipulationEnv
from coda_envs.family import get_family
from coda_envs.predicates import REGISTRY, evaluate

FAMILY = get_family("pick-place")
ROLES = ("target", "receptacle")


@pytest.fixture(scope="module")
def states() -> np.ndarray:
    """Expert episodes, and every state of them with a few of its numbers changed a little."""
    env = ManipulationEnv(FAMILY.name, control_hz=10, within="generator")
    seen = []
    for seed in range(6):
        env.reset(seed=seed)
        expert, ended = FAMILY.expert(seed), False
        while not ended:
            seen.append(env.features)
            _, _, terminated, truncated, _ = env.step(expert.act(env))
            ended = terminated or truncated
        seen.append(env.features)
    found = np.stack(seen)
    rng = np.random.default_rng(0)
    changed = np.repeat(found, 10, axis=0)
    changed += rng.normal(0.0, 0.01, changed.shape) * (rng.random(changed.shape) < 0.1)
    return np.concatenate([found, changed])


@pytest.mark.parametrize("name", sorted(REGISTRY))
def test_a_predicate_of_one_state_is_that_of_the_batch(name: str, states: np.ndarray) -> None:
    roles = ROLES[: REGISTRY[name].arity]
    batch = evaluate(FAMILY.schema, states, name, roles)
    alone = [bool(evaluate(FAMILY.schema, state, name, roles)) for state in states]
    assert batch.tolist() == alone
    # Both answers occur, so that agreement says something.
    assert 0 < sum(alone) < len(alone)
