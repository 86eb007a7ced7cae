"""Advantages of chunks: against their definition, and the same whatever the potential."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from reach_rules import READER, play, replay_with
from reach_task import ACTIONS, EXECUTE, FEATURES, HORIZON, Distance

from coda_envs.errors import LearningError
from coda_trainer.learning.advantages import AdvantageEstimator, chunk_advantages, minibatches
from coda_trainer.learning.chunk_critic import ChunkCritic, NoPotential
from coda_trainer.learning.exploration import ExplorationNoise
from coda_trainer.learning.looks import look_chunks, looks, newest

NOISE = ExplorationNoise(per_dimension=(1.0, 1.0))
DISCOUNT = 0.97


@pytest.fixture(autouse=True)
def _one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def random_chunks(seed: int, potential: bool) -> dict[str, np.ndarray]:
    """Episodes of 1 to 5 chunks, terminated and truncated ones, with a random V' and Φ."""
    rng = np.random.default_rng(seed)
    counts = rng.integers(1, 6, 12)
    last = np.concatenate([np.arange(n) == n - 1 for n in counts])
    n = len(last)
    steps = np.where(last, rng.integers(1, 5, n), 4)
    ended = np.repeat(rng.random(len(counts)) < 0.5, counts)
    # One more state than chunks in each episode: what follows one chunk precedes the next.
    first = np.arange(n) + np.repeat(np.arange(len(counts)), counts)
    value, phi = rng.random(n + len(counts)), rng.random(n + len(counts)) * potential
    return {
        "reward": rng.random(n) * last,
        "steps": steps,
        "terminated": last & ended,
        "last": last,
        "phi": phi[first],
        "next_phi": phi[first + 1],
        "value": (value - phi)[first],
        "next_value": (value - phi)[first + 1],
    }


def brute_force(c: dict[str, np.ndarray], trace: float) -> np.ndarray:
    """The (1 − λ)-weighted mean of all n-chunk returns, minus V': what GAE is defined as."""
    found = []
    for j in range(len(c["last"])):
        end = j + int(np.argmax(c["last"][j:])) + 1
        total, discount, returns = 0.0, 1.0, []
        for i in range(j, end):
            pace, over = DISCOUNT ** c["steps"][i], c["terminated"][i]
            next_phi = 0.0 if over else c["next_phi"][i]
            total += discount * (c["reward"][i] + pace * next_phi - c["phi"][i])
            discount *= pace
            returns.append(total + discount * (0.0 if over else c["next_value"][i]))
        n = len(returns)
        weight = [(1 - trace) * trace**i for i in range(n - 1)] + [trace ** (n - 1)]
        found.append(np.dot(weight, returns) - c["value"][j])
    return np.array(found)


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10_000), trace=st.sampled_from([0.0, 0.5, 0.9, 1.0]))
def test_gae_is_the_weighted_mean_of_all_returns(seed, trace):
    chunks = random_chunks(seed, potential=True)
    found = chunk_advantages(**chunks, discount=DISCOUNT, trace=trace)
    assert np.allclose(found, brute_force(chunks, trace), atol=1e-12)


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10_000), trace=st.sampled_from([0.0, 0.9, 1.0]))
def test_a_potential_leaves_advantages_as_they_are(seed, trace):
    """V' = V − Φ: exactly the advantages of the sparse reward, for endings of both kinds."""
    shaped = random_chunks(seed, potential=True)
    plain = {
        **shaped,
        "phi": np.zeros(len(shaped["phi"])),
        "next_phi": np.zeros(len(shaped["phi"])),
    }
    plain["value"] = shaped["value"] + shaped["phi"]
    plain["next_value"] = shaped["next_value"] + shaped["next_phi"]
    one, other = (
        chunk_advantages(**chunks, discount=DISCOUNT, trace=trace) for chunks in (shaped, plain)
    )
    assert np.abs(one - other).max() < 1e-12


def test_a_potential_kept_at_termination_would_change_them():
    chunks = random_chunks(3, potential=True)
    right = chunk_advantages(**chunks, discount=DISCOUNT, trace=0.9)
    # Paid as if the episode had been cut off where it terminated.
    kept = {**chunks, "terminated": np.zeros_like(chunks["terminated"])}
    kept["next_value"] = np.where(chunks["terminated"], 0.0, chunks["next_value"])
    wrong = chunk_advantages(**kept, discount=DISCOUNT, trace=0.9)
    assert np.abs(right - wrong).max() > 0.1


# Looks ---------------------------------------------------------------------------------------


def test_looks_are_where_the_policy_looked_and_carry_what_followed():
    episodes = play(lambda obs: READER(obs)[1], range(30), NOISE)
    rows = replay_with(episodes).rollouts
    found = looks(rows, newest(rows, len(episodes)), EXECUTE, DISCOUNT)
    assert len(found) == sum(len(e.starts) for e in episodes)
    assert {e.success for e in episodes} == {True, False}
    chunks = look_chunks(rows, found, HORIZON)
    j = 0
    for episode in episodes:
        for start in episode.starts:
            k = min(EXECUTE, episode.length - start)
            assert found.steps[j] == k
            assert np.array_equal(rows.columns["features"][found.at[j]], episode.features[start])
            discounted = episode.rewards[start : start + k] @ DISCOUNT ** np.arange(k)
            assert found.reward[j] == pytest.approx(discounted)
            ends = start + k == episode.length
            assert found.last[j] == ends
            assert found.terminated[j] == (ends and episode.terminated)
            n = min(HORIZON, episode.length - start)
            assert chunks.valid[j].tolist() == [True] * n + [False] * (HORIZON - n)
            assert np.array_equal(chunks.actions[j, :n], episode.actions[start : start + n])
            assert not chunks.actions[j, n:].any()
            assert np.array_equal(chunks.obs["state"][j], episode.observations["state"][start])
            j += 1


def test_no_episode_is_one_clear_error():
    rows = replay_with().rollouts
    with pytest.raises(LearningError, match=r"no episode to learn from.*replay_megabytes"):
        looks(rows, newest(rows, 5), EXECUTE, DISCOUNT)


# V' ------------------------------------------------------------------------------------------


def new_estimator(potential, seed=0) -> AdvantageEstimator:
    generator = torch.Generator().manual_seed(seed)
    critic = ChunkCritic(FEATURES, EXECUTE, ACTIONS, potential, generator, width=64)
    return AdvantageEstimator(critic, generator, discount=DISCOUNT, trace=0.9)


@pytest.mark.parametrize("potential", [Distance(), NoPotential()], ids=["shaped", "sparse"])
def test_values_learn_where_episodes_succeed(potential):
    replay = replay_with(play(lambda obs: READER(obs)[1], range(200), NOISE))
    rows, estimator = replay.rollouts, new_estimator(potential)
    estimator.critic.fit(replay.stored("features"))
    found = looks(rows, newest(rows, 200), EXECUTE, DISCOUNT)
    for _ in range(3):
        loss = estimator.fit(rows, found)
    assert loss < 0.05
    fresh = play(lambda obs: READER(obs)[1], range(500, 700), NOISE)
    began = np.stack([e.features[0] for e in fresh])
    value, phi = estimator.values(began)
    assert np.all((value >= -phi) & (value <= 1 - phi))
    won = np.array([e.success for e in fresh])
    q = value + phi
    assert q[won].mean() > q[~won].mean() + 0.1


def test_a_value_that_is_not_finite_stops_before_the_weights_change():
    replay = replay_with(play(lambda obs: READER(obs)[1], range(20), NOISE))
    rows, estimator = replay.rollouts, new_estimator(NoPotential())
    estimator.critic.fit(replay.stored("features"))
    found = looks(rows, newest(rows, 20), EXECUTE, DISCOUNT)
    estimator.fit(rows, found)
    with torch.no_grad():
        estimator.value.network[-1].bias.fill_(torch.nan)
    held = estimator.value.network[0].weight.clone()
    with pytest.raises(LearningError, match=r"value loss is nan at update \d+.*lower learning"):
        estimator.fit(rows, found)
    assert torch.equal(estimator.value.network[0].weight, held)


@pytest.mark.parametrize(("count", "parts"), [(1, 1), (255, 1), (700, 1), (800, 2), (1400, 3)])
def test_minibatches_hold_every_sample_once(count, parts):
    found = minibatches(count, 512, torch.Generator().manual_seed(0))
    assert len(found) == parts
    assert sorted(torch.cat(found).tolist()) == list(range(count))
