from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reach_task import scene

from coda_envs.errors import CodaError, LearningError, RunError
from coda_trainer.episode import Episode
from coda_trainer.learning.replay import Replay

H, A, F = 3, 2, 4
GAMMA = 0.9


def reader(obs):
    """Encoding: the two ids twice over; base: actions that tell which state they were read from."""
    ids = obs["ids"].astype(np.float32)
    return np.concatenate([ids, 2 * ids], axis=1), np.repeat(ids[:, None], 5, axis=1) / 1000


def episode(number: int, length: int, ends: str, source: str = "wide") -> Episode:
    """Every value of an episode says which episode (``number``) and step it belongs to."""
    ids = np.stack([np.full(length + 1, number), np.arange(length + 1)], axis=1)
    rewards = np.zeros(length, dtype=np.float32)
    rewards[-1] = ends == "success"
    return Episode(
        scene=scene((0.001 * number, 0.0)),
        seed=number,
        observations={"ids": ids.astype(np.int16)},
        actions=ids[:-1].astype(np.float32) + 1,
        features=np.concatenate([ids, ids + 0.5], axis=1).astype(np.float32),
        rewards=rewards,
        starts=np.arange(0, length, H),
        terminated=ends != "cut",
        truncated=ends == "cut",
        success=ends == "success",
        source=source,
    )


def draw(replay, seed=0, size=64, **options):
    options = {"discount": GAMMA, "demo_share": 0.0} | options
    return replay.draw(np.random.default_rng(seed), size, **options)


def equal(a, b):
    return all(np.array_equal(getattr(a, k), getattr(b, k)) for k in vars(a))


endings = st.tuples(st.integers(1, 8), st.sampled_from(["success", "failure", "cut"]))


@settings(max_examples=40, deadline=None)
@given(shape=st.lists(endings, min_size=1, max_size=8), seed=st.integers(0, 999))
def test_transitions_agree_with_a_loop_over_the_episode(shape, seed):
    episodes = [episode(i, n, ends) for i, (n, ends) in enumerate(shape)]
    replay = Replay(reader, H)
    replay.add(episodes)
    batch = draw(replay, seed)
    for i in range(len(batch)):
        number, t = (int(v) for v in batch.features[i, :2])
        e = episodes[number]
        k, reward, chunk, valid = 0, 0.0, np.zeros((H, A)), np.zeros(H)
        while k < H and t + k < e.length:
            reward += GAMMA**k * float(e.rewards[t + k])
            chunk[k], valid[k] = e.actions[t + k], 1
            k += 1
        assert batch.steps[i] == k
        assert batch.reward[i] == pytest.approx(reward)
        later = (GAMMA**n * float(r) for n, r in enumerate(e.rewards[t:]))
        assert batch.observed[i] == pytest.approx(sum(later))
        assert np.array_equal(batch.chunk[i], chunk)
        assert np.array_equal(batch.valid[i], valid)
        assert batch.terminated[i] == (e.terminated and t + k == e.length)
        # What is read at t + k belongs to the same episode, k steps on.
        assert np.array_equal(batch.next_features[i], e.features[t + k])
        assert np.array_equal(batch.encoding[i], [number, t, 2 * number, 2 * t])
        assert np.array_equal(batch.next_encoding[i, :2], [number, t + k])
        assert np.array_equal(batch.base[i], np.float32([[number, t]] * H) / 1000)
        assert np.array_equal(batch.next_base[i, 0], np.float32([number, t + k]) / 1000)


def test_every_step_is_drawn_and_equally_often():
    replay = Replay(reader, H)
    replay.add([episode(0, 1, "success"), episode(1, 5, "cut"), episode(2, 4, "failure")])
    batch = draw(replay, size=20_000)
    steps, counts = np.unique(batch.features[:, :2], axis=0, return_counts=True)
    assert len(steps) == len(replay) == 10
    assert np.all(np.abs(counts - 2000) < 5 * np.sqrt(2000))


@settings(max_examples=40, deadline=None)
@given(lengths=st.lists(st.integers(1, 12), min_size=1, max_size=40), room=st.integers(13, 60))
def test_rollouts_stay_within_their_bytes_and_the_oldest_go_first(lengths, room):
    row_bytes = 4 * (F + 4 + H * A + A + 1) + 2 * 2
    replay = Replay(reader, H, capacity_bytes=room * row_bytes)
    demonstrations = [episode(100, 12, "success", "demonstration")]
    replay.add(demonstrations, demonstrations=True)
    demonstration_bytes = replay.nbytes
    for i, n in enumerate(lengths):
        replay.add([episode(i, n, "cut")])
        assert replay.nbytes - demonstration_bytes <= room * row_bytes
        kept = [r.seed for r in replay.rollouts.records]
        # A run of the newest ones, always with the one just added.
        assert kept == list(range(kept[0], i + 1))
    batch = draw(replay, size=300, demo_share=0.5)
    own = batch.features[~batch.demonstration]
    assert set(own[:, 0]) <= set(kept)
    # None was written over: the second half of each row repeats the first.
    assert np.array_equal(own[:, :2] + 0.5, own[:, 2:])
    assert set(batch.features[batch.demonstration][:, 0]) == {100}


def test_a_ring_that_is_large_enough_drops_nothing():
    replay = Replay(reader, H)
    replay.add([episode(i, 7, "cut") for i in range(50)])
    assert len(replay) == 350


def test_demonstrations_fill_their_share():
    replay = Replay(reader, H)
    replay.add([episode(0, 5, "success", "demonstration")], demonstrations=True)
    replay.add([episode(1, 5, "cut")])
    batch = draw(replay, size=160, demo_share=0.25)
    assert batch.demonstration.sum() == 40
    assert set(batch.source[batch.demonstration]) == {"demonstration"}
    assert set(batch.source[~batch.demonstration]) == {"wide"}


def test_sources_are_drawn_by_weight():
    replay = Replay(reader, H)
    names = ["wide", "mode-1", "mode-2"]
    replay.add([episode(i, 6, "cut", source) for i, source in enumerate(names)])
    batch = draw(replay, size=9000, source_weights={"mode-1": 3.0, "mode-2": 0.0, "absent": 5.0})
    share = [np.mean(batch.source == n) for n in names]
    assert share == pytest.approx([0.25, 0.75, 0.0], abs=0.02)


def test_the_same_generator_state_draws_the_same_batch():
    replay = Replay(reader, H)
    replay.add([episode(i, 6, "cut") for i in range(9)])
    assert equal(draw(replay, 5), draw(replay, 5))
    assert not equal(draw(replay, 5), draw(replay, 6))


def test_adding_together_or_one_by_one_is_the_same():
    episodes = [episode(i, 3 + i, "cut") for i in range(5)]
    together, single = Replay(reader, H), Replay(reader, H)
    together.add(episodes)
    for e in episodes:
        single.add([e])
    assert equal(draw(together), draw(single))


def test_rebase_reads_every_observation_again():
    replay = Replay(reader, H)
    replay.add([episode(0, 5, "cut", "demonstration")], demonstrations=True)
    replay.add([episode(1, 6, "cut")])
    before = draw(replay, demo_share=0.5)

    def other(obs):
        encoding, base = reader(obs)
        return encoding + 1, base / 2

    replay.rebase(other)
    after = draw(replay, demo_share=0.5)
    assert np.array_equal(after.encoding, before.encoding + 1)
    assert np.array_equal(after.next_base, before.next_base / 2)
    assert np.array_equal(after.chunk, before.chunk)
    with pytest.raises(LearningError, match="encoding"):
        replay.rebase(lambda obs: (reader(obs)[0][:, :1], reader(obs)[1]))


def filled() -> Replay:
    replay = Replay(reader, H, capacity_bytes=3000)
    replay.add([episode(100, 9, "success", "demonstration")], demonstrations=True)
    replay.add([episode(i, 4 + i % 5, "cut") for i in range(12)])
    return replay


def test_a_loaded_replay_goes_on_as_the_saved_one(tmp_path):
    saved = filled()
    saved.save(tmp_path)
    loaded = Replay.load(tmp_path, reader)
    assert loaded.rollouts.records == saved.rollouts.records
    assert equal(draw(saved, demo_share=0.3), draw(loaded, demo_share=0.3))
    for replay in (saved, loaded):
        replay.add([episode(20 + i, 5, "success") for i in range(3)])
    assert loaded.rollouts.records == saved.rollouts.records
    assert equal(draw(saved, 1, demo_share=0.3), draw(loaded, 1, demo_share=0.3))


def test_the_same_history_writes_the_same_bytes(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        filled().save(tmp_path / name)
    for file in ("replay.json", "replay.npz"):
        assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes()


@pytest.mark.parametrize("file", ["replay.json", "replay.npz"])
@pytest.mark.parametrize("damage", ["missing", "cut short", "other content"])
def test_a_damaged_folder_is_one_clear_error(tmp_path, file, damage):
    filled().save(tmp_path)
    path = tmp_path / file
    if damage == "missing":
        path.unlink()
    elif damage == "cut short":
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    else:
        path.write_text("[1, 2]")
    with pytest.raises(RunError, match="holds no usable replay"):
        Replay.load(tmp_path, reader)


def test_a_record_outside_the_rows_is_refused(tmp_path):
    filled().save(tmp_path)
    path = tmp_path / "replay.json"
    path.write_text(path.read_text().replace('"length": 9', '"length": 90'))
    with pytest.raises(RunError, match="disagree"):
        Replay.load(tmp_path, reader)


def test_an_object_array_in_the_file_is_not_unpickled(tmp_path):
    filled().save(tmp_path)
    with np.load(tmp_path / "replay.npz") as stored:
        arrays = dict(stored)
    arrays["rollouts/reward"] = np.array([print] * len(arrays["rollouts/reward"]), dtype=object)
    np.savez(tmp_path / "replay.npz", **arrays)
    with pytest.raises(RunError, match="pickle"):
        Replay.load(tmp_path, reader)


GOOD = episode(1, 4, "success")


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        (replace(GOOD, rewards=np.array([0, 0, np.nan, 1])), "not finite"),
        (replace(GOOD, features=GOOD.features + np.inf), "not finite"),
        (replace(GOOD, rewards=np.array([0, 1, 0, 1.0])), "sparse"),
        (replace(GOOD, rewards=np.array([0, 0, 0, -1.0])), "sparse"),
        (replace(GOOD, rewards=np.zeros(3)), "rewards"),
        (replace(GOOD, observations={"ids": np.zeros((4, 2), np.int16)}), "ids"),
        (replace(GOOD, observations={}), "ids"),
        (replace(GOOD, features=GOOD.features[:, :3]), "features"),
        (replace(GOOD, actions=GOOD.actions[:0], rewards=GOOD.rewards[:0]), "no step"),
        (episode(1, 600, "cut"), "capacity"),
    ],
)
def test_a_bad_episode_is_refused_and_nothing_is_stored(bad, says):
    replay = Replay(reader, H, capacity_bytes=20_000)
    replay.add([GOOD])
    before = draw(replay)
    with pytest.raises(LearningError, match=says):
        replay.add([GOOD, bad])
    assert equal(draw(replay), before)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"demo_share": 0.25}, "no demonstrations"),
        ({"size": 0}, "batch_size=0"),
        ({"demo_share": 1.5}, "demo_share=1.5"),
        ({"source_weights": {"wide": 0.0}}, "weight 0"),
        ({"source_weights": {"wide": np.nan}}, "nan"),
        ({"source_weights": {"wide": -1.0}}, "-1"),
    ],
)
def test_a_draw_that_cannot_be_served_says_why(options, says):
    replay = Replay(reader, H)
    replay.add([GOOD])
    with pytest.raises(CodaError, match=says):
        draw(replay, **options)


def test_an_empty_replay_says_so():
    with pytest.raises(LearningError, match="no rollouts"):
        draw(Replay(reader, H))
