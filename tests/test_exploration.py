"""Exploration noise: its size, its share, its memory, and a stream a row."""

from __future__ import annotations

import numpy as np
import pytest

from coda_trainer.learning.exploration import ExplorationNoise


def generators(seeds):
    return [np.random.default_rng(s) for s in seeds]


def test_a_row_draws_from_its_own_generator_alone():
    chunk = np.zeros((3, 4, 7), dtype=np.float32)
    noise = ExplorationNoise(share=1.0)
    together = noise(chunk, generators([1, 2, 3]))
    assert np.array_equal(noise(chunk[:1], generators([3])), together[2:])
    assert not np.array_equal(together[0], together[1])
    assert not chunk.any()


def test_noise_has_its_size_its_share_and_the_memory_it_is_given():
    chunk = np.zeros((4000, 4, 7))
    noisy = ExplorationNoise()(chunk, generators(range(4000)))
    moved = noisy.any(axis=(1, 2))
    assert moved.mean() == pytest.approx(0.8, abs=0.03)
    std = noisy[moved].std(axis=(0, 1))
    assert std == pytest.approx(0.05 * np.array([1, 1, 1.5, 1, 1, 2, 1.5]), rel=0.05)
    x = noisy[moved][:, :, 0]
    assert np.corrcoef(x[:, 0], x[:, 1])[0, 1] == pytest.approx(0.5, abs=0.06)
    free = ExplorationNoise(held=0.0, share=1.0)(chunk, generators(range(4000)))
    assert abs(np.corrcoef(free[:, 0, 0], free[:, 1, 0])[0, 1]) < 0.06
    held = ExplorationNoise(held=1.0, share=1.0)(chunk[:5], generators(range(5)))
    assert np.allclose(held, held[:, :1])
    double = ExplorationNoise(share=1.0)(chunk, generators(range(4000)), multiplier=2.0)
    assert double[..., 0].std() == pytest.approx(0.10, rel=0.05)
    per_row = ExplorationNoise(share=1.0)(chunk[:2], generators([5, 5]), [1.0, 3.0])
    assert np.allclose(per_row[1], 3 * per_row[0])
    limit = ExplorationNoise(std=1.0)(np.ones((50, 4, 7)), generators(range(50)))
    assert np.abs(limit).max() <= 1
