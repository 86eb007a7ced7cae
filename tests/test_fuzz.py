"""Random edits and spoilt files: a scene or a clear error; no crash, no hang, no silent change.

The slow tests do what the fast ones do, ten thousand and two thousand times.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import strict
from corruption import corrupt_file, limited, random_edit
from hypothesis import given, settings
from hypothesis import strategies as st

from coda_envs.errors import CodaError, SceneError
from coda_envs.factor import ContinuousFactor, Value
from coda_envs.family import BUILT_IN, TaskFamily, get_family
from coda_envs.scene import Scene, load_scene, parse_scene
from coda_envs.validity import FAMILY_ERROR, validate
from coda_trainer.cli import main

FAMILIES = list(BUILT_IN)
EDITS, FILES = 10_000, 2_000
#: Longest message that still helps.
LONGEST = 3_000


# Edits -----------------------------------------------------------------------------------------


def depends(family: TaskFamily, path: str, on: str) -> bool:
    """Whether a factor exists only under a condition on another one, at any remove."""
    when = family.space[path].when
    return when is not None and (when.factor == on or depends(family, when.factor, on))


def edited(family: TaskFamily, at: Scene, path: str, value: Any) -> Scene | None:
    """The edited scene, held to all that an edit promises; None where the edit was refused."""
    before, refusal = at.canonical_json(), None
    with limited():
        try:
            after = at.edit(path, value)
        except SceneError as error:
            refusal = error
    assert at.canonical_json() == before
    if refusal is not None:
        assert len(str(refusal)) < LONGEST
        assert refusal.allowed or refusal.remedy
        return None
    for other in at.values.keys() | after.values.keys():
        if other in at.values and other in after.values:
            assert other == path or after.values[other] == at.values[other]
        else:
            assert depends(family, other, path)
    assert allowed(family, path, value, after.values[path])
    assert parse_scene(after.to_dict()) == after
    return after


def allowed(family: TaskFamily, path: str, asked: Any, got: Value) -> bool:
    """Whether the factor may take the value that was asked for, and took that one."""
    factor = family.space[path]
    if not isinstance(factor, ContinuousFactor):
        return bool(got == asked and got in factor.choices)
    low, high = factor.limits
    return low - 1e-9 <= asked <= high + 1e-9 and abs(float(got) - asked) <= 1e-6


def walk(name: str, seed: int, steps: int, judged: int) -> tuple[int, int]:
    """Edit scenes at random; how many edits were accepted, how many scenes judged."""
    family, rng = get_family(name), np.random.default_rng(seed)
    accepted = done = 0
    for step in range(steps):
        if step % 25 == 0:
            at = family.sample(rng, "generator")
        after = edited(family, at, *random_edit(rng, family, at))
        if after is None:
            continue
        at, accepted = after, accepted + 1
        if accepted % judged == 0:
            with limited():
                certificate = validate(at, solve_tries=0)
            # Whatever its factors allow makes a model; it need not make a good scene.
            assert certificate.reason not in ("factors", "compiles", FAMILY_ERROR)
            done += 1
    return accepted, done


@settings(max_examples=20)
@given(st.sampled_from(FAMILIES), st.integers(0, 2**32 - 1))
def test_random_edits_do_what_they_say_or_are_refused(name: str, seed: int) -> None:
    walk(name, seed, steps=25, judged=10)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", FAMILIES)
def test_ten_thousand_random_edits_do_what_they_say_or_are_refused(name: str) -> None:
    steps = EDITS // len(FAMILIES) + 1
    accepted, judged = walk(name, 7, steps, judged=20)
    # Both outcomes were tried in earnest.
    assert 0.3 * steps < accepted < 0.9 * steps
    assert judged > 0.01 * steps


LEAVES = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=20), st.binary()
)


@settings(max_examples=100)
@given(st.sampled_from(FAMILIES), st.text(max_size=30), LEAVES, st.booleans(), st.data())
def test_any_path_and_any_value_are_taken_or_refused(
    name: str, path: str, value: Any, known: bool, data: st.DataObject
) -> None:
    family = get_family(name)
    at = family.sample(np.random.default_rng(1), "generator")
    if known:
        path = data.draw(st.sampled_from(list(family.space.by_path)))
    edited(family, at, path, value)


# Files -----------------------------------------------------------------------------------------


def loaded(path: Path, content: bytes) -> Scene | None:
    """The scene that a file holds, or None where it was refused with a clear error."""
    path.write_bytes(content)
    message = ""
    with limited():
        try:
            found = load_scene(path)
        except CodaError as error:
            message = str(error)
    if message:
        assert path.name in message
        assert len(message) < LONGEST
        assert message.isprintable()
        return None
    assert parse_scene(json.loads(found.canonical_json())) == found
    with limited():
        certificate = validate(found, solve_tries=0)
    assert certificate.reason not in ("factors", "compiles", FAMILY_ERROR)
    return found


@settings(max_examples=60)
@given(st.sampled_from(FAMILIES), st.integers(0, 2**32 - 1))
def test_a_spoilt_file_is_a_scene_or_a_clear_error(
    tmp_path_factory: pytest.TempPathFactory, name: str, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    at = get_family(name).sample(rng, "generator")
    loaded(tmp_path_factory.getbasetemp() / "spoilt.yaml", corrupt_file(rng, at))


@settings(max_examples=100)
@given(st.one_of(st.binary(max_size=300), st.text(max_size=300).map(str.encode)))
def test_any_bytes_are_a_clear_error(
    tmp_path_factory: pytest.TempPathFactory, content: bytes
) -> None:
    assert loaded(tmp_path_factory.getbasetemp() / "bytes.yaml", content) is None


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", FAMILIES)
def test_two_thousand_spoilt_files_are_scenes_or_clear_errors(tmp_path: Path, name: str) -> None:
    family, rng = get_family(name), np.random.default_rng(11)
    count = FILES // len(FAMILIES) + 1
    scenes = 0
    for _ in range(count):
        content = corrupt_file(rng, family.sample(rng, "generator"))
        scenes += loaded(tmp_path / "spoilt.yaml", content) is not None
    # Some spoilt files are still scenes: a byte in the instruction, two lines in another order.
    assert 0.01 * count < scenes < 0.4 * count


@pytest.mark.parametrize("name", FAMILIES)
def test_the_command_line_answers_spoilt_files_with_one_clear_error(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], name: str
) -> None:
    family, rng = get_family(name), np.random.default_rng(13)
    path = tmp_path / "spoilt.yaml"
    codes = set()
    for number in range(24):
        path.write_bytes(corrupt_file(rng, family.sample(rng, "seed")))
        words = ["scene", "validate", str(path)] + ["--json"] * (number % 2)
        capfd.readouterr()
        with limited(30.0):
            code = main(words)
        out, err = capfd.readouterr()
        codes.add(code)
        assert code in (0, SceneError.exit_code)
        assert "Traceback" not in err
        assert err.count("error: ") == (code != 0)
        if number % 2:
            assert ("error" in strict(out)) == (code != 0)
    assert SceneError.exit_code in codes
