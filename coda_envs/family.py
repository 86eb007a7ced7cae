"""TaskFamily: what the author of a family writes, and the registry that finds families."""

from __future__ import annotations

import importlib
import importlib.metadata
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import yaml

from coda_envs import predicates
from coda_envs.errors import PluginError, SceneError, short, suggest
from coda_envs.factor import DIGITS, RangeName, Value
from coda_envs.factors import FactorSpace, Region
from coda_envs.features import FeatureSchema
from coda_envs.programs.potential import PotentialProgram
from coda_envs.scene import Goal, Scene, Task

if TYPE_CHECKING:
    from coda_envs.env import ManipulationEnv
    from coda_envs.props import Prop

#: Draws before sampling gives up, so that an impossible request ends with an error, not a hang.
MAX_TRIES = 20_000

#: Most factors of an ``ood-far`` scene that lie outside their generator range.
MAX_FAR = 3

BUILT_IN = {
    "pick-place": "task_families.pick_place.family:PickPlace",
    "articulated": "task_families.articulated.family:Articulated",
    "put-inside": "task_families.put_inside.family:PutInside",
    "stack-insert": "task_families.stack_insert.family:StackInsert",
}
_registered: dict[str, TaskFamily] = {}


class Expert(ABC):
    """A scripted policy that reads privileged state. One instance serves one episode."""

    @abstractmethod
    def act(self, env: ManipulationEnv) -> np.ndarray:
        """The next action ``[7]`` in [-1, 1] for the environment's current state."""


class TaskFamily(ABC):
    """A kind of manipulation: factors, how a scene is built, what success is, an expert.

    Subclass it once (inheritance stays at depth one) and register it with
    :func:`register_family` or the entry-point group ``coda.families``.
    """

    name: ClassVar[str]
    env_id: ClassVar[str]
    #: Every role a scene of the family can have, in the order of the feature columns.
    roles: ClassVar[tuple[str, ...]]
    #: Action steps (at 20 Hz) after which an episode is cut off.
    max_seconds: ClassVar[float] = 8.0

    #: Where ``factors.yaml``, ``stages.yaml`` and the frozen suites lie.
    folder: ClassVar[Path]

    @abstractmethod
    def goal(self, values: Mapping[str, Value]) -> Goal:
        """The goal predicate over roles for a scene with these factor values."""

    @abstractmethod
    def describe(self, values: Mapping[str, Value]) -> tuple[str, tuple[str, ...]]:
        """(instruction, paraphrases), true of exactly one object of the scene."""

    @abstractmethod
    def problem(self, values: Mapping[str, Value]) -> str | None:
        """Why a scene with these values cannot be laid out (two objects overlap, one does not fit
        into the other), as the end of a sentence that starts with "the scene", or None. Cheap: no
        physics."""

    @abstractmethod
    def ambiguity(self, values: Mapping[str, Value]) -> str | None:
        """Why the instruction is not true of exactly one object, likewise, or None."""

    @abstractmethod
    def props(self, scene: Scene) -> Sequence[Prop]:
        """The scene's things, each with the entities that sensing reads."""

    @abstractmethod
    def expert(self, seed: int = 0) -> Expert:
        """A fresh expert for one episode."""

    def unseen_wording(self, values: Mapping[str, Value]) -> str | None:
        """The instruction in words that no training scene has, for ``ood-far``; None: no others."""
        return None

    # What every family gets --------------------------------------------------------------------

    @cached_property
    def space(self) -> FactorSpace:
        """The factors, read from the family's ``factors.yaml``."""
        return FactorSpace.load(self.folder / "factors.yaml")

    @cached_property
    def template(self) -> PotentialProgram:
        """The family's stages with their gates: what potentials and diagnoses are made of."""
        data = yaml.safe_load((self.folder / "stages.yaml").read_text(encoding="utf-8"))
        return PotentialProgram.parse(data, "stages.yaml")

    def flaw(self, values: Mapping[str, Value]) -> str | None:
        """The first of :meth:`problem` and :meth:`ambiguity` that there is, or None."""
        return self.problem(values) or self.ambiguity(values)

    @cached_property
    def schema(self) -> FeatureSchema:
        """Feature columns of the family's states."""
        return FeatureSchema(self.roles)

    def success(self, scene: Scene, features: np.ndarray) -> np.ndarray:
        """The verifier ν: whether the scene's goal holds, for ``features [..., F]`` → ``[...]``."""
        goal = scene.task.goal
        return predicates.evaluate(self.schema, features, goal.predicate, goal.roles)

    def scene(self, values: Mapping[str, Any]) -> Scene:
        """A checked scene from factor values; the family writes goal and instruction."""
        checked = self.space.check(values)
        instruction, paraphrases = self.describe(checked)
        return self._assemble(checked, self.goal(checked), instruction, paraphrases)

    def checked(self, scene: Scene) -> Scene:
        """The same scene with its values checked and normalised. Raises :class:`SceneError`."""
        values = self.space.check(scene.values)
        goal = self.goal(values)
        given = scene.task.goal
        if given != goal:
            raise SceneError(
                f"task.goal is {short(given.predicate)} of {short(given.roles)}.",
                allowed=f"{goal.predicate!r} of {goal.roles}",
                remedy="correct task.goal",
            )
        task = scene.task
        return self._assemble(values, goal, task.instruction, task.paraphrases)

    def edited(self, scene: Scene, edits: Mapping[str, Value]) -> Scene:
        """See :meth:`coda_envs.scene.Scene.edit_many`."""
        before = dict(scene.values)
        after: dict[str, Value] = dict(before)
        for path, value in edits.items():
            after[path] = self.space[path].check(value)
        # What exists may have changed: drop what went, give what came the middle of its range.
        live: dict[str, Value] = {}
        for factor in self.space.active({**self._middle, **after}):
            live[factor.path] = after.get(factor.path, self._middle[factor.path])
        gone = [path for path in edits if path not in live]
        if gone:
            when = self.space[gone[0]].when
            assert when is not None
            raise SceneError(
                f"{gone[0]} cannot be edited: it does not exist in this scene.",
                remedy=f"edit {when.factor} first",
            )
        own = scene.task.instruction == self.describe(before)[0]
        if own:
            return self.scene(live)
        task = scene.task
        return self._assemble(live, self.goal(live), task.instruction, task.paraphrases)

    @cached_property
    def _middle(self) -> dict[str, Value]:
        middle: dict[str, Value] = {}
        for factor in self.space.factors:
            if factor.type == "discrete":
                middle[factor.path] = factor.seed[0]
            else:
                middle[factor.path] = round((factor.seed[0] + factor.seed[1]) / 2, DIGITS)
        return middle

    def _assemble(
        self,
        values: Mapping[str, Value],
        goal: Goal,
        instruction: str,
        paraphrases: tuple[str, ...],
    ) -> Scene:
        groups: dict[str, dict[str, dict[str, Value]]] = {"spatial": {}, "attributes": {}}
        choices: dict[str, Value] = {}
        for path, value in values.items():
            head, *rest = path.split(".")
            if head == "task":
                choices[rest[0]] = value
            else:
                groups[head].setdefault(rest[0], {})[rest[1]] = value
        return Scene(
            family=self.name,
            task=Task(goal=goal, instruction=instruction, paraphrases=paraphrases, choices=choices),
            spatial=groups["spatial"],
            attributes=groups["attributes"],
        )

    def region(self, scene: Scene) -> Region:
        """Where the scene lies: ``generator``, ``ood-dev``, ``ood`` or ``mixed``."""
        return self.space.region(scene.values)

    def sample(
        self,
        rng: np.random.Generator,
        within: RangeName = "seed",
        region: Region = "generator",
        fixed: Mapping[str, Value] | None = None,
        ranges: Mapping[str, tuple[float, float]] | None = None,
    ) -> Scene:
        """A fresh laid-out scene: uniform over the range, by rejection, inside the region.

        ``fixed`` factors keep their values, those in ``ranges`` are uniform over their interval.
        A held-out region is drawn from the whole generator range, whatever ``within`` says;
        ``ood-far`` takes one to ``MAX_FAR`` factors out of it, and words that no other scene has.
        Raises :class:`SceneError` where ``MAX_TRIES`` draws gave none.
        """
        problem: str | None = None
        ranges = ranges or {}
        for _ in range(MAX_TRIES):
            values = self.draw(rng, within, region, fixed or {}, ranges)
            if self.space.region(values) != region:
                problem = f"lies outside the region {region!r}"
                continue
            if any(
                p not in values or not a <= float(values[p]) <= b for p, (a, b) in ranges.items()
            ):
                problem = "lies outside the ranges asked for"
                continue
            problem = self.flaw(values)
            if problem is None:
                return self.worded(values, region)
        raise SceneError(
            f"no scene of {self.name!r} found in {MAX_TRIES} draws; the last one {problem}.",
            remedy="fix fewer factors, or other values",
        )

    def draw(
        self,
        rng: np.random.Generator,
        within: RangeName,
        region: Region,
        fixed: Mapping[str, Value],
        ranges: Mapping[str, tuple[float, float]],
    ) -> dict[str, Value]:
        """Values of one draw, as :meth:`sample` makes it, before anything is judged.

        Rounded, so that the region is judged on what the scene will say.
        """
        drawn = {path: float(rng.uniform(*ends)) for path, ends in ranges.items()}
        given: dict[str, Value] = {**drawn, **fixed}
        if region != "generator" or within == "generator":
            # Cells are as large as each other: a cell, then a place in it, is uniform.
            keys = self.space.sample_keys(rng, region, fixed, ranges)
            within, given = "generator", {**given, **keys, **fixed}
        values = self.space.sample(rng, within, given)
        if region == "ood-far":
            values = self._taken_far(rng, values)
        return {p: round(v, DIGITS) if isinstance(v, float) else v for p, v in values.items()}

    def _taken_far(self, rng: np.random.Generator, values: dict[str, Value]) -> dict[str, Value]:
        """The values with one to ``MAX_FAR`` of them outside their generator range."""
        able = [f for f in self.space.active(values) if f.far]
        if not able:
            raise SceneError(
                f"no factor of {self.name!r} that this scene has goes beyond its generator range.",
                remedy="declare far ranges in factors.yaml",
            )
        count = int(rng.integers(1, min(MAX_FAR, len(able)) + 1))
        picked = rng.permutation(len(able))[:count]
        far = {able[i].path: able[i].sample_far(rng) for i in sorted(picked)}
        return self.space.sample(rng, "generator", {**values, **far})

    def worded(self, values: Mapping[str, Value], region: Region) -> Scene:
        """The scene with these values; in ``ood-far`` with words that no other scene has."""
        scene = self.scene(values)
        wording = self.unseen_wording(values) if region == "ood-far" else None
        return self._assemble(scene.values, scene.task.goal, wording, ()) if wording else scene


def register_family(family: TaskFamily) -> None:
    """Make a family known by its name in this process. A built-in name cannot be taken."""
    if family.name in BUILT_IN:
        raise PluginError(
            f"the family name {family.name!r} belongs to a built-in.", remedy="choose another name"
        )
    _registered[family.name] = family


def family_names() -> tuple[str, ...]:
    """Names of all families that can be asked for: built-in, registered, installed."""
    installed = {e.name for e in _entry_points()}
    return tuple(dict.fromkeys((*BUILT_IN, *sorted(_registered), *sorted(installed))))


def get_family(name: str) -> TaskFamily:
    """The family of that name.

    Raises :class:`SceneError` for an unknown name, :class:`PluginError` where an installed family
    fails to load, naming the entry point and the cause.
    """
    if name in _registered:
        return _registered[name]
    if name in BUILT_IN:
        module, _, attribute = BUILT_IN[name].partition(":")
        family = getattr(importlib.import_module(module), attribute)()
        _registered[name] = family
        return family  # type: ignore[no-any-return]
    for entry in _entry_points():
        if entry.name == name:
            try:
                family = entry.load()()
            except (Exception, SystemExit) as error:
                owner = entry.dist.name if entry.dist else "unknown distribution"
                raise PluginError(
                    f"the family {name!r} of {owner} ({entry.value}) does not load: "
                    f"{type(error).__name__}: {error}",
                    remedy=f"repair or uninstall {owner}",
                ) from error
            _registered[name] = family
            return family  # type: ignore[no-any-return]
    raise SceneError(f"unknown family {short(name)}.", allowed=suggest(name, family_names()))


def _entry_points() -> Iterator[importlib.metadata.EntryPoint]:
    yield from importlib.metadata.entry_points(group="coda.families")
