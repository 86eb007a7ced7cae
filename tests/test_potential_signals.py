"""The two other dense signals: the potential of the description alone, the free-form reward."""

from __future__ import annotations

import numpy as np
import pytest
from expert_runs import FAMILIES, successes

from coda_envs.errors import ProgramError
from coda_envs.family import get_family
from coda_envs.programs.potential import PotentialProgram, leaves
from coda_envs.text2potential import compile_potential, shaping
from coda_envs.text2potential.describe import describe_program
from coda_envs.text2potential.free_form import FreeFormReward

# From the description ----------------------------------------------------------------------------


@pytest.mark.parametrize("family", FAMILIES)
def test_the_description_gives_a_potential_that_starts_low_and_ends_at_one(family: str) -> None:
    at = get_family(family)
    program = describe_program(at)
    assert program == describe_program(at)
    assert PotentialProgram.parse(program.to_dict()) == program
    assert program.stages[-1].gate == at.template.stages[-1].gate
    phi = compile_potential(program, at.schema)
    for rows in successes(family, 8, 10):
        values = phi(rows)
        assert values[0] < 0.6
        assert values[-1] == 1.0
        assert values[-2] - values[0] > 0.2


@pytest.mark.parametrize("family", FAMILIES)
def test_the_description_is_the_goal_that_scenes_of_the_family_have(family: str) -> None:
    at = get_family(family)
    rng = np.random.default_rng(0)
    scenes = [at.sample(rng, "generator") for _ in range(4)]
    last = describe_program(at).stages[-1].gate.to_dict()
    for scene in scenes:
        goal = scene.task.goal
        assert last == {"predicate": goal.predicate, "roles": list(goal.roles)}


def test_the_description_knows_nothing_of_grasps_rims_and_lids() -> None:
    told = {name: describe_program(get_family(name)) for name in FAMILIES}
    terms = {
        name: [(t.term, *t.roles) for stage in program.stages for t in leaves(stage.progress)]
        for name, program in told.items()
    }
    to, there = ("distance", "gripper", "target"), ("distance", "target", "receptacle")
    assert terms["pick-place"] == terms["put-inside"] == [to, there]
    assert terms["articulated"] == [to, ("joint_fraction", "target")]
    assert terms["stack-insert"] == [
        *(to, there),
        *(("distance", "gripper", "second"), ("distance", "second", "target")),
    ]


# Free form ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", FAMILIES)
def test_the_free_form_reward_is_bounded_and_grows_on_the_way(family: str) -> None:
    at = get_family(family)
    reward = FreeFormReward(compile_potential(describe_program(at), at.schema), scale=0.2)
    assert not reward.policy_invariant
    for rows in successes(family, 4, 10):
        paid = reward(rows)
        assert paid.shape == (len(rows),)
        assert ((paid >= 0.0) & (paid <= 0.2)).all()
        assert paid[-1] > paid[0]
        assert reward(rows[3]) == paid[3]


def test_hovering_can_be_worth_more_than_success_as_shaping_never_makes_it() -> None:
    """What makes it free-form: the same steps, once ending at the goal, once waiting before it."""
    at = get_family("pick-place")
    potential = compile_potential(describe_program(at), at.schema)
    rows = successes("pick-place", 8, 10)[0]
    waiting = np.concatenate([rows[:-1], np.repeat(rows[-2:-1], 60, axis=0)])
    gamma = 0.99

    def worth(states: np.ndarray, success: bool, dense: np.ndarray) -> float:
        discounts = gamma ** np.arange(len(states) - 1)
        return float(discounts @ dense + success * discounts[-1])

    free = FreeFormReward(potential, scale=0.1)
    assert worth(waiting, False, free(waiting[1:])) > worth(rows, True, free(rows[1:]))

    def shaped(states: np.ndarray, success: bool) -> np.ndarray:
        phi, done = potential(states), np.zeros(len(states) - 1, dtype=bool)
        done[-1] = success
        return shaping(phi[:-1], phi[1:], gamma, 1, done)

    assert worth(waiting, False, shaped(waiting, False)) < worth(rows, True, shaped(rows, True))


@pytest.mark.parametrize("scale", [0.0, -1.0, float("nan"), float("inf")])
def test_a_scale_that_pays_nothing_or_anything_is_refused(scale: float) -> None:
    at = get_family("pick-place")
    potential = compile_potential(describe_program(at), at.schema)
    with pytest.raises(ProgramError, match="scale"):
        FreeFormReward(potential, scale)
