"""Learning tools: a closed set, chosen by what was diagnosed."""

from __future__ import annotations

import itertools
from typing import Any, get_args

import pytest
from program_cases import FACTORS, FAMILY, STAGES, diagnosis

from coda_envs.errors import ProgramError
from coda_envs.programs import Tools, TrainingProgram
from coda_envs.programs.training import TOOLS
from coda_trainer.compile.training import STRENGTH, compile_training, tools_for
from coda_trainer.config import CodaConfig, Tool


def test_the_set_is_closed_and_off_by_default() -> None:
    assert get_args(Tool) == TOOLS
    assert set(CodaConfig().tools) <= set(TOOLS)
    off = Tools().to_dict()
    assert off == {
        "stage_resets": 0.0,
        "replay_weight": 1.0,
        "exploration_noise": 1.0,
        "best_of_n": 1,
        "hindsight_subgoals": False,
    }
    # Every one of them is something else where it is asked for.
    assert all(STRENGTH.to_dict()[name] != off[name] for name in TOOLS)


@pytest.mark.parametrize(
    ("tools", "named"),
    [
        ({"stage_reset": 0.2}, r"stage_reset.*did you mean 'stage_resets'"),
        ({"stage_resets": 0.6}, r"tools\.stage_resets is 0\.6.*0\.5"),
        ({"stage_resets": -0.1}, r"tools\.stage_resets is -0\.1"),
        ({"replay_weight": 0.0}, r"tools\.replay_weight is 0\.0.*0\.1"),
        ({"exploration_noise": 6.0}, r"tools\.exploration_noise is 6\.0.*5"),
        ({"best_of_n": 0}, r"tools\.best_of_n is 0.*1"),
        ({"best_of_n": 17}, r"tools\.best_of_n is 17.*16"),
        ({"best_of_n": 2.5}, r"tools\.best_of_n is 2\.5"),
        ({"hindsight_subgoals": "perhaps"}, r"tools\.hindsight_subgoals is 'perhaps'"),
    ],
)
def test_what_is_no_tool_or_out_of_range_is_named(tools: dict[str, Any], named: str) -> None:
    data = compile_training(diagnosis("spatial.target.yaw"), FAMILY).to_dict()
    with pytest.raises(ProgramError, match=named):
        TrainingProgram.parse({**data, "tools": tools})


def test_a_subgoal_is_a_stage() -> None:
    data = compile_training(diagnosis("spatial.target.yaw"), FAMILY).to_dict()
    with pytest.raises(ProgramError, match=r"'grap' is no stage.*did you mean 'grasp'"):
        TrainingProgram.parse({**data, "subgoals": ["grap"]})


def test_only_those_that_are_allowed_stay_on() -> None:
    kept = STRENGTH.only(["best_of_n", "replay_weight"])
    assert kept == Tools(best_of_n=STRENGTH.best_of_n, replay_weight=STRENGTH.replay_weight)
    assert STRENGTH.only(TOOLS) == STRENGTH
    assert STRENGTH.only(()) == Tools()
    with pytest.raises(ProgramError, match="did you mean 'best_of_n'"):
        STRENGTH.only(["best_of"])
    program = compile_training(diagnosis("spatial.target.yaw"), FAMILY)
    assert program.with_tools(()).tools == Tools()
    assert program.with_tools(()).hash != program.hash


@pytest.mark.parametrize(
    ("stage", "factor", "expected"),
    [
        ("reach", "spatial.target.x", {"replay_weight", "exploration_noise", "hindsight_subgoals"}),
        ("grasp", "spatial.target.yaw", set(TOOLS) - {"best_of_n"}),
        ("lift", "attributes.target.mass", set(TOOLS) - {"exploration_noise"}),
        ("place", "attributes.receptacle.rim",
         {"replay_weight", "exploration_noise", "stage_resets"}),
        ("place", "attributes.target.friction", {"replay_weight", "best_of_n", "stage_resets"}),
    ],
)  # fmt: skip
def test_the_diagnosis_decides(stage: str, factor: str, expected: set[str]) -> None:
    assert set(tools_for(diagnosis(factor, stage=stage), FAMILY)) == expected


def test_every_diagnosis_has_tools_that_can_do_something() -> None:
    for stage, factor in itertools.product(STAGES, FACTORS):
        program = compile_training(diagnosis(factor, stage=stage), FAMILY)
        tools = program.tools
        assert tools.replay_weight > 1
        # Another motion is looked for, or the same one is picked, never both.
        assert (tools.exploration_noise > 1) != (tools.best_of_n > 1)
        assert (tools.stage_resets > 0) == (stage != STAGES[0])
        assert tools.hindsight_subgoals == (stage != STAGES[-1])


def test_several_diagnoses_bring_the_tools_of_each() -> None:
    claims = [
        diagnosis("attributes.target.mass", stage="lift"),
        diagnosis("spatial.target.x", stage="reach"),
    ]
    both = compile_training(claims, FAMILY)
    assert both == compile_training([*reversed(claims), claims[0]], FAMILY)
    assert both.tools == STRENGTH
