"""Episodes whose outcome is decided by the test: scenes are real, states are written by hand."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from coda_envs.scene import Scene
from coda_trainer.diagnosis.base import DiagnosisContext
from coda_trainer.episode import Episode
from tests.program_cases import FAMILY, STAGES, features

#: A state in which the gate of each stage is the latest that holds.
_HELD = {"target__left": 1.0, "target__right": 1.0}
_OVER = {"target__y": 0.2, "gripper__y": 0.2}
STATES = (
    features(),
    features(gripper__z=0.02),
    features(gripper__z=0.02, **_HELD),
    features(target__z=0.1, gripper__z=0.1, **_HELD),
    features(target__z=0.1, gripper__z=0.1, **_HELD, **_OVER),
    features(target__z=0.03, target__supported=1.0, **_OVER),
)


def episode(scene: Scene, done: int, seed: int = 0, source: str = "wide") -> Episode:
    """An episode in which the first ``done`` stages get done; it succeeds if all do."""
    rows = np.stack([*STATES[: done + 1], STATES[done], STATES[done]]).astype(np.float32)
    steps = len(rows) - 1
    success = done == len(STAGES)
    return Episode(
        scene=scene,
        seed=seed,
        observations={},
        actions=np.zeros((steps, 7), dtype=np.float32),
        features=rows,
        rewards=np.eye(1, steps, steps - 1)[0] * success,
        starts=np.array([0]),
        terminated=success,
        truncated=not success,
        success=success,
        source=source,
    )


def number(scene: Scene, path: str) -> float:
    """The value of a factor that is a number."""
    return float(scene.values[path])


def scenes(count: int, seed: int = 0) -> list[Scene]:
    """Fresh scenes over the whole generator range."""
    rng = np.random.default_rng(seed)
    return [FAMILY.sample(rng, "generator") for _ in range(count)]


def collected(
    population: Sequence[Scene],
    done: Callable[[Scene, np.random.Generator], int],
    seed: int = 0,
) -> DiagnosisContext:
    """A round's episodes, one a scene; ``done`` says how many stages each gets done."""
    rng = np.random.default_rng(seed)
    episodes = [episode(s, done(s, rng), seed=i) for i, s in enumerate(population)]
    return DiagnosisContext(
        family=FAMILY,
        successes=tuple(e for e in episodes if e.success),
        failures=tuple(e for e in episodes if not e.success),
        seed=seed,
    )


def fails_at(
    stage: str, where: Callable[[Scene], bool], chance: float = 0.85, otherwise: float = 0.15
) -> Callable[[Scene, np.random.Generator], int]:
    """Failure at ``stage`` with ``chance`` in scenes ``where`` the condition holds."""
    index = STAGES.index(stage)

    def done(scene: Scene, rng: np.random.Generator) -> int:
        fails = rng.random() < (chance if where(scene) else otherwise)
        return index if fails else len(STAGES)

    return done
