"""A trial of a diagnostician: failures with a known cause, what it says of them, its controls."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from coda_envs.engine.proposals import generate
from coda_envs.errors import SceneError
from coda_envs.factor import ContinuousFactor, Value
from coda_envs.family import TaskFamily, get_family
from coda_envs.programs.diagnosis import Diagnosis
from coda_envs.scene import Scene
from coda_trainer.diagnosis.base import DiagnosisContext, Metered, diagnose, make_diagnostician
from coda_trainer.diagnosis.control import evaluate_controls, plan_control, select_candidates
from coda_trainer.diagnosis.faults import Cause, FaultyExperts, Population, draw_cause
from coda_trainer.episode import Episode
from coda_trainer.learning.rollout import Job, RolloutPool

#: Scenes of the seed range in which a fault is tried on its own, and the share that must fail at
#: one stage for it to show there.
ALONE, FAILS = 48, 0.7
#: Draws of a cause before a fault is given up.
TRIES = 8
#: Failures with the cause that a trial needs.
LEAST = 8


@dataclass(frozen=True)
class TrialSize:
    """``episodes`` of a population; the ``claims`` that are tested, in ``per_arm`` triples."""

    episodes: int
    claims: int
    per_arm: int


@dataclass(frozen=True)
class FaultSite:
    """Where a fault shows: the ``stage`` that an expert with nothing else wrong fails at, in scenes
    that have the values ``fixed`` (none: in any)."""

    stage: str
    fixed: Mapping[str, Value]


def fault_site(
    pool: RolloutPool, family: TaskFamily, fault: str, rng: np.random.Generator
) -> FaultSite | None:
    """Where the fault makes the expert fail most of the time, at one stage; None: nowhere.

    Some faults need something: a long thing to be turned, another thing to be mistaken. Where the
    fault does little in any scene, a choice of the task's or the things' factors is looked for
    under which it does much.
    """
    jobs = [_job(family.sample(rng, "seed"), rng) for _ in range(ALONE)]
    episodes = pool.demonstrate(0.0, jobs, make=FaultyExperts(always=fault))
    context = DiagnosisContext.of(family, episodes, seed=0, control_hz=pool.env.control_hz)
    failed = {e.seed: context.failed_stage(e) for e in context.failures}
    groups: dict[tuple[str, Value], list[Job]] = {}
    for job in jobs:
        for path, value in job.scene.values.items():
            if not isinstance(family.space[path], ContinuousFactor):
                groups.setdefault((path, value), []).append(job)
    tried: list[tuple[dict[str, Value], list[Job]]] = [({}, jobs)]
    tried += [({path: value}, groups[path, value]) for path, value in sorted(groups, key=str)]
    best: tuple[float, FaultSite] | None = None
    for fixed, among in tried:
        stages = Counter(failed[j.seed] for j in among if j.seed in failed)
        if len(among) < ALONE // 8 or not stages:
            continue
        stage, count = stages.most_common(1)[0]
        share = count / len(among)
        if share >= FAILS and (best is None or share > best[0] + 0.2):
            best = share, FaultSite(family.template.stage_names[stage], fixed)
    return best[1] if best else None


def run_trial(
    pool: RolloutPool,
    family_name: str,
    fault: str,
    size: TrialSize,
    diagnosticians: Mapping[str, Mapping[str, Any]],
    seed: Sequence[int],
) -> dict[str, Any]:
    """One trial as plain data: the cause, the population, and what each diagnostician said.

    Where the fault does nothing in the family, or no cause brings enough failures, the trial says
    so under ``left_out`` and has no figures.
    """
    family, rng = get_family(family_name), np.random.default_rng(tuple(seed))
    told: dict[str, Any] = {"family": family_name, "fault": fault, "left_out": ""}
    site = fault_site(pool, family, fault, rng)
    if site is None:
        return {**told, "left_out": "the expert seldom fails by it"}
    for _ in range(TRIES):
        cause = draw_cause(family, fault, rng, site.fixed)
        made = _population(pool, family, cause, site.fixed, size.episodes, rng)
        if made is not None:
            break
    else:
        return {**told, "left_out": f"no cause out of {TRIES} brought {LEAST} failures"}
    context, caused = made
    told |= {
        "cause": asdict(cause),
        "stage": site.stage,
        "fixed": dict(site.fixed),
        "episodes": size.episodes,
        "failures": len(context.failures),
        "caused": sum(caused),
        "said": {},
    }
    for name, options in diagnosticians.items():
        diagnostician = make_diagnostician(name, **options)
        answers = diagnose(diagnostician, context.failures, context)
        told["said"][name] = {
            **_score(answers, caused, cause, site.stage),
            "controls": _controls(pool, answers, context, cause, site.stage, size, rng),
            "usage": diagnostician.usage() if isinstance(diagnostician, Metered) else None,
        }
    return told


def _population(
    pool: RolloutPool,
    family: TaskFamily,
    cause: Cause,
    fixed: Mapping[str, Value],
    episodes: int,
    rng: np.random.Generator,
) -> tuple[DiagnosisContext, list[bool]] | None:
    """The episodes, and which failures are those of the cause; None with too few of them."""
    population = Population(family, cause, fixed)
    try:
        made = generate(family, episodes, rng, source="trial", base=population.draw)
    except SceneError:
        return None
    experts = FaultyExperts(cause)
    jobs = [_job(scene, rng) for scene in made.scenes]
    if sum(cause.holds(job.scene) for job in jobs) < 2 * LEAST:
        return None
    episodes_run = pool.demonstrate(0.0, jobs, make=experts)
    context = DiagnosisContext.of(
        family, episodes_run, seed=int(rng.integers(2**31)), control_hz=pool.env.control_hz
    )
    caused = [
        cause.holds(e.scene) and experts.fault(e.scene, e.seed) == cause.fault
        for e in context.failures
    ]
    return (context, caused) if sum(caused) >= LEAST else None


def _score(
    answers: Sequence[Diagnosis], caused: Sequence[bool], cause: Cause, stage: str
) -> dict[str, Any]:
    """Counts over the failures of the cause; of the other failures, how many were claims too."""
    mine = [a for a, own in zip(answers, caused, strict=True) if own]
    named = [a for a in mine if not a.abstain]
    right = [a for a in named if a.factor == cause.factor]
    return {
        "diagnosed": len(mine),
        "abstained": len(mine) - len(named),
        "stage_right": sum(a.stage == stage for a in mine),
        "factor_right": len(right),
        "factor_or_second": sum(
            cause.factor in (a.factor, *(x.factor for x in a.alternatives)) for a in named
        ),
        "direction_right": sum(a.direction == cause.direction for a in right),
        "stages": dict(sorted(Counter(a.stage for a in mine).items())),
        "factors": dict(sorted(Counter(a.factor for a in named).items())),
        "confidence": [[round(a.confidence, 4), a.factor == cause.factor] for a in named],
        "other_failures": len(answers) - len(mine),
        "other_claims": sum(
            not a.abstain for a, own in zip(answers, caused, strict=True) if not own
        ),
    }


def _controls(
    pool: RolloutPool,
    answers: Sequence[Diagnosis],
    context: DiagnosisContext,
    cause: Cause,
    stage: str,
    size: TrialSize,
    rng: np.random.Generator,
) -> list[dict[str, Any]]:
    """The control evaluations of the likeliest claims, and whether each is true: stage, factor and
    direction."""
    candidates = select_candidates(answers, size.claims)
    plans = [plan_control(c, context, rng, size.per_arm) for c in candidates]

    def run(jobs: list[tuple[Scene, int]]) -> list[Episode]:
        wanted = [Job(scene, seed, "control") for scene, seed in jobs]
        return pool.demonstrate(0.0, wanted, make=FaultyExperts(cause))

    return [
        {
            "stage": c.signature[0],
            "factor": c.factor,
            "direction": c.signature[3],
            "support": c.support,
            "verdict": result.verdict,
            "episodes": result.episodes,
            "true": (c.signature[0], c.factor, c.signature[3])
            == (stage, cause.factor, cause.direction),
        }
        for c, result in zip(candidates, evaluate_controls(plans, run, context), strict=True)
    ]


def _job(scene: Scene, rng: np.random.Generator) -> Job:
    return Job(scene, int(rng.integers(2**31)), "trial")
