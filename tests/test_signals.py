"""The six training signals: what each pays, what it changes, and that a run goes through."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from reach_task import EXECUTE, FEATURES, BiasedBase, rollouts
from tiny_run import metrics, quiet, results, resume, tiny

from coda_envs.errors import ConfigError, PluginError
from coda_envs.family import get_family
from coda_envs.programs.diagnosis import Diagnosis
from coda_envs.text2potential import compile_program
from coda_envs.text2potential.describe import describe_program
from coda_trainer.config import BackboneConfig
from coda_trainer.config_file import load_config
from coda_trainer.learning.chunk_critic import NoPotential, chunk_targets
from coda_trainer.learning.exploration import ExplorationNoise
from coda_trainer.learning.learner import LearnerConfig, ResidualLearner
from coda_trainer.learning.reader import backbone_reader
from coda_trainer.learning.replay import Replay
from coda_trainer.learning.residual import ResidualConfig
from coda_trainer.learning.signals import RULES, dense_reward, signal_program
from coda_trainer.rounds.loop import train
from coda_trainer.rounds.policy import make_policy

FAMILY = get_family("pick-place")
CLAIM = Diagnosis(
    family="pick-place",
    scene_id="s",
    diagnostician="trace",
    episode_seed=0,
    stage=FAMILY.template.stage_names[0],
    failed_predicate="near",
    factor="spatial.target.yaw",
    direction="high",
    role="target",
    confidence=1.0,
)

# What each pays ----------------------------------------------------------------------------------


def test_each_signal_has_the_potential_that_it_is_named_after() -> None:
    compiled = compile_program(FAMILY.template, [CLAIM])
    assert compiled != FAMILY.template
    programs = {signal: signal_program(signal, FAMILY, [CLAIM]) for signal in RULES}
    assert programs == {
        "sparse": None,
        "free-form": None,
        "description": describe_program(FAMILY),
        "unrefined": compiled,
        "frozen": compiled,
        "text2potential": compiled,
    }
    assert signal_program("text2potential", FAMILY, []) == FAMILY.template
    assert [s for s, rule in RULES.items() if rule.refined] == ["frozen", "text2potential"]


def test_the_free_form_reward_is_the_only_one_beside_a_potential_and_says_what_it_is() -> None:
    rewards = {signal: dense_reward(signal, FAMILY, 0.99) for signal in RULES}
    (signal,) = (s for s, reward in rewards.items() if reward is not None)
    assert signal == "free-form"
    assert rewards[signal].policy_invariant is False  # type: ignore[union-attr]
    assert "not policy-invariant" in RULES["free-form"].label


def test_the_old_name_of_the_shaped_signal_says_the_new_one(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text("signal: shaped\n")
    with pytest.raises(ConfigError, match=r"line 1: signal is 'shaped'.*to text2potential"):
        load_config(tmp_path / "c.yaml")


def test_a_policy_with_one_chunk_cannot_be_picked_from() -> None:
    with pytest.raises(PluginError, match=r"nothing to pick among.*multi_sample"):
        make_policy(BackboneConfig(name="regression_chunk"), 0, learns=True, frozen=True)
    make_policy(BackboneConfig(name="regression_chunk"), 0, learns=True).close()


# The dense reward in the targets -----------------------------------------------------------------


class Nearness:
    """A dense reward of the reach task: nearer is paid more."""

    scale = 0.02

    def __call__(self, features: np.ndarray) -> np.ndarray:
        gap = np.hypot(*(features[:, :2] - features[:, 2:]).T)
        return np.asarray(self.scale * np.clip(1.0 - gap, 0.0, 1.0))


@pytest.fixture
def replay() -> Replay:
    base = BiasedBase()
    found = Replay(backbone_reader(base, EXECUTE, seed=0), EXECUTE)
    noise = ExplorationNoise(per_dimension=(1.0, 1.0))
    found.add(rollouts(lambda obs: base.sample(obs)[:, 0], range(60), noise))
    return found


def test_a_dense_reward_is_paid_for_the_states_arrived_in_and_never_stored(replay: Replay) -> None:
    options: dict[str, Any] = {"discount": 0.9, "demo_share": 0.0}
    plain = replay.draw(np.random.default_rng(0), 200, **options)
    paid = replay.draw(np.random.default_rng(0), 200, **options, dense=Nearness())
    assert not plain.dense.any()
    for name in ("reward", "observed", "chunk", "features"):
        assert np.array_equal(getattr(plain, name), getattr(paid, name))
    # By hand, episode by episode: Σ γ^i r(s_{t+i+1}) over the k steps that ran.
    columns, dense = replay.rollouts.columns, Nearness()
    sums = {}
    for record in replay.rollouts.records:
        rows = columns["features"][record.start : record.start + record.length + 1]
        reward = dense(rows)
        for t in range(record.length):
            k = min(EXECUTE, record.length - t)
            total = sum(0.9**i * reward[t + i + 1] for i in range(k))
            sums[rows[t].tobytes(), rows[t + k].tobytes()] = total
    ends = zip(paid.features, paid.next_features, strict=True)
    by_hand = [sums[one.tobytes(), other.tobytes()] for one, other in ends]
    assert paid.dense == pytest.approx(by_hand)
    assert (paid.dense > 0).any()


def test_targets_with_a_dense_reward_have_the_room_that_it_needs() -> None:
    one = np.ones(3)
    common: dict[str, Any] = {
        "steps": np.full(3, 4),
        "terminated": np.array([True, False, False]),
        "phi": np.zeros(3),
        "next_phi": np.zeros(3),
        "discount": 0.9,
    }
    found = chunk_targets(
        reward=np.array([1.0, 0.0, 0.0]),
        next_value=np.array([5.0, 1.5, 9.0]),
        dense=0.05 * one,
        dense_bound=1.0,
        **common,
    )
    # A success may be worth more than 1, and no value more than success and all dense reward.
    assert found == pytest.approx([1.05, 0.05 + 0.9**4 * 1.5, 2.0])
    # Without one the bounds are those of the sparse reward, as before.
    sparse = chunk_targets(reward=np.array([1.0, 0, 0]), next_value=5 * one, **common)
    assert sparse == pytest.approx([1.0, 1.0, 1.0])


def test_a_learner_that_is_paid_densely_values_more_than_success(replay: Replay) -> None:
    def value(dense: Nearness | None) -> float:
        learner = ResidualLearner(
            LearnerConfig(
                residual=ResidualConfig(execute=EXECUTE, scale=(0.2, 0.2), width=32),
                width=32,
                demo_share=0.0,
            ),
            features=FEATURES,
            encoding=FEATURES,
            potential=NoPotential(),
            seed=0,
            dense=dense,
        )
        return learner.warm_up(replay, 60)["value"]

    torch.set_num_threads(1)
    assert value(Nearness()) > value(None) + 0.05


# Runs --------------------------------------------------------------------------------------------

#: As small as a flow policy's run can be that still has every phase.
FLOW: dict[str, Any] = {
    "strategy": "uniform",
    "backbone": {"name": "flow_chunk", "options": {"width": 16}},
    "sft": {"updates": 20},
    "evaluation": {"suites": ["ood-dev"], "episodes": 2},
}


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize("signal", RULES)
def test_every_signal_trains_and_resumes(tmp_path: Path, signal: str) -> None:
    run = tmp_path / "run"
    train(tiny(**FLOW, signal=signal, rounds=2), run, reporter=quiet())
    found, rule = results(run), RULES[signal]  # type: ignore[index]
    assert found["rounds"] == 2
    events = [r["event"] for r in metrics(run)]
    assert ("refinement" in events) == rule.refined
    assert ("selection" in events) != rule.frozen
    # The second round starts from the checkpoint of the first, potential and all.
    for file in (run / "checkpoints" / "round_002").glob("complete.json"):
        file.unlink()
    before = metrics(run)
    assert "Going on after round 1" in resume(run)
    assert metrics(run) == before
    assert results(run) == found


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_frozen_actor_keeps_its_weights_and_its_choice_is_a_figure_of_its_own(
    tmp_path: Path,
) -> None:
    run = tmp_path / "run"
    train(tiny(**FLOW, signal="frozen"), run, reporter=quiet())
    first, last = (
        torch.load(run / f"checkpoints/round_{n:03d}/backbone/model.pt", weights_only=True)
        for n in (0, 1)
    )
    assert str(first) == str(last)
    found = results(run)
    (headline,) = found["suites"]
    assert [r["round"] for r in headline["rounds"]] == [0, 1]
    assert headline["gain"][0] == 0.0
    (choice,) = found["critic_at_test_time"]
    assert (choice["suite"], choice["n"], choice["candidates"]) == ("ood-dev", 2, 8)
    assert "critic at test time" in (run / "report.txt").read_text()
    # The critic learns, nobody else.
    blocks = [r for r in metrics(run) if r["event"] == "block"]
    assert {r["actor_updates"] for r in blocks} == {0.0}
    assert all(r["critic_loss"] > 0 for r in blocks)
