"""Shaping over chunks changes no decision: exact, on random tabular decision processes."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coda_envs.text2potential.wrapper import shaping
from coda_trainer.learning.chunk_critic import chunk_targets

ACTIONS, CHUNK = 2, 3


@dataclass(frozen=True)
class Outcomes:
    """All that can follow a chunk, one row an outcome: from which pair, how likely, how it ended.

    ``pair``: state · chunks + chunk; ``start``, ``end``: states; ``reward``: G; ``steps``: k.
    """

    pair: np.ndarray
    probability: np.ndarray
    start: np.ndarray
    end: np.ndarray
    reward: np.ndarray
    steps: np.ndarray
    terminated: np.ndarray


def outcomes(rng: np.random.Generator, states: int, gamma: float) -> Outcomes:
    """A random process, its chunks run open-loop until termination or a random cut.

    Each state succeeds (reward 1), fails (reward 0), is cut off, or goes on to two others.
    """
    succeed, fail, cut = rng.uniform(0.0, 0.3, (3, states, ACTIONS))
    after = rng.integers(states, size=(states, ACTIONS, 2))
    rows = []

    def run(pair, start, state, actions, k, reward, probability):
        if not actions:
            rows.append((pair, probability, start, state, reward, k, False))
            return
        a = actions[0]
        p_success, p_fail, p_cut = succeed[state, a], fail[state, a], cut[state, a]
        for then in after[state, a]:
            half = 0.5 * probability
            gain = reward + gamma**k
            rows.append((pair, half * p_success, start, then, gain, k + 1, True))
            rows.append((pair, half * p_fail, start, then, reward, k + 1, True))
            rows.append((pair, half * p_cut, start, then, reward, k + 1, False))
            on = half * (1 - p_success - p_fail - p_cut)
            run(pair, start, then, actions[1:], k + 1, reward, on)

    chunks = list(itertools.product(range(ACTIONS), repeat=CHUNK))
    for s, (c, chunk) in itertools.product(range(states), enumerate(chunks)):
        run(s * len(chunks) + c, s, s, chunk, 0, 0.0, 1.0)
    return Outcomes(*(np.array(column) for column in zip(*rows, strict=True)))


def solve(process: Outcomes, states: int, target) -> np.ndarray:
    """Fixed point Q [states, chunks] of expected targets with V = max over chunks."""
    q = np.zeros((states, ACTIONS**CHUNK))
    for _ in range(3000):
        y = target(q.max(axis=1)[process.end])
        new = np.bincount(process.pair, process.probability * y).reshape(q.shape)
        if np.abs(new - q).max() < 1e-13:
            return new
        q = new
    raise AssertionError("value iteration did not converge")


def targets(process: Outcomes, phi: np.ndarray, gamma: float):
    def target(next_value):
        return chunk_targets(
            reward=process.reward,
            steps=process.steps,
            terminated=process.terminated,
            phi=phi[process.start],
            next_phi=phi[process.end],
            next_value=next_value,
            discount=gamma,
        )

    return target


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    states=st.integers(2, 5),
    gamma=st.floats(0.8, 0.99),
)
def test_shaped_values_are_the_sparse_ones_minus_the_potential(seed, states, gamma):
    rng = np.random.default_rng(seed)
    process = outcomes(rng, states, gamma)
    assert np.allclose(np.bincount(process.pair, process.probability), 1.0)
    phi = rng.random(states)

    sparse = solve(process, states, targets(process, np.zeros(states), gamma))
    shaped = solve(process, states, targets(process, phi, gamma))

    assert np.abs(shaped - (sparse - phi[:, None])).max() < 1e-9
    # Equal up to exact ties: the shaped choice is worth as much as the best.
    chosen = sparse[np.arange(states), shaped.argmax(axis=1)]
    assert np.abs(chosen - sparse.max(axis=1)).max() < 1e-9


def keep_terminal_potential(process, phi, gamma):
    return gamma**process.steps * phi[process.end] - phi[process.start]


def discount_once_a_chunk(process, phi, gamma):
    after = np.where(process.terminated, 0.0, phi[process.end])
    return gamma * after - phi[process.start]


def drop_potential_at_truncation(process, phi, gamma):
    cut = process.steps < CHUNK
    return shaping(phi[process.start], phi[process.end], gamma, process.steps, cut)


@pytest.mark.parametrize(
    "broken", [keep_terminal_potential, discount_once_a_chunk, drop_potential_at_truncation]
)
def test_broken_variants_change_the_values(broken):
    gamma, states = 0.9, 4
    rng = np.random.default_rng(3)
    process = outcomes(rng, states, gamma)
    phi = rng.random(states)
    f = broken(process, phi, gamma)

    def target(next_value):
        later = gamma**process.steps * np.where(process.terminated, 0.0, next_value)
        return process.reward + f + later

    sparse = solve(process, states, targets(process, np.zeros(states), gamma))
    shaped = solve(process, states, target)
    assert np.abs(shaped - (sparse - phi[:, None])).max() > 1e-2


@settings(max_examples=50, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_targets_stay_within_their_exact_bounds(seed):
    rng = np.random.default_rng(seed)
    b = 64
    phi = rng.random(b)
    y = chunk_targets(
        reward=rng.integers(0, 2, b).astype(float),
        steps=rng.integers(1, 5, b),
        terminated=rng.random(b) < 0.5,
        phi=phi,
        next_phi=rng.random(b),
        next_value=rng.normal(0, 5, b),
        discount=0.99,
    )
    assert np.all(y >= -phi)
    assert np.all(y <= 1 - phi)


def test_a_cut_episode_bootstraps_and_a_terminated_one_does_not():
    common = {
        "reward": np.zeros(2),
        "steps": np.array([2, 2]),
        "phi": np.array([0.2, 0.2]),
        "next_phi": np.array([0.5, 0.5]),
        "next_value": np.array([0.3, 0.3]),
        "discount": 0.9,
    }
    y = chunk_targets(terminated=np.array([True, False]), **common)
    assert y == pytest.approx([-0.2, 0.81 * (0.5 + 0.3) - 0.2])
