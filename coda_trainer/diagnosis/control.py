"""Control evaluation: matched rollouts that confirm or refute a diagnosis.

For a diagnosis, episodes run on fresh seeds in three matched scenes each: T with the condition, C
with that factor reset, P with another factor moved as far. What counts is whether the diagnosed
stage got done; success is secondary, because a weak policy has true diagnoses that success alone
would refute. The verdict is :mod:`coda_trainer.diagnosis.rule`'s. The episodes serve nothing else:
the caller must keep them out of replay.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from coda_envs.errors import ProgramError
from coda_envs.factor import Value
from coda_envs.programs.diagnosis import Diagnosis
from coda_envs.scene import Scene
from coda_trainer.diagnosis import rule
from coda_trainer.diagnosis.base import DiagnosisContext
from coda_trainer.diagnosis.rule import Verdict
from coda_trainer.diagnosis.triples import Triple, TripleMaker
from coda_trainer.episode import Episode

Signature = tuple[str, str, str, str, str]
#: Runs episodes of the current policy, one for each (scene, seed), and returns them in order.
Run = Callable[[list[tuple[Scene, int]]], list[Episode]]
#: Arms in the order of every count: condition, control, other edit.
ARMS = ("T", "C", "P")
#: Least share of all claims that a claim needs to be tested. Chosen on seeds 0 and 1 of the
#: injected faults, where most refuted claims were of fewer; docs/diagnosis.md has other seeds'.
LEAST_SHARE = 0.05


@dataclass(frozen=True)
class Candidate:
    """Diagnoses that make the same claim (family and signature)."""

    family: str
    signature: Signature
    diagnoses: tuple[Diagnosis, ...]

    @property
    def support(self) -> int:
        """How many diagnoses make the claim."""
        return len(self.diagnoses)

    @property
    def confidence(self) -> float:
        """Mean confidence of the diagnoses."""
        return sum(d.confidence for d in self.diagnoses) / self.support

    @property
    def factor(self) -> str:
        """The diagnosed factor."""
        return self.signature[2]


def select_candidates(diagnoses: Iterable[Diagnosis], limit: int) -> list[Candidate]:
    """The ``limit`` claims most worth testing: highest support times mean confidence first.

    Abstentions are left out, and so are claims about fewer than :data:`LEAST_SHARE` of the failures
    that anything was said of: most of those are chance, and a test costs as much. Ties are broken
    by family and signature, so the order in which the diagnoses come does not matter.
    """
    groups: dict[tuple[str, Signature], list[Diagnosis]] = {}
    for diagnosis in diagnoses:
        if not diagnosis.abstain:
            groups.setdefault((diagnosis.family, diagnosis.signature), []).append(diagnosis)
    claims = sum(len(group) for group in groups.values())
    candidates = [
        Candidate(family, signature, tuple(sorted(group, key=lambda d: d.canonical_json())))
        for (family, signature), group in groups.items()
        if len(group) >= LEAST_SHARE * claims
    ]
    # Rounded, so that the order of a sum cannot decide between equals.
    candidates.sort(key=lambda c: (-round(c.support * c.confidence, 9), c.family, c.signature))
    return candidates[:limit]


@dataclass(frozen=True)
class ControlPlan:
    """What a control evaluation will run: triples of scenes, one seed for each.

    ``skipped`` counts, by reason, what could not be made.
    """

    candidate: Candidate
    stage: int
    triples: tuple[Triple, ...]
    seeds: tuple[int, ...]
    skipped: Mapping[str, int]


def plan_control(
    candidate: Candidate, context: DiagnosisContext, rng: np.random.Generator, most: int = 32
) -> ControlPlan:
    """Up to ``most`` matched triples from the candidate's failed scenes.

    Raises :class:`ProgramError` where the candidate is another family's or a diagnosis speaks of a
    scene that is not among the context's failures, and
    :class:`~coda_envs.errors.HeldOutError` where a failed scene is kept for testing.
    """
    family = context.family
    if candidate.family != family.name:
        raise ProgramError(
            f"the diagnoses are of the family {candidate.family!r}.", allowed=repr(family.name)
        )
    known = {e.scene.id: e.scene for e in context.failures}
    failed: dict[str, Scene] = {}
    for diagnosis in candidate.diagnoses:
        if diagnosis.scene_id not in known:
            raise ProgramError(
                f"a diagnosis speaks of the scene {diagnosis.scene_id[:12]}, which did not fail.",
                allowed="scenes among the context's failures",
            )
        failed[diagnosis.scene_id] = known[diagnosis.scene_id]
    succeeded = [e.scene for e in context.successes]
    maker = TripleMaker(family, candidate.factor, tuple(failed.values()), succeeded, rng)
    triples = tuple(maker.make(most))
    return ControlPlan(
        candidate=candidate,
        stage=family.template.stage_names.index(candidate.signature[0]),
        triples=triples,
        seeds=tuple(int(s) for s in rng.integers(2**31 - 1, size=len(triples))),
        skipped=dict(sorted(maker.skipped.items())),
    )


@dataclass(frozen=True)
class Pair:
    """One triple's outcome: ``reached`` and ``succeeded`` in the order T, C, P."""

    seed: int
    scenes: tuple[str, str, str]
    control_value: Value
    other_factor: str
    other_value: Value
    reached: tuple[bool, bool, bool]
    succeeded: tuple[bool, bool, bool]


@dataclass(frozen=True)
class ControlResult:
    """What a control evaluation found.

    ``reached`` and ``succeeded``: counts of T, C and P out of ``episodes`` each. ``gain``:
    posterior mean of Δ from T to C, from P to C and from T to P; ``p_small`` and ``p_material``:
    P(Δ > ``rule.SMALL``) and P(Δ > ``rule.MATERIAL``) of the same three. ``steps``: environment
    steps that it cost.
    """

    family: str
    signature: Signature
    support: int
    verdict: Verdict
    episodes: int
    reached: tuple[int, int, int]
    succeeded: tuple[int, int, int]
    gain: tuple[float, float, float]
    p_small: tuple[float, float, float]
    p_material: tuple[float, float, float]
    steps: int
    skipped: Mapping[str, int]
    pairs: tuple[Pair, ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain data, ready for JSON."""
        own = {k: list(v) if isinstance(v, tuple) else v for k, v in vars(self).items()}
        own["skipped"] = dict(self.skipped)
        own["pairs"] = [
            {k: list(v) if isinstance(v, tuple) else v for k, v in vars(p).items()}
            for p in self.pairs
        ]
        return own


def evaluate_controls(
    plans: Sequence[ControlPlan], run: Run, context: DiagnosisContext
) -> list[ControlResult]:
    """Run the plans batch by batch, all undecided ones at once, until each has its verdict.

    One result for each plan, in order. A plan with fewer than ``rule.BATCH`` triples runs nothing
    and is untestable. A plan's verdict does not depend on the others.

    Raises ``ValueError`` where ``run`` returns other episodes than it was asked for.
    """
    open_plans = {
        i: _Progress(plan, context)
        for i, plan in enumerate(plans)
        if len(plan.triples) >= rule.BATCH
    }
    results: dict[int, ControlResult] = {
        i: _Progress(plan, context).result("untestable")
        for i, plan in enumerate(plans)
        if i not in open_plans
    }
    while open_plans:
        batches = {i: progress.next_jobs() for i, progress in open_plans.items()}
        jobs = [job for batch in batches.values() for job in batch]
        episodes = run(jobs)
        if [(e.scene.id, e.seed) for e in episodes] != [(s.id, seed) for s, seed in jobs]:
            raise ValueError("run() must return one episode for each (scene, seed), in order")
        start = 0
        for i, batch in batches.items():
            verdict = open_plans[i].take(episodes[start : start + len(batch)])
            start += len(batch)
            if verdict is not None:
                results[i] = open_plans.pop(i).result(verdict)
    return [results[i] for i in range(len(plans))]


class _Progress:
    """A plan under evaluation."""

    def __init__(self, plan: ControlPlan, context: DiagnosisContext) -> None:
        self._plan = plan
        self._context = context
        self._looks = rule.looks(len(plan.triples)) if plan.triples else ()
        self._pairs: list[Pair] = []
        self._steps = 0

    def next_jobs(self) -> list[tuple[Scene, int]]:
        """Jobs up to the next look: T, C, P of each triple in turn."""
        done = len(self._pairs)
        upto = next(n for n in self._looks if n > done)
        jobs: list[tuple[Scene, int]] = []
        for triple, seed in zip(
            self._plan.triples[done:upto], self._plan.seeds[done:upto], strict=True
        ):
            jobs += [(triple.condition, seed), (triple.control, seed), (triple.other, seed)]
        return jobs

    def take(self, episodes: Sequence[Episode]) -> Verdict | None:
        """Record a batch of outcomes; the verdict, or None to go on."""
        for i in range(0, len(episodes), len(ARMS)):
            self._record(episodes[i], episodes[i + 1], episodes[i + 2])
        last = len(self._pairs) == self._looks[-1]
        index = int(rule.decide(self._counts(), last=last))
        return None if index < 0 else rule.VERDICTS[index]

    def _record(self, t: Episode, c: Episode, p: Episode) -> None:
        triple = self._plan.triples[len(self._pairs)]
        self._steps += t.length + c.length + p.length
        self._pairs.append(
            Pair(
                seed=t.seed,
                scenes=(t.scene.id, c.scene.id, p.scene.id),
                control_value=c.scene.values[self._plan.candidate.factor],
                other_factor=triple.other_factor,
                other_value=p.scene.values[triple.other_factor],
                reached=(self._reached(t), self._reached(c), self._reached(p)),
                succeeded=(bool(t.success), bool(c.success), bool(p.success)),
            )
        )

    def _reached(self, episode: Episode) -> bool:
        return bool(episode.success) or self._context.stages_done(episode) > self._plan.stage

    def _counts(self) -> rule.Counts:
        flags = np.array([p.reached for p in self._pairs], dtype=bool).reshape(-1, len(ARMS))
        return rule.count(flags[:, 0], flags[:, 1], flags[:, 2])

    def result(self, verdict: Verdict) -> ControlResult:
        """What is known so far, under this verdict."""
        counts = self._counts()
        gains = (counts.t_to_c, counts.p_to_c, counts.t_to_p)
        succeeded = np.array([p.succeeded for p in self._pairs], dtype=bool).reshape(-1, len(ARMS))

        def probabilities(margin: float) -> tuple[float, float, float]:
            a, b, c = (float(rule.gain_probability(g, counts.n, margin)) for g in gains)
            return a, b, c

        return ControlResult(
            family=self._plan.candidate.family,
            signature=self._plan.candidate.signature,
            support=self._plan.candidate.support,
            verdict=verdict,
            episodes=counts.n,
            reached=_triple(counts.reached),
            succeeded=_triple(succeeded.sum(0)),
            gain=tuple(  # type: ignore[arg-type]
                float(b - a) / (counts.n + 4 * rule.PRIOR) for b, a in gains
            ),
            p_small=probabilities(rule.SMALL),
            p_material=probabilities(rule.MATERIAL),
            steps=self._steps,
            skipped=self._plan.skipped,
            pairs=tuple(self._pairs),
        )


def _triple(values: Iterable[Any]) -> tuple[int, int, int]:
    t, c, p = (int(v) for v in values)
    return t, c, p


@dataclass(frozen=True)
class RefutedPercent:
    """Refuted diagnoses in percent; None where nothing was there to count (not measured).

    ``of_decided``: of those confirmed or refuted; ``of_tested``: of all that were run.
    """

    confirmed: int
    refuted: int
    tested: int

    @property
    def of_decided(self) -> float | None:
        """100 · refuted / (refuted + confirmed)."""
        decided = self.refuted + self.confirmed
        return 100 * self.refuted / decided if decided else None

    @property
    def of_tested(self) -> float | None:
        """100 · refuted / tested."""
        return 100 * self.refuted / self.tested if self.tested else None


def refuted_percent(results: Iterable[ControlResult]) -> RefutedPercent:
    """*Refuted %* of control evaluations, in both forms. Those that ran no episode are left out."""
    verdicts = [r.verdict for r in results if r.episodes]
    return RefutedPercent(verdicts.count("confirmed"), verdicts.count("refuted"), len(verdicts))
