"""``coda diagnose``: a policy whose weakness is known, examined with the real simulator."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from command_line import ROOT, Coda, strict

from coda_envs.engine.check import check_program
from coda_envs.family import get_family
from coda_envs.programs import GenerationProgram
from coda_trainer.diagnosis.base import make_diagnostician
from coda_trainer.diagnosis.examine import Examination, examine, rank
from coda_trainer.diagnosis.faults import Cause, FaultyExperts
from coda_trainer.episode import Episode
from coda_trainer.learning.actor import ActorSpec
from coda_trainer.learning.rollout import EnvSpec, Job, RolloutPool
from coda_trainer.report.examination import write_examination

FAMILY = get_family("pick-place")
SHAPE = "attributes.target.shape"
#: The policy drops cylinders, and is as good as the expert otherwise.
WEAKNESS = Cause("pick-place", SHAPE, "other", "cylinder", "slip", chance=0.95, background=0.05)


class WeakPolicy(RolloutPool):
    """Rollouts of the expert with the weakness, whatever actor is asked for."""

    def run(self, actor: Any, jobs: Sequence[Job], *args: Any, **options: Any) -> list[Episode]:
        return self.demonstrate(0.0, jobs, make=FaultyExperts(WEAKNESS))


@pytest.fixture(scope="module")
def found() -> Iterator[Examination]:
    with WeakPolicy(EnvSpec(10)) as pool:
        yield examine(
            pool,
            ActorSpec("the weak policy"),
            FAMILY,
            make_diagnostician("trace"),
            episodes=128,
            claims=2,
            per_arm=12,
        )


def test_the_weakness_is_found_tested_and_ranked_first(found: Examination) -> None:
    first = found.difficulties[0]
    assert first.result.verdict == "confirmed"
    stage, _, factor, direction, _ = first.candidate.signature
    assert (stage, factor, direction) == ("lift", SHAPE, "other")
    assert all(e.scene.values[SHAPE] == "cylinder" for e in first.failures)
    told = first.to_dict()
    assert told["reached"]["without"] > told["reached"]["with"]
    assert found.to_dict()["episodes"] == 128


def test_confirmed_difficulties_come_before_others_and_costly_ones_first(
    found: Examination,
) -> None:
    first = found.difficulties[0]
    rarer = dataclasses.replace(first, failures=first.failures[:1])
    refuted = dataclasses.replace(
        first, result=dataclasses.replace(first.result, verdict="refuted")
    )
    assert sorted([refuted, rarer, first], key=rank) == [first, rarer, refuted]


def test_the_page_has_pictures_and_programs_that_fit(found: Examination, tmp_path: Path) -> None:
    files = write_examination(found, tmp_path / "out")
    assert len(files) == len(set(files))
    data = json.loads((tmp_path / "out" / "diagnosis.json").read_text())
    assert data["difficulties"][0]["factor"] == SHAPE
    page = (tmp_path / "out" / "report.md").read_text()
    assert f"## 1. {SHAPE} (other) at lift: confirmed" in page
    assert "![" in page
    assert (tmp_path / "out" / "difficulty-1.png").read_bytes().startswith(b"\x89PNG")
    program = GenerationProgram.parse(
        yaml.safe_load((tmp_path / "out" / "difficulty-1.yaml").read_text())
    )
    check_program(program, FAMILY.space)
    assert program.edits[0].factor == SHAPE


def test_a_policy_that_never_succeeds_gets_a_page_without_claims(
    coda: Coda, tmp_path: Path
) -> None:
    policy = f"{ROOT / 'examples' / 'tiny_policy.py'}:TinyPolicy"
    answer = coda(
        "diagnose", policy, "--family", "pick-place", "--episodes", "6", "--out", "d", "--json"
    )
    assert answer.code == 0
    data = strict(answer.out)
    assert (data["successes"], data["difficulties"]) == (0, [])
    assert data["abstained"] == data["failures"] == 6
    assert "No claim was made" in (tmp_path / "d" / "report.md").read_text()


@pytest.mark.parametrize(
    ("words", "code", "problem"),
    [
        (["no_such_policy", "--family", "pick-place"], 2, "no_such_policy"),
        (["flow_chunk"], 2, "does not say which family"),
        (["flow_chunk", "--family", "pick"], 3, "unknown family"),
        (["flow_chunk", "--family", "pick-place", "--episodes", "0"], 2, "--episodes is 0"),
        (["flow_chunk", "--family", "pick-place", "--diagnostician", "x"], 2, "diagnostician 'x'"),
        (
            ["flow_chunk", "--family", "pick-place", "--diagnostician", "vlm"],
            2,
            "base_url",
        ),
        (["flow_chunk", "--family", "pick-place", "--episodes", "2"], 5, "no normalisation"),
    ],
)
def test_what_cannot_be_examined_is_one_clear_error(
    coda: Coda, words: list[str], code: int, problem: str
) -> None:
    answer = coda("diagnose", *words, "--json")
    assert answer.code == code
    assert problem in strict(answer.out)["error"]["problem"]
