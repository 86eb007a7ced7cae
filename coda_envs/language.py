"""Referring expressions: noun phrases made from a scene, and checked to be true of one thing.

A phrase is any number of modifiers in any order, then a noun: ``small red cube``. A thing fits if
the noun and every modifier are true of it. Size, place and order compare it with every other thing
that the noun is true of, whatever the other modifiers say: ``left red cube`` is a red cube that is
the leftmost of all cubes. With nothing to compare with they are true of nothing.

Places are the robot's own, never a camera's: left is to the robot's left, front is near the robot.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from coda_envs.errors import SceneError, short, suggest
from coda_envs.props import COLORS

#: How a phrase can pick out a thing; see :func:`refer`.
MODES = ("color", "shape", "color_shape", "size_shape", "place", "order")
#: The noun that is true of everything that can be carried away.
OBJECT = "object"
#: "small" and "large": the half width differs by this (m) from every other one's.
SIZE_MARGIN = 0.004
#: "left", "right", "front" and "back": this far (m) beyond every other one, middle to middle.
PLACE_MARGIN = 0.05
#: "top", "middle" and "bottom": this far (m) above or below every other one, middle to middle.
ORDER_MARGIN = 0.03


class _Relation(NamedTuple):
    """Of what quantity the most (sign +1) or the least (−1) is meant, and by what margin (m)."""

    quantity: str
    sign: int
    margin: float


_RELATIONS = {
    "small": _Relation("size", -1, SIZE_MARGIN),
    "large": _Relation("size", 1, SIZE_MARGIN),
    "left": _Relation("y", 1, PLACE_MARGIN),
    "right": _Relation("y", -1, PLACE_MARGIN),
    "front": _Relation("x", -1, PLACE_MARGIN),
    "back": _Relation("x", 1, PLACE_MARGIN),
    "top": _Relation("z", 1, ORDER_MARGIN),
    "bottom": _Relation("z", -1, ORDER_MARGIN),
}
_SIZES = ("small", "large")
_PLACES = ("left", "right", "front", "back")
_MIDDLE = "middle"
_ARTICLE = "the"

#: Every word that can stand before a noun.
MODIFIERS = (*COLORS, *_RELATIONS, _MIDDLE)


@dataclass(frozen=True)
class Referent:
    """One thing of a scene, as language can speak of it.

    ``noun``: one lower-case word that is no modifier. ``color``: a key of ``COLORS``, None where it
    has no one colour. ``size``: half width (m), None where none would mean much. ``x``, ``y``,
    ``z``: its middle in the table frame (m; x away from the robot, y to the robot's left, z up).
    ``free``: it can be carried away, so that "object" may mean it.

    Raises :class:`SceneError` for a noun or a colour that no phrase could use.
    """

    role: str
    color: str | None
    noun: str
    size: float | None
    x: float
    y: float
    z: float
    free: bool = True

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[a-z]+(-[a-z]+)*", self.noun):
            raise SceneError(
                f"the noun of {self.role!r} is {short(self.noun)}.",
                allowed="one word of the letters a to z, parts joined by hyphens",
            )
        if self.noun in MODIFIERS or self.noun == _ARTICLE:
            raise SceneError(
                f"the noun of {self.role!r} is {self.noun!r}, which means something else.",
                remedy="choose another noun",
            )
        if self.color is not None and self.color not in COLORS:
            raise SceneError(
                f"unknown colour {short(self.color)} of {self.role!r}.",
                allowed=suggest(self.color, COLORS),
            )


def refer(mode: str, target: Referent, others: Sequence[Referent]) -> str:
    """A noun phrase without article that speaks of ``target`` in the given mode.

    ``color``: "red object"; ``shape``: "cube"; ``color_shape``: "red cube"; ``size_shape``: "small
    cube"; ``place``: "left cube", by the direction in which it stands out most; ``order``: "top
    drawer". ``others``: the scene's other things; the target itself among them changes nothing.

    The phrase is the mode's best try, and need not be true: :func:`ambiguity` tells. Raises
    :class:`SceneError` for an unknown mode, or one that needs a colour or size that the target
    lacks.
    """
    peers = [o for o in others if o.role != target.role and o.noun == target.noun]
    if mode == "color":
        return f"{_color(target, mode)} {OBJECT}"
    if mode == "shape":
        return target.noun
    if mode == "color_shape":
        return f"{_color(target, mode)} {target.noun}"
    if mode == "size_shape":
        if target.size is None:
            raise _lacking(target, mode, "size")
        return f"{_clearest(_SIZES, target, peers)} {target.noun}"
    if mode == "place":
        return f"{_clearest(_PLACES, target, peers)} {target.noun}"
    if mode == "order":
        return f"{_order_word(target, peers)} {target.noun}"
    raise SceneError(f"unknown mode of reference {short(mode)}.", allowed=suggest(mode, MODES))


def referents(phrase: str, things: Sequence[Referent]) -> tuple[str, ...]:
    """Roles that a noun phrase without article is true of, in the order of ``things``.

    ``things``: everything in the scene; nouns are theirs and "object". Raises :class:`SceneError`
    where the last word is not a known noun or one before it not a known modifier, and where two
    things have the same role.
    """
    _distinct(things)
    nouns = {OBJECT, *(t.noun for t in things)}
    words = phrase.split()
    if not words:
        raise SceneError("the phrase has no words.", allowed="modifiers, then a noun")
    *modifiers, noun = words
    if noun not in nouns:
        raise SceneError(
            f"the phrase {short(phrase)} ends in {short(noun)}, which is no noun in this scene.",
            allowed=suggest(noun, nouns),
        )
    for word in modifiers:
        if word not in MODIFIERS:
            raise SceneError(
                f"unknown word {short(word)} in the phrase {short(phrase)}.",
                allowed=f"before the noun: {suggest(word, MODIFIERS)}",
            )
    kind = [t for t in things if t.noun == noun or (noun == OBJECT and t.free)]
    return tuple(
        thing.role
        for thing in kind
        if all(_holds(w, thing, [k for k in kind if k is not thing]) for w in modifiers)
    )


def ambiguity(phrase: str, target: Referent, things: Sequence[Referent]) -> str | None:
    """Why a phrase does not pick out ``target``, or None: "fits distractor_1 too".

    ``things``: everything in the scene, the target too. Raises :class:`SceneError` as
    :func:`referents` does, and where the target is not among the things.
    """
    _among(target, things)
    found = referents(phrase, things)
    if target.role not in found:
        return f"does not fit {target.role}"
    others = [role for role in found if role != target.role]
    return f"fits {' and '.join(others)} too" if others else None


def check_instruction(instruction: str, target: Referent, things: Sequence[Referent]) -> str | None:
    """Why an instruction does not name ``target``, or names something unclearly; None if it does.

    Every "the", modifiers and noun of the scene in it, as in "put **the red cube** in **the
    tray**", must be true of one thing, and one of them of the target. Other words are passed over:
    nothing here knows what a verb asks for, or a place named after the noun. ``things``: everything
    in the scene, the target too. Raises :class:`SceneError` where the target is not among them or
    two have the same role.
    """
    _distinct(things)
    _among(target, things)
    named = False
    for phrase in _noun_phrases(instruction, {OBJECT, *(t.noun for t in things)}):
        found = referents(phrase, things)
        if len(found) != 1:
            return f"says {phrase!r}, which fits {' and '.join(found) or 'nothing'}"
        named = named or found[0] == target.role
    return None if named else f"does not name {target.role}"


def _noun_phrases(text: str, nouns: set[str]) -> list[str]:
    """What follows each "the" of the text, if it is modifiers and then one of the nouns."""
    words = re.findall(r"[\w-]+", text.lower())
    phrases = []
    for start, article in enumerate(words, 1):
        end = start
        while end < len(words) and words[end] in MODIFIERS:
            end += 1
        if article == _ARTICLE and end < len(words) and words[end] in nouns:
            phrases.append(" ".join(words[start : end + 1]))
    return phrases


def _holds(word: str, thing: Referent, peers: Sequence[Referent]) -> bool:
    """Whether a modifier is true of a thing, compared with the others of its kind."""
    if word in COLORS:
        return thing.color == word
    if word == _MIDDLE:
        # As many above as below, and every one clearly either.
        under = sum(_ahead("bottom", thing, p) >= ORDER_MARGIN for p in peers)
        over = sum(_ahead("top", thing, p) >= ORDER_MARGIN for p in peers)
        return under == over > 0 and under + over == len(peers)
    return _lead(word, thing, peers) >= _RELATIONS[word].margin


def _ahead(word: str, thing: Referent, other: Referent) -> float:
    """How much more (m) the relation's word is true of a thing than of the other.

    −∞ where the size of one is unknown.
    """
    relation = _RELATIONS[word]
    mine, theirs = (getattr(t, relation.quantity) for t in (thing, other))
    return -math.inf if mine is None or theirs is None else float(relation.sign * (mine - theirs))


def _lead(word: str, thing: Referent, peers: Sequence[Referent]) -> float:
    """How far (m) a thing is ahead of all others; −∞ with none to compare with."""
    return min((_ahead(word, thing, p) for p in peers), default=-math.inf)


def _clearest(words: Sequence[str], target: Referent, peers: Sequence[Referent]) -> str:
    """The word by which the target is furthest ahead of the others; the first of equals."""
    return max(words, key=lambda word: _lead(word, target, peers))


def _order_word(target: Referent, peers: Sequence[Referent]) -> str:
    over = sum(p.z > target.z for p in peers)
    under = sum(p.z < target.z for p in peers)
    if over == under:
        return _MIDDLE
    return "top" if over < under else "bottom"


def _color(target: Referent, mode: str) -> str:
    if target.color is None:
        raise _lacking(target, mode, "colour")
    return target.color


def _lacking(target: Referent, mode: str, what: str) -> SceneError:
    return SceneError(
        f"the mode of reference {mode!r} needs a {what}, and {target.role!r} has none.",
        remedy=f"choose another mode, or give it a {what}",
    )


def _distinct(things: Sequence[Referent]) -> None:
    roles = [t.role for t in things]
    for role in roles:
        if roles.count(role) > 1:
            raise SceneError(f"two things have the role {role!r}.", allowed="one thing a role")


def _among(target: Referent, things: Sequence[Referent]) -> None:
    if target not in things:
        raise SceneError(
            f"{target.role!r} is not among the scene's things.",
            allowed=", ".join(repr(t.role) for t in things) or None,
            remedy="pass everything in the scene, the target too",
        )
