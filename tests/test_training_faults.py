"""Training that breaks down: a clear message, and a checkpoint that goes on being of use.

The faults are put into the real loop: nothing in it gives a value that is not finite by itself.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny_run import quiet, results, resume, tiny

from coda_envs.engine.trace import Generated
from coda_envs.errors import LearningError
from coda_trainer.episode import Episode
from coda_trainer.evaluation import evaluate_run
from coda_trainer.learning.learner import LearnerConfig
from coda_trainer.learning.rollout import RolloutPool
from coda_trainer.rounds import learning
from coda_trainer.rounds.loop import train
from coda_trainer.strategies import base

Damage = Callable[[pytest.MonkeyPatch], None]


def nan_reward(patch: pytest.MonkeyPatch) -> None:
    """The last reward of each episode that is collected to learn from."""
    run = RolloutPool.run

    def damaged(
        self: RolloutPool, actor: Any, jobs: Any, *rest: Any, **named: Any
    ) -> list[Episode]:
        episodes = run(self, actor, jobs, *rest, **named)
        rewards = [np.append(e.rewards[:-1], np.nan).astype(np.float32) for e in episodes]
        return [
            replace(e, rewards=r) if e.source == "wide" else e
            for e, r in zip(episodes, rewards, strict=True)
        ]

    patch.setattr(RolloutPool, "run", damaged)


def diverging_critic(patch: pytest.MonkeyPatch) -> None:
    """Steps that throw the weights out of all range."""
    patch.setattr(learning, "LearnerConfig", partial(LearnerConfig, critic_rate=1e36))


def empty_replay(patch: pytest.MonkeyPatch) -> None:
    """No proposal is accepted, so that there is no scene to collect an episode in."""
    patch.setattr(base, "generate", lambda *_, **__: Generated((), ()))


FAULTS: dict[str, tuple[Damage, str]] = {
    "a NaN in a reward": (nan_reward, r"rewards of the episode with scene .* is not finite"),
    "a diverging critic": (diverging_critic, r"critic loss is (inf|nan) at update \d+.*checkpoint"),
    "an empty replay": (empty_replay, r"the replay holds no rollouts.*Remedy"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_names_itself_and_leaves_a_usable_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    damage, words = FAULTS[fault]
    run = tmp_path / "run"
    config = tiny(strategy="uniform", evaluation={"suites": ["seed"], "episodes": 2})
    with monkeypatch.context() as patch:
        damage(patch)
        with pytest.raises(LearningError, match=words) as caught:
            train(config, run, reporter=quiet())
    assert caught.value.exit_code == 7
    # What was trained before is there to be measured, and to go on from.
    assert evaluate_run(run, suite="seed", episodes=2)["round"] == 0
    assert "Going on after round 0" in resume(run)
    assert results(run)["rounds"] == 1
