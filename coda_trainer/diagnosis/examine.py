"""Examination of a policy: what it fails at and why, each claim tested, the worst ones first."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from coda_envs.engine.proposals import explore, generate
from coda_envs.family import TaskFamily
from coda_envs.scene import Scene
from coda_trainer.diagnosis.base import DiagnosisContext, Diagnostician, diagnose
from coda_trainer.diagnosis.control import (
    Candidate,
    ControlResult,
    evaluate_controls,
    plan_control,
    select_candidates,
)
from coda_trainer.episode import Episode
from coda_trainer.learning.actor import ActorSpec
from coda_trainer.learning.rollout import Job, RolloutPool
from coda_trainer.statistics import wilson

#: Verdicts as they rank.
RANKED = ("confirmed", "inconclusive", "untestable", "refuted")
#: Seeds of an examination: apart from those of training and of suites.
SEEDS = 3 * 2**30


@dataclass(frozen=True)
class Difficulty:
    """A claim about what the policy cannot do, with its control evaluation.

    ``failures`` are the episodes that it explains, of ``of`` episodes in all.
    """

    candidate: Candidate
    result: ControlResult
    failures: tuple[Episode, ...]
    of: int

    @property
    def sentence(self) -> str:
        """The diagnostician's words about the first failure."""
        return self.candidate.diagnoses[0].sentence

    def to_dict(self) -> dict[str, Any]:
        """Plain data: the claim, its verdict, and how often the stage was reached in each arm."""
        stage, predicate, factor, direction, role = self.candidate.signature
        result = self.result
        return {
            "stage": stage,
            "failed_predicate": predicate,
            "factor": factor,
            "direction": direction,
            "role": role,
            "verdict": result.verdict,
            "failures": len(self.failures),
            "of_episodes": self.of,
            "episodes_per_arm": result.episodes,
            "reached": dict(zip(("with", "without", "other_change"), result.reached, strict=True)),
            "gain": result.gain[0] if result.episodes else None,
            "sentence": self.sentence,
        }


@dataclass(frozen=True)
class Examination:
    """What an examination found, the difficulties in the order of :func:`rank`."""

    family: TaskFamily
    diagnostician: str
    context: DiagnosisContext
    abstained: int
    difficulties: tuple[Difficulty, ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        failed, passed = len(self.context.failures), len(self.context.successes)
        return {
            "family": self.family.name,
            "diagnostician": self.diagnostician,
            "episodes": failed + passed,
            "successes": passed,
            "interval95": wilson(passed, failed + passed),
            "failures": failed,
            "abstained": self.abstained,
            "difficulties": [d.to_dict() for d in self.difficulties],
        }


def examine(
    pool: RolloutPool,
    actor: ActorSpec,
    family: TaskFamily,
    diagnostician: Diagnostician,
    *,
    episodes: int = 256,
    claims: int = 4,
    per_arm: int = 32,
    seed: int = 0,
    say: Callable[[str], None] = lambda text: None,
) -> Examination:
    """Run the policy on edited seed scenes, diagnose its failures, test the likeliest claims.

    ``episodes``: on scenes with one to three factors drawn from the whole generator range, none
    held out; ``claims``: most that are tested, in up to ``per_arm`` matched triples. The same
    arguments give the same examination. ``say`` is told what goes on.
    """
    rng = np.random.default_rng((seed, 4))
    made = generate(family, episodes, rng, source="examination", base=lambda r: explore(family, r))
    say(f"{len(made.scenes)} episodes of {family.name}")
    jobs = [Job(s, SEEDS + int(rng.integers(2**30)), "examination") for s in made.scenes]
    seen = pool.run(actor, jobs)
    context = DiagnosisContext.of(family, seen, seed=seed, control_hz=pool.env.control_hz)
    say(f"{len(context.failures)} failures to diagnose")
    answers = diagnose(diagnostician, context.failures, context)
    candidates = select_candidates(answers, claims)
    say(f"{len(candidates)} claims to test")
    plans = [plan_control(c, context, rng, per_arm) for c in candidates]

    def run(wanted: list[tuple[Scene, int]]) -> list[Episode]:
        return pool.run(actor, [Job(scene, s, "control") for scene, s in wanted])

    results = evaluate_controls(plans, run, context)
    by_place = {(e.scene.id, e.seed): e for e in context.failures}
    found = [
        Difficulty(
            c,
            r,
            tuple(by_place[d.scene_id, d.episode_seed] for d in c.diagnoses),
            len(seen),
        )
        for c, r in zip(candidates, results, strict=True)
    ]
    return Examination(
        family,
        diagnostician.label,
        context,
        sum(a.abstain for a in answers),
        tuple(sorted(found, key=rank)),
    )


def rank(difficulty: Difficulty) -> tuple[int, float, str]:
    """Confirmed claims first; among them those that cost the most: failures explained times what
    taking the factor away gains."""
    result = difficulty.result
    cost = len(difficulty.failures) * (result.gain[0] if result.episodes else 0.0)
    return RANKED.index(result.verdict), -round(cost, 9), str(difficulty.candidate.signature)
