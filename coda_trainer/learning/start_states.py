"""Stage resets: moments of past episodes from which a hard stage of the task can be practised.

An episode that starts where an earlier one entered stage k of a potential spends its whole time on
what comes after it. The scene is the earlier episode's, which was accepted for training as a whole:
no new scene arises, so nothing about held-out regions changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from coda_envs.errors import LearningError
from coda_envs.scene import Scene
from coda_envs.start_state import StartState
from coda_envs.text2potential.evaluate import Potential
from coda_trainer.episode import Episode


@dataclass(frozen=True)
class StageStart:
    """The moment at which an episode of ``scene`` entered stage ``stage`` of a potential."""

    scene: Scene
    stage: int
    state: StartState


def stage_starts(episodes: Sequence[Episode], potential: Potential) -> list[StageStart]:
    """Where the episodes entered each stage but the first: the first look at which the stage was
    the current one. Episode by episode, in the order of the stages.

    Raises :class:`LearningError` for an episode without states.
    """
    found = []
    for episode in episodes:
        stages = potential.stage(episode.features[episode.starts])
        for stage in range(1, len(potential.stage_names)):
            looks = np.flatnonzero(stages == stage)
            # Where it began in that stage already, it did not enter it.
            if looks.size and looks[0] > 0:
                state = episode.start_state(int(looks[0]))
                found.append(StageStart(episode.scene, stage, state))
    return found


def stage_weights(episodes: Sequence[Episode], potential: Potential) -> np.ndarray:
    """How much each stage needs practice ``[K]``: of the episodes that got as far as the stage, the
    share that got no further. 0 where none got there."""
    last = len(potential.stage_names)
    furthest = np.array([potential.stage(episode.features).max() for episode in episodes])
    reached = (furthest[:, None] >= np.arange(last + 1)).sum(axis=0)
    stuck = reached[:-1] - reached[1:]
    return np.asarray(stuck / np.maximum(reached[:-1], 1))


def start_states(
    episodes: Sequence[Episode],
    potential: Potential,
    rng: np.random.Generator,
    count: int,
    stage: int | None = None,
) -> list[StageStart]:
    """``count`` moments to start from, drawn with ``rng``.

    ``stage``: the one to enter; None draws stages in proportion to :func:`stage_weights`, so that
    the one where most episodes get stuck is practised most. Within a stage all entries are as
    likely. Where no episode entered such a stage, there is none to draw.
    Raises :class:`LearningError` for a stage that episodes cannot enter, or without states.
    """
    last = len(potential.stage_names)
    if stage is not None and not 1 <= stage < last:
        raise LearningError(
            f"stage {stage} of the potential cannot be entered.",
            allowed=f"1 to {last - 1}: stage 0 is where episodes begin, {last} is the goal",
        )
    entries: dict[int, list[StageStart]] = {}
    for start in stage_starts(episodes, potential):
        if stage in (None, start.stage):
            entries.setdefault(start.stage, []).append(start)
    weights = stage_weights(episodes, potential)
    stages = sorted(k for k in entries if stage is not None or weights[k] > 0)
    if not stages:
        return []
    shares = np.array([1.0 if stage is not None else weights[k] for k in stages])
    drawn = rng.choice(stages, size=count, p=shares / shares.sum())
    return [entries[k][int(rng.integers(len(entries[k])))] for k in drawn.tolist()]
