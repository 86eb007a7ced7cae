"""``programs``: difficulty modes with generation programs Ω and training programs Φ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from coda_envs.scene import Scene
from coda_trainer.recall.base import Wide
from coda_trainer.rounds import modes
from coda_trainer.rounds.context import RoundContext
from coda_trainer.rounds.diagnosing import DiagnosisPhase
from coda_trainer.rounds.modes import ActiveMode
from coda_trainer.rounds.refining import potential_in_force
from coda_trainer.rounds.schedule import WIDE, curriculum_weights, standing
from coda_trainer.rounds.targeting import measure_targeting
from coda_trainer.strategies.base import RoundPlan, mode_scenes


class Programs:
    """What confirmed claims compile to. The settings ``coda.omega`` and ``coda.phi`` turn off what
    the two kinds of programs do."""

    diagnoses = True
    tests = True

    def plan(self, context: RoundContext, phase: DiagnosisPhase, wide: Wide) -> RoundPlan:
        """Remember the tested claims as modes; then scenes and tools for every active one."""
        modes.remember(context, phase)
        return plan_of_modes(context, wide)

    def measure(self, context: RoundContext) -> None:
        """Probes of every mode, and what follows for its life."""
        modes.measure_modes(context)


def plan_of_modes(context: RoundContext, wide: Wide) -> RoundPlan:
    """The wide part and that of the family's modes in the run's memory."""
    settings, scenes = context.config.coda, dict(wide.scenes)
    active = modes.select_modes(context)
    modes.measure_baselines(context, active)
    if settings.omega:
        shares = _aim(context, active, scenes, wide.shares)
    elif settings.phi:
        shares = _recognise(active, scenes, wide.shares)
    else:
        shares = dict(wide.shares)
    helped = active if settings.phi else []
    return RoundPlan(
        scenes=scenes,
        weights=shares,
        potential=potential_in_force(context, [d for e in helped for d in e.diagnoses]),
        training={e.mode.id: e.phi for e in helped},
    )


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
            measure_targeting(context, mode.id, found)
    shares = curriculum_weights(standings, wide_share=context.config.collect.wide_share)
    wide = shares.pop(WIDE)
    return shares | {source: wide * share for source, share in weights.items()}


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
