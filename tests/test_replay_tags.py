"""What the replay keeps of an episode beside its arrays, and how it keeps pictures."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from test_replay import GAMMA, H, draw, episode, reader

from coda_envs.errors import LearningError
from coda_trainer.episode import Episode
from coda_trainer.learning.replay import Replay


def tagged() -> Replay:
    replay = Replay(reader, H)
    whole = [episode(i, 6, "cut", "mode") for i in range(2)]
    reset = [replace(episode(2, 6, "cut", "mode:reset"), stage="grasp", began=5)]
    replay.add([*whole, *reset])
    return replay


def test_an_episode_is_tagged_with_the_stage_that_it_entered() -> None:
    batch = draw(tagged(), size=600)
    begun = batch.source == "mode:reset"
    assert set(batch.stage[begun]) == {"grasp"}
    assert set(batch.stage[~begun]) == {""}
    assert set(batch.features[begun, 0]) == {2}


def test_steps_are_drawn_by_the_weight_of_the_stage_times_that_of_the_source() -> None:
    weights = {"source_weights": {"mode:reset": 2.0}, "stage_weights": {"grasp": 3.0}}
    batch = draw(tagged(), size=9000, **weights)
    assert np.mean(batch.stage == "grasp") == pytest.approx(6 / 8, abs=0.02)
    none = draw(tagged(), size=500, stage_weights={"grasp": 0.0})
    assert set(none.stage) == {""}
    with pytest.raises(LearningError, match="stage 'grasp' has the replay weight nan"):
        draw(tagged(), stage_weights={"grasp": np.nan})


def test_demonstrations_have_a_share_and_no_weights() -> None:
    replay = tagged()
    replay.add([episode(9, 6, "success", "demonstration")], demonstrations=True)
    batch = draw(replay, size=100, demo_share=0.25, source_weights={"demonstration": 0.0})
    assert batch.demonstration.sum() == 25


def test_the_stage_survives_saving(tmp_path: Path) -> None:
    saved = tagged()
    saved.save(tmp_path)
    loaded = Replay.load(tmp_path, reader)
    assert [r.stage for r in loaded.rollouts.records] == ["", "", "grasp"]
    weights = {"stage_weights": {"grasp": 4.0}}
    assert np.array_equal(draw(saved, **weights).features, draw(loaded, **weights).features)


def picture(number: int, length: int) -> Episode:
    rng = np.random.default_rng(number)
    pixels = rng.integers(0, 256, (length + 1, 8, 8, 3), dtype=np.uint8)
    plain = episode(number, length, "cut")
    return replace(plain, observations={**plain.observations, "front": pixels})


def test_pictures_stay_bytes(tmp_path: Path) -> None:
    types = []

    def sees(obs):
        types.append(obs["front"].dtype)
        return reader(obs)

    replay = Replay(sees, H)
    episodes = [picture(i, 6) for i in range(3)]
    replay.add(episodes)
    replay.save(tmp_path)
    loaded = Replay.load(tmp_path, sees)
    loaded.rebase(sees)
    assert set(types) == {np.dtype(np.uint8)}
    column = loaded.rollouts.columns["observation.front"]
    assert column.dtype == np.uint8
    for record, given in zip(loaded.rollouts.records, episodes, strict=True):
        rows = column[record.start : record.start + record.length + 1]
        assert np.array_equal(rows, given.observations["front"])
    # A byte a pixel and channel: the pictures of one state take 192 bytes.
    assert column.nbytes == len(column) * 8 * 8 * 3


def test_pictures_count_towards_the_bound() -> None:
    replay = Replay(reader, H, capacity_bytes=20_000)
    for i in range(40):
        replay.add([picture(i, 6)])
        assert replay.rollouts.nbytes <= 20_000
    assert 0 < len(replay.rollouts.records) < 40


def test_no_shaping_is_stored_and_a_dense_reward_is_paid_for_the_states_of_the_draw() -> None:
    class Paid:
        scale = 1.0

        def __call__(self, features: np.ndarray) -> np.ndarray:
            return features[:, 1] / 10

    replay = tagged()
    assert set(replay.rollouts.columns) == {
        "features", "action", "reward", "observation.ids", "encoding", "base",
    }  # fmt: skip
    plain, paid = draw(replay), draw(replay, dense=Paid())
    assert np.array_equal(plain.reward, paid.reward)
    assert not plain.dense.any()
    for i in range(len(paid)):
        t, k = int(paid.features[i, 1]), int(paid.steps[i])
        assert paid.dense[i] == pytest.approx(sum(GAMMA**n * (t + n + 1) / 10 for n in range(k)))
