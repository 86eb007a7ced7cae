"""Units: what a worker does with a share of the jobs, all of one family."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from coda_envs.family import get_family
from coda_trainer.episode import Episode
from coda_trainer.learning.actor import Actor, ActorSpec
from coda_trainer.learning.exploration import Noise
from coda_trainer.learning.jobs import EnvSpec, ExpertMaker, Job, episode_rng
from coda_trainer.learning.pushes import pushed
from coda_trainer.learning.recording import Recorder, recorder, single_recorder

_actors: dict[tuple[str, ...], Actor] = {}


def forget_actors() -> None:
    """Close the policy that acted in this process."""
    for old in _actors.values():
        old.backbone.close()
    _actors.clear()


def _actor(spec: ActorSpec) -> Actor:
    if spec.key not in _actors:
        # One at a time: the policies of past rounds are not used again.
        forget_actors()
        _actors[spec.key] = Actor(spec)
    return _actors[spec.key]


def run_unit(
    env: EnvSpec, spec: ActorSpec, jobs: Sequence[Job], *, keep_states: bool = False
) -> list[Episode]:
    """The episodes of ``jobs``, which are of one family, with the actor that ``spec`` describes."""
    recorded = recorder(jobs[0].scene.family, env)
    return play(recorded, _actor(spec), spec.noise, jobs, keep_states=keep_states)


def play(
    recorded: Recorder,
    actor: Actor,
    noise: Noise | None,
    jobs: Sequence[Job],
    *,
    keep_states: bool = False,
) -> list[Episode]:
    """The episodes of ``jobs``, in their order, played in the recorder's slots.

    The policy looks in all running episodes at once. One that ends inside a chunk waits for the
    next look, where the next job takes its place.
    """
    rngs = [episode_rng(job.seed) for job in jobs]
    episodes: dict[int, Episode] = {}
    # Which job plays in each slot, -1 where none does.
    playing = np.full(recorded.slots, -1)
    following = looks = 0
    while True:
        free = np.flatnonzero(playing < 0)[: len(jobs) - following]
        if free.size:
            playing[free] = np.arange(following, following + free.size)
            following += free.size
            recorded.start(free, [jobs[i] for i in playing[free]])
            actor.backbone.reset(free.tolist())
        slots = np.flatnonzero(playing >= 0)
        if not slots.size:
            return [episodes[i] for i in range(len(jobs))]
        places = playing[slots].tolist()
        chunk = actor.chunk(
            recorded.look(slots, keep_states),
            seed=_look_seed(jobs[0].seed, looks),
            features=recorded.features(slots),
            noise=noise,
            rngs=[rngs[i] for i in places],
            multipliers=[jobs[i].noise_multiplier for i in places],
            candidates=[jobs[i].candidates for i in places],
        )
        looks += 1
        for step in range(chunk.shape[1]):
            ended = recorded.step(slots, chunk[:, step])
            for slot in slots[ended].tolist():
                episodes[int(playing[slot])] = recorded.episode(slot)
            playing[slots[ended]] = -1
            slots, chunk = slots[~ended], chunk[~ended]
            if not slots.size:
                break


def demonstrate_unit(
    env: EnvSpec,
    noise: float,
    jobs: Sequence[Job],
    *,
    pushes: float = 0.0,
    make: ExpertMaker | None = None,
) -> list[Episode]:
    """The expert's episodes of ``jobs``, which are of one family, one after the other."""
    family = get_family(jobs[0].scene.family)
    recorded = single_recorder(family.name, env)
    only = np.zeros(1, dtype=np.int64)
    episodes = []
    for job in jobs:
        rng = episode_rng(job.seed)
        expert = family.expert(job.seed) if make is None else make(family, job)
        recorded.start(only, [pushed(recorded.envs[0], job, pushes)])
        ended = False
        while not ended:
            recorded.look(only)
            action = expert.act(recorded.envs[0])
            # The gripper command stays clean: half-closed fingers are no demonstration.
            action[:6] += noise * rng.standard_normal(6) * (1, 1, 1, 0, 0, 1)
            ended = bool(recorded.step(only, action[None])[0])
        episodes.append(recorded.episode(0))
    return episodes


def _look_seed(unit: int, look: int) -> int:
    return int(np.random.SeedSequence((unit, look)).generate_state(1)[0])
