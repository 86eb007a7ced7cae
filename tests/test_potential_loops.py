"""A way back without success never pays, whatever the way (docs/theory.md)."""

from __future__ import annotations

import functools

import numpy as np
import pytest
from expert_runs import FAMILIES, compiled_programs, successes

from coda_envs.env import ManipulationEnv
from coda_envs.family import get_family
from coda_envs.text2potential import Potential, compile_potential, shaping

ROUNDING = 1e-12
GAMMAS = (0.9, 0.99, 0.9999)


def potentials(family: str) -> list[Potential]:
    """The template's and four compiled ones, spread over stages and factors."""
    at = get_family(family)
    programs = list(compiled_programs(family).values())
    chosen = [at.template, *programs[:: len(programs) // 4]]
    return [compile_potential(program, at.schema) for program in chosen]


def shaped_return(phi: np.ndarray, steps: np.ndarray, gamma: float) -> float:
    """Σ γ^t F_t over chunks of ``steps [n]`` from one state to the next, Φ ``[n + 1]``."""
    paid = shaping(phi[:-1], phi[1:], gamma, steps, False)
    begins = np.concatenate([[0], np.cumsum(steps)[:-1]])
    return float(gamma**begins @ paid)


@functools.cache
def wanderings(family: str) -> list[np.ndarray]:
    """Features of episodes that get somewhere, lose it and come back, and never succeed: a few
    steps of the expert and a few at random, in turn."""
    env = ManipulationEnv(family, control_hz=10, max_steps=120)
    rng = np.random.default_rng(1)
    kept = []
    for seed in range(3):
        scene = env.family.sample(rng, "generator")
        env.reset(seed=seed, options={"scene": scene})
        expert, rows, over = env.family.expert(seed), [], False
        while not over:
            rows.append(env.features.copy())
            random = len(rows) % 12 >= 8
            action = rng.uniform(-1, 1, 7) if random else expert.act(env)
            _, _, terminated, truncated, _ = env.step(action)
            over = terminated or truncated
        kept.append(np.array(rows))
    return kept


@pytest.mark.parametrize("gamma", GAMMAS)
@pytest.mark.parametrize("family", FAMILIES)
def test_the_way_back_to_the_same_state_costs_what_the_time_is_worth(family, gamma):
    """Through states in any order, from near to the goal and far from it, by chunks of any size."""
    states = np.concatenate([*wanderings(family), *(run[:-1] for run in successes(family, 8, 10))])
    rng = np.random.default_rng(2)
    for potential in potentials(family):
        phi = potential(states)
        assert phi.min() < 0.2
        assert phi.max() > 0.8
        for _ in range(100):
            way = rng.integers(len(states), size=rng.integers(1, 30))
            loop = phi[[*way, way[0]]]
            steps = rng.integers(1, 9, size=len(way))
            found = shaped_return(loop, steps, gamma)
            assert found <= ROUNDING
            assert found == pytest.approx((gamma ** steps.sum() - 1.0) * loop[0], abs=ROUNDING)


@pytest.mark.parametrize("gamma", GAMMAS)
@pytest.mark.parametrize("family", FAMILIES)
def test_no_stretch_of_an_episode_that_ends_no_nearer_pays(family, gamma):
    """As it really went, between any two looks of which the later has no higher Φ."""
    rng = np.random.default_rng(3)
    for potential in potentials(family):
        stretches = 0
        for rows in wanderings(family):
            looks = np.cumsum(np.concatenate([[0], rng.integers(1, 9, size=len(rows))]))
            looks = looks[looks < len(rows)]
            phi, steps = potential(rows[looks]), np.diff(looks)
            for first in range(len(looks)):
                for last in range(first + 1, len(looks)):
                    if phi[last] <= phi[first]:
                        part = phi[first : last + 1], steps[first:last]
                        assert shaped_return(*part, gamma) <= ROUNDING
                        stretches += 1
        assert stretches >= 20


@pytest.mark.parametrize("family", FAMILIES)
def test_phi_is_of_the_state_alone_whatever_came_before(family):
    """Nothing is latched: each state's Φ is the same by itself, in its episode and out of order."""
    rows = np.concatenate(wanderings(family))
    order = np.random.default_rng(4).permutation(len(rows))
    for potential in potentials(family):
        phi = potential(rows)
        np.testing.assert_array_equal(potential(rows[order]), phi[order])
        np.testing.assert_array_equal([potential(row) for row in rows[:40]], phi[:40])
