"""Scenes, states, diagnoses and programs that several test files build on."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from coda_envs.engine.apply import AppliedEdit, apply_program
from coda_envs.factor import ContinuousFactor, DiscreteFactor, Value
from coda_envs.family import get_family
from coda_envs.programs import Diagnosis, GenerationProgram
from coda_envs.scene import Scene

FAMILY = get_family("pick-place")
SPACE = FAMILY.space
SCHEMA = FAMILY.schema
TEMPLATE = FAMILY.template
STAGES = TEMPLATE.stage_names
FACTORS = tuple(SPACE.by_path)
NUMBERS = tuple(f for f in FACTORS if isinstance(SPACE[f], ContinuousFactor))
CHOICES = tuple(f for f in FACTORS if isinstance(SPACE[f], DiscreteFactor))


@functools.cache
def scene(seed: int = 0, **fixed: Value) -> Scene:
    """A laid-out scene, with factors fixed by name (``spatial__target__x``)."""
    chosen = {k.replace("__", "."): v for k, v in fixed.items()}
    return FAMILY.sample(np.random.default_rng(seed), "generator", fixed=chosen)


def program(*edits: dict[str, Any], **more: Any) -> GenerationProgram:
    """A generation program of these edits."""
    data = {"family": "pick-place", "roles": [], "edits": list(edits), **more}
    return GenerationProgram.parse(data)


def applied(
    omega: GenerationProgram, to: Scene, seed: int = 0, magnitude: float = 1.0
) -> AppliedEdit:
    omega = omega.model_copy(update={"magnitude": magnitude})
    outcome = apply_program(omega, to, np.random.default_rng(seed))
    assert isinstance(outcome, AppliedEdit), outcome
    return outcome


def diagnosis(
    factor: str, direction: str = "high", stage: str = "grasp", **more: object
) -> Diagnosis:
    """A claim that names these, as a diagnostician would write it."""
    data = {
        "diagnostician": "test",
        "family": "pick-place",
        "scene_id": "0",
        "episode_seed": 0,
        "stage": stage,
        "failed_predicate": "grasped",
        "factor": factor,
        "direction": direction,
    }
    return Diagnosis.model_validate(data | more)


def features(**columns: float) -> np.ndarray:
    """One state ``[F]``: a 4 cm cube beside a plate at rest, with the columns given by name
    (``target__x`` for ``target.x``)."""
    row = np.zeros(SCHEMA.size)
    base = {
        "gripper.z": 0.3,
        "target.present": 1.0,
        "target.z": 0.02,
        "target.upright": 1.0,
        "target.half_x": 0.02,
        "target.half_y": 0.02,
        "target.half_z": 0.02,
        "target.yaw_period": np.pi / 2,
        "target.table": 1.0,
        "receptacle.present": 1.0,
        "receptacle.y": 0.2,
        "receptacle.z": 0.005,
        "receptacle.inner": 0.08,
        "receptacle.surface_z": 0.01,
    }
    for name, value in (base | {k.replace("__", "."): v for k, v in columns.items()}).items():
        row[SCHEMA.index(name)] = value
    return row
