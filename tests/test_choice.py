"""The critic's choice among a backbone's samples."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from coda_envs.errors import LearningError, RunError
from coda_envs.family import get_family
from coda_trainer.learning.choice import TEMPERATURE, Choice, ChoiceSpec, save_critic
from coda_trainer.learning.chunk_critic import ChunkCritic, NoPotential
from coda_trainer.learning.relative import RelativeFeatures

SCHEMA = get_family("pick-place").schema
STATES, CANDIDATES, EXECUTE = 12, 5, 2


@pytest.fixture
def critic() -> ChunkCritic:
    made = ChunkCritic(
        SCHEMA.size,
        EXECUTE,
        7,
        NoPotential(),
        torch.Generator().manual_seed(0),
        relative=RelativeFeatures(SCHEMA),
        width=16,
    )
    made.fit(states())
    return made


def states() -> np.ndarray:
    rng = np.random.default_rng(1)
    return rng.normal(0, 0.2, (STATES, SCHEMA.size)).astype(np.float32)


def candidates() -> np.ndarray:
    rng = np.random.default_rng(2)
    return rng.uniform(-1, 1, (STATES, CANDIDATES, EXECUTE, 7)).astype(np.float32)


def generators() -> list[np.random.Generator]:
    return [np.random.default_rng(s) for s in range(STATES)]


def test_the_best_candidate_is_the_one_that_the_critic_values_most(critic: ChunkCritic) -> None:
    picked = Choice(critic, best=True)(states(), candidates(), [])
    best = critic.score(states(), candidates()).argmax(axis=1)
    assert np.array_equal(picked, candidates()[np.arange(STATES), best])
    assert len(set(best.tolist())) > 1


def test_a_choice_by_weight_follows_the_weights_and_a_generator_a_row(critic: ChunkCritic) -> None:
    choose = Choice(critic, best=False)
    together = choose(states(), candidates(), generators())
    alone = choose(states()[3:4], candidates()[3:4], generators()[3:4])
    assert np.array_equal(together[3:4], alone)
    # One state very often: shares as exp(Q / β).
    many = 4000
    state, options = np.repeat(states()[:1], many, 0), np.repeat(candidates()[:1], many, 0)
    rng = np.random.default_rng(0)
    picked = choose(state, options, [rng] * many)
    shares = [(picked == options[0, i]).all(axis=(1, 2)).mean() for i in range(CANDIDATES)]
    values = critic.score(states()[:1], candidates()[:1])[0].astype(float)
    expected = np.exp((values - values.max()) / TEMPERATURE)
    assert shares == pytest.approx(expected / expected.sum(), abs=0.03)


def test_a_saved_critic_chooses_the_same(critic: ChunkCritic, tmp_path: Path) -> None:
    save_critic(critic, "pick-place", tmp_path)
    loaded = Choice.load(ChoiceSpec(tmp_path, CANDIDATES, best=True))
    assert np.array_equal(
        loaded(states(), candidates(), []), Choice(critic, best=True)(states(), candidates(), [])
    )


@pytest.mark.parametrize("file", ["critic.json", "critic.pt"])
def test_a_damaged_critic_is_named(critic: ChunkCritic, tmp_path: Path, file: str) -> None:
    save_critic(critic, "pick-place", tmp_path)
    (tmp_path / file).write_text("[]")
    with pytest.raises(RunError, match=file):
        Choice.load(ChoiceSpec(tmp_path, CANDIDATES, best=True))


def test_values_that_are_not_finite_are_no_choice(critic: ChunkCritic) -> None:
    with torch.no_grad():
        critic.online[0][-1].bias.fill_(float("nan"))  # type: ignore[index]
    with pytest.raises(LearningError, match="not finite"):
        Choice(critic, best=True)(states(), candidates(), [])
