"""Annotations: asked blind, kept at once, compared by kappa."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from command_line import Coda, process, strict
from hypothesis import given
from hypothesis import strategies as st

from coda_envs.errors import CodaError
from coda_trainer.diagnosis.annotation import (
    Label,
    agreement,
    append_label,
    cohens_kappa,
    read_labels,
)
from coda_trainer.episode_file import write_episodes
from tests.program_cases import STAGES
from tests.synthetic_episodes import episode, scenes

SCENES = scenes(4)


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    """Two failures, a success, a failure; made for a mode whose name nobody may see."""
    made = [
        episode(scene, done, seed=i, source="mode-canary")
        for i, (scene, done) in enumerate(zip(SCENES, (1, 3, 5, 2), strict=True))
    ]
    write_episodes(tmp_path / "some.episodes", made, 10)
    return tmp_path


def label(where: Path, said: str, by: str = "anna") -> tuple[int, str, str]:
    words = ["annotate", "label", "some.episodes", "--by", by, "-o", f"{by}.jsonl", "--json"]
    started = process(words, where, stdin=-1)
    out, err = started.communicate(said, timeout=60)
    return started.returncode, out, err


def test_failures_are_asked_about_blind_and_answers_kept_at_once(recorded: Path) -> None:
    paths = sorted(SCENES[0].values)
    # The first failure's two questions, one after a slip of the finger, then the end.
    code, out, err = label(recorded, "2\nnine\n999\n3\nq\n")
    assert code == 0
    assert strict(out) == {"file": "anna.jsonl", "labels": 1, "new": 1, "left": 2}
    assert "canary" not in err
    assert "is none of these" in err
    (first,) = read_labels(recorded / "anna.jsonl").values()
    assert first == Label("anna", SCENES[0].id, 0, STAGES[1], paths[2])
    # Again: the first one is not asked about any more; 0 is "cannot tell".
    code, out, err = label(recorded, "0\n0\n1\n0\n")
    assert strict(out) == {"file": "anna.jsonl", "labels": 3, "new": 2, "left": 0}
    labels = read_labels(recorded / "anna.jsonl")
    assert (SCENES[2].id, 2) not in labels
    assert labels[SCENES[1].id, 1].stage == ""
    code, out, err = label(recorded, "", by="anna")
    assert strict(out)["new"] == 0


def test_two_annotators_have_a_file_each_and_a_kappa(recorded: Path, coda: Coda) -> None:
    label(recorded, "1\n1\n2\n2\n3\n3\n")
    label(recorded, "1\n1\n2\n0\n3\n3\n", by="ben")
    told = strict(coda("annotate", "agree", "anna.jsonl", "ben.jsonl", "--json").out)
    assert told["annotators"] == ["anna", "ben"]
    assert told["stage"]["kappa"] == pytest.approx(1.0)
    assert told["factor"]["n"] == 3
    assert told["factor"]["equal"] == pytest.approx(2 / 3)
    (recorded / "ben.jsonl").replace(recorded / "anna.jsonl")
    code, out, _ = label(recorded, "")
    assert code == 2
    assert "give each annotator a file" in strict(out)["error"]["remedy"]


def test_a_line_that_a_kill_cut_off_is_passed_over_and_taken_away(tmp_path: Path) -> None:
    path, one = tmp_path / "a.jsonl", Label("anna", "s", 1, "lift", "")
    append_label(path, one)
    with path.open("a") as file:
        file.write('{"annotator": "an')
    assert read_labels(path) == {("s", 1): one}
    append_label(path, Label("anna", "s", 2, "", ""))
    assert len(read_labels(path)) == 2


@pytest.mark.parametrize(
    "line",
    ["", "[]", "{", '{"annotator": 1}', json.dumps(dict.fromkeys(Label.__dataclass_fields__, 1))],
)
def test_a_line_that_is_no_label_is_named(tmp_path: Path, line: str) -> None:
    path = tmp_path / "a.jsonl"
    append_label(path, Label("anna", "s", 1, "lift", ""))
    with path.open("a") as file:
        file.write(line + "\n")
    with pytest.raises(CodaError, match=r"a\.jsonl, line 2 is no label"):
        read_labels(path)


def test_kappa_of_a_known_table() -> None:
    # Cohen's own way: p = .7, e = .5 · .6 + .5 · .4 = .5.
    one = ["yes"] * 25 + ["no"] * 25
    two = ["yes"] * 20 + ["no"] * 5 + ["yes"] * 10 + ["no"] * 15
    assert cohens_kappa(one, two) == pytest.approx(0.4)
    assert cohens_kappa(["a"] * 5, ["a"] * 5) is None


@given(st.lists(st.sampled_from("abc"), min_size=2, max_size=30))
def test_equal_answers_have_kappa_one_and_shuffled_ones_none_on_average(answers: list[str]) -> None:
    kappa = cohens_kappa(answers, answers)
    assert kappa is None or kappa == pytest.approx(1.0)
    rng = np.random.default_rng(0)
    if len(set(answers)) > 1:
        drawn = [cohens_kappa(answers, rng.permutation(answers).tolist()) for _ in range(400)]
        assert abs(float(np.mean([k for k in drawn if k is not None]))) < 0.2


def test_annotators_without_a_common_episode_cannot_be_compared() -> None:
    one = {("s", 1): Label("a", "s", 1, "lift", "")}
    with pytest.raises(CodaError, match="no episode has a label from both"):
        agreement(one, {})
