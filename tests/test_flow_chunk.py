"""The built-in backbone: the protocol's promises, reading of slots and words, and learning."""

from __future__ import annotations

import math
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from policy_cases import PRESENT, SEEN, UNSEEN, table, text, world

from coda_envs.env import ManipulationEnv
from coda_envs.errors import ConfigError, PluginError, RunError
from coda_envs.sensing import N_SLOTS, object_table
from coda_trainer.backbone import ChunkBatch, EncodingBackbone, ObsBatch, TrainableBackbone
from coda_trainer.learning.behaviour_cloning import take_chunks, train_backbone
from coda_trainer.policies.flow_chunk import FlowChunk


def small(seed: int = 0) -> FlowChunk:
    """A little-trained policy, quick to make."""
    backbone = FlowChunk(seed=seed, width=32)
    for _ in range(3):
        backbone.update(world(32)[0], np.ones(32))
    return backbone


@cache
def trained() -> FlowChunk:
    """Trained on seen pairs; tests only read it."""
    backbone = FlowChunk(width=64, learning_rate=2e-3)
    train_backbone(
        backbone, world(800)[0], updates=200, batch_size=64, rng=np.random.default_rng(0)
    )
    return backbone


def weights(backbone: FlowChunk) -> list[bytes]:
    return [p.detach().numpy().tobytes() for p in backbone.parameters()]


def with_rows(obs: ObsBatch, **changes: np.ndarray) -> dict[str, np.ndarray]:
    return {**obs, **changes}


# The protocol's promises ----------------------------------------------------------------------


def test_chunks_have_the_promised_shape_range_and_candidates() -> None:
    backbone, obs = small(), world(5)[0].obs
    assert isinstance(backbone, TrainableBackbone)
    assert isinstance(backbone, EncodingBackbone)
    chunks = backbone.sample(obs, n=3, seed=0)
    assert chunks.shape == (5, 3, 8, 7)
    assert chunks.dtype == np.float32
    assert np.abs(chunks).max() <= 1
    assert np.abs(chunks[:, 0] - chunks[:, 1]).max() > 1e-3
    code = backbone.encode(obs)
    assert code.ndim == 2
    assert code.dtype == np.float32
    assert np.isfinite(code).all()


def test_the_same_seed_gives_the_same_bytes_and_another_does_not() -> None:
    obs = world(5)[0].obs
    first, again = small().sample(obs, n=2, seed=7), small().sample(obs, n=2, seed=7)
    assert first.tobytes() == again.tobytes()
    assert first.tobytes() != small().sample(obs, n=2, seed=8).tobytes()


def test_a_rows_chunk_does_not_depend_on_the_rows_after_it_or_on_n() -> None:
    backbone, obs = small(), world(6)[0].obs
    whole = backbone.sample(obs, n=3, seed=1)
    part = backbone.sample({k: v[:2] for k, v in obs.items()}, n=2, seed=1)
    np.testing.assert_allclose(whole[:2, :2], part, atol=1e-5)


def test_the_first_candidate_is_steady_and_the_others_are_draws() -> None:
    backbone, obs = small(), world(5)[0].obs
    alone = backbone.sample(obs, seed=1)
    assert alone.tobytes() == backbone.sample(obs, seed=2).tobytes()
    one, other = backbone.sample(obs, n=2, seed=1), backbone.sample(obs, n=2, seed=2)
    np.testing.assert_allclose(one[:, 0], other[:, 0], atol=1e-5)
    assert np.abs(one[:, 1] - other[:, 1]).max() > 1e-3


def test_sampling_without_a_seed_draws_afresh_from_the_backbones_generator() -> None:
    obs = world(2)[0].obs
    a, b = small(), small()
    first = a.sample(obs, n=2)
    assert first.tobytes() == b.sample(obs, n=2).tobytes()
    assert first.tobytes() != a.sample(obs, n=2).tobytes()


def test_a_loaded_policy_samples_and_learns_on_bit_for_bit(tmp_path: Path) -> None:
    first, batch = small(), world(32)[0]
    first.save(tmp_path)
    second = FlowChunk(seed=9, width=32)
    second.load(tmp_path)
    assert first.sample(batch.obs, seed=0).tobytes() == second.sample(batch.obs, seed=0).tobytes()
    for _ in range(2):
        assert first.update(batch, np.ones(32)) == second.update(batch, np.ones(32))
    assert weights(first) == weights(second)


def test_a_checkpoint_of_another_width_is_refused_by_name(tmp_path: Path) -> None:
    small().save(tmp_path)
    with pytest.raises(RunError, match=r"model\.pt"):
        FlowChunk(width=16).load(tmp_path)


def test_acting_before_there_are_statistics_is_an_error() -> None:
    with pytest.raises(RunError, match="statistics"):
        FlowChunk(width=8).sample(world(1)[0].obs)


def test_statistics_are_taken_once() -> None:
    backbone, far = small(), world(32, seed=1)[0]
    before = backbone.module.actions.mean.clone()
    far.actions[:] += 0.5
    backbone.prepare(far)
    backbone.update(far, np.ones(32))
    assert torch.equal(before, backbone.module.actions.mean)


@pytest.mark.parametrize(
    ("options", "word"),
    [({"steps": 0}, "steps"), ({"width": 0}, "width"), ({"learning_rate": 0.0}, "learning_rate")],
)
def test_options_out_of_range_are_refused(options: dict[str, float], word: str) -> None:
    with pytest.raises(ConfigError, match=word):
        FlowChunk(**options)  # type: ignore[arg-type]


def test_observations_that_do_not_fit_are_named() -> None:
    backbone, obs = small(), world(2)[0].obs
    with pytest.raises(PluginError, match=r"'objects'.*obs_mode"):
        backbone.sample({k: v for k, v in obs.items() if k != "objects"})
    with pytest.raises(PluginError, match="'objects' of shape"):
        backbone.sample(with_rows(obs, objects=obs["objects"][..., :-1]))
    with pytest.raises(PluginError, match="'proprio' of shape"):
        backbone.sample(with_rows(obs, proprio=obs["proprio"][0]))


# What an update may depend on -----------------------------------------------------------------


def test_updates_lower_the_loss_of_a_fixed_batch() -> None:
    backbone, batch = FlowChunk(width=32), world(64)[0]
    losses = [backbone.update(batch, np.ones(64))["loss"] for _ in range(60)]
    assert np.mean(losses[-5:]) < 0.5 * np.mean(losses[:5])


def test_rows_of_weight_zero_change_nothing() -> None:
    batch, other = world(32)[0], world(32, seed=5)[0]
    weight = np.ones(32)
    weight[::2] = 0.0
    mixed = take_chunks(batch, np.arange(32))
    for key, value in mixed.obs.items():
        value[::2] = other.obs[key][::2]
    mixed.actions[::2] = other.actions[::2]
    a, b = small(), small()
    assert a.update(batch, weight) == b.update(mixed, weight)
    assert weights(a) == weights(b)


def test_a_heavier_row_pulls_more() -> None:
    batch = world(2)[0]
    batch.obs["objects"][1], batch.obs["proprio"][1] = (
        batch.obs["objects"][0],
        batch.obs["proprio"][0],
    )
    batch.obs["instruction"][1] = batch.obs["instruction"][0]
    batch.actions[0], batch.actions[1] = 0.6, -0.6
    ends = []
    for weight in (np.array([1.9, 0.1]), np.array([0.1, 1.9])):
        backbone = small()
        for _ in range(50):
            backbone.update(batch, weight)
        ends.append(backbone.sample(batch.obs, n=16, seed=0).mean())
    assert ends[0] > ends[1] + 0.3


def test_actions_after_an_episodes_end_change_nothing() -> None:
    batch = world(32)[0]
    batch.valid[:16, 3:] = False
    other = take_chunks(batch, np.arange(32))
    other.actions[:16, 3:] = 0.9
    a, b = small(), small()
    assert a.update(batch, np.ones(32)) == b.update(other, np.ones(32))
    assert weights(a) == weights(b)


def test_a_dimension_that_never_moved_stays_still_and_finite() -> None:
    chunks = trained().sample(world(20, seed=3)[0].obs, seed=0)
    assert np.abs(chunks[..., 3:6]).max() < 0.1
    assert np.abs(chunks[..., 6] + 1).max() < 0.1


# Reading slots and words ----------------------------------------------------------------------


def test_the_order_of_the_slots_does_not_matter_nor_what_empty_ones_hold() -> None:
    backbone, obs = trained(), world(10, seed=2)[0].obs
    before = backbone.sample(obs, seed=0)
    order = np.random.default_rng(0).permutation(N_SLOTS)
    shuffled = object_table(obs["objects"])[:, order].copy()
    shuffled[shuffled[..., PRESENT] == 0, :PRESENT] = 0.7
    after = backbone.sample(with_rows(obs, objects=shuffled.reshape(10, -1)), seed=0)
    np.testing.assert_allclose(before, after, atol=1e-4)


def test_the_instruction_decides_which_object_is_reached_for() -> None:
    backbone, rng = trained(), np.random.default_rng(4)
    rows = table([("red", "bar"), ("green", "cylinder"), ("white", "plate")], rng)
    rows[0, :2], rows[1, :2] = (0.1, -0.2), (0.1, 0.2)
    hand = np.array([[0, 0, 0.2, math.pi, 0, 0, 0.04, -0.04]], dtype=np.float32)
    sideways = []
    for name in ("red bar", "green cylinder", "red object", "cylinder"):
        words = text(f"put the {name} on the plate")[None]
        obs = {"proprio": hand, "objects": rows.reshape(1, -1), "instruction": words}
        sideways.append(backbone.sample(obs, n=8, seed=0)[..., 1].mean())
    np.testing.assert_allclose(sideways, [-0.4, 0.4, -0.4, 0.4], atol=0.15)


@pytest.mark.parametrize("pairs", [SEEN, UNSEEN], ids=["seen", "unseen"])
def test_pairs_of_words_never_seen_together_still_find_their_object(
    pairs: list[tuple[str, str]],
) -> None:
    batch, slots = world(100, seed=11, pairs=pairs)
    backbone = trained()
    chunks = backbone.sample(batch.obs, seed=0)[:, 0]
    reach = chunks[:, :4, :2].mean(1) / 2 + batch.obs["proprio"][:, :2]
    rows = object_table(batch.obs["objects"])
    places = rows[..., :2].copy()
    places[rows[..., PRESENT] == 0] = np.inf
    nearest = np.linalg.norm(places - reach[:, None], axis=-1).argmin(1)
    assert (nearest == slots).mean() > 0.9


def test_a_real_observation_is_accepted_alone_and_in_a_batch() -> None:
    env = ManipulationEnv("pick-place")
    obs, _ = env.reset(seed=0)
    one = {k: v[None] for k, v in obs.items()}
    batch = ChunkBatch(one, np.zeros((1, 8, 7), np.float32), np.ones((1, 8), bool))
    backbone = FlowChunk(width=8)
    backbone.update(batch, np.ones(1))
    assert np.isfinite(backbone.sample(one, seed=0)).all()
    env.close()


def test_a_hand_turned_by_half_a_turn_is_read_the_same_from_either_side() -> None:
    obs = world(4)[0].obs
    other = obs["proprio"].copy()
    other[:, 3] = -math.pi
    backbone = trained()
    np.testing.assert_allclose(
        backbone.sample(obs, seed=0),
        backbone.sample(with_rows(obs, proprio=other), seed=0),
        atol=1e-4,
    )
