"""Pushes: demonstrations that start with the hand somewhere else.

The expert's hand always comes from the same place, so that a policy cloned from it knows the ways
and turns of the scenes that were shown, and no larger ones. A hand that was pushed away before the
demonstration begins shows them without a wider scene: the policy reads where things are, and how
they are turned, relative to the hand.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from coda_envs.env import ManipulationEnv
from coda_trainer.learning.jobs import Job

#: Most control steps of a push.
LONGEST = 8
#: Bounds of its action: x, y and z (more up than down, where the table is), and the turn (yaw).
LOW = (-1.0, -1.0, -0.3, 0.0, 0.0, -1.0, -1.0)
HIGH = (1.0, 1.0, 0.6, 0.0, 0.0, 1.0, -1.0)


def pushed(env: ManipulationEnv, job: Job, share: float) -> Job:
    """The job, with probability ``share`` from where a push of the open hand leaves it.

    A push is one action, uniform between :data:`LOW` and :data:`HIGH`, for 1 to :data:`LONGEST`
    steps. All is drawn from the job's seed. A job that has a start already keeps it.
    """
    rng = np.random.default_rng((job.seed, 2))
    if job.start is not None or rng.random() >= share:
        return job
    env.reset(seed=job.seed, options={"scene": job.scene})
    action = rng.uniform(LOW, HIGH)
    for _ in range(int(rng.integers(1, LONGEST + 1))):
        _, _, terminated, truncated, _ = env.step(action)
        if terminated or truncated:
            return job
    return replace(job, start=env.start_state())
