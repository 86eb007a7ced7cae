"""The built-in backbone: the protocol's promises, reading of slots and words, and learning."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.transform import Rotation

from coda_envs.env import ManipulationEnv
from coda_envs.errors import ConfigError, PluginError, RunError
from coda_envs.family import BUILT_IN, get_family
from coda_envs.props import COLORS, SHAPES
from coda_envs.sensing import N_SLOTS, SLOT_COLUMNS, object_table
from coda_trainer.backbone import ChunkBatch, EncodingBackbone, ObsBatch, TrainableBackbone
from coda_trainer.learning.behaviour_cloning import take_chunks, train_backbone
from coda_trainer.policies.flow_chunk import FlowChunk
from coda_trainer.policies.language import N_PHRASES, N_WORDS, WORDS, count_words, word_index
from coda_trainer.policies.slot_reader import rotation_columns

COLUMN = {name: i for i, name in enumerate(SLOT_COLUMNS)}
PRESENT = COLUMN["present"]
PAIRS = [(c, s) for c in ("red", "green", "blue", "yellow", "purple", "orange") for s in SHAPES[:3]]
#: Every colour and every shape also occurs in the pairs that are seen.
UNSEEN = [("red", "cube"), ("blue", "bar"), ("orange", "cylinder")]
SEEN = [p for p in PAIRS if p not in UNSEEN]


def text(instruction: str) -> np.ndarray:
    raw = instruction.encode()
    return np.frombuffer(raw.ljust(128, b"\0"), dtype=np.uint8)


def table(objects: Sequence[tuple[str, str]], rng: np.random.Generator) -> np.ndarray:
    """Objects at random places, in the order given, the other slots empty."""
    rows = np.zeros((N_SLOTS, len(SLOT_COLUMNS)), dtype=np.float32)
    for row, (color, shape) in zip(rows, objects, strict=False):
        yaw = rng.uniform(-1, 1)
        row[:3] = (*rng.uniform(-0.25, 0.25, 2), 0.02)
        row[3:9] = (math.cos(yaw), math.sin(yaw), 0, -math.sin(yaw), math.cos(yaw), 0)
        row[COLUMN["half_x"] :][:3] = rng.uniform(0.015, 0.03, 3)
        row[COLUMN[f"is_{shape}"]] = 1.0
        row[COLUMN["red"] :][:3] = COLORS[color]
        row[PRESENT] = 1.0
    return rows


def world(
    count: int, seed: int = 0, pairs: Sequence[tuple[str, str]] = SEEN
) -> tuple[ChunkBatch, np.ndarray]:
    """Reaching for the named one of three objects, and the slot it stands in.

    Distractors share the target's colour or its shape, so both words are needed.
    """
    rng = np.random.default_rng(seed)
    proprio, objects, words, actions, slots = [], [], [], [], []
    for _ in range(count):
        color, shape = pairs[int(rng.integers(len(pairs)))]
        same_color = [p for p in PAIRS if p[0] == color and p[1] != shape]
        same_shape = [p for p in PAIRS if p[1] == shape and p[0] != color]
        others = [same_color[rng.integers(2)], same_shape[rng.integers(5)]]
        rows = table([(color, shape), *others, ("white", "plate")], rng)
        order = rng.permutation(N_SLOTS)
        hand = np.array([*rng.uniform(-0.25, 0.25, 2), 0.2, math.pi, 0, 0, 0.04, -0.04])
        chunk = np.zeros((8, 7))
        chunk[:, :3] = np.clip(2 * (rows[0, :3] - hand[:3]), -1, 1)
        chunk[:, 6] = -1.0
        proprio.append(hand)
        objects.append(rows[order])
        words.append(text(f"put the {color} {shape} on the plate"))
        actions.append(chunk)
        slots.append(int(np.flatnonzero(order == 0)[0]))
    obs = {
        "proprio": np.array(proprio, dtype=np.float32),
        "objects": np.array(objects).reshape(count, -1),
        "instruction": np.array(words),
    }
    valid = np.ones((count, 8), dtype=bool)
    return ChunkBatch(obs, np.array(actions, dtype=np.float32), valid), np.array(slots)


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


def test_an_untrained_reader_already_points_at_what_the_family_names() -> None:
    env = ManipulationEnv("pick-place", within="generator")
    backbone = FlowChunk(width=8)
    schema = env.family.schema
    for seed in range(12):
        scene = env.family.sample(np.random.default_rng(seed), "generator", "ood")
        obs, _ = env.reset(seed=seed, options={"scene": scene})
        objects = object_table(obs["objects"])
        counts = torch.from_numpy(count_words(obs["instruction"][None]))
        with torch.inference_mode():
            match = backbone.module.reader.match(torch.from_numpy(objects[None]), counts)[0].numpy()
        for phrase, role in enumerate(("target", "receptacle")):
            place = env.features[schema.role_offset(role) + 1 :][:3]
            gaps = np.linalg.norm(objects[:, :3] - place, axis=1) + 9 * (objects[:, PRESENT] == 0)
            assert match[phrase, gaps.argmin()] > 0.9, scene.task.instruction
    env.close()


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


@settings(deadline=None)
@given(st.lists(st.floats(-3, 3), min_size=3, max_size=3))
def test_rotation_columns_agree_with_scipy(vector: list[float]) -> None:
    columns = rotation_columns(torch.tensor([vector], dtype=torch.float32))[0].numpy()
    matrix = Rotation.from_rotvec(vector).as_matrix()
    np.testing.assert_allclose(columns, np.concatenate((matrix[:, 0], matrix[:, 1])), atol=1e-5)


def test_words_are_counted_in_the_phrase_they_stand_in() -> None:
    counts = count_words(
        np.stack([text("Put the red cube on the plate."), text("onto the plate, put the red cube")])
    )
    assert counts.shape == (2, N_PHRASES, N_WORDS)
    for row in counts:
        assert row[0, word_index("red")] == row[0, word_index("cube")] == 1
        assert row[1, word_index("plate")] == 1
        assert row[1, word_index("red")] == 0


def test_unknown_words_share_fixed_buckets() -> None:
    assert word_index("grey") == word_index("gray") < len(WORDS)
    # Pinned: a checkpoint's buckets must mean the same in every process.
    assert [word_index(w) - len(WORDS) for w in ("teapot", "wobbly", "ünder")] == [2, 3, 2]
    assert count_words(np.full((1, 128), 0xFF, np.uint8)).sum() >= 0


@settings(deadline=None)
@given(st.binary(max_size=128))
def test_any_bytes_can_be_an_instruction(raw: bytes) -> None:
    counts = count_words(np.frombuffer(raw.ljust(128, b"\0"), np.uint8)[None])
    assert counts.shape == (1, N_PHRASES, N_WORDS)
    assert np.isfinite(counts).all()


def test_every_word_of_every_family_is_in_the_vocabulary() -> None:
    assert len(set(WORDS)) == len(WORDS)
    for family in (get_family(name) for name in BUILT_IN):
        rng = np.random.default_rng(0)
        for _ in range(150):
            task = family.sample(rng, "generator").task
            for text in (task.instruction, *task.paraphrases):
                unknown = set(re.findall(r"\w+", text.lower())) - set(WORDS)
                assert not unknown, (family.name, text)
