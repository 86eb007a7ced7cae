"""Advantage-weighted updates: the weights, what a lesson holds, and that a backbone improves."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from reach_rules import READER, play, replay_with, success
from reach_task import BIAS, EXECUTE, FEATURES, HORIZON, STEP, BiasedBase, Distance

from coda_envs.errors import ConfigError, LearningError
from coda_trainer.backbone import ChunkBatch
from coda_trainer.learning.behaviour_cloning import train_backbone
from coda_trainer.learning.critic_learner import LearnerConfig
from coda_trainer.learning.exploration import ExplorationNoise
from coda_trainer.learning.residual import ResidualConfig
from coda_trainer.learning.success_alarm import SuccessAlarm
from coda_trainer.learning.weighted import (
    MOST,
    WeightedConfig,
    WeightedLearner,
    advantage_weights,
    effective_size,
)

CONFIG = LearnerConfig(ResidualConfig(EXECUTE, scale=(0.2, 0.2)), batch_size=64, width=64)
NOISE = ExplorationNoise(std=0.1, share=1.0, held=1.0, per_dimension=(1.0, 1.0))


@pytest.fixture(autouse=True)
def _one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


class LearningBase(BiasedBase):
    """The biased base, whose bias learns by weighted regression."""

    def update(self, batch: ChunkBatch, weight: np.ndarray) -> dict[str, float]:
        gap = batch.obs["state"][:, 2:] + self.bias - batch.obs["state"][:, :2]
        error = batch.actions - np.clip(gap / (STEP * EXECUTE), -1, 1)[:, None]
        # The chunk's later actions undo what its first ones did: only those that execute count.
        count = weight[:, None] * batch.valid
        count[:, EXECUTE:] = 0
        mean = (error * count[:, :, None]).sum((0, 1)) / count.sum()
        self.bias = (self.bias + 0.05 * STEP * EXECUTE * mean).astype(np.float32)
        return {"loss": float((error**2).mean())}

    def save(self, folder): ...

    def load(self, folder): ...


def new_weighted(seed=0, potential=None, **changes) -> WeightedLearner:
    return WeightedLearner(
        CONFIG,
        weighted=replace(WeightedConfig(), **changes),
        features=FEATURES,
        encoding=FEATURES,
        potential=potential or Distance(),
        seed=seed,
    )


def act(base):
    return lambda obs: base.sample(obs)[:, 0]


def weights(module) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in module.parameters()])


@pytest.mark.parametrize("uniform", [False, True], ids=["weighted", "all alike"])
def test_the_backbone_improves_by_the_weights_alone(uniform):
    """Its own noisy chunks, all weighing the same, teach it nothing: the weights do."""
    base, learner = LearningBase(), new_weighted(beta=0.5, keep=2)
    before = success(act(base))
    assert before < 0.5
    episodes = play(act(base), range(200), NOISE)
    replay = replay_with(episodes)
    learner.after_warm_up(replay, 200, 1, {})
    for n in range(4):
        episodes = play(act(base), range(1000 + 200 * n, 1200 + 200 * n), NOISE)
        replay.add(episodes)
        learner.after_block(replay, 200, 1, {})
        lesson = learner.lesson(replay, HORIZON)
        weight = np.ones(len(lesson.weight)) if uniform else lesson.weight
        rng = np.random.default_rng(n)
        train_backbone(base, lesson.chunks, updates=60, batch_size=128, rng=rng, weight=weight)
    after = success(act(base))
    if uniform:
        assert after < before + 0.15
    else:
        assert after > before + 0.3
        assert np.hypot(*base.bias) < 0.7 * np.hypot(*BIAS)


# Weights -----------------------------------------------------------------------------------------


def test_weights_rise_with_the_advantage_up_to_a_bound_and_have_mean_one():
    advantage = np.append(np.random.default_rng(0).normal(0, 0.1, 2000), [0.4, 40.0])
    weight = advantage_weights(advantage, beta=1.0)
    assert weight.mean() == pytest.approx(1.0)
    assert np.all(np.diff(weight[np.argsort(advantage)]) >= 0)
    # Nothing counts for more than 20 times what a mean chunk counts for.
    mean_chunk = advantage_weights(np.append(advantage, advantage.mean()), 1.0)
    assert mean_chunk.max() / mean_chunk[-1] == pytest.approx(MOST, rel=1e-3)
    sharp = advantage_weights(advantage[:2000], beta=0.3)
    soft = advantage_weights(advantage[:2000], beta=3.0)
    assert effective_size(sharp) < effective_size(advantage_weights(advantage[:2000], 1.0))
    assert effective_size(soft) > 0.85


def test_advantages_that_hardly_differ_give_weights_that_hardly_differ():
    assert advantage_weights(np.full(5, 0.3), 1.0).tolist() == [1.0] * 5
    tiny = advantage_weights(np.random.default_rng(0).normal(0, 1e-4, 100), 1.0)
    assert effective_size(tiny) > 0.99


def test_the_effective_size_is_the_share_that_counts():
    assert effective_size(np.ones(10)) == 1.0
    assert effective_size(np.array([5.0, 0, 0, 0, 0])) == pytest.approx(0.2)


def test_an_advantage_that_is_not_finite_is_one_clear_error():
    with pytest.raises(LearningError, match=r"1 of 2 advantages are not finite.*Remedy"):
        advantage_weights(np.array([0.0, np.nan]), 1.0)


# Lessons -----------------------------------------------------------------------------------------


def test_a_lesson_holds_the_last_blocks_and_earlier_successes_at_looks_alone():
    learner = new_weighted(keep=2)
    blocks = [
        play(lambda obs: READER(obs)[1], range(100 * n, 100 * n + 40), NOISE) for n in range(4)
    ]
    replay = replay_with()
    for n, block in enumerate(blocks):
        replay.add(block)
        (learner.after_block if n else learner.after_warm_up)(replay, len(block), 1, {})
    kept = [e for block in blocks[:2] for e in block if e.success] + blocks[2] + blocks[3]
    assert len(kept) < sum(map(len, blocks))
    lesson = learner.lesson(replay, HORIZON)
    seen = [e.observations["state"][e.starts] for e in kept]
    assert np.array_equal(lesson.chunks.obs["state"], np.concatenate(seen))
    assert lesson.weight.shape == (len(lesson.chunks),)
    assert lesson.weight.mean() == pytest.approx(1.0)


def test_it_corrects_and_distils_nothing():
    learner = new_weighted()
    assert learner.residual is None


# Reproducible ------------------------------------------------------------------------------------


def test_a_loaded_learner_goes_on_bit_for_bit(tmp_path):
    learner = new_weighted(keep=2)
    blocks = [
        play(lambda obs: READER(obs)[1], range(100 * n, 100 * n + 40), NOISE) for n in range(4)
    ]
    replay = replay_with(blocks[0])
    learner.after_warm_up(replay, 40, 3, {})
    for block in blocks[1:3]:
        replay.add(block)
        learner.after_block(replay, 40, 3, {})
    later = Distance(0.5)
    learner.set_potential(later)
    learner.save(tmp_path)
    loaded = new_weighted(99, keep=2)
    loaded.load(tmp_path, first=Distance(), potential=later)
    replay.add(blocks[3])
    assert learner.after_block(replay, 40, 3, {}) == loaded.after_block(replay, 40, 3, {})
    one, other = learner.lesson(replay, HORIZON), loaded.lesson(replay, HORIZON)
    assert one.weight.tobytes() == other.weight.tobytes()
    assert one.chunks.actions.tobytes() == other.chunks.actions.tobytes()
    assert torch.equal(weights(learner.critic), weights(loaded.critic))


def test_a_new_potential_shifts_the_value_by_old_minus_new():
    replay = replay_with(play(lambda obs: READER(obs)[1], range(60), NOISE))
    learner = new_weighted()
    learner.after_warm_up(replay, 60, 1, {})
    features = replay.stored("features")[:50]
    state = learner.critic.read(features)
    with torch.no_grad():
        before = learner.estimator.value(state).numpy()
    learner.set_potential(Distance(0.5))
    with torch.no_grad():
        after = learner.estimator.value(learner.critic.read(features)).numpy()
    shift = Distance()(features) - Distance(0.5)(features)
    assert np.abs(shift).max() > 0.1
    assert np.allclose(after - before, shift, atol=1e-5)


# The alarm ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("seen", "rings"),
    [
        ([(0.5, 200), (0.45, 200)], False),  # a small fall
        ([(0.5, 20), (0.35, 20)], False),  # a fall that so few episodes do not show
        ([(0.5, 200), (0.3, 200)], True),
        ([(0.5, 200), (0.3, 200), (0.45, 200)], False),  # recovered
        ([(0.0, 100), (0.0, 100)], False),  # nothing to lose
        ([(0.9, 400), (0.85, 400), (0.8, 400), (0.75, 400)], True),  # slowly
        ([(0.5, 200), (0.0, 0)], False),  # no episodes
    ],
)
def test_the_alarm_rings_where_success_has_clearly_fallen(seen, rings):
    alarm = SuccessAlarm()
    for rate, count in seen:
        alarm.observe(rate, count)
    assert alarm.ringing is rings


@pytest.mark.parametrize("change", [{"beta": 0.0}, {"keep": 0}, {"trace": 1.2}])
def test_settings_out_of_range_are_refused(change):
    with pytest.raises(ConfigError, match="Allowed"):
        WeightedConfig(**change)
