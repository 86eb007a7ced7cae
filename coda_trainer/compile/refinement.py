"""Refinement of a potential by what episodes show: one change, kept only if it holds up.

The episodes are split in halves. On one, the *fit* half, every candidate change is measured by the
AUC of Φ against the outcome (:mod:`coda_trainer.compile.outcome`); the best is then measured once
on the other, the *held-out* half. It is kept where the AUC rises there by more than noise: where
the 5% quantile of the rise, over bootstrap resamples of the held-out successes and failures, is
above 0.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from coda_envs.features import FeatureSchema
from coda_envs.programs.potential import PotentialProgram, Progress, Term, progress_text
from coda_envs.text2potential.evaluate import compile_potential
from coda_envs.text2potential.terms import REGISTRY
from coda_trainer.compile.outcome import (
    Played,
    StageEvidence,
    outcomes,
    scores,
    span,
    stage_evidence,
    wins,
)

#: Least successes and failures in each half.
LEAST = 5
RESAMPLES = 400
#: Quantile of the resampled rise that has to be above 0.
NOISE = 0.05
FACTORS = (0.5, 2.0)
MAX_WEIGHT = 100.0


@dataclass(frozen=True)
class Refinement:
    """What a refinement found.

    ``program``: the changed program, or the given one. ``parent``: version (hash) of the given
    one. ``change``: the change in words, empty where none was kept; ``reason``: why. ``fit`` and
    ``held_out``: AUC (before, after) of the best change; ``least_rise``: the quantile of the
    held-out rise that decided; all None where nothing was measured. ``tried``: every candidate with
    its AUC on the fit half. ``stages``: what the fit half did in each stage. ``successes``,
    ``failures``: of all episodes.
    """

    program: PotentialProgram
    parent: str
    change: str
    reason: str
    successes: int
    failures: int
    fit: tuple[float, float] | None = None
    held_out: tuple[float, float] | None = None
    least_rise: float | None = None
    stages: tuple[StageEvidence, ...] = ()
    tried: tuple[tuple[str, float], ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Provenance as plain data, ready for JSON; the program by its version."""
        told = {k: v for k, v in vars(self).items() if k not in ("program", "stages", "tried")}
        return {
            **told,
            "version": self.program.hash,
            "stages": [stage.to_dict() for stage in self.stages],
            "tried": [{"change": change, "auc": auc} for change, auc in self.tried],
        }


def refine(
    program: PotentialProgram, schema: FeatureSchema, episodes: Sequence[Played], seed: int
) -> Refinement:
    """The program with the one change that the episodes speak for, if there is one.

    Deterministic in the episodes' order and the seed. Raises :class:`ProgramError` where the
    program does not fit the schema.
    """
    rng = np.random.default_rng(seed)
    potential = compile_potential(program, schema)
    success = outcomes(episodes)
    found = Refinement(
        program,
        parent=program.hash,
        change="",
        reason="",
        successes=int(success.sum()),
        failures=int((~success).sum()),
    )
    least = min(found.successes, found.failures)
    if least < 2 * LEAST:
        reason = f"only {least} episodes of one outcome, {2 * LEAST} needed"
        return replace(found, reason=reason)
    fit, held_out = _halves(success, rng)
    fitted = [episodes[i] for i in fit]
    states = span(fitted)

    def won(of: PotentialProgram, half: np.ndarray) -> np.ndarray:
        """Wins of each success over each failure of a half."""
        chosen = [episodes[i] for i in half]
        return wins(scores(compile_potential(of, schema), chosen, states), success[half])

    stages = stage_evidence(potential, fitted)
    before = float(won(program, fit).mean())
    candidates = list(_candidates(program, stages))
    tried = tuple((change, float(won(new, fit).mean())) for change, new in candidates)
    best = max(range(len(tried)), key=lambda i: tried[i][1])
    (change, after), new = tried[best], candidates[best][1]
    found = replace(found, stages=stages, tried=tried, fit=(before, after))
    if after <= before:
        return replace(found, reason="no change raises the AUC on the fit half")
    old_wins, new_wins = won(program, held_out), won(new, held_out)
    rise = _least_rise(new_wins - old_wins, rng)
    measured = (float(old_wins.mean()), float(new_wins.mean()))
    found = replace(found, held_out=measured, least_rise=rise)
    if rise <= 0.0:
        reason = f"{change}: the AUC does not rise beyond noise on the held-out half"
        return replace(found, reason=reason)
    note = f"Refined from {found.parent}: {change}."
    return replace(
        found,
        program=new.model_copy(update={"note": note}),
        change=change,
        reason="the AUC rises on the held-out half",
    )


def _halves(success: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Indices of the fit and of the held-out half, each with half of either outcome."""
    halves: tuple[list[int], list[int]] = ([], [])
    for outcome in (True, False):
        shuffled = rng.permutation(np.flatnonzero(success == outcome))
        for half, part in zip(halves, np.array_split(shuffled, 2), strict=True):
            half.extend(part.tolist())
    return np.sort(halves[0]), np.sort(halves[1])


def _least_rise(rise: np.ndarray, rng: np.random.Generator) -> float:
    """The ``NOISE`` quantile of the mean of ``rise [S, F]`` with both its sides resampled."""
    s, f = rise.shape
    rows = rng.integers(s, size=(RESAMPLES, s))
    columns = rng.integers(f, size=(RESAMPLES, f))
    means = [rise[np.ix_(one, other)].mean() for one, other in zip(rows, columns, strict=True)]
    return float(np.quantile(means, NOISE))


# Candidates --------------------------------------------------------------------------------------


def _candidates(
    program: PotentialProgram, evidence: Sequence[StageEvidence]
) -> Iterator[tuple[str, PotentialProgram]]:
    """Every single change, in words and as a program, in a fixed order.

    In each stage that an episode spent time in: a term's scale halved or doubled inside its range,
    a part of a combination dropped, the stage's weight halved or doubled. And all weights by reach
    rate: a stage weighs up to twice as much, the more of those who come to it fail in it.
    """
    for index, (stage, seen) in enumerate(zip(program.stages, evidence, strict=True)):
        if not seen.dwell_success and not seen.dwell_failure:
            continue
        for words, progress in _changed(stage.progress):
            yield f"{stage.name}: {words}", _with(program, index, progress=progress.to_dict())
        for factor in FACTORS:
            weight = min(stage.weight * factor, MAX_WEIGHT)
            yield f"{stage.name}: weight × {factor:g}", _with(program, index, weight=weight)
    weights = [
        min(stage.weight * (2.0 - (1.0 if seen.passed is None else seen.passed)), MAX_WEIGHT)
        for stage, seen in zip(program.stages, evidence, strict=True)
    ]
    changed = program.to_dict()
    for stage, weight in zip(changed["stages"], weights, strict=True):
        stage["weight"] = weight
    yield "weights by reach rate", PotentialProgram.parse(changed, "reweighted program")


def _with(program: PotentialProgram, index: int, **change: Any) -> PotentialProgram:
    data = program.to_dict()
    data["stages"][index] |= change
    return PotentialProgram.parse(data, "refined program")


def _changed(node: Progress) -> Iterator[tuple[str, Progress]]:
    """Every progress tree that differs from this one in a scale or a part, in words and whole."""
    if isinstance(node, Term):
        spec = REGISTRY[node.term]
        scale = spec.default_scale if node.scale is None else node.scale
        for factor in FACTORS:
            if scale is not None and spec.scales[0] <= scale * factor <= spec.scales[1]:
                changed = node.model_copy(update={"scale": scale * factor})
                yield f"scale of {progress_text(node)} × {factor:g}", changed
        return
    for i, part in enumerate(node.of):
        before, after = node.of[:i], node.of[i + 1 :]
        for words, new in _changed(part):
            yield words, node.model_copy(update={"of": (*before, new, *after)})
        if before or after:
            yield f"without {progress_text(part)}", node.model_copy(update={"of": before + after})
