"""Jobs: what a rollout is asked for, as plain data that a worker process can be sent."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from coda_envs.family import Expert, TaskFamily
from coda_envs.observations import ObsMode
from coda_envs.scene import Scene
from coda_envs.start_state import StartState


@dataclass(frozen=True)
class Job:
    """One episode to run: the scene, the seed of environment and noise, what it is for.

    ``start``: where in the scene it starts; None: at the beginning. ``stage``: the stage of the
    potential that it enters there, which the replay keeps. ``candidates``: samples that the actor's
    critic picks one of; None: as many as the actor's choice says.
    """

    scene: Scene
    seed: int
    source: str = ""
    noise_multiplier: float = 1.0
    start: StartState | None = None
    stage: str = ""
    candidates: int | None = None


#: Makes the expert of a job.
ExpertMaker = Callable[[TaskFamily, Job], Expert]


@dataclass(frozen=True)
class EnvSpec:
    """How the rollouts' environments act and what they show; each job's scene says its family.

    ``image_size``: pixels of a square image, where ``obs_mode`` has images.
    """

    control_hz: int = 10
    obs_mode: ObsMode = "state"
    image_size: int = 128


def episode_rng(seed: int) -> np.random.Generator:
    """What an episode's exploration noise is drawn from, for its job's seed."""
    return np.random.default_rng((seed, 1))
