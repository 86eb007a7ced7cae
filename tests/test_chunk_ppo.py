"""Chunk PPO: its basis, its noise and probabilities, and that it learns from its own rollouts."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from reach_rules import READER, play, replay_with, success
from reach_task import EXECUTE, FEATURES, Distance

from coda_envs.errors import ConfigError, LearningError
from coda_trainer.learning.chunk_basis import BasisNoise, chunk_basis
from coda_trainer.learning.chunk_ppo import ChunkPPO, PPOConfig, clipped_gain
from coda_trainer.learning.critic_learner import LearnerConfig
from coda_trainer.learning.jobs import episode_rng
from coda_trainer.learning.looks import looks, newest
from coda_trainer.learning.residual import ResidualActor, ResidualConfig

NOISE = BasisNoise(std=(0.08, 0.08))
SHAPE = ResidualConfig(EXECUTE, scale=(0.6, 0.6), shift=False, width=64, basis=True)
CONFIG = LearnerConfig(residual=SHAPE, batch_size=64, width=64)
PPO = PPOConfig(noise=NOISE, rate=3e-4, minibatch=256)


@pytest.fixture(autouse=True)
def _one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def new_ppo(seed=0, potential=None, ppo=PPO) -> ChunkPPO:
    return ChunkPPO(
        CONFIG,
        ppo=ppo,
        features=FEATURES,
        encoding=FEATURES,
        potential=potential or Distance(),
        seed=seed,
    )


def policy(learner):
    return lambda obs: learner.actor.act(*READER(obs))


def weights(module) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in module.parameters()])


def block(learner, seeds):
    return play(policy(learner), seeds, learner.noise)


def warmed(learner):
    """The replay after the warm-up, in which the base acts with the rule's noise."""
    episodes = play(lambda obs: READER(obs)[1], range(100), learner.noise)
    replay = replay_with(episodes)
    learner.after_warm_up(replay, len(episodes), 3, {})
    return replay


def test_it_repairs_a_biased_base_from_its_own_rollouts():
    learner = new_ppo()
    replay = warmed(learner)
    before = success(policy(learner))
    assert before < 0.5
    for n in range(8):
        episodes = block(learner, range(1000 + 200 * n, 1200 + 200 * n))
        replay.add(episodes)
        learner.observe_rollouts(float(np.mean([e.success for e in episodes])), len(episodes))
        metrics = learner.after_block(replay, len(episodes), 1, {})
        assert metrics["policy_updates"] > 0
        assert 0 <= metrics["kl"] < 4 * PPO.divergence
    assert success(policy(learner)) > before + 0.5


# The basis and the noise in it -----------------------------------------------------------------


@pytest.mark.parametrize("steps", [1, 2, 3, 4, 5, 8])
def test_the_basis_is_orthonormal_and_its_first_vector_constant(steps):
    basis = chunk_basis(steps)
    assert np.allclose(basis @ basis.T, np.eye(steps), atol=1e-12)
    assert np.allclose(basis[0], 1 / np.sqrt(steps))
    # The later a vector, the more often it changes its sign.
    changes = [int((np.diff(np.sign(row)) != 0).sum()) for row in basis]
    assert changes == list(range(steps))


def test_noise_comes_again_from_the_seed_and_is_largest_where_it_is_held():
    noise = BasisNoise(std=(0.1, 0.0), held=2.0, rest=0.5)
    rngs = [episode_rng(seed) for seed in range(400)]
    zero = np.zeros((400, 4, 2))
    first, second = noise(zero, rngs), noise(zero, rngs, multiplier=0.0)
    for seed in (0, 7, 399):
        drawn = np.einsum("kt,lka->lta", chunk_basis(4), noise.draws(seed, 2, 4))
        assert np.allclose(drawn, [first[seed], second[seed]])
    both = np.einsum("kt,bta->bka", chunk_basis(4), np.concatenate([first, second]))
    assert np.allclose(both[:, :, 0].std(0), [0.2, 0.05, 0.05, 0.05], rtol=0.1)
    assert np.abs(both[:, :, 1]).max() < 1e-12


@pytest.mark.parametrize("std", [(), (0.0, 0.0), (-0.1, 0.1), (np.nan, 0.1)])
def test_noise_that_explores_nothing_or_is_no_number_is_refused(std):
    with pytest.raises(ConfigError, match="one std above 0"):
        BasisNoise(std=std)


# Probabilities ---------------------------------------------------------------------------------


def test_log_probabilities_are_those_of_a_gaussian_in_the_basis():
    learner = new_ppo()
    rng = np.random.default_rng(0)
    asked, one, other = (
        torch.from_numpy(rng.normal(0, 0.1, (5, EXECUTE, 2)).astype(np.float32)) for _ in range(3)
    )
    basis = torch.from_numpy(chunk_basis(EXECUTE).astype(np.float32))
    gaussian = torch.distributions.MultivariateNormal(
        torch.zeros(2 * EXECUTE),
        # Covariance of B^T z, dimension by dimension.
        torch.block_diag(
            *(
                basis.T @ torch.diag(torch.from_numpy(NOISE.scale(EXECUTE)[:, a] ** 2).float())
                @ basis
                for a in range(2)
            )
        ),
    )  # fmt: skip
    ratio = learner.log_probability(one, asked) - learner.log_probability(other, asked)
    expected = gaussian.log_prob((asked - one).transpose(1, 2).flatten(1)) - gaussian.log_prob(
        (asked - other).transpose(1, 2).flatten(1)
    )
    assert torch.allclose(ratio, expected, atol=1e-3, rtol=1e-3)


def test_what_was_asked_for_is_known_behind_the_environments_clip():
    learner = new_ppo()
    replay = warmed(learner)
    episodes = block(learner, range(40))
    replay.add(episodes)
    rows = replay.rollouts
    found = looks(rows, newest(rows, 40), EXECUTE, CONFIG.discount)
    batch = learner.batch(rows, found)
    assert float((batch.asked.abs() > 1).float().mean()) > 0.02
    executed = np.concatenate([e.actions[: e.starts[-1]].reshape(-1, EXECUTE, 2) for e in episodes])
    inner = batch.asked[torch.from_numpy(~found.last)].clamp(-1, 1).numpy()
    assert np.abs(inner - executed).max() < 1e-5
    # Under the policy that acted, its own noise: half a squared normal number a coordinate.
    assert float(batch.log_probability.mean()) == pytest.approx(-EXECUTE, rel=0.15)


def test_rollouts_of_another_policy_are_refused():
    learner = new_ppo()
    replay = warmed(learner)
    episodes = block(learner, range(40))
    replay.add(episodes)
    with torch.no_grad():
        learner.actor.network[-1].bias.add_(0.3)
    held = weights(learner.actor)
    with pytest.raises(LearningError, match=r"away from those of the policy.*own rollouts"):
        learner.after_block(replay, 40, 1, {})
    assert torch.equal(weights(learner.actor), held)


def test_nothing_is_gained_beyond_the_clip():
    log_ratio = torch.tensor([0.0, 0.5, -0.5, 0.5, -0.5], requires_grad=True)
    gain = torch.tensor([1.0, 1.0, 1.0, -1.0, -1.0])
    (slope,) = torch.autograd.grad(clipped_gain(log_ratio, gain, 0.2).sum(), log_ratio)
    # Further up where it is good, and further down where it is bad, nothing pulls.
    assert slope.ne(0).tolist() == [True, False, True, True, False]


# What holds it back ----------------------------------------------------------------------------


def test_without_a_warm_up_the_first_block_teaches_the_value_alone():
    learner = new_ppo()
    replay = replay_with()
    learner.after_warm_up(replay, 0, 0, {})
    episodes = block(learner, range(40))
    replay.add(episodes)
    held = weights(learner.actor)
    assert learner.after_block(replay, 40, 1, {})["policy_updates"] == 0
    assert torch.equal(weights(learner.actor), held)
    episodes = block(learner, range(40, 80))
    replay.add(episodes)
    assert learner.after_block(replay, 40, 1, {})["policy_updates"] > 0
    assert not torch.equal(weights(learner.actor), held)


def test_a_policy_that_runs_away_is_brought_back_and_slowed_down():
    learner = new_ppo(ppo=replace(PPO, rate=0.3))
    replay = warmed(learner)
    replay.add(block(learner, range(60)))
    held = weights(learner.actor)
    metrics = learner.after_block(replay, 60, 1, {})
    assert metrics["alarm"] == 1
    assert metrics["kl"] > 4 * PPO.divergence
    # The first pass was already too much.
    assert metrics["policy_updates"] <= 2
    assert metrics["learning_rate"] == pytest.approx(0.3 / 1.5)
    assert torch.equal(weights(learner.actor), held)


def test_after_a_fall_of_success_the_best_policy_acts_again():
    learner = new_ppo()
    replay = warmed(learner)
    learner.observe_rollouts(0.6, 200)
    best = weights(learner.actor)
    replay.add(block(learner, range(60)))
    learner.after_block(replay, 60, 1, {})
    changed = weights(learner.actor)
    assert not torch.equal(changed, best)
    # A small fall is chance.
    learner.observe_rollouts(0.55, 200)
    assert torch.equal(weights(learner.actor), changed)
    replay.add(block(learner, range(60, 120)))
    learner.observe_rollouts(0.3, 200)
    assert torch.equal(weights(learner.actor), best)
    metrics = learner.after_block(replay, 60, 1, {})
    assert (metrics["alarm"], metrics["policy_updates"]) == (1, 0)
    assert torch.equal(weights(learner.actor), best)


def test_a_new_round_starts_at_the_base_and_keeps_the_value():
    learner = new_ppo()
    replay = warmed(learner)
    replay.add(block(learner, range(60)))
    learner.after_block(replay, 60, 1, {})
    value = weights(learner.estimator.value)
    learner.reset_actor()
    encoding, base = READER({"state": replay.stored("features")[:50]})
    assert np.abs(learner.actor.act(encoding, base) - base).max() < 0.03
    assert torch.equal(weights(learner.estimator.value), value)


# Reproducible ------------------------------------------------------------------------------------


def test_a_loaded_learner_goes_on_bit_for_bit(tmp_path):
    learner = new_ppo()
    replay = warmed(learner)
    replay.add(block(learner, range(60)))
    learner.observe_rollouts(0.4, 60)
    learner.after_block(replay, 60, 2, {})
    learner.save(tmp_path)
    loaded = new_ppo(99)
    loaded.load(tmp_path, first=Distance(), potential=Distance())
    assert loaded.estimator.fitted
    fresh = block(learner, range(200, 260))
    replay.add(fresh)
    for one in (learner, loaded):
        one.observe_rollouts(0.39, 60)
    assert learner.after_block(replay, 60, 3, {}) == loaded.after_block(replay, 60, 3, {})
    for part in ("actor", "critic"):
        assert torch.equal(weights(getattr(learner, part)), weights(getattr(loaded, part)))
    assert torch.equal(weights(learner.estimator.value), weights(loaded.estimator.value))

    # What workers act with is the same mean, outside [-1, 1] too.
    learner.save(tmp_path)
    alone = ResidualActor.load(tmp_path)
    inputs = READER({"state": replay.stored("features")[:20]})
    assert np.array_equal(alone.act(*inputs), learner.actor.act(*inputs))


@pytest.mark.parametrize(
    "make",
    [
        lambda: PPOConfig(clip=1.0),
        lambda: PPOConfig(trace=1.5),
        lambda: PPOConfig(epochs=0),
        lambda: ResidualConfig(shift=True, basis=True),
        lambda: new_ppo(ppo=PPOConfig()),
    ],
)
def test_settings_out_of_range_are_refused(make):
    with pytest.raises(ConfigError, match="Allowed"):
        make()
