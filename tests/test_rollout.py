"""Rollouts: the same episodes whatever the number of workers, and the truth about what was run."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from rollout_cases import ENV, jobs, same
from tiny_run import WEAK

from coda_envs.env import ManipulationEnv
from coda_envs.errors import RunError
from coda_envs.family import get_family
from coda_trainer.backbone import TrainableBackbone
from coda_trainer.discovery import make_backbone
from coda_trainer.learning import rollout
from coda_trainer.learning.actor import ActorSpec
from coda_trainer.learning.rollout import Job, RolloutPool

FAMILY = get_family("pick-place")
ROOT = Path(__file__).parents[1]


@pytest.fixture
def small_units(monkeypatch: pytest.MonkeyPatch) -> None:
    """Units of four jobs, so that few episodes make several of them."""
    monkeypatch.setattr(rollout, "UNIT", 4)


@pytest.fixture(scope="module")
def two() -> Iterator[RolloutPool]:
    with RolloutPool(ENV, workers=2) as pool:
        yield pool


@pytest.mark.usefixtures("small_units")
def test_the_number_of_workers_changes_nothing(flow: ActorSpec, two: RolloutPool) -> None:
    with RolloutPool(ENV) as one:
        same(one.run(flow, jobs(10)), two.run(flow, jobs(10)))
        same(one.demonstrate(0.1, jobs(6)), two.demonstrate(0.1, jobs(6)))


def test_what_ran_before_changes_nothing(flow: ActorSpec) -> None:
    with RolloutPool(ENV) as pool:
        first = pool.run(flow, jobs(5))
        pool.demonstrate(0.2, jobs(2, seed=3))
        pool.run(ActorSpec(WEAK), jobs(3, seed=4))
        same(first, pool.run(flow, jobs(5)))


def test_a_policy_in_a_folder_that_was_written_anew_is_read_anew(tmp_path: Path) -> None:
    """Another run in the same place must not act with the last one's policy."""
    weak = make_backbone(WEAK, seed=0)
    assert isinstance(weak, TrainableBackbone)
    wide = Job(FAMILY.sample(np.random.default_rng(0), fixed={"attributes.target.size": 0.024}), 1)
    outcomes = []
    for updates in (0, 1000):
        weak.updates = updates  # type: ignore[attr-defined]
        weak.save(tmp_path)
        with RolloutPool(ENV) as pool:
            outcomes.append(pool.run(ActorSpec(WEAK, folder=tmp_path), [wide])[0].success)
    assert outcomes == [False, True]


@pytest.mark.usefixtures("small_units")
def test_episodes_come_in_the_order_of_the_jobs(flow: ActorSpec, two: RolloutPool) -> None:
    asked = jobs(10)
    counted: list[int] = []
    found = two.run(flow, asked, counted.append)
    assert [(e.scene.id, e.seed, e.source) for e in found] == [
        (j.scene.id, j.seed, j.source) for j in asked
    ]
    assert counted == [4, 8, 10]
    assert two.run(flow, []) == []


@pytest.mark.parametrize("execute", [1, 3, 8])
def test_the_policy_looks_again_after_execute_actions(flow: ActorSpec, execute: int) -> None:
    spec = ActorSpec("flow_chunk", {"execute": execute}, folder=flow.folder)
    with RolloutPool(ENV) as pool:
        for episode in pool.run(spec, jobs(3)):
            assert episode.starts.tolist() == list(range(0, episode.length, execute))


def test_recorded_actions_replay_to_the_same_states_and_outcome(flow: ActorSpec) -> None:
    with RolloutPool(ENV) as pool:
        episodes = pool.run(flow, jobs(3)) + pool.demonstrate(0.1, jobs(4))
    assert {e.success for e in episodes} == {True, False}
    env = ManipulationEnv("pick-place", control_hz=ENV.control_hz)
    for episode in episodes:
        assert np.abs(episode.actions).max() <= 1.0
        obs, info = env.reset(seed=episode.seed, options={"scene": episode.scene})
        for step in range(episode.length + 1):
            assert env.features.astype(np.float32).tobytes() == episode.features[step].tobytes()
            for key, values in episode.observations.items():
                assert np.array_equal(obs[key], values[step])
            if step < episode.length:
                obs, reward, terminated, truncated, info = env.step(episode.actions[step])
                assert float(reward) == episode.rewards[step]
        assert info["success"] == episode.success
        assert (terminated, truncated) == (episode.terminated, episode.truncated)


def test_noise_comes_from_the_job_alone(flow: ActorSpec) -> None:
    """Each episode draws its noise from its own seed; a multiplier of 0 turns it off."""
    (job,) = jobs(1)
    still = Job(job.scene, job.seed, noise_multiplier=0.0)
    plain = ActorSpec("flow_chunk", folder=flow.folder)
    with RolloutPool(ENV) as pool:
        noisy, calm, bare = pool.run(flow, [job]), pool.run(flow, [still]), pool.run(plain, [job])
    assert not np.array_equal(noisy[0].actions, bare[0].actions)
    assert np.array_equal(calm[0].actions, bare[0].actions)


@pytest.mark.usefixtures("small_units")
def test_a_worker_that_is_killed_is_an_error_with_a_remedy(flow: ActorSpec) -> None:
    others = set(multiprocessing.active_children())

    def kill(done: int) -> None:
        victim = min(set(multiprocessing.active_children()) - others, key=lambda p: p.name)
        assert victim.pid is not None
        os.kill(victim.pid, signal.SIGKILL)

    with RolloutPool(ENV, workers=2) as pool:
        with pytest.raises(RunError, match=r"worker died.*Remedy: .*--resume"):
            pool.run(flow, jobs(40), kill)
        # The next call starts new workers.
        assert len(pool.run(flow, jobs(2))) == 2
    assert set(multiprocessing.active_children()) == others


_ORPHANS = """
import os, signal
from rollout_cases import ENV, jobs
from coda_trainer.learning import rollout
from coda_trainer.learning.rollout import RolloutPool

if __name__ == "__main__":
    rollout.UNIT = 1
    with RolloutPool(ENV, workers=2) as pool:
        pool.demonstrate(0.0, jobs(50), lambda done: os.kill(os.getpid(), signal.SIGKILL))
"""


def test_workers_end_when_the_trainer_is_killed(tmp_path: Path) -> None:
    mark = uuid.uuid4().hex
    script = tmp_path / "trainer.py"
    script.write_text(_ORPHANS)
    path = os.pathsep.join((str(ROOT), str(ROOT / "tests")))
    trainer = subprocess.run(
        [sys.executable, str(script)],
        env={**os.environ, "CODA_TEST_MARK": mark, "PYTHONPATH": path},
        timeout=90,
        check=False,
    )
    assert trainer.returncode == -signal.SIGKILL
    deadline = time.monotonic() + 30
    while (left := _marked(mark)) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not left


def _marked(mark: str) -> list[int]:
    """Processes with the mark in their environment."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if mark.encode() in (folder / "environ").read_bytes():
                found.append(int(folder.name))
        except OSError:
            continue
    return found
