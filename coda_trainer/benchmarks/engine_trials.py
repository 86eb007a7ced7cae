"""A trial of the engine: scenes at a policy's difficulties, and scenes drawn widely beside them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from coda_envs.engine.coverage import coverage
from coda_envs.engine.proposals import explore, generate
from coda_envs.engine.trace import Generated, Trace
from coda_envs.errors import ProgramError
from coda_envs.family import TaskFamily, get_family
from coda_envs.scene import Scene
from coda_trainer.backbone import TrainableBackbone
from coda_trainer.compile.generation import compile_candidate
from coda_trainer.diagnosis.base import make_diagnostician
from coda_trainer.diagnosis.examine import Difficulty, Examination, examine
from coda_trainer.discovery import make_backbone
from coda_trainer.learning.actor import ActorSpec
from coda_trainer.learning.behaviour_cloning import chunk_arrays, train_backbone
from coda_trainer.learning.demonstrations import collect_demonstrations
from coda_trainer.learning.rollout import Job, RolloutPool
from coda_trainer.rounds.targeting import BAND, NOISE, WIDE_BAND, in_band

BACKBONE = "flow_chunk"


@dataclass(frozen=True)
class EngineSize:
    """Of the policy, the examination, and the ``variants`` of each arm, run ``rollouts`` times."""

    demonstrations: int
    updates: int
    episodes: int
    claims: int
    per_arm: int
    variants: int
    rollouts: int


def run_engine_trial(
    pool: RolloutPool, family_name: str, seed: int, size: EngineSize, folder: Path
) -> dict[str, Any]:
    """One trial as plain data: figures of three arms at one policy.

    ``uniform``: scenes of the whole generator range. ``uncontrolled``: by the programs of all
    claims. ``coda``: by those of the claims that control evaluations confirmed. ``folder``: where
    the policy's weights may lie while the trial runs.
    """
    family, rng = get_family(family_name), np.random.default_rng((seed, 5))
    actor = _policy(pool, family, size, seed, folder)
    found = examine(
        pool,
        actor,
        family,
        make_diagnostician("trace"),
        episodes=size.episodes,
        claims=size.claims,
        per_arm=size.per_arm,
        seed=seed,
    )
    confirmed = [d for d in found.difficulties if d.result.verdict == "confirmed"]
    tested = [d for d in found.difficulties if d.result.episodes]
    made = {
        "uniform": generate(family, size.variants, rng, source="uniform"),
        "uncontrolled": _aimed(family, found.difficulties, found, size.variants, rng),
        "coda": _aimed(family, confirmed, found, size.variants, rng),
    }
    least = min((len(g.scenes) for g in made.values() if g.scenes), default=0)
    return {
        "family": family_name,
        "seed": seed,
        "policy": {k: found.to_dict()[k] for k in ("episodes", "successes")},
        "tested": len(tested),
        "verdicts": [d.result.verdict for d in tested],
        "compared": least,
        "arms": {
            name: _arm(pool, actor, family, generated, size.rollouts, least, rng)
            for name, generated in made.items()
        },
    }


def _policy(
    pool: RolloutPool, family: TaskFamily, size: EngineSize, seed: int, folder: Path
) -> ActorSpec:
    """A policy cloned from demonstrations of the seed range."""
    rng, policy = np.random.default_rng((seed, 6)), make_backbone(BACKBONE, seed=seed)
    assert isinstance(policy, TrainableBackbone)
    shown = collect_demonstrations(pool, family, size.demonstrations, 0.05, rng, pushes=0.7)
    chunks = chunk_arrays(shown, policy.spec.horizon)
    train_backbone(policy, chunks, updates=size.updates, batch_size=256, rng=rng)
    folder.mkdir(parents=True, exist_ok=True)
    policy.save(folder)
    return ActorSpec(BACKBONE, seed=seed, folder=folder)


def _aimed(
    family: TaskFamily,
    difficulties: Sequence[Difficulty],
    found: Examination,
    variants: int,
    rng: np.random.Generator,
) -> Generated:
    """``variants`` scenes dealt out over the difficulties' programs; none without a program."""
    programs = []
    for difficulty in difficulties:
        try:
            programs.append(compile_candidate(difficulty.candidate, found.context))
        except ProgramError:
            continue
    scenes: list[Scene] = []
    traces: list[Trace] = []
    for number, program in enumerate(programs):
        share = variants // len(programs) + (number < variants % len(programs))
        made = generate(
            family,
            share,
            rng,
            source=program.hash,
            program=program,
            base=lambda r: explore(family, r, most=2),
        )
        scenes += made.scenes
        traces += made.traces
    return Generated(tuple(scenes), tuple(traces))


def _arm(
    pool: RolloutPool,
    actor: ActorSpec,
    family: TaskFamily,
    generated: Generated,
    rollouts: int,
    compared: int,
    rng: np.random.Generator,
) -> dict[str, Any] | None:
    """Figures of an arm's scenes; None where it has none."""
    scenes = generated.scenes
    if not scenes:
        return None
    jobs = [Job(s, int(rng.integers(2**31)), "variant") for s in scenes for _ in range(rollouts)]
    exploring = replace(actor, noise=NOISE)
    won = np.array([e.success for e in pool.run(exploring, jobs)]).reshape(len(scenes), rollouts)
    successes = won.sum(1)
    spread = coverage(scenes, family.space, rng, n=min(compared, len(scenes)))
    return {
        "scenes": len(scenes),
        "proposals": len(generated.traces),
        "first_try": sum(t.first_try for t in generated.traces),
        "edit_survival": generated.edit_survival,
        "coverage": {"joint": spread.joint, "mean": spread.mean, "n": spread.n},
        "successes": successes.tolist(),
        "rollouts": rollouts,
        "in_band": in_band(successes, rollouts, BAND),
        "in_wide_band": in_band(successes, rollouts, WIDE_BAND),
    }
