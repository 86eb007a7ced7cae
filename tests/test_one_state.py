"""One state alone, which the environment asks about at every step, and states in a batch agree."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from coda_envs.env import ManipulationEnv
from coda_envs.family import BUILT_IN, get_family
from coda_envs.predicates import REGISTRY, evaluate

ROLES = ("target", "receptacle", "second")
#: Where a predicate's second role is another one.
OTHER_ROLES = {"uncovered": ("receptacle", "cover")}


@cache
def states(name: str) -> np.ndarray:
    """Expert episodes, and every state of them with a few of its numbers changed a little."""
    env = ManipulationEnv(name, control_hz=10, within="generator")
    seen = []
    for seed in range(8):
        env.reset(seed=seed)
        expert, ended = env.family.expert(seed), False
        while not ended:
            seen.append(env.features)
            _, _, terminated, truncated, _ = env.step(expert.act(env))
            ended = terminated or truncated
        seen.append(env.features)
    env.close()
    found = np.stack(seen)
    rng = np.random.default_rng(0)
    changed = np.repeat(found, 5, axis=0)
    changed += rng.normal(0.0, 0.01, changed.shape) * (rng.random(changed.shape) < 0.1)
    return np.concatenate([found, changed])


@pytest.mark.parametrize("name", sorted(REGISTRY))
def test_a_predicate_of_one_state_is_that_of_the_batch(name: str) -> None:
    roles = OTHER_ROLES.get(name, ROLES[: REGISTRY[name].arity])
    answers: set[bool] = set()
    for family in (get_family(known) for known in BUILT_IN):
        if not set(roles) <= set(family.roles):
            continue
        found = states(family.name)
        batch = evaluate(family.schema, found, name, roles)
        alone = [bool(evaluate(family.schema, state, name, roles)) for state in found]
        assert batch.tolist() == alone, family.name
        answers |= set(alone)
    # Both answers occur, so that agreement says something.
    assert answers == {False, True}
