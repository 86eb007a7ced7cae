"""Reading an instruction: a small fixed vocabulary, and words counted phrase by phrase.

Instructions are short commands about objects: ``put the red cube on the plate``. A verb opens a
phrase about what is moved, a preposition one about where it goes, so a word's phrase says which
object it describes. Words outside the vocabulary share a few hashed buckets.
"""

from __future__ import annotations

import re
import zlib
from functools import lru_cache

import numpy as np

from coda_envs.props import COLORS, SHAPES

COLOUR_WORDS = tuple(COLORS)
SHAPE_WORDS = tuple(SHAPES)
VERBS = (
    *("put", "place", "move", "pick", "take", "lift", "set", "lay", "drop", "bring", "carry"),
    *("push", "pull", "slide", "open", "close", "shut", "turn", "insert", "stack", "build"),
    "grasp",
)
PREPOSITIONS = ("on", "onto", "in", "into", "inside", "to", "over", "upon", "atop", "under", "at")
OTHER_WORDS = (
    *("the", "a", "an", "it", "and", "then", "up", "down", "of", "with", "that", "is", "from"),
    *("object", "thing", "item", "top", "left", "right", "front", "behind", "near", "far"),
    *("back", "bottom", "next", "between", "middle", "small", "smaller", "large", "larger", "big"),
    *("block", "tower", "handle", "knob", "cabinet", "bin", "hole", "slot", "shelf", "table"),
    *("off", "please"),
)
SPELLINGS = {"grey": "gray"}
BUCKETS = 16

WORDS = COLOUR_WORDS + SHAPE_WORDS + VERBS + PREPOSITIONS + OTHER_WORDS
#: Size of the vocabulary, hashed buckets included.
N_WORDS = len(WORDS) + BUCKETS
#: What is moved, and where it goes.
N_PHRASES = 2

_INDEX = {word: i for i, word in enumerate(WORDS)}
_OPENS = dict.fromkeys(VERBS, 0) | dict.fromkeys(PREPOSITIONS, 1)


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
    counts = np.zeros((N_PHRASES, N_WORDS), dtype=np.float32)
    phrase = 0
    for word in re.findall(r"\w+", raw.rstrip(b"\0").decode(errors="replace").lower()):
        phrase = _OPENS.get(word, phrase)
        counts[phrase, word_index(word)] += 1.0
    counts.setflags(write=False)
    return counts
