"""The diagnostician protocol: what it is given, what it answers, and how one is found by name."""

from __future__ import annotations

import importlib
import importlib.metadata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol, Self, runtime_checkable

from coda_envs.errors import ConfigError, PluginError, ProgramError, suggest
from coda_envs.family import TaskFamily
from coda_envs.programs.diagnosis import Diagnosis
from coda_envs.programs.potential import AllOf, AnyOf, Gate
from coda_envs.text2potential.evaluate import Potential, compile_potential
from coda_trainer.episode import Episode


@dataclass(frozen=True)
class DiagnosisContext:
    """What a diagnostician may know: the family and the episodes of a round.

    ``successes`` and ``failures`` were collected by one policy. ``seed`` is for whatever a
    diagnostician draws at random. ``control_hz``: steps a second, to play an episode again.
    """

    family: TaskFamily
    successes: tuple[Episode, ...]
    failures: tuple[Episode, ...]
    seed: int
    control_hz: int = 10

    @classmethod
    def of(
        cls, family: TaskFamily, episodes: Sequence[Episode], *, seed: int, control_hz: int
    ) -> Self:
        """The context of ``episodes`` that one policy ran in the family."""
        return cls(
            family=family,
            successes=tuple(e for e in episodes if e.success),
            failures=tuple(e for e in episodes if not e.success),
            seed=seed,
            control_hz=control_hz,
        )

    @cached_property
    def potential(self) -> Potential:
        """The family's stages; ``potential.gates(features)`` says which hold."""
        return compile_potential(self.family.template, self.family.schema)

    def stages_done(self, episode: Episode) -> int:
        """How many of the K stages the episode ever got done: one past the latest gate reached."""
        return int(self.potential.stage(episode.features).max())

    def failed_stage(self, episode: Episode) -> int:
        """Index of the first stage that a failed episode never got done.

        The last stage where the goal held for a moment but the episode failed after all.
        """
        return min(self.stages_done(episode), len(self.family.template.stages) - 1)

    def failed_predicate(self, stage: int) -> str:
        """The gate of a stage in words, e.g. ``grasped(target)``."""
        return gate_text(self.family.template.stages[stage].gate)


@runtime_checkable
class Diagnostician(Protocol):
    """Says why episodes failed. Made by a factory that takes its options by keyword."""

    #: How its diagnoses are labelled, e.g. ``trace (privileged)``.
    label: str

    def diagnose(self, failures: Sequence[Episode], context: DiagnosisContext) -> list[Diagnosis]:
        """One diagnosis for each failure, in order; one that abstains where nothing can be said.

        It never reads how a scene was made (``Episode.source``), nor an episode on a held-out
        scene. The same input and ``context.seed`` give the same diagnoses.
        """


@runtime_checkable
class Metered(Protocol):
    """A diagnostician that costs something: it says what it has spent."""

    def usage(self) -> Mapping[str, Any]:
        """Plain numbers by name, e.g. calls, tokens and cost; None for what was not measured."""


DiagnosticianFactory = Callable[..., Diagnostician]

BUILT_IN: Mapping[str, str] = {
    "trace": "coda_trainer.diagnosis.trace:TraceDiagnostician",
    "vlm": "coda_trainer.diagnosis.vlm:VLMDiagnostician",
    "random_factor": "coda_trainer.diagnosis.random_factor:RandomFactorDiagnostician",
}
#: What :func:`register_diagnostician` added in this process.
REGISTERED: dict[str, DiagnosticianFactory] = {}
#: The entry-point group of installed diagnosticians.
GROUP = "coda.diagnosticians"


def register_diagnostician(name: str, factory: DiagnosticianFactory) -> None:
    """Make a diagnostician known by name in this process. A built-in name cannot be taken."""
    if name in BUILT_IN:
        raise PluginError(
            f"the diagnostician name {name!r} belongs to a built-in.", remedy="choose another name"
        )
    REGISTERED[name] = factory


def make_diagnostician(name: str, **options: Any) -> Diagnostician:
    """The built-in, registered or installed diagnostician of that name.

    Raises :class:`ConfigError` for an unknown name and :class:`PluginError` where it does not
    load, cannot be made from the options, or is no diagnostician.
    """
    owner = "CoDA"
    try:
        if name in BUILT_IN:
            module, _, attribute = BUILT_IN[name].partition(":")
            factory = getattr(importlib.import_module(module), attribute)
        elif name in REGISTERED:
            factory = REGISTERED[name]
        else:
            installed = {e.name: e for e in importlib.metadata.entry_points(group=GROUP)}
            if name not in installed:
                known = (*BUILT_IN, *REGISTERED, *installed)
                raise ConfigError(f"unknown diagnostician {name!r}.", allowed=suggest(name, known))
            entry = installed[name]
            owner = entry.dist.name if entry.dist else "an unknown distribution"
            factory = entry.load()
        made = factory(**options)
    except ConfigError:
        raise
    except (Exception, SystemExit) as error:
        raise PluginError(
            f"the diagnostician {name!r} of {owner} cannot be made from {options!r}: "
            f"{type(error).__name__}: {error}",
            remedy=f"correct its options, or repair or uninstall {owner}",
        ) from error
    if not isinstance(made, Diagnostician):
        raise PluginError(
            f"the diagnostician {name!r} of {owner} made a {type(made).__name__}.",
            allowed="an object with label and diagnose(failures, context)",
        )
    return made


def diagnose(
    diagnostician: Diagnostician, failures: Sequence[Episode], context: DiagnosisContext
) -> list[Diagnosis]:
    """Run a diagnostician and check what it says.

    Raises :class:`ProgramError` where an episode to diagnose succeeded, and where an answer is
    missing or names another family, scene, stage or factor than the episode has.
    """
    for episode in failures:
        if episode.success:
            raise ProgramError(
                f"the episode with seed {episode.seed} in scene {episode.scene.id[:12]} succeeded.",
                allowed="failed episodes",
            )
    answers = diagnostician.diagnose(failures, context)
    if len(answers) != len(failures):
        raise ProgramError(
            f"{diagnostician.label} gave {len(answers)} diagnoses of {len(failures)} failures.",
            allowed="one for each failure, abstaining where it has none",
        )
    for answer, episode in zip(answers, failures, strict=True):
        _check(answer, episode, context, diagnostician.label)
    return answers


def gate_text(gate: Gate) -> str:
    """A gate in words: ``at(target, receptacle) and released(target)``."""
    if isinstance(gate, AllOf):
        return " and ".join(_part(g) for g in gate.all)
    if isinstance(gate, AnyOf):
        return " or ".join(_part(g) for g in gate.any)
    return f"{gate.predicate}({', '.join(gate.roles)})"


def _part(gate: Gate) -> str:
    text = gate_text(gate)
    return f"({text})" if isinstance(gate, (AllOf, AnyOf)) else text


def _check(answer: Diagnosis, episode: Episode, context: DiagnosisContext, label: str) -> None:
    expected = {
        "family": context.family.name,
        "scene_id": episode.scene.id,
        "episode_seed": episode.seed,
    }
    for field, value in expected.items():
        if getattr(answer, field) != value:
            raise ProgramError(
                f"{label} gave a diagnosis whose {field} is {getattr(answer, field)!r}.",
                allowed=repr(value),
            )
    stages = context.family.template.stage_names
    if answer.stage not in stages:
        raise ProgramError(
            f"{label} names the stage {answer.stage!r}.", allowed=suggest(answer.stage, stages)
        )
    named = [answer.factor] if answer.factor else []
    for path in (*named, *(a.factor for a in answer.alternatives)):
        if path not in episode.scene.values:
            raise ProgramError(
                f"{label} names the factor {path!r}, which the scene does not have.",
                allowed=suggest(path, episode.scene.values),
            )
    if any(not 0 <= step <= episode.length for step in answer.evidence):
        raise ProgramError(
            f"{label} gives the evidence {answer.evidence!r}.",
            allowed=f"steps from 0 to {episode.length}",
        )
