"""Graded wide scenes: from the seed range towards the whole generator range, by a magnitude m.

At m = 0 a scene lies in the seed range, at m = 1 it is uniform over the generator range; between,
every number goes m of the way, and every choice is the wide one with probability m. A policy that
knows only the seed range meets success on the way, where the far end alone would give it none.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from coda_envs.errors import SceneError
from coda_envs.factor import DIGITS, DiscreteFactor, Value
from coda_envs.family import TaskFamily
from coda_envs.scene import Scene

#: Magnitudes that are told apart, as upper edges of equal bins.
EDGES = (0.25, 0.5, 0.75, 1.0)
#: Least share of the scenes that each bin keeps: the far end must not be forgotten.
FLOOR = 0.1
#: Draws before a scene is given up.
TRIES = 5_000


def graded(family: TaskFamily, rng: np.random.Generator, magnitude: float) -> Scene:
    """A laid-out scene of the generator region at ``magnitude`` in [0, 1].

    Raises :class:`SceneError` where ``TRIES`` draws gave none.
    """
    space = family.space
    for _ in range(TRIES):
        mixed: dict[str, Value] = {}
        for factor in space.factors:
            near, wide = factor.sample(rng, "seed"), factor.sample(rng, "generator")
            if isinstance(factor, DiscreteFactor):
                mixed[factor.path] = wide if rng.random() < magnitude else near
            else:
                between = float(near) + magnitude * (float(wide) - float(near))
                mixed[factor.path] = round(between, DIGITS)
        values = {f.path: mixed[f.path] for f in space.active(mixed)}
        if space.region(values) == "generator" and family.flaw(values) is None:
            return family.scene(values)
    raise SceneError(f"no scene of {family.name!r} at magnitude {magnitude} in {TRIES} draws.")


def bin_of(magnitude: float) -> int:
    """Index of the bin of :data:`EDGES` that holds ``magnitude``."""
    return next(i for i, edge in enumerate(EDGES) if magnitude <= edge)


def draw_magnitude(rng: np.random.Generator, weights: Sequence[float]) -> float:
    """A magnitude: a bin by ``weights`` (one for each of :data:`EDGES`, sum 1), uniform in it."""
    picked = int(rng.choice(len(EDGES), p=np.asarray(weights)))
    low = EDGES[picked - 1] if picked else 0.0
    return float(rng.uniform(low, EDGES[picked]))


def magnitude_weights(successes: Sequence[int], trials: Sequence[int]) -> list[float]:
    """How much each bin is worth training on: E[p(1 − p)] under its Beta posterior, and a floor.

    ``successes`` of ``trials`` by bin. Highest where success is near one half; a bin that was not
    tried counts as unknown (Jeffreys' prior).
    """
    a = np.asarray(successes, dtype=float) + 0.5
    b = np.asarray(trials, dtype=float) - np.asarray(successes, dtype=float) + 0.5
    worth = a * b / ((a + b) * (a + b + 1.0))
    share = (1.0 - FLOOR * len(EDGES)) * worth / worth.sum() + FLOOR
    return [float(w) for w in share / share.sum()]
