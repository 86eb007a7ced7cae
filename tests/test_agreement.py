"""Agreement of critics: what is counted, against what, and what is never reported."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from reach_task import EXECUTE, FEATURES, BiasedBase, Distance, rollouts

from coda_envs.errors import LearningError
from coda_trainer.backbone import Backbone
from coda_trainer.learning.agreement import (
    HeldOutStates,
    agreement,
    held_out_states,
    measure_agreement,
)
from coda_trainer.learning.chunk_critic import NoPotential
from coda_trainer.learning.exploration import ExplorationNoise
from coda_trainer.learning.learner import LearnerConfig, ResidualLearner
from coda_trainer.learning.reader import backbone_reader
from coda_trainer.learning.replay import Replay
from coda_trainer.learning.residual import ResidualConfig

NOISE = ExplorationNoise(std=0.3, share=1.0, per_dimension=(1.0, 1.0))
CONFIG = LearnerConfig(
    residual=ResidualConfig(execute=EXECUTE, scale=(0.2, 0.2), width=32),
    width=64,
    demo_share=0.0,
)


class Drawing(BiasedBase):
    """A base whose samples differ, as its spec says."""

    def __init__(self) -> None:
        super().__init__()
        object.__setattr__(self.spec, "multi_sample", True)

    def sample(self, obs, n=1, *, seed=None):  # type: ignore[no-untyped-def]
        chunks = super().sample(obs, n)
        chunks[:, 1:] += np.random.default_rng(seed).normal(0, 0.2, chunks[:, 1:].shape)
        return np.clip(chunks, -1, 1)


def act(base: BiasedBase) -> Callable[..., np.ndarray]:
    return lambda obs: base.sample(obs)[:, 0]


def held_out(base: BiasedBase | None = None, n: int = 4) -> HeldOutStates:
    base = base or BiasedBase()
    episodes = rollouts(act(base), range(500, 530))
    assert isinstance(base, Backbone)
    return held_out_states(episodes, base, candidates=n, noise=NOISE, seed=1)


def make_replay(*, failures: bool = False) -> Replay:
    base = BiasedBase()
    replay = Replay(backbone_reader(base, EXECUTE, seed=0), EXECUTE)
    episodes = rollouts(act(base), range(200), NOISE)
    replay.add([e for e in episodes if not (failures and e.success)])
    return replay


def make(potential: object) -> Callable[[bool, int], ResidualLearner]:
    def learner(sparse: bool, seed: int) -> ResidualLearner:
        return ResidualLearner(
            CONFIG,
            features=FEATURES,
            encoding=FEATURES,
            potential=NoPotential() if sparse else potential,  # type: ignore[arg-type]
            seed=seed,
        )

    return learner


# Counting ----------------------------------------------------------------------------------------

SPARSE = np.array([[0.1, 0.5, 0.2], [0.4, 0.1, 0.0], [0.30, 0.31, 0.30], [0.0, 0.2, 0.9]])
OTHER = np.array([[-0.9, -0.5, -0.7], [0.0, 0.2, 0.1], [0.0, 0.0, 1.0], [0.0, 0.0, 0.1]])


def test_agreement_counts_informative_states_alone_by_hand() -> None:
    found = agreement(
        SPARSE, SPARSE, OTHER, np.arange(4), updates=7, epsilon=0.05, seed=0
    )  # fmt: skip
    # States 0, 1 and 3 are informative; the critics agree in 0 and 3.
    assert found.uninformative == 1
    assert found.compared.n == 3
    assert found.compared.percent == pytest.approx(200 / 3)
    assert found.ceiling.percent == 100.0
    assert found.chance == pytest.approx(100 / 3)
    assert found.updates == 7
    low, high = found.compared.interval95 or (0.0, 0.0)
    assert 0 <= low < 200 / 3 < high <= 100


def test_a_potential_changes_no_choice_and_so_no_agreement() -> None:
    shifted = SPARSE - np.array([[0.3], [0.9], [0.1], [0.0]])
    found = agreement(SPARSE, SPARSE, shifted, np.arange(4), updates=1, epsilon=0.05, seed=0)
    assert found.compared.percent == 100.0


def test_the_interval_counts_episodes_not_states() -> None:
    """The same states say less where they come from two episodes."""
    rng = np.random.default_rng(0)
    sparse = rng.uniform(0, 1, (400, 4))
    other = sparse.copy()
    other[:200] = other[:200, ::-1]

    def width(episode: np.ndarray) -> float:
        found = agreement(sparse, sparse, other, episode, updates=1, epsilon=0.0, seed=0)
        low, high = found.compared.interval95 or (0.0, 0.0)
        return high - low

    assert width(np.arange(400) // 200) > 3 * width(rng.integers(100, size=400))


def test_without_an_informative_state_nothing_is_measured() -> None:
    found = agreement(SPARSE, SPARSE, OTHER, np.arange(4), updates=1, epsilon=2.0, seed=0)
    assert (found.compared.n, found.compared.percent, found.compared.interval95) == (0, None, None)
    assert found.uninformative == 4


# States ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("base", [BiasedBase(), Drawing()], ids=["one sample", "samples"])
def test_held_out_states_are_looks_with_one_candidate_set_each(base: BiasedBase) -> None:
    states = held_out(base)
    assert states.candidates.shape == (len(states.features), 4, EXECUTE, 2)
    first = base.sample({"state": states.features})[:, 0, :EXECUTE]
    assert np.allclose(states.candidates[:, 0], first, atol=1e-6)
    # Some may lie at a bound, where noise is cut off; no two sets are of one chunk alone.
    assert (states.candidates.std(axis=1).max(axis=(1, 2)) > 0).all()
    assert np.abs(states.candidates).max() <= 1
    again = held_out(base)
    assert np.array_equal(again.candidates, states.candidates)


# Training ----------------------------------------------------------------------------------------


def test_a_shaped_critic_comes_to_choose_as_a_sparse_one_does() -> None:
    torch.set_num_threads(1)
    curve = measure_agreement(
        make(Distance()), make_replay(), held_out(), updates=240, every=80, epsilon=0.02, seed=3
    )
    assert [point.updates for point in curve] == [80, 160, 240]
    last = curve[-1]
    assert last.compared.n > 50
    assert last.compared.percent is not None
    assert last.compared.percent > last.chance + 25
    assert last.ceiling.percent is not None
    assert last.compared.percent > last.ceiling.percent - 20


def test_the_same_signal_and_seed_is_the_ceiling_itself() -> None:
    """Batches, target noise and initial weights are the same, so that only the signal differs."""
    torch.set_num_threads(1)
    (found,) = measure_agreement(
        make(NoPotential()), make_replay(), held_out(), updates=30, every=30, epsilon=0.0, seed=3
    )
    assert found.compared == found.ceiling


def test_without_success_no_agreement_is_reported() -> None:
    """Two critics of nothing would agree on everything."""
    with pytest.raises(LearningError, match="no rollout of the replay succeeded"):
        measure_agreement(
            make(Distance()),
            make_replay(failures=True),
            held_out(),
            updates=10,
            every=10,
            epsilon=0.0,
            seed=0,
        )
