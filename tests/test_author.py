"""Programs that a model writes: held to the same schema, repaired once, else left out."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import Coda
from round_cases import round_context
from tiny_run import tiny

from coda_envs.engine.apply import AppliedEdit, apply_program
from coda_envs.errors import ConfigError, ProgramError
from coda_envs.programs.generation import GenerationProgram, SampleEdit
from coda_envs.text2potential import compile_program
from coda_trainer.compile.author import ModelAuthor, check_author, make_author
from coda_trainer.compile.author_prompt import read_generation, read_potential
from coda_trainer.config import ProgramsConfig
from coda_trainer.diagnosis.base import diagnose, make_diagnostician
from coda_trainer.diagnosis.control import select_candidates
from coda_trainer.rounds.context import RoundContext
from coda_trainer.strategies import make_strategy
from coda_trainer.strict_json import dumps
from tests.llm_server import Server, serve
from tests.program_cases import FAMILY
from tests.synthetic_episodes import collected, fails_at, number, scenes

SIZE, YAW, MASS = "attributes.target.size", "spatial.target.yaw", "attributes.target.mass"
CONTEXT = collected(scenes(96), fails_at("lift", lambda s: number(s, SIZE) > 0.026))
SAID = diagnose(make_diagnostician("trace"), CONTEXT.failures, CONTEXT)
(CANDIDATE,) = select_candidates(SAID, 1)
COMPILED = compile_program(FAMILY.template, CANDIDATE.diagnoses)
HARD = {"factor": SIZE, "low": 0.027, "high": 0.03, "easy": 0.02, "choices": []}
OMEGA: dict[str, Any] = {"edits": [HARD]}
PHI: dict[str, Any] = {
    "stages": [
        {
            "name": stage.name,
            "progress": {"term": "distance", "roles": ["gripper", "target"], "scale": None},
            "weight": 3.0 if stage.name == "lift" else 1.0,
        }
        for stage in COMPILED.stages
    ]
}


def author(server: Server, **options: Any) -> ModelAuthor:
    given = {"model": "stub", "timeout": 2.0, "retries": 0, **options}
    return ModelAuthor(base_url=server.base_url, **given)


def told(server: Server) -> Any:
    text = server.requests[0]["messages"][1]["content"][0]["text"]
    return json.loads(text.split("<data>\n")[1].split("\n</data>")[0])


def test_the_question_holds_the_claim_the_values_and_all_factors() -> None:
    with serve(dumps(OMEGA)) as server:
        assert author(server).generation(CANDIDATE, CONTEXT) is not None
        data = told(server)
    assert data["difficulty"]["factor"] == SIZE
    assert min(data["values_failed"]) > 0.026
    assert data["values_succeeded"] == sorted(data["values_succeeded"])
    assert {f["factor"] for f in data["factors"]} == set(FAMILY.space.by_path)


def test_a_written_program_is_checked_data_and_says_who_wrote_it() -> None:
    answer = {"edits": [HARD, {"factor": YAW, "low": 0.5, "high": 1.0}]}
    with serve(dumps(answer)) as server:
        program = author(server).generation(CANDIDATE, CONTEXT)
    assert program is not None
    assert program.provenance[-1] == "author:stub"
    assert program.provenance[0] == f"diagnosis:{CANDIDATE.diagnoses[0].hash}"
    assert [e.factor for e in program.edits if isinstance(e, SampleEdit)] == [SIZE, YAW]
    found = apply_program(program, scenes(1)[0], np.random.default_rng(0))
    assert isinstance(found, AppliedEdit)
    assert 0.027 <= number(found.scene, SIZE) <= 0.03
    assert GenerationProgram.parse(program.to_dict()) == program


WRONG: dict[str, tuple[Any, str]] = {
    "no edits": ({}, "edits is None"),
    "too many": ({"edits": [HARD] * 5}, "1 to 4"),
    "another factor first": (
        {"edits": [{**HARD, "factor": MASS, "low": 0.1, "high": 0.2}]},
        f"edits.0. is of {MASS}",
    ),
    "an unknown factor": ({"edits": [{**HARD, "factor": "os.system"}]}, "'os.system'"),
    "out of range": ({"edits": [{**HARD, "high": 0.5}]}, "outside its range"),
    "turned round": ({"edits": [{**HARD, "low": 0.03, "high": 0.027}]}, "low is above high"),
    "where nothing failed": ({"edits": [{**HARD, "low": 0.014, "high": 0.02}]}, "no failed"),
    "a number's choices": (
        {"edits": [{"factor": SIZE, "low": None, "high": None, "easy": None, "choices": ["big"]}]},
        "low and high, or choices",
    ),
    "one factor twice": (
        {"edits": [HARD, {**HARD, "low": 0.014, "high": 0.016}]},
        "two edits are of one factor",
    ),
    "no object": ({"edits": ["wide"]}, "an object"),
    "no number": ({"edits": [{**HARD, "low": "wide"}]}, "low"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_program_is_repaired_once_and_else_left_out(case: str) -> None:
    answer, words = WRONG[case]
    with pytest.raises(ProgramError, match=words):
        read_generation(answer, CANDIDATE, CONTEXT, "stub")
    with serve(dumps(answer), dumps(OMEGA)) as server:
        assert author(server).generation(CANDIDATE, CONTEXT) is not None
        assert len(server.requests) == 2
    with serve(dumps(answer)) as server:
        model = author(server)
        assert model.generation(CANDIDATE, CONTEXT) is None
        assert len(server.requests) == 2
    (problem,) = model.problems
    assert "cannot be used, also after one repair" in problem


def test_a_written_potential_keeps_the_gates() -> None:
    with serve(dumps(PHI)) as server:
        program = author(server).potential(FAMILY, CANDIDATE.diagnoses, COMPILED)
        data = told(server)
    assert program is not None
    assert [s.gate for s in program.stages] == [s.gate for s in COMPILED.stages]
    assert [s.weight for s in program.stages] == [s["weight"] for s in PHI["stages"]]
    assert program.note == "written by stub"
    assert data["difficulties"][0]["diagnoses"] == len(CANDIDATE.diagnoses)
    assert set(data["terms"]) >= {"distance", "grasped"}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"progress": {"term": "distanse", "roles": ["target"]}}, "unknown term"),
        (
            {"progress": {"term": "distance", "roles": ["gripper", "taret"]}},
            "mean 'target'",
        ),
        ({"progress": "near"}, "progress"),
        ({"progress": None}, "progress"),
        ({"weight": -1.0}, "weight"),
        ({"weight": None}, "weight"),
        ({"name": "fly"}, "in order"),
    ],
)
def test_a_wrong_potential_is_refused(change: dict[str, Any], words: str) -> None:
    stages = [{**PHI["stages"][0], **change}, *PHI["stages"][1:]]
    with pytest.raises(ProgramError, match=words):
        read_potential({"stages": stages}, FAMILY, COMPILED, "stub")
    for whole in ({}, {"stages": None}, {"stages": "all"}, {"stages": stages[1:]}):
        with pytest.raises(ProgramError, match="in order"):
            read_potential(whole, FAMILY, COMPILED, "stub")


def test_without_a_server_the_compiler_stands() -> None:
    model = ModelAuthor(base_url="http://127.0.0.1:9/v1", model="stub", timeout=1.0, retries=0)
    assert model.generation(CANDIDATE, CONTEXT) is None
    assert model.potential(FAMILY, CANDIDATE.diagnoses, COMPILED) is None
    assert model.usage()["failed"] == 2


def test_options_are_checked_before_a_run_starts(coda: Coda) -> None:
    assert make_author(ProgramsConfig()) is None
    with pytest.raises(ConfigError, match="the compiler has none"):
        make_author(ProgramsConfig(options={"model": "x"}))
    with pytest.raises(ConfigError, match=r"programs\.options\.modl is none that it has"):
        make_author(ProgramsConfig(author="model", options={"modl": "x"}))
    for changes in ({"strategy": "uniform"}, {"coda": {"memory": "insights"}}):
        with pytest.raises(ConfigError, match=r"programs\.author is 'model', but"):
            check_author(tiny(programs={"author": "model"}, **changes))
    config = Path(__file__).parents[1] / "configs" / "demo.yaml"
    answer = coda("train", "--config", str(config), "--set", "programs.author=model")
    assert answer.code == 2
    assert "programs.options.base_url" in answer.err


# In a round ------------------------------------------------------------------------------------


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as opened:
        yield opened


def answers(handler: Any, body: Any) -> str:
    """As a good model would: an interval for Ω, a potential for Φ."""
    del handler
    if body["response_format"]["json_schema"]["name"] == "generation_program":
        text = body["messages"][1]["content"][0]["text"]
        data = json.loads(text.split("<data>\n")[1].split("\n</data>")[0])
        failed = data["values_failed"]
        own = {"low": min(failed), "high": max(failed), "easy": None, "choices": []}
        return dumps({"edits": [{"factor": data["difficulty"]["factor"], **own}]})
    return dumps(PHI)


def a_round(stack: ExitStack, folder: Path, server: Server) -> RoundContext:
    options = {"base_url": server.base_url, "model": "stub", "timeout": 5.0, "retries": 0}
    programs = {"author": "model", "options": options}
    return round_context(stack, folder, programs=programs, coda={"graded": False})


def test_a_round_trains_on_what_the_model_wrote(stack: ExitStack, tmp_path: Path) -> None:
    with serve(answers) as server:
        context = a_round(stack, tmp_path, server)
        make_strategy("coda").plan(context)
    (mode,) = context.memory.modes()
    omega = context.memory.program(mode.omega_hash)
    assert omega.provenance[-1] == "author:stub"
    assert context.state.program is not None
    assert context.state.program.refined.note == "written by stub"
    told = [r for r in context.run.metrics() if r["event"] == "author"]
    assert [(r["wrote"], r["stood_in"]) for r in told] == [("generation", 0), ("potential", 0)]
    assert all(r["calls"] == 1 for r in told)


def test_a_round_goes_on_where_the_model_gives_nothing(stack: ExitStack, tmp_path: Path) -> None:
    with serve("I would rather not.") as server:
        context = a_round(stack, tmp_path, server)
        make_strategy("coda").plan(context)
    (mode,) = context.memory.modes()
    omega = context.memory.program(mode.omega_hash)
    assert omega.provenance[-1].startswith("diagnosis:")
    assert context.state.program is not None
    assert context.state.program.refined == context.state.program.compiled
    told = [r for r in context.run.metrics() if r["event"] == "author"]
    assert [r["stood_in"] for r in told] == [1, 1]
