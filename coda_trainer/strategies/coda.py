"""``coda``: diagnose failures, confirm them by controls, aim half of the scenes at the modes."""

from __future__ import annotations

from coda_envs.engine.widening import draw_magnitude, graded
from coda_envs.text2potential import compile_potential, compile_program
from coda_trainer.learning.chunk_critic import NoPotential, StatePotential
from coda_trainer.rounds import modes
from coda_trainer.rounds.context import RoundContext
from coda_trainer.rounds.diagnosing import find_difficulties
from coda_trainer.rounds.magnitudes import measure_magnitudes
from coda_trainer.rounds.modes import ActiveMode
from coda_trainer.rounds.schedule import WIDE, curriculum_weights, standing
from coda_trainer.strategies.base import RoundPlan, mode_scenes, wide_scenes


class CoDA:
    """The full loop: generation and training programs from confirmed diagnoses.

    At least half of a round stays wide. The wide scenes reach from the seed range to the whole
    generator range, most of them where the policy succeeds about half of the time.
    """

    learns = True

    def plan(self, context: RoundContext) -> RoundPlan:
        """Diagnose, control, compile; then wide scenes and those of every active mode."""
        phase = find_difficulties(context)
        modes.remember(context, phase)
        active = modes.select_modes(context)
        modes.measure_baselines(context, active)
        magnitudes, tried = measure_magnitudes(context)
        scenes, weights = wide_scenes(
            context,
            context.config.collect.scenes,
            lambda rng: graded(context.family, rng, draw_magnitude(rng, magnitudes)),
        )
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
        shares |= {source: wide * share for source, share in weights.items()}
        context.log("plan", shares=shares, modes=[e.mode.id for e in active])
        return RoundPlan(
            scenes=scenes,
            weights=shares,
            potential=self._potential(context, active),
            replay_weights={e.mode.id: e.phi.tools.replay_weight for e in active},
            noise={e.mode.id: e.phi.tools.exploration_noise for e in active},
            episodes=(*phase.episodes, *tried),
        )

    def measure(self, context: RoundContext) -> None:
        """Probes of every mode, and what follows for its life."""
        modes.measure_modes(context)

    @staticmethod
    def _potential(context: RoundContext, active: list[ActiveMode]) -> StatePotential:
        """One Φ for the family: its stages, refined by every active mode's diagnoses."""
        if context.config.signal == "sparse":
            return NoPotential()
        diagnoses = [d for entry in active for d in entry.diagnoses]
        program = compile_program(context.family.template, diagnoses)
        return compile_potential(program, context.family.schema)
