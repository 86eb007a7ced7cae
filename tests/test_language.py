"""Referring expressions: what a phrase is true of, and phrases made to be true of one thing."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coda_envs.errors import SceneError
from coda_envs.family import get_family
from coda_envs.language import (
    MODES,
    MODIFIERS,
    OBJECT,
    ORDER_MARGIN,
    PLACE_MARGIN,
    SIZE_MARGIN,
    Referent,
    ambiguity,
    check_instruction,
    refer,
    referents,
)
from coda_envs.scene import Scene


def thing(
    role: str,
    noun: str = "cube",
    color: str | None = "red",
    size: float | None = 0.02,
    x: float = 0.0,
    y: float = 0.0,
    z: float = 0.02,
    free: bool = True,
) -> Referent:
    return Referent(role, color, noun, size, x, y, z, free)


#: On the table: two red cubes and a blue one, a red cylinder, and a red tray that cannot be moved.
TABLE = (
    thing("target", color="red", size=0.020, x=0.00, y=0.15),
    thing("distractor_1", color="red", size=0.030, x=0.08, y=-0.10),
    thing("distractor_2", color="blue", size=0.024, x=-0.10, y=0.05),
    thing("distractor_3", noun="cylinder", color="red", size=0.015, x=0.02, y=0.25),
    thing("receptacle", noun="tray", color="red", size=0.080, x=0.10, y=-0.25, free=False),
)
DRAWERS = tuple(
    thing(role, noun="drawer", color="white", size=0.1, z=z, free=False)
    for role, z in (("drawer_1", 0.04), ("drawer_2", 0.12), ("drawer_3", 0.20))
)


def wider(a: Referent, b: Referent) -> bool:
    return a.size is not None and b.size is not None and a.size - b.size >= SIZE_MARGIN


# What each word says of a thing and any other of its kind, written down apart from the library.
COMPARED: dict[str, Callable[[Referent, Referent], bool]] = {
    "small": lambda a, b: wider(b, a),
    "large": wider,
    "left": lambda a, b: a.y - b.y >= PLACE_MARGIN,
    "right": lambda a, b: b.y - a.y >= PLACE_MARGIN,
    "front": lambda a, b: b.x - a.x >= PLACE_MARGIN,
    "back": lambda a, b: a.x - b.x >= PLACE_MARGIN,
    "top": lambda a, b: a.z - b.z >= ORDER_MARGIN,
    "bottom": lambda a, b: b.z - a.z >= ORDER_MARGIN,
}
#: The words a mode chooses from.
CHOICES = {
    "size_shape": ("small", "large"),
    "place": ("left", "right", "front", "back"),
    "order": ("top", "middle", "bottom"),
}


def true_of(phrase: str, things: tuple[Referent, ...]) -> tuple[str, ...]:
    """The meaning of a phrase, by brute force."""
    *words, noun = phrase.split()
    kind = [t for t in things if t.noun == noun or (noun == OBJECT and t.free)]

    def fits(word: str, one: Referent) -> bool:
        others = [t for t in kind if t.role != one.role]
        if word == "middle":
            heights = sorted(t.z for t in kind)
            gaps = np.diff(heights)
            at = heights.index(one.z)
            clear = all(gap >= ORDER_MARGIN for gap in gaps[max(at - 1, 0) : at + 1])
            return len(kind) > 1 and clear and 2 * at + 1 == len(kind)
        if word in COMPARED:
            return bool(others) and all(COMPARED[word](one, other) for other in others)
        return one.color == word

    return tuple(t.role for t in kind if all(fits(w, t) for w in words))


@st.composite
def scenes(draw: st.DrawFn, lacking: bool = False) -> tuple[Referent, ...]:
    """One to five things, often alike and often near a margin; the first is the target.

    ``lacking``: colours and sizes may be missing.
    """
    missing = [None] if lacking else []
    centimetres = st.integers(-15, 15).map(lambda cm: cm / 100)
    return tuple(
        Referent(
            role=f"thing_{i}",
            color=draw(st.sampled_from(["red", "blue", *missing])),
            noun=draw(st.sampled_from(["cube", "drawer"])),
            size=draw(st.sampled_from([0.018, 0.020, 0.023, 0.025, *missing])),
            x=draw(centimetres),
            y=draw(centimetres),
            z=draw(st.sampled_from([0.02, 0.04, 0.06, 0.10])),
            free=draw(st.booleans()),
        )
        for i in range(draw(st.integers(1, 5)))
    )


# Made and checked -----------------------------------------------------------------------------


@given(scenes(), st.sampled_from(MODES))
def test_a_phrase_fits_exactly_its_target_or_the_reason_says_why(
    things: tuple[Referent, ...], mode: str
) -> None:
    target, *others = things
    phrase = refer(mode, target, others)
    expected = true_of(phrase, things)
    assert referents(phrase, things) == expected
    reason = ambiguity(phrase, target, things)
    if expected == (target.role,):
        assert reason is None
    elif target.role not in expected:
        assert reason == f"does not fit {target.role}"
    else:
        others_too = " and ".join(role for role in expected if role != target.role)
        assert reason == f"fits {others_too} too"


@given(scenes(lacking=True), st.sampled_from(sorted(CHOICES)))
def test_a_mode_finds_a_true_phrase_where_it_has_one(
    things: tuple[Referent, ...], mode: str
) -> None:
    target, *others = things
    possible = [f"{word} {target.noun}" for word in CHOICES[mode]]
    exact = [p for p in possible if true_of(p, things) == (target.role,)]
    if target.size is None and mode == "size_shape":
        assert exact == []
        with pytest.raises(SceneError, match="needs a size, and 'thing_0' has none"):
            refer(mode, target, others)
    elif exact:
        assert refer(mode, target, others) in exact


@given(
    scenes(lacking=True),
    st.lists(st.sampled_from(MODIFIERS), max_size=4).flatmap(
        lambda words: st.tuples(st.just(words), st.permutations(words))
    ),
    st.booleans(),
)
def test_the_order_of_modifiers_does_not_matter(
    things: tuple[Referent, ...], orders: tuple[list[str], list[str]], kind: bool
) -> None:
    noun = things[0].noun if kind else OBJECT
    expected = true_of(" ".join([*orders[0], noun]), things)
    for words in orders:
        assert referents(" ".join([*words, noun]), things) == expected


@pytest.mark.parametrize(
    ("mode", "role", "phrase", "reason"),
    [
        ("color", "distractor_2", "blue object", None),
        ("color", "target", "red object", "fits distractor_1 and distractor_3 too"),
        ("color", "receptacle", "red object", "does not fit receptacle"),
        ("shape", "distractor_3", "cylinder", None),
        ("shape", "receptacle", "tray", None),
        ("shape", "target", "cube", "fits distractor_1 and distractor_2 too"),
        ("color_shape", "distractor_3", "red cylinder", None),
        ("color_shape", "target", "red cube", "fits distractor_1 too"),
        ("size_shape", "target", "small cube", None),
        ("size_shape", "distractor_1", "large cube", None),
        ("size_shape", "distractor_2", "small cube", "does not fit distractor_2"),
        ("place", "target", "left cube", None),
        ("place", "distractor_1", "right cube", None),
        ("place", "distractor_2", "front cube", None),
        # The only tray is neither left nor right.
        ("place", "receptacle", "left tray", "does not fit receptacle"),
    ],
)
def test_phrases_of_a_table(mode: str, role: str, phrase: str, reason: str | None) -> None:
    target = next(t for t in TABLE if t.role == role)
    assert refer(mode, target, [t for t in TABLE if t.role != role]) == phrase
    assert ambiguity(phrase, target, TABLE) == reason


def test_the_one_that_stands_out_to_the_back_is_called_that() -> None:
    near, far = thing("near", x=-0.10, y=0.03), thing("far", x=0.10, y=-0.03)
    # The target itself among the others changes nothing.
    for others in ((near, far), (far, near)):
        assert refer("place", far, others) == "back cube"
        assert refer("place", near, others) == "front cube"


def test_drawers_are_told_apart_by_height() -> None:
    bottom, middle, top = DRAWERS
    for drawer, word in ((bottom, "bottom"), (middle, "middle"), (top, "top")):
        assert refer("order", drawer, DRAWERS) == f"{word} drawer"
        assert ambiguity(f"{word} drawer", drawer, DRAWERS) is None
    # Two drawers have no middle one, and one drawer none at all.
    assert referents("middle drawer", DRAWERS[:2]) == ()
    assert referents("top drawer", DRAWERS[:1]) == ()


@pytest.mark.parametrize(
    ("phrase", "roles"),
    [
        ("small red cube", ("target",)),
        ("red small cube", ("target",)),
        # The blue cube is the front one, so no red cube is.
        ("front red cube", ()),
        # A cylinder is smaller than every cube, a tray is no object.
        ("small object", ("distractor_3",)),
        ("large object", ("distractor_1",)),
        ("left object", ("distractor_3",)),
        ("object", ("target", "distractor_1", "distractor_2", "distractor_3")),
        ("red blue cube", ()),
        ("green cube", ()),
        ("red tray", ("receptacle",)),
    ],
)
def test_what_phrases_are_true_of(phrase: str, roles: tuple[str, ...]) -> None:
    assert referents(phrase, TABLE) == roles


# Margins ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "column", "margin"),
    [
        (("large", "small"), "size", SIZE_MARGIN),
        (("left", "right"), "y", PLACE_MARGIN),
        (("back", "front"), "x", PLACE_MARGIN),
        (("top", "bottom"), "z", ORDER_MARGIN),
    ],
)
def test_a_comparison_needs_a_clear_margin(
    words: tuple[str, str], column: str, margin: float
) -> None:
    more, less = words
    for gap, told in ((1.01 * margin, True), (0.99 * margin, False), (0.0, False)):
        pair = (thing("low", **{column: 0.02}), thing("high", **{column: 0.02 + gap}))  # type: ignore[arg-type]
        assert referents(f"{more} cube", pair) == (("high",) if told else ())
        assert referents(f"{less} cube", pair) == (("low",) if told else ())


def test_two_cubes_of_nearly_equal_size_are_not_small_and_large() -> None:
    one, two = thing("target", size=0.020), thing("distractor_1", size=0.021)
    phrase = refer("size_shape", one, [two])
    assert phrase == "small cube"
    assert ambiguity(phrase, one, (one, two)) == "does not fit target"


def test_every_thing_of_the_kind_must_be_beyond_the_margin() -> None:
    pair = (thing("one", y=0.10), thing("two", y=0.0))
    assert referents("left cube", pair) == ("one",)
    assert referents("left cube", (*pair, thing("three", y=0.08))) == ()
    # A thing of another kind is not compared with.
    assert referents("left cube", (*pair, thing("other", noun="bar", y=0.2))) == ("one",)


def test_the_middle_drawer_is_clear_of_every_other() -> None:
    near = thing("near", noun="drawer", z=DRAWERS[1].z + 0.9 * ORDER_MARGIN)
    assert referents("middle drawer", DRAWERS) == ("drawer_2",)
    assert referents("middle drawer", (*DRAWERS[:2], near)) == ()
    assert referents("middle drawer", (*DRAWERS, near)) == ()


def test_sizes_that_are_not_known_are_not_compared() -> None:
    pair = (thing("one", size=0.01), thing("two", size=None))
    assert referents("small cube", pair) == ()
    assert referents("large cube", pair) == ()


# Instructions -----------------------------------------------------------------------------------

TWICE = "says 'cube', which fits target and distractor_1 and distractor_2"


@pytest.mark.parametrize(
    ("instruction", "reason"),
    [
        ("put the small red cube in the tray", None),
        ("The small, Red cube: lift it.", None),
        ("take the left cube to the edge of the table", None),
        # A word for a place that stands before no noun says nothing about a thing.
        ("the small cube goes to the left of the tray", None),
        ("put the red cube in the tray", "says 'red cube', which fits target and distractor_1"),
        ("put the small cube on the cube", TWICE),
        ("put the small green cube in the tray", "says 'small green cube', which fits nothing"),
        ("put the blue cube in the tray", "does not name target"),
        ("put the crimson cube in the tray", "does not name target"),
        ("put a small cube in a tray", "does not name target"),
        ("do it", "does not name target"),
        ("", "does not name target"),
    ],
)
def test_an_instruction_names_its_target_and_nothing_unclearly(
    instruction: str, reason: str | None
) -> None:
    found = check_instruction(instruction, TABLE[0], TABLE)
    assert found == reason


def test_an_instruction_is_checked_for_each_of_its_roles() -> None:
    instruction = "open the top drawer and put the small cube into it"
    things = (*TABLE, *DRAWERS)
    assert check_instruction(instruction, TABLE[0], things) is None
    assert check_instruction(instruction, DRAWERS[2], things) is None
    assert check_instruction(instruction, DRAWERS[0], things) == "does not name drawer_1"


def things_of(scene: Scene) -> tuple[Referent, ...]:
    """What lies on the table of a pick-place scene. Its instructions speak of looks only."""
    looks = {role: dict(scene.attributes[role]) for role in scene.spatial}
    looks["receptacle"]["shape"] = scene.task.choices["receptacle"]
    return tuple(
        thing(role, str(look["shape"]), str(look["color"]), free=role != "receptacle")
        for role, look in looks.items()
    )


def test_every_instruction_of_pick_place_names_its_target() -> None:
    rng = np.random.default_rng(3)
    for _ in range(100):
        scene = get_family("pick-place").sample(rng, "generator")
        things = things_of(scene)
        target = next(t for t in things if t.role == "target")
        for instruction in (scene.task.instruction, *scene.task.paraphrases):
            assert check_instruction(instruction, target, things) is None


# Wrong use --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("phrase", "message"),
    [
        ("rad cube", r"unknown word 'rad' .*'rad cube'.*did you mean 'red'\?"),
        ("the red cube", "unknown word 'the'"),
        ("Red cube", r"unknown word 'Red'.*did you mean 'red'\?"),
        ("cube tray", "unknown word 'cube'"),
        ("red ball", r"ends in 'ball', which is no noun.*'cube', 'cylinder', 'object', 'tray'"),
        ("red cubes", r"ends in 'cubes'.*did you mean 'cube'\?"),
        ("cube red", "ends in 'red'"),
        ("red", "ends in 'red'"),
        ("  ", "has no words"),
    ],
)
def test_words_that_it_does_not_know_are_named(phrase: str, message: str) -> None:
    with pytest.raises(SceneError, match=message):
        referents(phrase, TABLE)


def test_modes_that_do_not_exist_or_do_not_apply_are_errors() -> None:
    with pytest.raises(SceneError, match=r"'colour'.*did you mean 'color'\?"):
        refer("colour", TABLE[0], TABLE)
    bare = thing("handle", noun="handle", color=None, size=None)
    for mode, what in (("color", "colour"), ("color_shape", "colour"), ("size_shape", "size")):
        with pytest.raises(SceneError, match=f"needs a {what}, and 'handle' has none"):
            refer(mode, bare, TABLE)


@pytest.mark.parametrize("noun", ["", "Cube", "red cube", "orange", "left", "middle", "the"])
def test_nouns_that_no_phrase_could_use_are_errors(noun: str) -> None:
    with pytest.raises(SceneError, match=r"the noun of 'target'"):
        thing("target", noun=noun)


def test_colours_that_do_not_exist_are_errors() -> None:
    with pytest.raises(SceneError, match=r"colour 'grey' of 'target'.*did you mean 'gray'\?"):
        thing("target", color="grey")


def test_the_target_must_be_one_of_distinct_things() -> None:
    with pytest.raises(SceneError, match="'target' is not among the scene's things"):
        ambiguity("red cube", TABLE[0], TABLE[1:])
    with pytest.raises(SceneError, match="'target' is not among the scene's things"):
        check_instruction("lift the blue cube", TABLE[0], TABLE[1:])
    twice = (*TABLE, TABLE[0])
    with pytest.raises(SceneError, match="two things have the role 'target'"):
        referents("red cube", twice)
    with pytest.raises(SceneError, match="two things have the role 'target'"):
        check_instruction("lift", TABLE[0], twice)
