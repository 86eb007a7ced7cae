"""``given``: modes that nobody had to find, so that the learning tools alone are measured.

The family's declared interactions stand for modes, and the configuration says which stage each is
about. So an experiment with a tool on or off does not depend on what a diagnosis finds. It is for
``coda bench tools``, and compares with no other strategy: those get no list of difficulties. Scenes
lie in the generator region, as all training scenes do; no suite is touched.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from coda_envs.engine.proposals import generate
from coda_envs.errors import ConfigError, suggest
from coda_envs.family import TaskFamily
from coda_envs.interactions import THIRDS, Interaction, load_interactions, sample_interaction
from coda_envs.programs.training import TrainingProgram
from coda_envs.scene import Scene
from coda_trainer.compile.training import STRENGTH
from coda_trainer.config import RunConfig
from coda_trainer.rounds.context import RoundContext
from coda_trainer.rounds.refining import potential_in_force
from coda_trainer.strategies.base import RoundPlan, record, wide_scenes
from coda_trainer.strategies.graded import graded_scenes


class Given:
    """Half of a round wide, the rest dealt out evenly over the given modes, easy to hard."""

    learns = True

    @staticmethod
    def check(config: RunConfig, families: Sequence[TaskFamily]) -> None:
        """Raises :class:`ConfigError` where ``coda.given`` names no interaction or no stage."""
        if not config.coda.given:
            raise ConfigError(
                "the strategy 'given' has no modes.",
                remedy="name some in coda.given, or choose the strategy 'coda'",
            )
        known = {i.name: family for family in families for i in load_interactions(family)}
        for name, stage in config.coda.given.items():
            if name not in known:
                raise ConfigError(
                    f"coda.given names the interaction {name!r}.", allowed=suggest(name, known)
                )
            stages = known[name].template.stage_names
            if stage not in stages:
                raise ConfigError(
                    f"coda.given.{name} is the stage {stage!r}.", allowed=suggest(stage, stages)
                )

    def plan(self, context: RoundContext) -> RoundPlan:
        """Wide scenes and those of every given mode of the family."""
        settings, collect = context.config.coda, context.config.collect
        if settings.graded:
            scenes, weights, tried = graded_scenes(context)
        else:
            scenes, weights = wide_scenes(context, collect.scenes)
            tried = []
        modes = [i for i in load_interactions(context.family) if i.name in settings.given]
        for mode in modes:
            scenes[mode.name] = _scenes(context, mode, collect.scenes_per_mode)
        wide = collect.wide_share if modes else 1.0
        share = {source: wide * weight for source, weight in weights.items()}
        return RoundPlan(
            scenes=scenes,
            weights=share | {mode.name: (1.0 - wide) / len(modes) for mode in modes},
            potential=potential_in_force(context, ()),
            training={
                mode.name: given_program(context.family, settings.given[mode.name], settings.tools)
                for mode in modes
            },
            episodes=tried,
        )

    def measure(self, context: RoundContext) -> None:
        """Nothing to measure: the suite ``hard`` does."""


def given_program(family: TaskFamily, stage: str, tools: Sequence[str]) -> TrainingProgram:
    """The family's own stages, that stage as the subgoal, and the named tools at the strength that
    the compiler gives them."""
    return TrainingProgram(
        family=family.name,
        subgoals=(stage,),
        potential=family.template,
        tools=STRENGTH.only(tools),
        provenance=("given",),
    )


def _scenes(context: RoundContext, mode: Interaction, count: int) -> list[Scene]:
    """Accepted scenes of an interaction in the generator region, over all thirds alike."""

    def draw(rng: np.random.Generator) -> Scene:
        part = int(rng.integers(THIRDS))
        return sample_interaction(context.family, mode, rng, "generator", part)

    rng = context.rng(f"scenes {mode.name}")
    found = generate(context.family, count, rng, source=mode.name, base=draw)
    record(context, found, mode.name)
    return list(found.scenes)
