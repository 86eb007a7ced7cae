"""Agreement: how often a critic chooses the same chunk as a critic of the sparse reward alone.

Potential-based shaping leaves the best chunk what it is; a free-form reward need not. Whether that
holds of what was *learned* is measured here: critics are trained on the same episodes in the same
batch order, shown the same held-out states with the same candidate chunks, and asked which is best.
Chance is 1/N. The ceiling is a second sparse critic, which differs from the first by its initial
weights alone; the critic that is compared has those weights too, so that both comparisons differ
from one another by the signal alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from coda_envs.errors import LearningError
from coda_trainer.backbone import Backbone
from coda_trainer.episode import Episode
from coda_trainer.learning.critic_learner import CriticLearner
from coda_trainer.learning.exploration import ExplorationNoise
from coda_trainer.learning.replay import Replay

#: Bootstrap resamples of the episodes that the states come from.
RESAMPLES = 1000


@dataclass(frozen=True)
class HeldOutStates:
    """S states that no critic is trained on: ``features [S, F]``, one candidate set each
    ``candidates [S, N, h, A]``, and the number of the episode that each comes from ``[S]``."""

    features: np.ndarray
    candidates: np.ndarray
    episode: np.ndarray


@dataclass(frozen=True)
class Share:
    """States of ``n`` in which two critics choose alike: per cent, and a 95% interval (percentile
    bootstrap over episodes). None where there is no state to count."""

    n: int
    percent: float | None
    interval95: tuple[float, float] | None


@dataclass(frozen=True)
class Agreement:
    """What was measured after so many ``updates`` of every critic.

    Informative states are those whose candidates' values spread by more than ε in the (first)
    sparse critic: ``compared`` is the agreement with the other signal's critic in them, ``ceiling``
    with the second sparse one. ``uninformative`` states are only counted. ``chance`` is in per
    cent.
    """

    updates: int
    compared: Share
    ceiling: Share
    uninformative: int
    chance: float

    def to_dict(self) -> dict[str, Any]:
        """Plain data, ready for JSON."""
        return asdict(self)


def held_out_states(
    episodes: Sequence[Episode],
    backbone: Backbone,
    *,
    candidates: int,
    noise: ExplorationNoise,
    seed: int,
) -> HeldOutStates:
    """The states at which the policy looked, each with ``candidates`` chunks to choose from.

    They are samples of the backbone (one and the same, where it has only one) plus noise, but for
    the first, which is as it is. Raises :class:`LearningError` where there is no episode.
    """
    if not episodes:
        raise LearningError("no episode to take held-out states from.", allowed="at least one")
    spec = backbone.spec
    keys = episodes[0].observations
    obs = {k: np.concatenate([e.observations[k][e.starts] for e in episodes]) for k in keys}
    count = candidates if spec.multi_sample else 1
    drawn = backbone.sample(obs, count, seed=seed if spec.seedable else None)
    chunks = np.repeat(drawn[:, :, : spec.execute], candidates // count, axis=1)
    chunks = chunks.astype(np.float32)
    rng = np.random.default_rng(seed)
    others = chunks[:, 1:].reshape(-1, *chunks.shape[2:])
    chunks[:, 1:] = noise(others, [rng] * len(others)).reshape(chunks[:, 1:].shape)
    return HeldOutStates(
        features=np.concatenate([e.features[e.starts] for e in episodes]),
        candidates=chunks,
        episode=np.repeat(np.arange(len(episodes)), [len(e.starts) for e in episodes]),
    )


def measure_agreement(
    make: Callable[[bool, int], CriticLearner],
    replay: Replay,
    states: HeldOutStates,
    *,
    updates: int,
    every: int,
    epsilon: float,
    seed: int,
    source_weights: Mapping[str, float] | None = None,
) -> list[Agreement]:
    """Train the three critics side by side; their agreement after ``every`` updates each time.

    ``make(sparse, seed)`` gives an untrained learner, of the sparse reward alone or of the signal
    to be compared. Critics learn only; the policy that they value is the replay's base. Raises
    :class:`LearningError` where no rollout of the replay succeeded: agreement about nothing would
    look perfect.
    """
    if not any(record.success for record in replay.rollouts.records):
        raise LearningError(
            "no rollout of the replay succeeded: agreement of critics says nothing there.",
            remedy="measure it on a run that succeeds sometimes",
        )
    first, second, compared = make(True, seed), make(True, seed + 1), make(False, seed + 1)
    for learner in (first, second, compared):
        learner.rng = np.random.default_rng(seed)
        learner.generator.manual_seed(seed)
    found = []
    for done in range(every, updates + 1, every):
        values = []
        for learner in (first, second, compared):
            learner.warm_up(replay, every, source_weights)
            values.append(learner.critic.score(states.features, states.candidates))
        sparse, again, other = values
        found.append(
            agreement(
                sparse, again, other, states.episode, updates=done, epsilon=epsilon, seed=seed
            )
        )
    return found


def agreement(
    sparse: np.ndarray,
    again: np.ndarray,
    compared: np.ndarray,
    episode: np.ndarray,
    *,
    updates: int,
    epsilon: float,
    seed: int,
) -> Agreement:
    """Agreement of three critics' values ``[S, N]`` in states of the episodes ``[S]``.

    Where Q' = Q − Φ the choice is that of Q: Φ shifts all candidates of a state alike.
    """
    informative = sparse.max(axis=1) - sparse.min(axis=1) > epsilon
    choice = sparse.argmax(axis=1)

    def share(other: np.ndarray) -> Share:
        same = (other.argmax(axis=1) == choice)[informative]
        return _share(same, episode[informative], seed)

    return Agreement(
        updates=updates,
        compared=share(compared),
        ceiling=share(again),
        uninformative=int((~informative).sum()),
        chance=100.0 / sparse.shape[1],
    )


def _share(same: np.ndarray, episode: np.ndarray, seed: int) -> Share:
    if not same.size:
        return Share(0, None, None)
    # States of one episode resemble one another: episodes are resampled, not states.
    names, place = np.unique(episode, return_inverse=True)
    hits = np.bincount(place, weights=same)
    sizes = np.bincount(place)
    picked = np.random.default_rng(seed).integers(len(names), size=(RESAMPLES, len(names)))
    means = 100.0 * hits[picked].sum(axis=1) / sizes[picked].sum(axis=1)
    low, high = np.quantile(means, [0.025, 0.975])
    return Share(len(same), float(100.0 * same.mean()), (float(low), float(high)))
