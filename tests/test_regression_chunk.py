"""The L1 policy: the protocol's promises, one candidate, and learning."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from policy_cases import world

from coda_envs.errors import ConfigError, PluginError, RunError
from coda_trainer.backbone import EncodingBackbone, TrainableBackbone
from coda_trainer.learning.behaviour_cloning import take_chunks
from coda_trainer.policies.regression_chunk import RegressionChunk


def small(seed: int = 0) -> RegressionChunk:
    """A little-trained policy, quick to make."""
    backbone = RegressionChunk(seed=seed, width=32)
    for _ in range(3):
        backbone.update(world(32)[0], np.ones(32))
    return backbone


def weights(backbone: RegressionChunk) -> list[bytes]:
    return [p.detach().numpy().tobytes() for p in backbone.parameters()]


def test_chunks_have_the_promised_shape_and_range() -> None:
    backbone, obs = small(), world(5)[0].obs
    assert isinstance(backbone, TrainableBackbone)
    assert isinstance(backbone, EncodingBackbone)
    chunks = backbone.sample(obs, seed=0)
    assert chunks.shape == (5, 1, 8, 7)
    assert chunks.dtype == np.float32
    assert np.abs(chunks).max() <= 1
    assert backbone.encode(obs).shape[0] == 5


def test_more_than_one_candidate_is_refused_and_not_faked() -> None:
    backbone = small()
    assert not backbone.spec.multi_sample
    with pytest.raises(PluginError, match=r"regression_chunk was asked for 4 candidates.*n = 1"):
        backbone.sample(world(2)[0].obs, n=4)


def test_no_seed_changes_the_answer() -> None:
    backbone, obs = small(), world(5)[0].obs
    one = backbone.sample(obs, seed=1).tobytes()
    assert one == backbone.sample(obs, seed=2).tobytes() == backbone.sample(obs).tobytes()
    assert one == small().sample(obs).tobytes() != small(seed=1).sample(obs).tobytes()


def test_a_loaded_policy_samples_and_learns_on_bit_for_bit(tmp_path: Path) -> None:
    first, batch = small(), world(32)[0]
    first.save(tmp_path)
    second = RegressionChunk(seed=9, width=32)
    second.load(tmp_path)
    assert first.sample(batch.obs).tobytes() == second.sample(batch.obs).tobytes()
    for _ in range(2):
        assert first.update(batch, np.ones(32)) == second.update(batch, np.ones(32))
    assert weights(first) == weights(second)


def test_a_checkpoint_of_the_other_policy_is_refused_by_name(tmp_path: Path) -> None:
    from coda_trainer.policies.flow_chunk import FlowChunk

    small().save(tmp_path)
    with pytest.raises(RunError, match="multi_sample is False"):
        FlowChunk(width=32).load(tmp_path)


def test_acting_before_there_are_statistics_is_an_error() -> None:
    with pytest.raises(RunError, match="regression_chunk has no normalisation statistics"):
        RegressionChunk(width=8).sample(world(1)[0].obs)


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"width": 0}, "width"),
        ({"learning_rate": 0.0}, "learning_rate"),
        ({"observation": "rbg"}, "did you mean 'rgb'"),
    ],
)
def test_options_out_of_range_are_refused(options: dict[str, object], word: str) -> None:
    with pytest.raises(ConfigError, match=word):
        RegressionChunk(**options)  # type: ignore[arg-type]


def test_updates_lower_the_loss_of_a_fixed_batch() -> None:
    backbone, batch = RegressionChunk(width=32), world(64)[0]
    losses = [backbone.update(batch, np.ones(64))["loss"] for _ in range(60)]
    assert np.mean(losses[-5:]) < 0.5 * np.mean(losses[:5])


def test_where_demonstrations_differ_the_answer_is_their_median() -> None:
    batch = take_chunks(world(1)[0], np.zeros(30, dtype=int))
    batch.actions[:] = -0.4
    batch.actions[:10] = 0.8
    backbone = RegressionChunk(width=32)
    for _ in range(300):
        backbone.update(batch, np.ones(30))
    # The mean would be 0.
    np.testing.assert_allclose(backbone.sample(batch.obs), -0.4, atol=0.1)


def test_rows_of_weight_zero_and_steps_after_an_end_change_nothing() -> None:
    batch, other = world(32)[0], world(32, seed=5)[0]
    weight = np.ones(32)
    weight[::2] = 0.0
    batch.valid[:16, 3:] = False
    mixed = take_chunks(batch, np.arange(32))
    for key, value in mixed.obs.items():
        value[::2] = other.obs[key][::2]
    mixed.actions[::2] = other.actions[::2]
    mixed.actions[:16, 3:] = 0.9
    a, b = small(), small()
    assert a.update(batch, weight) == b.update(mixed, weight)
    assert weights(a) == weights(b)
