"""Evaluation: fixed episodes, n and an interval on every rate, gains paired by episode."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from command_line import process, strict
from tiny_run import WEAK, quiet, tiny

from coda_envs.errors import RunError, SceneError
from coda_envs.family import get_family
from coda_envs.scene_source import load_suite
from coda_trainer.evaluation import (
    SEEDS,
    SuiteResult,
    evaluate,
    evaluate_run,
    paired_gain,
    scene_jobs,
    suite_jobs,
)
from coda_trainer.learning.actor import ActorSpec
from coda_trainer.learning.rollout import EnvSpec, RolloutPool
from coda_trainer.rounds.loop import train

FAMILY = get_family("pick-place")


def test_a_suite_is_run_in_order_and_starts_over() -> None:
    suite = load_suite(FAMILY, "ood-dev")
    jobs = suite_jobs(FAMILY, "ood-dev", len(suite) + 3)
    assert [j.scene.id for j in jobs[: len(suite)]] == [s.id for s in suite]
    assert [j.scene.id for j in jobs[len(suite) :]] == [s.id for s in suite[:3]]
    # The second pass is not the first one again.
    assert len({(j.scene.id, j.seed) for j in jobs}) == len(jobs)
    with pytest.raises(SceneError, match="ood-dev"):
        suite_jobs(FAMILY, "ood-devv", 3)


def test_evaluation_never_uses_a_seed_that_training_can_draw() -> None:
    # Training draws with rng.integers(2**31).
    assert min(j.seed for j in suite_jobs(FAMILY, "seed", 500)) >= SEEDS >= 2**31


def test_start_states_do_not_depend_on_how_many_episodes_are_run() -> None:
    """So 4 and 200 episodes, or two policies, are compared on the same starts."""
    jobs = suite_jobs(FAMILY, "ood-dev", 8)
    with RolloutPool(EnvSpec()) as pool:
        _, few = evaluate(pool, ActorSpec(WEAK), jobs[:3], "pick-place", "ood-dev")
        _, many = evaluate(pool, ActorSpec(WEAK), jobs, "pick-place", "ood-dev")
        _, other = evaluate(pool, ActorSpec(WEAK, {"lessons": 0}), jobs, "pick-place", "ood-dev")
    for a, b, c in zip(few, many, other, strict=False):
        for key, values in a.observations.items():
            assert values[0].tobytes() == b.observations[key][0].tobytes()
            assert values[0].tobytes() == c.observations[key][0].tobytes()
        assert a.features[0].tobytes() == b.features[0].tobytes() == c.features[0].tobytes()
        # This policy decides row by row, so that whole episodes agree.
        assert a.actions.tobytes() == b.actions.tobytes()


def test_a_rate_comes_with_n_and_wilsons_interval() -> None:
    result = SuiteResult("pick-place", "seed", (True,) * 3 + (False,) * 7)
    data = result.to_dict()
    assert (data["n"], data["successes"], data["rate"]) == (10, 3, 0.3)
    # Newcombe (1998), and R's prop.test(3, 10, correct = FALSE).
    assert data["interval95"] == pytest.approx((0.1078, 0.6032), abs=1e-4)
    assert data["outcomes"] == [1] * 3 + [0] * 7


def test_nothing_run_is_not_measured() -> None:
    data = SuiteResult("pick-place", "seed", ()).to_dict()
    assert data["rate"] is None
    assert data["interval95"] is None


def test_the_gain_is_paired_by_episode() -> None:
    before = [0] * 10 + [1] * 10
    mean, low, high = paired_gain(before, [1] * 6 + [0] * 4 + [0] + [1] * 9)
    assert mean == pytest.approx(0.25)
    # By hand: 6 gained and 1 lost of 20, half a pair added to each of the four outcomes.
    middle, spread = 5 / 22, math.sqrt(8 - 5**2 / 22) / 22
    assert (low, high) == pytest.approx((middle - 1.96 * spread, middle + 1.96 * spread), abs=1e-4)
    # The same rates, paired otherwise, say less.
    _, other_low, other_high = paired_gain(before, [1] * 10 + [1] * 5 + [0] * 5)
    assert other_high - other_low > high - low


@pytest.mark.parametrize("n", [1, 4, 200])
def test_a_gain_of_nothing_still_has_a_width(n: int) -> None:
    mean, low, high = paired_gain([1] * n, [1] * n)
    assert mean == 0
    assert -1 <= low < 0 < high <= 1


@pytest.mark.parametrize(("before", "after"), [([], []), ([1], [1, 0]), ([1, 0], [1])])
def test_outcomes_that_cannot_be_paired_are_refused(before: list[int], after: list[int]) -> None:
    with pytest.raises(ValueError, match="cannot be paired"):
        paired_gain(before, after)


def test_the_interval_of_the_gain_holds_the_truth_as_often_as_it_says() -> None:
    """With 40 pairs, gains of 0.2 (0.3 gained, 0.1 lost): at least 93% of 2,000 intervals."""
    rng = np.random.default_rng(0)
    held = 0
    for _ in range(2000):
        change = rng.choice((1, -1, 0), size=40, p=(0.3, 0.1, 0.6))
        _, low, high = paired_gain((change < 0).tolist(), (change > 0).tolist())
        held += low <= 0.2 <= high
    assert held >= 0.93 * 2000


def test_a_scene_of_ones_own_is_run_under_several_seeds() -> None:
    scene = FAMILY.sample(np.random.default_rng(0))
    jobs = scene_jobs([scene], "own", 3)
    assert {j.scene.id for j in jobs} == {scene.id}
    assert len({j.seed for j in jobs}) == 3


# A run's policy ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("evaluation") / "run"
    train(tiny(strategy="sft", evaluation={"suites": ["seed"]}), path, reporter=quiet())
    return path


def test_the_command_gives_the_runs_own_figure_as_strict_json(run: Path) -> None:
    words = ["evaluate", str(run), "--suite", "seed", "--episodes", "4", "--json"]
    command = process(words, run.parent)
    out, err = command.communicate(timeout=100)
    assert command.returncode == 0, err
    document = strict(out)
    (recorded,) = strict((run / "results.json").read_text())["suites"]
    figures = ("n", "successes", "rate", "interval95")
    assert {k: document[k] for k in figures} == {k: recorded["rounds"][0][k] for k in figures}
    assert document["suite"] == "seed"
    assert document["round"] == 0


def test_evaluation_leaves_the_run_as_it_is(run: Path) -> None:
    before = {p: p.read_bytes() for p in run.rglob("*") if p.is_file()}
    evaluate_run(run, suite="ood-dev", episodes=2)
    assert {p: p.read_bytes() for p in run.rglob("*") if p.is_file()} == before


def test_a_run_without_a_complete_checkpoint_cannot_be_evaluated(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(tiny().to_yaml())
    (tmp_path / "manifest.json").write_text("{}")
    with pytest.raises(RunError, match=r"no complete checkpoint.*--resume"):
        evaluate_run(tmp_path, suite="seed", episodes=1)
