"""A memory for another run: adopted read-only, lifted to another family, or refused."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from command_line import Coda, strict
from memory_samples import diagnosis, everything, omega
from tiny_run import TINY, metrics, quiet, results, tiny

from coda_envs.errors import ConfigError, RunError
from coda_envs.family import BUILT_IN, get_family
from coda_envs.programs.diagnosis import Diagnosis
from coda_envs.programs.generation import GenerationProgram, SampleEdit
from coda_trainer.compile.generation import guards_of
from coda_trainer.memory import lifecycle
from coda_trainer.memory.adopting import adopt, transferable
from coda_trainer.memory.evidence import generation_program
from coda_trainer.memory.lifting import NothingLiftsError, lift_memory, lift_stage
from coda_trainer.memory.making import new_memory
from coda_trainer.memory.modes import Mode, mode_of
from coda_trainer.memory.store import MemoryStore
from coda_trainer.rounds.loop import train

SIZE = "attributes.target.size"
PICK, INSIDE = get_family("pick-place"), get_family("put-inside")


def confirmed(
    memory: MemoryStore,
    verdict: str = "confirmed",
    program: GenerationProgram | None = None,
    **changes: Any,
) -> Mode:
    """A tested mode in the memory, with its diagnosis, control evaluation and Ω."""
    said = Diagnosis(**{**dict(diagnosis()), **changes})
    mode = lifecycle.judge(mode_of(said, 1, interval=(0.02, 0.025)), 1, verdict)
    sequence = memory.add_diagnosis(1, said)
    memory.add_control(1, mode.id, verdict, [sequence], {"verdict": verdict})
    memory.add_program(1, mode.id, program or omega())
    memory.save_mode(1, mode)
    return mode


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "source.sqlite"
    with MemoryStore(path) as memory:
        confirmed(memory)
    return path


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_a_confirmed_mode_comes_over_with_all_that_stands_behind_it(
    source: Path, tmp_path: Path
) -> None:
    before = digest(source)
    with (
        MemoryStore.open_read_only(source) as given,
        MemoryStore(tmp_path / "own.sqlite") as own,
    ):
        (mode,) = adopt(given, own, "pick-place", 3)
        (theirs,) = given.modes()
        assert (mode.id, mode.state, mode.round_created) == (theirs.id, "validated", 3)
        assert mode.interval == theirs.interval
        (control,) = own.records("controls", mode_id=mode.id)
        assert control["data"]["adopted"] is True
        (said,) = own.records("diagnoses")
        assert control["diagnoses"] == [said["sequence"]]
        assert own.program(omega().hash) == omega()
        # Asked again, it knows what it has.
        assert adopt(given, own, "pick-place", 4) == []
    assert digest(source) == before


def test_a_merged_mode_is_known_again_in_the_next_round(tmp_path: Path) -> None:
    """Its values, and so the id that they would give, are not those that it was made with."""
    with MemoryStore(tmp_path / "a.sqlite") as given, MemoryStore(tmp_path / "b.sqlite") as own:
        mode = confirmed(given)
        wider = mode.replaced(interval=(0.019, 0.026))
        given.save_mode(2, wider)
        (new,) = adopt(given, own, "pick-place", 1)
        assert (new.id, new.interval) == (mode.id, wider.interval)
        before = everything(own)
        assert adopt(given, own, "pick-place", 2) == []
        assert everything(own) == before


@pytest.mark.parametrize("verdict", ["refuted", "untestable", "inconclusive"])
def test_what_was_not_confirmed_stays_behind(tmp_path: Path, verdict: str) -> None:
    with MemoryStore(tmp_path / "m.sqlite") as memory:
        confirmed(memory, verdict)
        assert transferable(memory, "pick-place") == []


def test_another_family_s_modes_are_not_adopted(source: Path, tmp_path: Path) -> None:
    with MemoryStore.open_read_only(source) as given, MemoryStore(tmp_path / "o.sqlite") as own:
        assert adopt(given, own, "put-inside", 1) == []


# Lifting ---------------------------------------------------------------------------------------


def test_a_lifted_mode_speaks_of_the_other_family(source: Path, tmp_path: Path) -> None:
    with (
        MemoryStore.open_read_only(source) as given,
        new_memory(tmp_path / "lifted.sqlite") as own,
    ):
        found = lift_memory(given, "put-inside", own)
        (theirs,), (mode,) = given.modes(), own.modes()
        assert found.modes == {theirs.id: mode}
        assert found.left_out == {}
        assert (mode.family, mode.state, mode.factor) == ("put-inside", "validated", SIZE)
        # The interval lies where it did between the ranges.
        low, high = INSIDE.space[SIZE].generator  # type: ignore[misc]
        assert mode.interval is not None
        assert float(low) <= mode.interval[0] < mode.interval[1] <= float(high)
        (said,) = own.records("diagnoses")
        assert said["data"]["sentence"].startswith("lifted from pick-place: ")
        assert said["data"]["stage"] == mode.stage == "grasp"
        (control,) = own.records("controls")
        assert control["data"]["lifted_from"] == "pick-place"
        (program,) = own.records("programs")
        assert program["data"]["provenance"][-1] == f"lifted:{omega().hash}"


def test_a_lifted_program_has_the_target_s_conditions(tmp_path: Path) -> None:
    """What a factor needs to exist is the target family's to say."""
    path = "attributes.distractor_1.size"
    program = omega().model_copy(
        update={
            "roles": ("distractor_1",),
            "edits": (SampleEdit(edit="sample", factor=path, low=0.016, high=0.022),),
            "guards": guards_of(PICK.space, PICK.space[path]),
        }
    )
    with (
        MemoryStore(tmp_path / "a.sqlite") as given,
        new_memory(tmp_path / "b.sqlite") as own,
    ):
        confirmed(given, program=program, factor=path, role="distractor_1")
        found = lift_memory(given, "put-inside", own)
        (lifted,) = found.modes.values()
        own_program = generation_program(own, lifted)
        assert own_program is not None
        assert own_program.guards == guards_of(INSIDE.space, INSIDE.space[path]) != ()


@pytest.mark.parametrize("target", [name for name in BUILT_IN if name != "pick-place"])
def test_every_stage_has_a_counterpart(target: str) -> None:
    other = get_family(target)
    names = other.template.stage_names
    found = [lift_stage(stage, PICK, other) for stage in PICK.template.stage_names]
    assert all(0 <= index < len(names) for index in found)
    for stage, index in zip(PICK.template.stage_names, found, strict=True):
        if stage in names:
            assert names[index] == stage


def test_what_cannot_be_lifted_is_listed_with_the_reason(tmp_path: Path) -> None:
    with (
        MemoryStore(tmp_path / "a.sqlite") as given,
        new_memory(tmp_path / "b.sqlite") as own,
    ):
        odd = confirmed(given, program=omega(high=0.9))
        rim = "attributes.receptacle.rim"
        edit = SampleEdit(edit="sample", factor=rim, low=0.01, high=0.02)
        program = omega().model_copy(update={"edits": (edit,), "roles": ("receptacle",)})
        other = confirmed(given, program=program, factor=rim, role="receptacle")
        with pytest.raises(NothingLiftsError) as caught:
            lift_memory(given, "articulated", own)
        assert "does not fit pick-place" in str(caught.value)
        assert "articulated has no factor" in str(caught.value)
        good = confirmed(given, direction="low")
        found = lift_memory(given, "put-inside", own)
        assert set(found.modes) == {good.id, other.id} - set(found.left_out)
        assert "does not fit pick-place" in found.left_out[odd.id]


def test_lifting_on_the_command_line(coda: Coda, source: Path, tmp_path: Path) -> None:
    words = ("memory", "lift", str(source), "--to", "put-inside", "-o", "lifted.sqlite")
    told = strict(coda(*words, "--json").out)
    (mode,) = told["modes"].values()
    assert mode["family"] == "put-inside"
    shown = strict(coda("memory", "show", "lifted.sqlite", "--json").out)
    assert [m["family"] for m in shown["modes"]] == ["put-inside"]
    again = coda(*words)
    assert again.code == 5
    assert "exists" in again.err
    # Its own family has nothing to lift from, and no file is left behind.
    own = coda("memory", "lift", str(source), "--to", "pick-place", "-o", "own.sqlite")
    assert own.code == 5
    assert "of another family" in own.err
    assert not (tmp_path / "own.sqlite").exists()


# Runs ------------------------------------------------------------------------------------------


def test_a_run_that_cannot_use_the_memory_is_refused_before_anything_is_written(
    source: Path, tmp_path: Path
) -> None:
    for changes, words in (
        ({"strategy": "uniform"}, "the strategy is 'uniform'"),
        ({"coda": {"memory": "skills"}}, "coda.memory 'skills'"),
        ({"families": ["put-inside"]}, "no confirmed mode of put-inside"),
    ):
        with pytest.raises(ConfigError, match=words):
            train(tiny(**changes), tmp_path / "run", adopted=source, reporter=quiet())
        assert not (tmp_path / "run").exists()
    with MemoryStore(tmp_path / "odd.sqlite") as memory:
        confirmed(memory, program=omega(high=0.9))
    with pytest.raises(RunError, match="does not fit pick-place"):
        train(tiny(), tmp_path / "run", adopted=tmp_path / "odd.sqlite", reporter=quiet())
    swap = GenerationProgram.parse(
        {**omega().to_dict(), "edits": [{"edit": "swap", "role": "target", "other": "receptacle"}]}
    )
    with MemoryStore(tmp_path / "swap.sqlite") as memory:
        confirmed(memory, program=swap)
    with pytest.raises(RunError, match="it has the edits swap"):
        train(tiny(), tmp_path / "run", adopted=tmp_path / "swap.sqlite", reporter=quiet())
    (tmp_path / "no.sqlite").write_bytes(b"not a database at all")
    with pytest.raises(RunError):
        train(tiny(), tmp_path / "run", adopted=tmp_path / "no.sqlite", reporter=quiet())
    assert not (tmp_path / "run").exists()


def test_memory_and_resume_exclude_each_other(coda: Coda, source: Path) -> None:
    answer = coda("train", "--resume", "somewhere", "--memory", str(source))
    assert answer.code == 2
    assert "--memory cannot be combined with --resume" in answer.err


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_run_with_a_given_memory_diagnoses_nothing_and_resumes_alike(tmp_path: Path) -> None:
    """Stopped after its first round and resumed without the memory's file, it ends as if not."""
    train(tiny(), tmp_path / "first", reporter=quiet())
    memory = tmp_path / "first" / "memory.sqlite"
    before = digest(memory)
    train(tiny(rounds=2), tmp_path / "whole", adopted=memory, reporter=quiet())
    assert digest(memory) == before
    events = [r["event"] for r in metrics(tmp_path / "whole")]
    assert "adopted" in events
    assert not {"diagnosis", "control"} & set(events)
    found = results(tmp_path / "whole")
    assert found["controls"] == []
    assert [m["mode"]["state"] for m in found["modes"]] != []

    copy = tmp_path / "copy.sqlite"
    copy.write_bytes(memory.read_bytes())
    train(tiny(rounds=1), tmp_path / "half", adopted=copy, reporter=quiet())
    copy.unlink()
    config = (tmp_path / "half" / "config.yaml").read_text()
    (tmp_path / "half" / "config.yaml").write_text(config.replace("rounds: 1", "rounds: 2"))
    train(tiny(rounds=2), tmp_path / "half", resume=True, reporter=quiet())
    assert results(tmp_path / "half")["suites"] == found["suites"]
    # Without its copy it says so.
    (tmp_path / "half" / "adopted.sqlite").unlink()
    (tmp_path / "half" / "results.json").unlink()
    with pytest.raises(RunError, match="was given a memory"):
        train(tiny(rounds=2), tmp_path / "half", resume=True, reporter=quiet())


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_targeting_is_measured_where_it_is_asked_for(tmp_path: Path) -> None:
    changes = {"probes": {**TINY["probes"], "band_rollouts": 3, "band_scenes": 2}}
    train(tiny(**changes), tmp_path / "run", reporter=quiet())
    (told,) = [r for r in metrics(tmp_path / "run") if r["event"] == "targeting"]
    assert (told["scenes"], told["rollouts"], len(told["successes"])) == (2, 3, 2)
    assert 0 <= told["in_band"]["posterior"] <= told["in_wide_band"]["posterior"] <= 1
    manifest = json.loads((tmp_path / "run" / "manifest.json").read_text())
    assert manifest["adopted"] is None
