"""How fast an environment is here: steps, resets and pictures, against the physics alone.

Short and rough; ``benchmarks/envs.py`` of the project measures the same with more care.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import gymnasium as gym
import mujoco
import numpy as np

from coda_envs import robot
from coda_envs.env import ManipulationEnv
from coda_envs.errors import CodaError
from coda_trainer.machine import describe_machine

#: Steps that are timed, resets to a new scene, and pictures.
STEPS = 400
RESETS = 30
PICTURES = 20
#: Pixels of a picture, in height and width.
SIZE = 128
#: Steps before the clock runs: the first ones compile and fill caches.
_WARM = 20


@dataclass(frozen=True)
class Speed:
    """Figures of one id, medians.

    ``ratio``: a step over the ``mj_step`` calls of as long a time. ``render_ms``: one camera's
    picture, None where nothing can be rendered, which ``render_problem`` explains.
    """

    env_id: str
    control_hz: int
    steps_per_second: float
    ratio: float
    reset_ms: float
    render_ms: float | None
    render_problem: str
    n: dict[str, int]

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return asdict(self)


def measure(env_id: str) -> Speed:
    """Time one id with its expert's actions, in scenes of its own."""
    env = gym.make(env_id)
    inner = env.unwrapped
    assert isinstance(inner, ManipulationEnv)
    try:
        step, ratio = _steps(env, inner)
        resets = [_milliseconds(env.reset) for _ in range(RESETS)]
        render, problem = _render(inner)
    finally:
        env.close()
    return Speed(
        env_id,
        inner.control_hz,
        1.0 / step,
        ratio,
        statistics.median(resets),
        render,
        problem,
        {"steps": STEPS, "resets": RESETS, "pictures": PICTURES if render is not None else 0},
    )


def _steps(env: gym.Env[Any, Any], inner: ManipulationEnv) -> tuple[float, float]:
    """Median seconds of a step, and their ratio to as much physics.

    Before each step its state is copied; afterwards physics alone goes on from the copy with the
    step's controls. Both are timed in turn, so that whatever else the machine does hits both.
    Seconds are this thread's on the processor.
    """
    kind = mujoco.mjtState.mjSTATE_INTEGRATION
    substeps = round(1.0 / inner.control_hz / robot.TIMESTEP)
    whole: list[float] = []
    ratios: list[float] = []
    seed, ended = 0, True
    while len(whole) < STEPS + _WARM:
        if ended:
            env.reset(seed=seed)
            expert, seed = inner.family.expert(seed), seed + 1
            model, alone = inner.model, mujoco.MjData(inner.model)
            state = np.empty(mujoco.mj_stateSize(model, kind))
        action = expert.act(inner)
        mujoco.mj_getState(model, inner.data, state, kind.value)
        mujoco.mj_setState(model, alone, state, kind.value)
        began = time.thread_time()
        _, _, terminated, truncated, _ = env.step(action)
        between = time.thread_time()
        alone.ctrl[:] = inner.data.ctrl
        started = time.thread_time()
        mujoco.mj_step(model, alone, substeps)
        stopped = time.thread_time()
        whole.append(between - began)
        ratios.append((between - began) / (stopped - started))
        ended = terminated or truncated
    return statistics.median(whole[_WARM:]), statistics.median(ratios[_WARM:])


def _render(env: ManipulationEnv) -> tuple[float | None, str]:
    env.reset(seed=0)
    try:
        env.picture("agentview", SIZE, SIZE)
    except CodaError as error:
        return None, error.problem
    times = [_milliseconds(lambda: env.picture("agentview", SIZE, SIZE)) for _ in range(PICTURES)]
    return statistics.median(times), ""


def _milliseconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return 1000.0 * (time.perf_counter() - began)


def circumstances() -> dict[str, Any]:
    """Machine and versions that the figures depend on."""
    return {"machine": describe_machine(), "mujoco": mujoco.__version__}
