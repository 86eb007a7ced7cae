"""Coverage: how much of a family's factor space a set of scenes spreads over, in bits.

Three axes, τ, σ and α, of four bins each, so 64 cells jointly. A group's bins are fixed by its
first two key factors in ``factors.yaml``, each cut into halves (a number's generator range, the
list of a choice); a group with a single key factor has it cut into quarters.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from coda_envs.errors import SceneError
from coda_envs.factor import ContinuousFactor, Group, Value
from coda_envs.factors import FactorSpace
from coda_envs.scene import Scene

AXES: tuple[Group, ...] = ("task", "spatial", "attributes")
BINS = 4
#: Subsamples that a rarefied figure is the mean of.
DRAWS = 64


@dataclass(frozen=True)
class Coverage:
    """Entropies in bits: of each axis (at most 2), their mean, and of all axes jointly (at most 6),
    for ``n`` scenes out of ``of``."""

    axes: Mapping[str, float]
    joint: float
    n: int
    of: int

    @property
    def mean(self) -> float:
        """Mean over the axes."""
        return sum(self.axes.values()) / len(self.axes)


def coverage(
    scenes: Sequence[Scene], space: FactorSpace, rng: np.random.Generator, n: int | None = None
) -> Coverage:
    """Coverage of ``scenes``, rarefied to ``n`` of them (all by default).

    More scenes cover more: to compare sets, give ``n`` of the smaller one. The figure is then the
    mean over ``DRAWS`` subsamples drawn by ``rng`` without replacement. Entropies are corrected as
    Miller and Madow (1955) do. Raises :class:`SceneError` for fewer than ``n`` scenes, or none.
    """
    n = len(scenes) if n is None else n
    if not 1 <= n <= len(scenes):
        raise SceneError(
            f"the coverage of {n} scenes out of {len(scenes)} was asked for.",
            allowed=f"1 to {len(scenes)}" if scenes else "at least one scene",
        )
    cells = [tuple(bin_of(axis, scene.values, space) for axis in AXES) for scene in scenes]
    draws = 1 if n == len(cells) else DRAWS
    axes, joint = np.zeros(len(AXES)), 0.0
    for _ in range(draws):
        picked = [cells[i] for i in rng.permutation(len(cells))[:n]]
        axes += [entropy(cell[k] for cell in picked) for k in range(len(AXES))]
        joint += entropy(picked)
    means = dict(zip(AXES, (axes / draws).tolist(), strict=True))
    return Coverage(means, joint / draws, n, len(cells))


def bin_of(axis: Group, values: Mapping[str, Value], space: FactorSpace) -> int:
    """The bin, 0 to 3, of an axis that a scene's ``values`` lie in. A key factor that the scene
    lacks counts as its lowest bin."""
    keys = space.keys[axis][:2]
    if not keys:
        return 0
    if len(keys) == 1:
        return _part(keys[0], values, space, BINS)
    first, second = (_part(path, values, space, 2) for path in keys)
    return 2 * first + second


def entropy(cells: Iterable[Hashable]) -> float:
    """Entropy (bits) of the distribution that ``cells`` were drawn from: the plug-in estimate plus
    (m − 1) / 2N nats for m occupied cells of N draws."""
    counts = Counter(cells)
    total = sum(counts.values())
    plug_in = -sum(c / total * math.log2(c / total) for c in counts.values())
    return plug_in + (len(counts) - 1) / (2 * total * math.log(2))


def _part(path: str, values: Mapping[str, Value], space: FactorSpace, parts: int) -> int:
    value, factor = values.get(path), space[path]
    if value is None:
        return 0
    if isinstance(factor, ContinuousFactor):
        low, high = factor.generator
        share = (float(value) - low) / (high - low) if high > low else 0.0
    else:
        choices = factor.choices
        share = choices.index(value) / len(choices) if value in choices else 0.0
    return min(max(int(share * parts), 0), parts - 1)
