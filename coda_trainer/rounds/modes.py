"""From tested claims to difficulty modes with programs and probes, and their measurement."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from coda_envs.engine.apply import GuardNotMet, apply_program
from coda_envs.engine.proposals import explore
from coda_envs.errors import ProgramError, SceneError
from coda_envs.programs.diagnosis import Diagnosis
from coda_envs.programs.generation import GenerationProgram, SampleEdit
from coda_envs.programs.training import TrainingProgram
from coda_envs.scene import Scene
from coda_envs.validity import validate
from coda_trainer.compile.author import make_author
from coda_trainer.compile.generation import compile_candidate
from coda_trainer.compile.training import compile_training
from coda_trainer.learning.rollout import Job
from coda_trainer.memory import lifecycle
from coda_trainer.memory.evidence import confirming, generation_program
from coda_trainer.memory.modes import Mode, Probe, merge_all, mode_of
from coda_trainer.memory.progress import measurement
from coda_trainer.rounds.authoring import report_author
from coda_trainer.rounds.context import RoundContext
from coda_trainer.rounds.diagnosing import DiagnosisPhase

#: Scenes on which the expert shows that a mode can be solved, and the share that it must solve.
FEASIBLE_SCENES = 8
FEASIBLE_SHARE = 0.5
#: Draws for each probe before the mode makes do with fewer.
PROBE_TRIES = 40


@dataclass(frozen=True)
class ActiveMode:
    """A mode that is trained on, with its programs."""

    mode: Mode
    omega: GenerationProgram
    phi: TrainingProgram
    diagnoses: tuple[Diagnosis, ...]


def remember(context: RoundContext, phase: DiagnosisPhase) -> None:
    """Turn every tested claim into a mode (or add to one), judged by its control evaluation."""
    author = make_author(context.config.programs) if phase.findings else None
    for finding in phase.findings:
        try:
            omega = compile_candidate(finding.candidate, phase.context)
            # A refuted claim's program is never used: no model is asked for it.
            if author is not None and finding.result.verdict == "confirmed":
                omega = author.generation(finding.candidate, phase.context) or omega
        except ProgramError as error:
            # No mode can stand for it; the control evaluation is still on record.
            context.report.line(f"no generation program: {error}")
            context.log("no program", reason=error.problem, **finding.result.to_dict())
            continue
        edit = omega.edits[0]
        assert isinstance(edit, SampleEdit)
        interval = None if edit.choices else (float(edit.low or 0.0), float(edit.high or 0.0))
        first = finding.candidate.diagnoses[0]
        new = mode_of(first, context.round, interval=interval, choices=edit.choices)
        with context.memory.transaction():
            merged = merge_all([*_modes(context), new], context.round)
            mode = next(m for m in merged if m.id == new.id or new.id in m.merged)
            if mode.state != "removed":
                mode = lifecycle.judge(mode, context.round, finding.result.verdict)
            context.memory.add_control(
                context.round,
                mode.id,
                finding.result.verdict,
                finding.sequence,
                finding.result.to_dict(),
            )
            context.memory.add_program(context.round, mode.id, omega)
            context.memory.save_mode(context.round, mode)
    if author is not None:
        report_author(context, "generation", author)


def select_modes(context: RoundContext) -> list[ActiveMode]:
    """Modes to train on this round: new ones get their programs, feasibility test and probes."""
    active: list[ActiveMode] = []
    for mode in _modes(context):
        if mode.state not in ("validated", "selected", "retained"):
            continue
        diagnoses = tuple(confirming(context.memory, mode))
        compiled = generation_program(context.memory, mode)
        assert compiled is not None
        omega = compiled.model_copy(update={"magnitude": mode.magnitude})
        # What the memory and the report show is what the round uses.
        tools = context.config.coda.tools
        phi = compile_training(diagnoses, context.family).with_tools(tools)
        context.memory.add_program(context.round, mode.id, phi)
        if mode.state == "validated":
            selected = _select(context, mode, omega, phi)
            if selected is None:
                continue
            mode = selected
        elif mode.phi_hash != phi.hash:
            # Later diagnoses of the mode have refined its potential.
            mode = mode.replaced(phi_hash=phi.hash)
            context.memory.save_mode(context.round, mode)
        active.append(ActiveMode(mode, omega, phi, diagnoses))
    return active


def _select(
    context: RoundContext, mode: Mode, omega: GenerationProgram, phi: TrainingProgram
) -> Mode | None:
    """A validated mode with its probes, measured once before it is trained on; None where the
    expert cannot solve it or no probe scene is found."""
    rng = context.rng(f"probes {mode.id}")
    pairs = _probe_scenes(context, omega, context.config.probes.per_mode, rng)
    if not pairs:
        context.report.line(f"mode {mode.id} ({mode.label}): no scene found, left out this round")
        return None
    expert = context.pool.demonstrate(0.0, context.jobs(
        [edited for edited, _ in pairs[:FEASIBLE_SCENES]], "feasible", rng
    ))  # fmt: skip
    context.count_steps("probes", sum(e.length for e in expert))
    if sum(e.success for e in expert) < FEASIBLE_SHARE * len(expert):
        gone = lifecycle.infeasible(mode, context.round)
        context.memory.save_mode(context.round, gone)
        return None
    probes, controls = [], []
    with context.memory.transaction():
        for edited, base in pairs:
            # One seed for both: they differ in the difficulty alone.
            seed = int(rng.integers(2**31))
            own = context.memory.add_scene(context.round, edited)
            other = context.memory.add_scene(context.round, base)
            probes.append(Probe(scene_id=own, seed=seed))
            controls.append(Probe(scene_id=other, seed=seed))
    # At a reduced magnitude it is another program than the one that was compiled.
    context.memory.add_program(context.round, mode.id, omega)
    selected = lifecycle.select(
        mode,
        context.round,
        omega_hash=omega.hash,
        phi_hash=phi.hash,
        probes=tuple(probes),
        controls=tuple(controls),
    )
    context.memory.save_mode(context.round, selected)
    return selected


def _probe_scenes(
    context: RoundContext, omega: GenerationProgram, count: int, rng: np.random.Generator
) -> list[tuple[Scene, Scene]]:
    """Up to ``count`` pairs (scene with the mode's difficulty, the same scene without)."""
    pairs: list[tuple[Scene, Scene]] = []
    for _ in range(PROBE_TRIES * count):
        if len(pairs) == count:
            break
        try:
            base = mode_base(context, rng)
            applied = apply_program(omega, base, rng)
        except SceneError:
            continue
        if isinstance(applied, GuardNotMet) or applied.scene.id == base.id:
            continue
        if context.family.region(applied.scene) != "generator":
            continue
        if all(validate(s, solve_tries=0).passed for s in (applied.scene, base)):
            pairs.append((applied.scene, base))
    return pairs


def shows(omega: GenerationProgram, scene: Scene) -> bool:
    """Whether a scene that nobody edited has a mode's difficulty: the factor of every edit of its
    program is there, within the edit's interval or among its choices. The program's guards say no
    more than that the factor is there."""
    for edit in omega.edits:
        assert isinstance(edit, SampleEdit)
        value = scene.values.get(edit.factor)
        if value is None:
            return False
        if edit.choices:
            inside = value in edit.choices
        else:
            inside = float(edit.low or 0.0) <= float(value) <= float(edit.high or 0.0)
        if not inside:
            return False
    return True


def mode_base(context: RoundContext, rng: np.random.Generator) -> Scene:
    """The scene that a mode's program edits: of the seed range, but for up to two factors.

    So the mode's difficulty comes alone or in small company, where success is within reach.
    """
    return explore(context.family, rng, most=2)


def measure_modes(context: RoundContext) -> None:
    """Run the probes of every mode that has some, and move the modes on by what they show."""
    modes = [m for m in _modes(context) if m.probes]
    if not modes:
        return
    jobs = [_job(context, probe) for m in modes for probe in (*m.probes, *m.controls)]
    actor = context.actor("probes")
    with context.report.bar(f"probes of {context.family.name}", len(jobs)) as progress:
        episodes = context.pool.run(actor, jobs, progress)
    context.count_steps("probes", sum(e.length for e in episodes))
    outcomes = iter([e.success for e in episodes])
    for mode in modes:
        probes = [next(outcomes) for _ in mode.probes]
        controls = [next(outcomes) for _ in mode.controls]
        before = context.memory.last_measurement(mode.id)
        now = measurement(probes, controls, before, context.rng(f"progress {mode.id}"))
        with context.memory.transaction():
            context.memory.add_measurement(context.round, mode.id, now)
            if mode.round_measured is None or mode.round_measured < context.round:
                mode = lifecycle.measure(mode, context.round, now)
            context.memory.save_mode(context.round, mode)
        context.log(
            "progress",
            mode=mode.id,
            successes=now.successes,
            trials=now.trials,
            control_successes=sum(now.controls),
            learning_progress=None if now.progress is None else now.progress.mean,
            p_material=None if now.progress is None else now.progress.p_material,
        )


def measure_baselines(context: RoundContext, active: Sequence[ActiveMode]) -> None:
    """A first measurement of modes that were selected just now, before they are trained on."""
    for entry in active:
        if context.memory.last_measurement(entry.mode.id) is not None:
            continue
        jobs = [_job(context, p) for p in (*entry.mode.probes, *entry.mode.controls)]
        episodes = context.pool.run(context.actor("baseline"), jobs)
        context.count_steps("probes", sum(e.length for e in episodes))
        outcomes = [e.success for e in episodes]
        split = len(entry.mode.probes)
        first = measurement(outcomes[:split], outcomes[split:], None, context.rng("baseline"))
        context.memory.add_measurement(context.round, entry.mode.id, first)


def _modes(context: RoundContext) -> list[Mode]:
    """The family's modes: the memory holds those of every family."""
    return context.memory.modes(family=context.family.name)


def _job(context: RoundContext, probe: Probe) -> Job:
    return Job(context.memory.scene(probe.scene_id), probe.seed, "probe")
