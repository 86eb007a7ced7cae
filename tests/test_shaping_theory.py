"""Shaping over chunks changes no decision: exact, on random tabular processes (docs/theory.md)."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tabular import (
    Process,
    TablePotential,
    backup,
    grid,
    random_process,
    score,
    solve,
    table_critic,
    targets,
)

from coda_envs.text2potential.wrapper import shaping
from coda_trainer.learning.chunk_critic import chunk_targets

EXACT = 1e-9
seeds = st.integers(0, 2**32 - 1)
gammas = st.floats(0.8, 0.99)


def random_case(seed: int, gamma: float) -> tuple[np.random.Generator, Process, int]:
    """A generator, a process and how many states it has."""
    rng = np.random.default_rng(seed)
    states = int(rng.integers(2, 6))
    return rng, random_process(rng, states, gamma), states


def sampled_targets(
    batch: Process,
    phi: np.ndarray,
    q: np.ndarray,
    gamma: float,
    observed: np.ndarray | None = None,
) -> np.ndarray:
    """Targets ``[S, C]`` from one sampled outcome of each chunk in each state, given Q'."""
    return targets(batch, phi, gamma, observed)(q.max(axis=1)).reshape(q.shape)


def assert_same_choices(shaped: np.ndarray, sparse: np.ndarray) -> None:
    """The shaped choice is worth as much as the best in every state, ties whichever way."""
    chosen = np.take_along_axis(sparse, shaped.argmax(axis=1)[:, None], axis=1)[:, 0]
    assert (sparse.max(axis=1) - chosen < EXACT).all()


# The fixed point ---------------------------------------------------------------------------------


@settings(max_examples=25)
@given(seed=seeds, gamma=gammas)
def test_shaped_values_are_the_sparse_ones_minus_the_potential(seed, gamma):
    rng, process, states = random_case(seed, gamma)
    early = process.steps < process.steps.max()
    assert (early & process.terminated).any()
    assert (early & ~process.terminated).any()
    phi = rng.random(states)

    sparse = solve(process, targets(process, np.zeros(states), gamma))
    shaped = solve(process, targets(process, phi, gamma))

    assert np.abs(shaped - (sparse - phi[:, None])).max() < EXACT
    assert_same_choices(shaped, sparse)


@settings(max_examples=15)
@given(seed=seeds, gamma=gammas)
def test_the_bounds_on_targets_move_no_fixed_point(seed, gamma):
    rng, process, states = random_case(seed, gamma)
    phi = rng.random(states)
    bounded = targets(process, phi, gamma)
    extra = shaping(phi[process.start], phi[process.end], gamma, process.steps, process.terminated)

    def unbounded(value):
        later = gamma**process.steps * np.where(process.terminated, 0.0, value[process.end])
        return process.reward + extra + later

    free = solve(process, unbounded)
    value = free.max(axis=1)
    # No single outcome is cut there, not only the mean of them.
    assert np.abs(bounded(value) - unbounded(value)).max() < EXACT
    # Yet they are bounds: from values far off, the first step is back within them.
    wild = rng.normal(0.0, 20.0, free.shape)
    first = backup(process, bounded, wild)
    assert ((first >= -phi[:, None]) & (first <= 1.0 - phi[:, None])).all()
    assert np.abs(backup(process, unbounded, wild)).max() > 1.0
    assert np.abs(solve(process, bounded, wild) - free).max() < EXACT


# On the way there --------------------------------------------------------------------------------


@settings(max_examples=15)
@given(seed=seeds, gamma=gammas)
def test_learning_from_samples_takes_the_same_way(seed, gamma):
    """Q' = Q − Φ after every update of every batch, not only in the end (Wiewiora 2003): with
    truncated transitions among them, and where targets are cut by a bound or lifted by what an
    episode went on to get."""
    rng, process, states = random_case(seed, gamma)
    phi, nothing = rng.random(states), np.zeros(states)
    sparse = rng.normal(0.5, 0.5, process.shape)
    shaped = sparse - phi[:, None]
    for update in range(200):
        batch = process.sample(rng)
        observed = rng.random(len(batch.start)) * batch.reward if update % 2 else None
        sparse = 0.8 * sparse + 0.2 * sampled_targets(batch, nothing, sparse, gamma, observed)
        shaped = 0.8 * shaped + 0.2 * sampled_targets(batch, phi, shaped, gamma, observed)
        assert np.abs(shaped - (sparse - phi[:, None])).max() < EXACT
        assert_same_choices(shaped, sparse)


# A potential that changes ------------------------------------------------------------------------


@settings(max_examples=15)
@given(seed=seeds, gamma=gammas)
def test_a_new_potential_leaves_the_critic_its_meaning_at_once(seed, gamma):
    rng, process, states = random_case(seed, gamma)
    first = grid(rng, states)
    sparse = solve(process, targets(process, np.zeros(states), gamma))
    critic = table_critic(solve(process, targets(process, first.values, gamma))[None], first)
    for now in (first, grid(rng, states), grid(rng, states), first):
        critic.set_potential(now)
        shaped = score(critic)
        assert np.abs(shaped - (sparse - now.values[:, None])).max() < EXACT
        assert_same_choices(shaped, sparse)
        # Under the new potential it is the fixed point already: nothing is left to relearn.
        again = backup(process, targets(process, now.values, gamma), shaped)
        assert np.abs(again - shaped).max() < EXACT


@settings(max_examples=3)
@given(seed=seeds, gamma=gammas)
def test_learning_goes_on_through_every_change_of_the_potential(seed, gamma):
    """The lowest of two members, trained by the same batches, sparse and with four potentials."""
    rng, process, states = random_case(seed, gamma)
    begin = rng.normal(0.5, 0.3, (2, *process.shape))
    phi = grid(rng, states)
    sparse = table_critic(begin, TablePotential(np.zeros(states)))
    shaped = table_critic(begin - phi.values[:, None], phi)
    for update in range(80):
        if update % 20 == 10:
            phi = grid(rng, states)
            shaped.set_potential(phi)
        batch = process.sample(rng)
        for critic in (sparse, shaped):
            # Shaping is computed when the batch is drawn: under the potential now in force.
            y = sampled_targets(batch, critic.potential.values, score(critic), gamma)
            for member in critic.online:
                offset = critic.first_potential.values - critic.potential.values
                output = member.values.numpy() + offset[:, None]
                member.values += torch.from_numpy(0.2 * (y - output))
        assert np.abs(score(shaped) - (score(sparse) - phi.values[:, None])).max() < EXACT
        assert_same_choices(score(shaped), score(sparse))


# One target --------------------------------------------------------------------------------------


@settings(max_examples=50)
@given(seed=seeds)
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
