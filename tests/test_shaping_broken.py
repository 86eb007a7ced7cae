"""Each condition of the shaping theorem broken alone: the wrong chunk is chosen (docs/theory.md).

In every process the episode starts in state 0, where chunk 1 is worth more than chunk 0.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tabular import Process, Target, solve, targets

from coda_envs.text2potential.wrapper import shaping
from coda_trainer.learning.chunk_critic import chunk_targets

GAMMA = 0.9

#: Stay where Φ is high, or try, which succeeds half the time.
CAMP = (
    Process.of(
        [
            (0, 0, 1.0, 0, 0.0, 3, False),
            (0, 1, 0.5, 1, GAMMA**2, 3, True),
            (0, 1, 0.5, 2, 0.0, 3, True),
        ]
    ),
    np.array([0.9, 1.0, 0.0]),
)

#: Fail for sure, but close to the goal, or succeed now and then and else fail far from it.
BRINK = (
    Process.of(
        [
            (0, 0, 1.0, 1, 0.0, 2, True),
            (0, 1, 0.3, 2, GAMMA, 2, True),
            (0, 1, 0.7, 3, 0.0, 2, True),
        ]
    ),
    np.array([0.3, 0.95, 1.0, 0.0]),
)

#: On to a state where success has even odds, or to one where it is sure: there the time is up.
CUT = (
    Process.of(
        [
            (0, 0, 1.0, 1, 0.0, 3, False),
            (0, 1, 1.0, 2, 0.0, 2, False),
            (1, 0, 0.5, 3, 1.0, 1, True),
            (1, 0, 0.5, 3, 0.0, 1, True),
            (1, 1, 1.0, 3, 0.0, 1, True),
            (2, 0, 1.0, 3, 1.0, 1, True),
            (2, 1, 1.0, 3, 0.0, 1, True),
        ]
    ),
    np.array([0.2, 0.5, 0.9, 1.0]),
)

#: Two chances of success, the second better.
CHANCE = (
    Process.of(
        [
            (0, 0, 0.4, 1, 1.0, 1, True),
            (0, 0, 0.6, 1, 0.0, 1, True),
            (0, 1, 0.6, 1, 1.0, 1, True),
            (0, 1, 0.4, 1, 0.0, 1, True),
        ]
    ),
    np.array([0.5, 0.0]),
)

#: Success at once, perhaps, or for sure two steps later.
LATE = (
    Process.of(
        [
            (0, 0, 0.4, 1, 1.0, 1, True),
            (0, 0, 0.6, 1, 0.0, 1, True),
            (0, 1, 1.0, 1, GAMMA**2, 3, True),
        ]
    ),
    np.array([0.85, 0.0]),
)


def unbounded(process: Process, extra: np.ndarray) -> Target:
    """Targets with ``extra`` in place of F, and without bounds."""

    def target(value: np.ndarray) -> np.ndarray:
        later = GAMMA**process.steps * np.where(process.terminated, 0.0, value[process.end])
        return process.reward + extra + later

    return target


def ended(process: Process) -> np.ndarray:
    """Rows in which the episode ended, by termination or by a cut inside the chunk."""
    return process.terminated | (process.steps < process.steps.max())


def keeps_potential_at_terminals(process: Process, phi: np.ndarray) -> Target:
    """Terminal states keep their Φ."""
    return unbounded(process, GAMMA**process.steps * phi[process.end] - phi[process.start])


def discounts_once_a_chunk(process: Process, phi: np.ndarray) -> Target:
    """γ in place of γᵏ."""
    after = np.where(process.terminated, 0.0, phi[process.end])
    return unbounded(process, GAMMA * after - phi[process.start])


def pays_a_free_form_reward(process: Process, phi: np.ndarray) -> Target:
    """Φ(s') is paid as it is, without a difference."""
    return unbounded(process, phi[process.end])


def drops_potential_at_truncation(process: Process, phi: np.ndarray) -> Target:
    """A cut episode bootstraps, but its last state counts as Φ = 0."""
    extra = shaping(phi[process.start], phi[process.end], GAMMA, process.steps, ended(process))
    return unbounded(process, extra)


def takes_truncation_for_termination(process: Process, phi: np.ndarray) -> Target:
    """A cut episode does not bootstrap."""
    return targets(replace(process, terminated=ended(process)), phi, GAMMA)


def replays_stale_potentials(process: Process, phi: np.ndarray) -> Target:
    """Chunk 1 was recorded under an older potential, and its shaping was stored with it."""
    stale, older = process.chunk == 1, phi + 0.3

    def target(value: np.ndarray) -> np.ndarray:
        return chunk_targets(
            reward=process.reward,
            steps=process.steps,
            terminated=process.terminated,
            phi=np.where(stale, older[process.start], phi[process.start]),
            next_phi=np.where(stale, older[process.end], phi[process.end]),
            next_value=value[process.end],
            discount=GAMMA,
        )

    return target


def bounds_by_the_sparse_range(process: Process, phi: np.ndarray) -> Target:
    """Shaped targets within [0, 1]."""
    over = process.terminated
    extra = shaping(phi[process.start], phi[process.end], GAMMA, process.steps, over)
    free = unbounded(process, extra)
    return lambda value: np.clip(free(value), 0.0, 1.0)


@pytest.mark.parametrize(
    ("broken", "case"),
    [
        (keeps_potential_at_terminals, BRINK),
        (discounts_once_a_chunk, CAMP),
        (pays_a_free_form_reward, CAMP),
        (drops_potential_at_truncation, CUT),
        (takes_truncation_for_termination, CUT),
        (replays_stale_potentials, CHANCE),
        (bounds_by_the_sparse_range, LATE),
    ],
)
def test_a_broken_condition_costs_the_right_choice(broken, case):
    process, phi = case
    sparse = solve(process, targets(process, np.zeros_like(phi), GAMMA))
    meant = sparse - phi[: len(sparse), None]
    assert sparse[0, 1] > sparse[0, 0] + 0.1
    shaped = solve(process, targets(process, phi, GAMMA))
    assert np.abs(shaped - meant).max() < 1e-9
    assert shaped[0].argmax() == 1

    wrong = solve(process, broken(process, phi))
    assert np.abs(wrong - meant).max() > 0.05
    assert wrong[0, 0] > wrong[0, 1] + 0.01
