"""Injected faults: an expert that fails for a known cause, to measure diagnosticians by.

A cause is a condition on one factor of the scene and a fault that shows where it holds. The expert
is otherwise as good as it is, so that what fails is known; a share of other failures, for no
reason that a factor could give, stands for a policy's carelessness.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from coda_envs import predicates
from coda_envs.env import ManipulationEnv
from coda_envs.errors import ConfigError, SceneError, suggest
from coda_envs.factor import ContinuousFactor, Value
from coda_envs.family import Expert, TaskFamily
from coda_envs.features import FeatureSchema
from coda_envs.programs.diagnosis import Direction
from coda_envs.scene import Scene
from coda_envs.view import View
from coda_trainer.learning.jobs import Job

#: Every fault, in words.
FAULTS: Mapping[str, str] = {
    "no_grasp": "the hand never closes",
    "slip": "the hand opens as soon as it holds the thing",
    "shifted": "the thing is looked for beside where it is",
    "turned": "the thing is grasped across its long side",
    "wrong_order": "the hand closes on the way and opens at the thing",
    "wrong_object": "another thing is taken for the target",
}
#: How far beside it the target is looked for (m).
SHIFT = (0.0, 0.04)
#: Edits of a scene: the cause may be among them, at least three others are innocent.
EDITS = 4
OPEN = -1.0


@dataclass(frozen=True)
class Cause:
    """``fault`` shows with ``chance`` where the value of ``factor`` lies beyond ``bound`` on that
    side (``other``: is it), and any fault with chance ``background`` in every other scene."""

    family: str
    factor: str
    direction: Direction
    bound: Value
    fault: str
    chance: float = 0.9
    background: float = 0.1

    def holds(self, scene: Scene) -> bool:
        """Whether the condition holds in the scene."""
        value = scene.values.get(self.factor)
        if value is None:
            return False
        if self.direction == "other":
            return value == self.bound
        above = float(value) > float(self.bound)
        return above if self.direction == "high" else float(value) < float(self.bound)


@dataclass(frozen=True)
class FaultyExperts:
    """Makes the expert of a job: faulty by ``cause``, or with ``always`` that fault everywhere."""

    cause: Cause | None = None
    always: str = ""

    def __call__(self, family: TaskFamily, job: Job) -> Expert:
        """The expert of one episode; what it does is decided by the job's seed."""
        expert, fault = family.expert(job.seed), self.fault(job.scene, job.seed)
        return FaultyExpert(expert, fault, job.scene.task.goal.roles[0]) if fault else expert

    def fault(self, scene: Scene, seed: int) -> str:
        """The fault that shows in an episode, or empty."""
        if self.cause is None:
            return self.always
        rng = np.random.default_rng((seed, 3))
        shows, which = rng.random(), int(rng.integers(len(FAULTS)))
        if self.cause.holds(scene):
            return self.cause.fault if shows < self.cause.chance else ""
        return list(FAULTS)[which] if shows < self.cause.background else ""


class FaultyExpert(Expert):
    """An expert that sees or does something wrong about the thing in ``role``."""

    def __init__(self, expert: Expert, fault: str, role: str) -> None:
        if fault not in FAULTS:
            raise ConfigError(f"unknown fault {fault!r}.", allowed=suggest(fault, FAULTS))
        self._expert, self._fault, self._role = expert, fault, role
        self._held = False

    def act(self, env: ManipulationEnv) -> np.ndarray:
        """The expert's action for what it sees, and what becomes of it."""
        schema, features = env.family.schema, env.features
        seen = _misread(self._fault, features, schema, self._role)
        action = self._expert.act(_Seen(env, seen))  # type: ignore[arg-type]
        if self._fault == "no_grasp":
            action[6] = OPEN
        elif self._fault == "wrong_order":
            action[6] = -action[6]
        elif self._fault == "slip":
            self._held |= bool(predicates.grasped(View(schema, features), self._role))
            if self._held:
                action[6] = OPEN
        return action


def _misread(fault: str, features: np.ndarray, schema: FeatureSchema, role: str) -> np.ndarray:
    """The state ``[F]`` as a faulty expert sees it."""
    seen = features.copy()
    if fault == "shifted":
        seen[schema.index(f"{role}.x")] += SHIFT[0]
        seen[schema.index(f"{role}.y")] += SHIFT[1]
    elif fault == "turned":
        seen[schema.index(f"{role}.yaw")] += seen[schema.index(f"{role}.yaw_period")] / 2
    elif fault == "wrong_object":
        for other in schema.roles:
            if other.startswith("distractor") and seen[schema.index(f"{other}.present")] > 0.5:
                width = schema.role_offset(schema.roles[1]) - schema.role_offset(schema.roles[0])
                start, source = schema.role_offset(role), schema.role_offset(other)
                seen[start : start + width] = features[source : source + width]
                break
    return seen


class _Seen:
    """An environment with other features: all that an expert may look at."""

    def __init__(self, env: ManipulationEnv, features: np.ndarray) -> None:
        self._env, self.features = env, features

    def __getattr__(self, name: str) -> Any:
        return getattr(self._env, name)


@dataclass
class Population:
    """Draws scenes of the seed range with ``EDITS`` factors drawn from the generator range, the
    cause's among them with probability ``share``; those with the values ``fixed`` alone."""

    family: TaskFamily
    cause: Cause
    fixed: Mapping[str, Value] = field(default_factory=dict)
    share: float = 0.5
    tries: int = field(default=500, repr=False)

    def draw(self, rng: np.random.Generator) -> Scene:
        """One scene, not held out. Raises :class:`SceneError` where none is found."""
        family = self.family
        for _ in range(self.tries):
            scene = family.sample(rng, "seed")
            if any(scene.values.get(path) != value for path, value in self.fixed.items()):
                continue
            active = {f.path: f for f in family.space.active(scene.values)}
            others = [p for p in active if p != self.cause.factor and p not in self.fixed]
            picked = [others[i] for i in rng.permutation(len(others))[:EDITS]]
            if self.cause.factor in active and rng.random() < self.share:
                picked[0] = self.cause.factor
            edits = {path: active[path].sample(rng, "generator") for path in sorted(picked)}
            try:
                edited = scene.edit_many(edits)
            except SceneError:
                # One edit took away the factor that another one changes.
                continue
            if family.flaw(edited.values) is None and family.region(edited) == "generator":
                return edited
        raise SceneError(f"no edited scene of {family.name!r} found in {self.tries} draws.")


def draw_cause(
    family: TaskFamily, fault: str, rng: np.random.Generator, taken: Collection[str] = ()
) -> Cause:
    """A cause for a fault: any spatial or attribute factor but those ``taken``.

    A number counts from the edge of its seed range on, on a side where the generator's goes
    further; a choice is one of the seed range's. Raises :class:`SceneError` where none is left.
    """
    scenes = [family.sample(rng, "seed") for _ in range(32)]
    often = [p for p in scenes[0].values if sum(p in s.values for s in scenes) > 24]
    sides: dict[str, list[tuple[Direction, Value]]] = {}
    for path in sorted(set(often) - set(taken)):
        factor = family.space[path]
        if factor.group == "task":
            continue
        if isinstance(factor, ContinuousFactor):
            low, high = factor.seed
            lowest, highest = factor.generator
            least = 0.2 * (highest - lowest)
            found: list[tuple[Direction, Value]] = []
            if highest - high >= least:
                found.append(("high", high))
            if low - lowest >= least:
                found.append(("low", low))
            sides[path] = found
        elif len(factor.seed) > 1:
            sides[path] = [("other", choice) for choice in factor.seed]
    paths = [path for path, found in sides.items() if found]
    if not paths:
        raise SceneError(f"{family.name!r} has no factor left to be a cause.")
    path = paths[int(rng.integers(len(paths)))]
    direction, bound = sides[path][int(rng.integers(len(sides[path])))]
    return Cause(family.name, path, direction, bound, fault)
