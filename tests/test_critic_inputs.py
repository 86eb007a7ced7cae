"""What the chunk critic reads and aims at besides the recorded state: offsets, observed returns."""

from __future__ import annotations

import numpy as np
import pytest

from coda_envs.family import get_family
from coda_trainer.learning.chunk_critic import chunk_targets
from coda_trainer.learning.relative import RelativeFeatures

SCHEMA = get_family("pick-place").schema


def states(count: int, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    features = rng.uniform(-0.3, 0.3, (count, SCHEMA.size))
    for role in SCHEMA.roles:
        features[:, SCHEMA.index(f"{role}.present")] = 1.0
    return features


def test_offsets_do_not_change_when_everything_moves_together() -> None:
    relative, here = RelativeFeatures(SCHEMA), states(20)
    there = here.copy()
    for name in ("gripper", *SCHEMA.roles):
        there[:, SCHEMA.indices([f"{name}.{axis}" for axis in "xyz"])] += (0.1, -0.2, 0.05)
    one, other = relative(here), relative(there)
    assert one.shape == (20, relative.size)
    np.testing.assert_allclose(one[:, : SCHEMA.size], here, atol=1e-6)
    np.testing.assert_allclose(one[:, SCHEMA.size :], other[:, SCHEMA.size :], atol=1e-5)


def test_the_offset_is_the_role_seen_from_the_gripper() -> None:
    relative, here = RelativeFeatures(SCHEMA), states(1)
    first = SCHEMA.roles[0]
    place = here[0, SCHEMA.indices([f"{first}.{axis}" for axis in "xyz"])]
    np.testing.assert_allclose(
        relative(here)[0, SCHEMA.size : SCHEMA.size + 3], place - here[0, :3], atol=1e-6
    )


def test_an_absent_role_is_zero_whatever_its_columns_hold() -> None:
    relative, here = RelativeFeatures(SCHEMA), states(5)
    last = SCHEMA.roles[-1]
    here[:, SCHEMA.index(f"{last}.present")] = 0.0
    moved = here.copy()
    moved[:, SCHEMA.indices([f"{last}.x", f"{last}.yaw"])] += 0.5
    np.testing.assert_array_equal(
        relative(here)[:, SCHEMA.size :], relative(moved)[:, SCHEMA.size :]
    )


@pytest.mark.parametrize("seed", range(5))
def test_an_observed_return_lifts_shaped_and_sparse_targets_alike(seed: int) -> None:
    rng = np.random.default_rng(seed)
    count, discount = 200, 0.99
    phi, next_phi, value, observed = rng.uniform(0, 1, (4, count))
    steps = rng.integers(1, 5, count)
    terminated = rng.random(count) < 0.3
    reward = np.where(terminated, rng.integers(0, 2, count), 0).astype(float)
    common = {"reward": reward, "steps": steps, "terminated": terminated, "discount": discount}
    zero = np.zeros(count)
    sparse = chunk_targets(**common, phi=zero, next_phi=zero, next_value=value, observed=observed)
    shaped = chunk_targets(
        **common, phi=phi, next_phi=next_phi, next_value=value - next_phi, observed=observed
    )
    # Q' = Q − Φ holds for the bounded targets too, and what was reached is never undercut.
    np.testing.assert_allclose(shaped, sparse - phi, atol=1e-9)
    assert (sparse >= observed - 1e-12).all()
    plain = chunk_targets(**common, phi=zero, next_phi=zero, next_value=value)
    np.testing.assert_allclose(sparse, np.maximum(plain, observed), atol=1e-12)
