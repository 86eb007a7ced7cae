"""The experts' episodes as state features, of all four families."""

from __future__ import annotations

import functools
import itertools

import numpy as np
from env_cases import solved

from coda_envs.env import ManipulationEnv
from coda_envs.family import get_family
from coda_envs.programs.diagnosis import Diagnosis
from coda_envs.programs.potential import PotentialProgram
from coda_envs.scene import Scene
from coda_envs.text2potential import compile_program

FAMILIES = ("pick-place", "articulated", "put-inside", "stack-insert")


def play(env: ManipulationEnv, scene: Scene, seed: int) -> tuple[bool, np.ndarray]:
    """Whether the expert succeeds, and the features ``[T + 1, F]`` of its episode."""
    env.reset(seed=seed, options={"scene": scene})
    expert, rows, over = env.family.expert(seed), [env.features.copy()], False
    while not over:
        _, _, terminated, truncated, info = env.step(expert.act(env))
        rows.append(env.features.copy())
        over = terminated or truncated
    assert info["success"] == solved(env)
    return bool(info["success"]), np.array(rows)


@functools.cache
def successes(
    family: str, count: int, control_hz: int, region: str = "generator", seed: int = 0
) -> list[np.ndarray]:
    """Features of the expert's successes in ``count`` fresh scenes of the generator range."""
    env = ManipulationEnv(family, control_hz=control_hz)
    rng = np.random.default_rng(seed)
    scenes = [env.family.sample(rng, "generator", region=region) for _ in range(count)]
    runs = [play(env, scene, number) for number, scene in enumerate(scenes)]
    kept = [rows for success, rows in runs if success]
    assert len(kept) >= 0.85 * count, "the expert fails too often for its successes to mean much"
    return kept


@functools.cache
def compiled_programs(family: str) -> dict[str, PotentialProgram]:
    """Programs compiled for single claims: each stage with each factor, those that differ."""
    at = get_family(family)
    found: dict[str, tuple[str, PotentialProgram]] = {}
    for stage, factor in itertools.product(at.template.stage_names, at.space.by_path):
        claim = Diagnosis(
            diagnostician="test",
            family=family,
            scene_id="0",
            episode_seed=0,
            stage=stage,
            failed_predicate="any",
            factor=factor,
            direction="high",
        )
        program = compile_program(at.template, [claim])
        # The note names the claim; the stages make the potential.
        found.setdefault(str(program.to_dict()["stages"]), (f"{stage}: {factor}", program))
    return dict(found.values())
