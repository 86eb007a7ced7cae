"""Reading instructions: which phrase says what, and which slots of a real scene it points at."""

from __future__ import annotations

import re

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from policy_cases import PRESENT, text
from scipy.spatial.transform import Rotation

from coda_envs.env import ManipulationEnv
from coda_envs.family import BUILT_IN, get_family
from coda_envs.scene import Scene
from coda_envs.sensing import object_table
from coda_trainer.policies.language import (
    BESIDES,
    MOVED,
    N_PHRASES,
    N_WORDS,
    PLACE,
    WORDS,
    count_words,
    word_index,
)
from coda_trainer.policies.observations import rotation_columns
from coda_trainer.policies.slot_reader import SlotReader

# Words ----------------------------------------------------------------------------------------


def said(instruction: str, *words: str) -> list[str]:
    """Which of the words each phrase says."""
    (counts,) = count_words(text(instruction)[None])
    return [" ".join(w for w in words if row[word_index(w)]) for row in counts]


@pytest.mark.parametrize(
    ("instruction", "moved", "place", "besides"),
    [
        ("put the red cube on the plate", "red", "plate", ""),
        ("onto the plate, put the red cube", "red", "plate", ""),
        ("pick up the red cube and put it on the plate", "red", "plate", ""),
        ("put the red and the blue cube on the plate", "red blue", "plate", ""),
        ("push the drawer with the red handle shut", "red drawer", "", ""),
        ("push the red peg down into the hole of the socket", "red", "socket", ""),
        ("stack the red bar on the blue block and the green block on top", "red", "blue", "green"),
        ("put the red bar on the blue block, then the green on the bar", "red", "blue", "green"),
        ("put the red bar on the blue block and then put the green on it", "red", "blue", "green"),
        ("build a tower of the blue block, the red bar and the green block, from the bottom up",
         "red", "blue", "green"),
        ("take the lid off and drop the red cube into the box", "red", "box", "lid"),
        ("open the drawer and drop the red cube into the drawer", "red", "drawer", "drawer"),
    ],
)  # fmt: skip
def test_phrases_tell_what_is_moved_where_to_and_what_besides(
    instruction: str, moved: str, place: str, besides: str
) -> None:
    names = ("red", "blue", "green", "plate", "socket", "box", "drawer", "lid")
    found = said(instruction, *names)
    assert (found[MOVED], found[PLACE], found[BESIDES]) == (moved, place, besides)


def test_on_top_does_not_speak_of_the_top_one() -> None:
    assert not any(said("stack the red bar on the blue block and the green block on top", "top"))
    assert said("open the top drawer", "top")[MOVED] == "top"


def test_words_are_counted_in_the_phrase_they_stand_in() -> None:
    counts = count_words(
        np.stack([text("Put the red cube on the plate."), text("onto the plate, put the red cube")])
    )
    assert counts.shape == (2, N_PHRASES, N_WORDS)
    for row in counts:
        assert row[0, word_index("red")] == row[0, word_index("cube")] == 1
        assert row[1, word_index("plate")] == 1
        assert row[1, word_index("red")] == 0


def test_unknown_words_share_fixed_buckets() -> None:
    assert word_index("grey") == word_index("gray") < len(WORDS)
    # Pinned: a checkpoint's buckets must mean the same in every process.
    assert [word_index(w) - len(WORDS) for w in ("teapot", "wobbly", "ünder")] == [2, 3, 2]
    assert count_words(np.full((1, 128), 0xFF, np.uint8)).sum() >= 0


@settings(deadline=None)
@given(st.binary(max_size=128))
def test_any_bytes_can_be_an_instruction(raw: bytes) -> None:
    counts = count_words(np.frombuffer(raw.ljust(128, b"\0"), np.uint8)[None])
    assert counts.shape == (1, N_PHRASES, N_WORDS)
    assert np.isfinite(counts).all()


def test_every_word_of_every_family_is_in_the_vocabulary() -> None:
    assert len(set(WORDS)) == len(WORDS)
    for family in (get_family(name) for name in BUILT_IN):
        rng = np.random.default_rng(0)
        for _ in range(150):
            task = family.sample(rng, "generator").task
            for wording in (task.instruction, *task.paraphrases):
                words = re.findall(r"\w+", wording.lower())
                assert all(word_index(w) < len(WORDS) for w in words), (family.name, wording)


# Slots ----------------------------------------------------------------------------------------


def pointed(scene: Scene, role: str, phrase: int, seed: int) -> float | None:
    """How strongly an untrained reader's phrase points at a role; None where the role is absent."""
    env = ManipulationEnv(scene.family)
    obs, _ = env.reset(seed=seed, options={"scene": scene})
    features, schema = env.features, env.family.schema
    env.close()
    first = schema.role_offset(role)
    if not features[schema.index(f"{role}.present")]:
        return None
    objects = object_table(obs["objects"])
    with torch.inference_mode():
        counts = torch.from_numpy(count_words(obs["instruction"][None]))
        match = SlotReader().match(torch.from_numpy(objects[None]), counts)[0].numpy()
    gaps = np.linalg.norm(objects[:, :3] - features[first + 1 :][:3], axis=1)
    return float(match[phrase, (gaps + 9 * (objects[:, PRESENT] == 0)).argmin()])


@pytest.mark.parametrize(
    ("family", "phrases"),
    [
        ("pick-place", {"target": MOVED, "receptacle": PLACE}),
        ("put-inside", {"target": MOVED, "receptacle": PLACE}),
        ("stack-insert", {"target": MOVED, "receptacle": PLACE, "second": BESIDES}),
        ("articulated", {"target": MOVED}),
    ],
)
def test_an_untrained_reader_already_points_at_what_the_families_name(
    family: str, phrases: dict[str, int]
) -> None:
    asked = 0
    for seed in range(24):
        scene = get_family(family).sample(np.random.default_rng(seed), "generator", "ood")
        # What kind of handle a drawer has, its slot does not show.
        if scene.task.choices["reference"] in ("handle", "color_handle"):
            continue
        for role, phrase in phrases.items():
            share = pointed(scene, role, phrase, seed)
            asked += share is not None
            assert share is None or share > 0.9, (role, scene.task.instruction)
    assert asked >= 5 * len(phrases)


@settings(deadline=None)
@given(st.lists(st.floats(-3, 3), min_size=3, max_size=3))
def test_rotation_columns_agree_with_scipy(vector: list[float]) -> None:
    columns = rotation_columns(torch.tensor([vector], dtype=torch.float32))[0].numpy()
    matrix = Rotation.from_rotvec(vector).as_matrix()
    np.testing.assert_allclose(columns, np.concatenate((matrix[:, 0], matrix[:, 1])), atol=1e-5)
