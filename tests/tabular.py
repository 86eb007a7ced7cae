"""Tabular decision processes with chunks, and a chunk critic whose networks are tables."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields

import numpy as np
import torch
from torch import Tensor, nn

from coda_trainer.learning.chunk_critic import ChunkCritic, chunk_targets

ACTIONS, CHUNK = 2, 3
#: Every chunk of actions 0 and 1 ``[C, h]``; a chunk's number is the one it has in base 2.
CHUNKS = np.array(list(itertools.product(range(ACTIONS), repeat=CHUNK)))

Target = Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True)
class Process:
    """All that can follow a chunk, one row an outcome.

    ``start``, ``end``: states before and after; ``chunk``: its number; ``probability``: of this
    outcome, given both; ``reward``: G; ``steps``: k; ``terminated``: False where the episode was
    only cut off, or goes on.
    """

    start: np.ndarray
    chunk: np.ndarray
    probability: np.ndarray
    end: np.ndarray
    reward: np.ndarray
    steps: np.ndarray
    terminated: np.ndarray

    @classmethod
    def of(cls, rows: Iterable[tuple[int, int, float, int, float, int, bool]]) -> Process:
        """From rows in the order of the fields."""
        process = cls(*(np.array(column) for column in zip(*rows, strict=True)))
        total = np.bincount(process.pair, process.probability)
        assert np.allclose(total, 1.0), "the outcomes of a chunk must add up to 1"
        return process

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of states that a chunk starts in, and of chunks."""
        return int(self.start.max()) + 1, int(self.chunk.max()) + 1

    @property
    def pair(self) -> np.ndarray:
        """Number of each row's state and chunk, state · C + chunk."""
        return self.start * (self.chunk.max() + 1) + self.chunk

    def __getitem__(self, rows: np.ndarray) -> Process:
        return Process(*(getattr(self, field.name)[rows] for field in fields(self)))

    def sample(self, rng: np.random.Generator) -> Process:
        """One outcome of every chunk in every state, drawn by its probability."""
        # The row whose exponential clock rings first; rows that cannot happen never ring.
        with np.errstate(divide="ignore"):
            rings = rng.exponential(size=len(self.pair)) / self.probability
        order = np.lexsort((rings, self.pair))
        _, first = np.unique(self.pair[order], return_index=True)
        return self[order[first]]


def random_process(rng: np.random.Generator, states: int, gamma: float) -> Process:
    """A random process, its chunks run open loop until termination or a random cut.

    After each action the episode succeeds (reward 1), fails (reward 0), is cut off, or goes on,
    in one of two states that depend on the action.
    """
    succeed, fail, cut = rng.uniform(0.0, 0.3, (3, states, ACTIONS))
    after = rng.integers(states, size=(states, ACTIONS, 2))
    rows = []

    def run(start: int, number: int, state: int, k: int, probability: float) -> None:
        if k == CHUNK:
            rows.append((start, number, probability, state, 0.0, k, False))
            return
        at = state, CHUNKS[number, k]
        for then in after[at]:
            half = 0.5 * probability
            rows.append((start, number, half * succeed[at], then, gamma**k, k + 1, True))
            rows.append((start, number, half * fail[at], then, 0.0, k + 1, True))
            rows.append((start, number, half * cut[at], then, 0.0, k + 1, False))
            run(start, number, then, k + 1, half * (1 - succeed[at] - fail[at] - cut[at]))

    for start, number in itertools.product(range(states), range(len(CHUNKS))):
        run(start, number, start, 0, 1.0)
    return Process.of(rows)


def targets(
    process: Process, phi: np.ndarray, gamma: float, observed: np.ndarray | None = None
) -> Target:
    """The project's targets of every row under Φ ``[S]``, given V' ``[S]``."""

    def target(value: np.ndarray) -> np.ndarray:
        return chunk_targets(
            reward=process.reward,
            steps=process.steps,
            terminated=process.terminated,
            phi=phi[process.start],
            next_phi=phi[process.end],
            next_value=value[process.end],
            discount=gamma,
            observed=observed,
        )

    return target


def backup(process: Process, target: Target, q: np.ndarray) -> np.ndarray:
    """Expected targets ``[S, C]``, with V = max over chunks and 0 in states without any."""
    value = np.zeros(max(process.start.max(), process.end.max()) + 1)
    value[: len(q)] = q.max(axis=1)
    return np.bincount(process.pair, process.probability * target(value)).reshape(q.shape)


def solve(process: Process, target: Target, start: np.ndarray | None = None) -> np.ndarray:
    """The fixed point Q ``[S, C]`` of :func:`backup`, from ``start`` or from zeros."""
    q = np.zeros(process.shape) if start is None else start
    for _ in range(5000):
        new = backup(process, target, q)
        if np.abs(new - q).max() < 1e-13:
            return new
        q = new
    raise AssertionError("value iteration did not converge")


# A critic of tables ------------------------------------------------------------------------------


class TablePotential:
    """Φ of a state that is given as a one-hot row."""

    def __init__(self, values: np.ndarray) -> None:
        self.values = values
        self.version = values.tobytes().hex()

    def __call__(self, features: np.ndarray) -> np.ndarray:
        return self.values[features.argmax(axis=1)]


class Table(nn.Module):
    """In a network's place: reads state and chunk out of its inputs and looks their value up."""

    def __init__(self, values: np.ndarray) -> None:
        super().__init__()
        self.values = torch.from_numpy(values.copy())

    def forward(self, inputs: Tensor) -> Tensor:
        states = len(self.values)
        one = (inputs[:, states : states + CHUNK] > 0).long()
        number = (one * 2 ** torch.arange(CHUNK - 1, -1, -1)).sum(dim=1)
        return self.values[inputs[:, :states].argmax(dim=1), number].unsqueeze(1)


def table_critic(tables: np.ndarray, potential: TablePotential) -> ChunkCritic:
    """The project's critic, its ensemble's networks replaced by ``tables [members, S, C]``.

    It reads one-hot states and actions of −1 and 1. Online and target networks are the same.
    """
    critic = ChunkCritic(
        tables.shape[1], CHUNK, 1, potential, torch.Generator(), members=len(tables)
    )
    critic.online = critic.target = nn.ModuleList(Table(values) for values in tables)
    return critic


def score(critic: ChunkCritic) -> np.ndarray:
    """What the critic says ``[S, C]`` of every chunk in every state."""
    states = critic.feature_size
    chunks = np.broadcast_to(2.0 * CHUNKS - 1.0, (states, *CHUNKS.shape))
    return critic.score(np.eye(states), chunks[..., None])


def grid(rng: np.random.Generator, states: int) -> TablePotential:
    """A random potential in steps of 1/1024: the critic keeps differences of Φ in float32, where
    these are exact."""
    return TablePotential(rng.integers(0, 1025, states) / 1024)
