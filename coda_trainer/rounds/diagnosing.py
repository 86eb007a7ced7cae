"""The diagnosis phase: failures of the present policy, claims about them, and their controls."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from coda_envs.engine.proposals import explore, generate
from coda_envs.programs.diagnosis import Diagnosis
from coda_envs.scene import Scene
from coda_trainer.diagnosis.base import DiagnosisContext, Metered, diagnose, make_diagnostician
from coda_trainer.diagnosis.control import (
    Candidate,
    ControlResult,
    Run,
    evaluate_controls,
    plan_control,
    refuted_percent,
    select_candidates,
)
from coda_trainer.episode import Episode
from coda_trainer.learning.rollout import Job
from coda_trainer.rounds.context import RoundContext
from coda_trainer.strategies.base import record

#: Source of the episodes that are looked at for failures.
EXPLORE = "explore"


@dataclass(frozen=True)
class Finding:
    """A tested claim: the candidate, its control evaluation, and its diagnoses in the memory."""

    candidate: Candidate
    result: ControlResult
    sequence: tuple[int, ...]


@dataclass(frozen=True)
class DiagnosisPhase:
    """What the phase found. ``episodes`` may serve as replay; those of controls may not.
    ``answers``: a diagnosis for each of ``context.failures``, none where nobody was asked."""

    episodes: tuple[Episode, ...]
    context: DiagnosisContext
    answers: tuple[Diagnosis, ...] = ()
    findings: tuple[Finding, ...] = ()


def find_difficulties(
    context: RoundContext, *, diagnosed: bool = True, tested: bool = True
) -> DiagnosisPhase:
    """Run the policy on edited seed scenes, diagnose its failures, and test the likeliest claims.

    The scenes differ from the seed range in one to three factors, so that failures can be traced
    to few of them. None of them is held out. Without ``diagnosed`` nobody says why, without
    ``tested`` nobody checks it.
    """
    episodes, seen = _look(context)
    if not diagnosed:
        return DiagnosisPhase(episodes, seen)
    answers, sequence = _diagnose(context, seen)
    findings = _control(context, seen, answers, sequence) if tested else ()
    return DiagnosisPhase(episodes, seen, answers, findings)


def _look(context: RoundContext) -> tuple[tuple[Episode, ...], DiagnosisContext]:
    """Episodes of the policy as it stands, and what a diagnostician may know of them."""
    config = context.config.diagnosis
    generated = generate(
        context.family,
        config.episodes,
        context.rng("explore scenes"),
        source=EXPLORE,
        base=lambda rng: explore(context.family, rng),
    )
    record(context, generated, EXPLORE)
    jobs = context.jobs(generated.scenes, EXPLORE, context.rng("explore seeds"))
    actor = context.actor("explore")
    with context.report.bar("episodes to diagnose", len(jobs)) as progress:
        episodes = context.pool.run(actor, jobs, progress)
    context.count_steps("training", sum(e.length for e in episodes))
    seen = DiagnosisContext.of(
        context.family,
        episodes,
        seed=context.torch_seed("diagnosis"),
        control_hz=context.config.control_hz,
    )
    with context.memory.transaction():
        for episode in seen.failures:
            context.memory.add_scene(context.round, episode.scene)
    return tuple(episodes), seen


def _diagnose(
    context: RoundContext, seen: DiagnosisContext
) -> tuple[tuple[Diagnosis, ...], dict[str, int]]:
    """A diagnosis of every failure, kept in the memory; their sequence numbers by hash."""
    config, failures = context.config.diagnosis, seen.failures
    diagnostician = make_diagnostician(config.diagnostician, **config.options)
    answers = diagnose(diagnostician, failures, seen)
    if isinstance(diagnostician, Metered):
        context.log("diagnostician", label=diagnostician.label, **diagnostician.usage())
    with context.memory.transaction():
        sequence = {a.hash: context.memory.add_diagnosis(context.round, a) for a in answers}
    context.log(
        "diagnosis",
        episodes=len(failures) + len(seen.successes),
        failures=len(failures),
        abstained=sum(a.abstain for a in answers),
        stages=dict(sorted(Counter(a.stage for a in answers).items())),
        factors=dict(sorted(Counter(a.factor for a in answers if a.factor).items())),
    )
    return tuple(answers), sequence


def _control(
    context: RoundContext,
    seen: DiagnosisContext,
    answers: Sequence[Diagnosis],
    sequence: Mapping[str, int],
) -> tuple[Finding, ...]:
    """The likeliest claims among the answers, each with its control evaluation."""
    candidates = select_candidates(answers, context.config.diagnosis.max_tested)
    plans = [
        plan_control(c, seen, context.rng(f"control {i}"), context.config.control.max_per_arm)
        for i, c in enumerate(candidates)
    ]
    results = evaluate_controls(plans, _runner(context), seen)
    context.count_steps("control", sum(r.steps for r in results))
    refuted = refuted_percent(results)
    context.log(
        "control",
        tested=refuted.tested,
        confirmed=refuted.confirmed,
        refuted=refuted.refuted,
        refuted_percent=refuted.of_decided,
        refuted_percent_of_tested=refuted.of_tested,
    )
    return tuple(
        Finding(c, r, tuple(sequence[d.hash] for d in c.diagnoses))
        for c, r in zip(candidates, results, strict=True)
    )


def _runner(context: RoundContext) -> Run:
    """Runs control episodes with the present policy; they go nowhere else."""
    actor = context.actor("control")

    def run(jobs: list[tuple[Scene, int]]) -> list[Episode]:
        with context.report.bar("control episodes", len(jobs)) as progress:
            return context.pool.run(actor, [Job(s, seed, "control") for s, seed in jobs], progress)

    return run
