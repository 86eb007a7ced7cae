"""Injected faults: the cause is what makes the expert fail, and nothing else is wrong with it."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from coda_envs.errors import ConfigError
from coda_envs.factor import ContinuousFactor
from coda_envs.family import family_names, get_family
from coda_trainer.diagnosis.fault_trials import TrialSize, fault_site, run_trial
from coda_trainer.diagnosis.faults import (
    EDITS,
    FAULTS,
    Cause,
    FaultyExpert,
    FaultyExperts,
    Population,
    draw_cause,
)
from coda_trainer.learning.rollout import EnvSpec, Job, RolloutPool

FAMILY = get_family("pick-place")
SIZE = "attributes.target.size"
EDGE = float(FAMILY.space[SIZE].seed[1])
CAUSE = Cause("pick-place", SIZE, "high", EDGE, "no_grasp")


@pytest.fixture(scope="module")
def pool() -> Iterator[RolloutPool]:
    with RolloutPool(EnvSpec(10)) as made:
        yield made


def jobs(count: int, seed: int = 0, population: Population | None = None) -> list[Job]:
    rng = np.random.default_rng(seed)
    draw = population.draw if population else lambda r: FAMILY.sample(r, "seed")
    return [Job(draw(rng), int(rng.integers(2**31))) for _ in range(count)]


@pytest.mark.parametrize(
    ("fault", "stage"),
    [("no_grasp", "grasp"), ("slip", "lift"), ("shifted", "reach"), ("wrong_object", "reach")],
)
def test_a_fault_fails_at_its_stage(pool: RolloutPool, fault: str, stage: str) -> None:
    site = fault_site(pool, FAMILY, fault, np.random.default_rng(0))
    assert site is not None
    assert site.stage == stage
    # Without another thing there is none to be mistaken.
    assert ("task.distractors" in site.fixed) == (fault == "wrong_object")


def test_the_expert_fails_where_the_cause_holds_and_hardly_anywhere_else(pool: RolloutPool) -> None:
    asked = jobs(64, population=Population(FAMILY, CAUSE, share=1.0))
    experts = FaultyExperts(CAUSE)
    episodes = pool.demonstrate(0.0, asked, make=experts)
    held = np.array([CAUSE.holds(j.scene) for j in asked])
    failed = np.array([not e.success for e in episodes])
    assert 8 <= held.sum() <= 48
    assert failed[held].mean() > 0.7
    assert failed[~held].mean() < 0.3
    for job, episode in zip(asked, episodes, strict=True):
        if experts.fault(job.scene, job.seed) == "no_grasp":
            assert not episode.success
    # The same jobs give the same episodes.
    again = pool.demonstrate(0.0, asked[:4], make=experts)
    for one, two in zip(episodes, again, strict=False):
        assert np.array_equal(one.actions, two.actions)


def test_scenes_have_at_least_three_innocent_edits_and_are_not_held_out() -> None:
    rng = np.random.default_rng(0)
    population = Population(FAMILY, CAUSE, {"task.reference": "color"})
    for _ in range(40):
        scene = population.draw(rng)
        assert FAMILY.region(scene) == "generator"
        assert scene.values["task.reference"] == "color"
        beyond = [
            path
            for path, value in scene.values.items()
            if isinstance(factor := FAMILY.space[path], ContinuousFactor)
            and not factor.seed[0] <= float(value) <= factor.seed[1]
        ]
        assert len(beyond) <= EDITS


@pytest.mark.parametrize("name", family_names())
def test_causes_lie_beyond_the_seed_range_or_are_a_choice(name: str) -> None:
    family, rng = get_family(name), np.random.default_rng(1)
    drawn = [draw_cause(family, "slip", rng, {SIZE}) for _ in range(40)]
    assert len({(c.factor, c.direction, c.bound) for c in drawn}) > 10
    for cause in drawn:
        factor = family.space[cause.factor]
        assert cause.factor != SIZE
        assert factor.group != "task"
        seeds = [family.sample(rng, "seed") for _ in range(20)]
        if isinstance(factor, ContinuousFactor):
            assert not any(cause.holds(scene) for scene in seeds)
        else:
            assert cause.direction == "other"
            assert cause.bound in factor.seed


def test_an_unknown_fault_is_named() -> None:
    with pytest.raises(ConfigError, match="did you mean 'slip'"):
        FaultyExpert(FAMILY.expert(), "slipp", "target")
    assert "slip" in FAULTS


def test_a_trial_counts_what_each_diagnostician_said(pool: RolloutPool) -> None:
    size = TrialSize(episodes=96, claims=1, per_arm=8)
    diagnosticians = {"trace": {}, "random_factor": {}}
    told = run_trial(pool, "pick-place", "no_grasp", size, diagnosticians, (3,))
    assert told == run_trial(pool, "pick-place", "no_grasp", size, diagnosticians, (3,))
    assert told["stage"] == "grasp"
    for said in told["said"].values():
        assert said["diagnosed"] == told["caused"]
        assert said["diagnosed"] + said["other_failures"] == told["failures"]
        assert sum(said["factors"].values()) == said["diagnosed"] - said["abstained"]
        assert said["factor_right"] <= said["factor_or_second"]
        assert len(said["controls"]) == 1
    trace, chance = told["said"]["trace"], told["said"]["random_factor"]
    assert trace["factor_right"] > 0.7 * trace["diagnosed"]
    assert chance["factor_right"] < 0.3 * chance["diagnosed"]
    assert trace["controls"][0]["verdict"] == "confirmed"
    assert trace["controls"][0]["true"]


def test_a_fault_that_does_nothing_in_a_family_is_left_out(pool: RolloutPool) -> None:
    size = TrialSize(episodes=32, claims=0, per_arm=4)
    told = run_trial(pool, "articulated", "turned", size, {"trace": {}}, (0,))
    assert told["left_out"]
    assert "said" not in told
