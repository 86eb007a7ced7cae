"""Reading an instruction: a small fixed vocabulary, and words counted phrase by phrase.

Instructions are short commands about objects: ``put the red cube on the plate``. A verb opens a
phrase about what is moved, a preposition one about where it goes, so a word's phrase says which
object it describes. A third phrase is about what is moved besides: afterwards (``stack the red bar
on the blue block and the green block on top``) or out of the way first (``take the lid off and drop
the red bar into the box``). Words outside the vocabulary share a few hashed buckets.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import pairwise

import numpy as np

from coda_envs.props import COLORS, SHAPES

COLOUR_WORDS = tuple(COLORS)
SHAPE_WORDS = tuple(SHAPES)
#: Words that compare a thing with the others of its kind.
RELATION_WORDS = ("small", "large", "left", "right", "front", "back", "top", "bottom", "middle")
VERBS = (
    *("put", "place", "move", "pick", "take", "lift", "set", "lay", "drop", "bring", "carry"),
    *("push", "pull", "slide", "open", "close", "shut", "turn", "insert", "stack", "build"),
    "grasp",
)
PREPOSITIONS = ("on", "onto", "in", "into", "inside", "to", "over", "upon", "atop", "under", "at")
OTHER_WORDS = (
    *("the", "a", "an", "it", "and", "then", "up", "down", "of", "with", "that", "is", "from"),
    *("object", "thing", "item", "behind", "near", "far", "next", "between"),
    *("tower", "handle", "knob", "cabinet", "bin", "hole", "slot", "shelf", "table", "off"),
    "please",
)
#: Words that say the same as another one.
SPELLINGS = {
    "grey": "gray", "block": "cube", "smaller": "small", "larger": "large", "big": "large",
}  # fmt: skip
BUCKETS = 16

WORDS = COLOUR_WORDS + SHAPE_WORDS + RELATION_WORDS + VERBS + PREPOSITIONS + OTHER_WORDS
#: Size of the vocabulary, hashed buckets included.
N_WORDS = len(WORDS) + BUCKETS
#: What is moved, where it goes, and what is moved besides.
MOVED, PLACE, BESIDES = range(3)
N_PHRASES = 3

_INDEX = {word: i for i, word in enumerate(WORDS)}
#: What a further command may follow, and what a thing's name begins with.
_JOINTS, _ARTICLES = (",", "and", "then"), ("the", "a", "an")


def word_index(word: str) -> int:
    """Row of a lower-case word in the vocabulary; a fixed hash chooses an unknown word's bucket."""
    word = SPELLINGS.get(word, word)
    known = _INDEX.get(word)
    return len(WORDS) + zlib.crc32(word.encode()) % BUCKETS if known is None else known


def count_words(instructions: np.ndarray) -> np.ndarray:
    """How often each phrase says each word: ``[B, L]`` uint8 zero-padded UTF-8 →
    ``[B, N_PHRASES, N_WORDS]`` float32."""
    rows = np.ascontiguousarray(instructions, dtype=np.uint8)
    return np.stack([_count(row.tobytes()) for row in rows])


@lru_cache(maxsize=4096)
def _count(raw: bytes) -> np.ndarray:
    tokens = re.findall(r"\w+|,", raw.rstrip(b"\0").decode(errors="replace").lower())
    counts = np.zeros((N_PHRASES, N_WORDS), dtype=np.float32)
    for phrase, word in _tower(tokens) if "build" in tokens else _by_phrase(_commands(tokens)):
        counts[phrase, word_index(word)] += 1.0
    counts.setflags(write=False)
    return counts


def _commands(tokens: Sequence[str]) -> list[list[str]]:
    """The words of each command. A joint ends one where a verb follows it, or where the command
    has named a place and another thing follows: ``… on the plate and the bar on top``."""
    commands: list[list[str]] = [[]]
    after_joint = False
    for token in tokens:
        if token in _JOINTS:
            after_joint = True
            continue
        now = commands[-1]
        further = _says(now, VERBS) if token in VERBS else _says(now, PREPOSITIONS)
        if after_joint and further and token in (*VERBS, *_ARTICLES):
            commands.append([])
        commands[-1].append(token)
        after_joint = False
    return commands


def _by_phrase(commands: Sequence[Sequence[str]]) -> Iterator[tuple[int, str]]:
    """Each word with its phrase. The first command that names a place is the main one; another
    one moves something besides, and where that goes is what the main command has moved."""
    main = next((i for i, words in enumerate(commands) if _says(words, PREPOSITIONS)), 0)
    for i, words in enumerate(commands):
        # "Pick up the cube and put it on the plate" moves one thing.
        own = i == main or (i < main and "it" in commands[main])
        begins, after = (MOVED, PLACE) if own else (BESIDES, MOVED)
        phrase, before = begins, ""
        for word in words:
            if word in VERBS:
                phrase = begins
            elif word in PREPOSITIONS:
                phrase = after
            # "On top" does not speak of the top one.
            if (before, word) != ("on", "top"):
                yield phrase, word
            before = word


def _tower(tokens: Sequence[str]) -> Iterator[tuple[int, str]]:
    """Each word with its phrase, in ``build a tower of …``: the base, and what goes on it."""
    parts = iter((PLACE, MOVED, BESIDES))
    phrase = next(parts)
    for before, token in pairwise(("", *tokens)):
        if token not in _JOINTS:
            yield phrase, token
        elif before not in _JOINTS:
            following = next(parts, None)
            if following is None:
                return
            phrase = following


def _says(words: Iterable[str], any_of: Iterable[str]) -> bool:
    return not set(words).isdisjoint(any_of)
