"""`coda potential`, as a user calls it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import imageio.v3
import numpy as np
import pytest
from command_line import ROOT, Coda, strict

from coda_envs.family import get_family
from coda_envs.text2potential.describe import describe_program
from coda_envs.text2potential.tables import rule_table, term_table

CLAIM = "grasp:spatial.target.yaw:high"


def test_a_familys_stages_are_shown(coda: Coda) -> None:
    document = strict(coda("potential", "show", "put-inside", "--json").out)
    template = get_family("put-inside").template
    assert document["version"] == template.hash
    assert [stage["name"] for stage in document["stages"]] == list(template.stage_names)
    assert sum(stage["share"] for stage in document["stages"]) == pytest.approx(1.0)
    assert document["stages"][1]["progress"] == "distance(gripper, target, 0.6)"
    assert "near(target)" in document["stages"][1]["gate"]
    told = coda("potential", "show", "put-inside")
    assert told.code == 0
    assert template.hash in told.out
    assert "transport" in told.out


def test_a_claim_is_compiled_and_its_program_can_be_read_back(coda: Coda) -> None:
    plain = strict(coda("potential", "show", "pick-place", "--json").out)
    words = ("potential", "show", "pick-place", "--diagnosis", CLAIM, "--json")
    document = strict(coda(*words).out)
    assert document["version"] != plain["version"]
    assert document["stages"][1]["share"] > plain["stages"][1]["share"]
    assert "alignment(target)" in document["stages"][1]["progress"]
    assert "grasp: spatial.target.yaw high" in document["note"]
    Path("mine.json").write_text(json.dumps(document["program"]))
    again = strict(coda("potential", "show", "mine.json", "--json").out)
    assert again == document


BAD_SHOWS = {
    "another family": (("pick-plaec",), 3, "did you mean 'pick-place'"),
    "no file": (("none.json",), 6, "none.json"),
    "a stage": (("pick-place", "--diagnosis", "graps:spatial.target.x:high"), 6, "'grasp'"),
    "a factor": (("pick-place", "--diagnosis", "grasp:spatial.target.q:high"), 6, "did you mean"),
    "a direction": (("pick-place", "--diagnosis", "grasp:spatial.target.x:hihg"), 6, "'high'"),
    "no claim": (("pick-place", "--diagnosis", "grasp"), 2, "STAGE:FACTOR:DIRECTION"),
}


@pytest.mark.parametrize("case", BAD_SHOWS)
def test_what_cannot_be_shown_is_one_clear_error(coda: Coda, case: str) -> None:
    words, code, named = BAD_SHOWS[case]
    answer = coda("potential", "show", *words)
    assert answer.code == code
    assert answer.out == ""
    assert named in answer.err


def test_an_episode_is_drawn_and_the_same_seed_draws_the_same(coda: Coda) -> None:
    words = ("potential", "plot", "--family", "pick-place", "--seed", "3", "-o")
    document = strict(coda(*words, "one.png", "--json").out)
    assert document["success"]
    assert document["potential"][-1] == 1.0
    assert document["stage"][-1] == len(get_family("pick-place").template.stages)
    assert len(document["potential"]) == document["steps"] + 1
    picture = imageio.v3.imread("one.png")
    # Lines of several colours on white.
    assert picture.shape[1] > 1000
    assert len(np.unique(picture[..., :3].reshape(-1, 3), axis=0)) > 20
    assert coda(*words, "two.png").out == "two.png\n"
    assert Path("one.png").read_bytes() == Path("two.png").read_bytes()


def test_a_program_of_ones_own_is_drawn(coda: Coda) -> None:
    described = describe_program(get_family("articulated"))
    Path("mine.json").write_text(described.canonical_json())
    words = ("potential", "plot", "--program", "mine.json", "-o", "mine.png", "--json")
    assert strict(coda(*words, "--family", "articulated").out)["version"] == described.hash
    refused = coda(*words, "--family", "pick-place")
    assert refused.code == 6
    assert strict(refused.out)["error"]["remedy"] == "use --family articulated"


@pytest.mark.parametrize(
    ("words", "code", "named"),
    [
        (("-o", "phi.jpg"), 1, "phi.png"),
        (("-o", "none/phi.png"), 1, "none"),
        (("-o", "phi.png", "--seed", "-1"), 2, "--seed"),
    ],
)
def test_a_picture_that_cannot_be_made_is_refused_at_once(
    coda: Coda, words: tuple[str, ...], code: int, named: str
) -> None:
    answer = coda("potential", "plot", *words)
    assert answer.code == code
    assert named in answer.err
    assert not list(Path().iterdir())


@pytest.mark.parametrize(("mark", "table"), [("terms", term_table), ("rules", rule_table)])
def test_the_manual_holds_the_registry_and_the_rules_as_they_are(
    mark: str, table: Callable[[], str]
) -> None:
    page = (ROOT / "docs" / "text2potential.md").read_text(encoding="utf-8")
    _, _, after = page.partition(f"<!-- {mark} -->\n")
    shown, _, _ = after.partition("\n<!-- end -->")
    assert shown == table()
