"""``coda``: diagnose failures, confirm them by controls, aim half of the scenes at the modes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from coda_envs.scene import Scene
from coda_trainer.rounds import modes
from coda_trainer.rounds.context import RoundContext
from coda_trainer.rounds.diagnosing import find_difficulties
from coda_trainer.rounds.modes import ActiveMode
from coda_trainer.rounds.refining import potential_in_force
from coda_trainer.rounds.schedule import WIDE, curriculum_weights, standing
from coda_trainer.strategies.base import RoundPlan, mode_scenes, wide_scenes
from coda_trainer.strategies.graded import graded_scenes


class CoDA:
    """The full loop: generation and training programs from confirmed diagnoses.

    At least half of a round stays wide. The wide scenes reach from the seed range to the whole
    generator range, most of them where the policy succeeds about half of the time. The settings
    ``coda.omega`` and ``coda.phi`` turn off what the two kinds of programs do, and ``coda.tools``
    says which learning tools of the latter are used.
    """

    learns = True

    def plan(self, context: RoundContext) -> RoundPlan:
        """Diagnose, control, compile; then wide scenes and those of every active mode."""
        settings = context.config.coda
        phase = find_difficulties(context)
        modes.remember(context, phase)
        active = modes.select_modes(context)
        modes.measure_baselines(context, active)
        if settings.graded:
            scenes, weights, tried = graded_scenes(context)
        else:
            scenes, weights = wide_scenes(context, context.config.collect.scenes)
            tried = []
        if settings.omega:
            shares = self._aim(context, active, scenes, weights)
        elif settings.phi:
            shares = self._recognise(active, scenes, weights)
        else:
            shares = weights
        context.log("plan", shares=shares, modes=[e.mode.id for e in active])
        helped = active if settings.phi else []
        return RoundPlan(
            scenes=scenes,
            weights=shares,
            potential=potential_in_force(context, [d for e in helped for d in e.diagnoses]),
            training={e.mode.id: e.phi.with_tools(settings.tools) for e in helped},
            episodes=(*phase.episodes, *tried),
        )

    def measure(self, context: RoundContext) -> None:
        """Probes of every mode, and what follows for its life."""
        modes.measure_modes(context)

    @staticmethod
    def _aim(
        context: RoundContext,
        active: Sequence[ActiveMode],
        scenes: dict[str, Sequence[Scene]],
        weights: Mapping[str, float],
    ) -> dict[str, float]:
        """Add scenes of every active mode to ``scenes``; the shares of all sources."""
        standings = []
        for entry in active:
            mode = entry.mode
            found = mode_scenes(
                context,
                mode.id,
                entry.omega,
                context.config.collect.scenes_per_mode,
                context.rng(f"scenes {mode.id}"),
                lambda rng: modes.mode_base(context, rng),
            )
            if found:
                scenes[mode.id] = found
                standings.append(standing(mode, context.memory.last_measurement(mode.id)))
        shares = curriculum_weights(standings, wide_share=context.config.collect.wide_share)
        wide = shares.pop(WIDE)
        return shares | {source: wide * share for source, share in weights.items()}

    @staticmethod
    def _recognise(
        active: Sequence[ActiveMode],
        scenes: dict[str, Sequence[Scene]],
        weights: Mapping[str, float],
    ) -> dict[str, float]:
        """Give those wide scenes that show a mode's difficulty to the mode, so that its learning
        tools reach them; the distribution of scenes stays as it is. The shares of all sources."""
        wide = scenes[WIDE]
        of_mode: dict[str, list[Scene]] = {WIDE: []}
        for scene in wide:
            shown = (e.mode.id for e in active if modes.shows(e.omega, scene))
            of_mode.setdefault(next(shown, WIDE), []).append(scene)
        scenes.update(of_mode)
        parts = {source: len(found) / len(wide) for source, found in of_mode.items()}
        shares = {source: share for source, share in weights.items() if source != WIDE}
        return shares | {source: weights[WIDE] * part for source, part in parts.items()}
