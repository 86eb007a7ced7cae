"""What the tests of the built-in policies share: object tables, words, and a small task."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from coda_envs.props import COLORS, SHAPES
from coda_envs.sensing import N_SLOTS, SLOT_COLUMNS
from coda_trainer.backbone import ChunkBatch

COLUMN = {name: i for i, name in enumerate(SLOT_COLUMNS)}
PRESENT = COLUMN["present"]
PAIRS = [(c, s) for c in ("red", "green", "blue", "yellow", "purple", "orange") for s in SHAPES[:3]]
#: Every colour and every shape also occurs in the pairs that are seen.
UNSEEN = [("red", "cube"), ("blue", "bar"), ("orange", "cylinder")]
SEEN = [p for p in PAIRS if p not in UNSEEN]


def text(instruction: str) -> np.ndarray:
    raw = instruction.encode()
    return np.frombuffer(raw.ljust(128, b"\0"), dtype=np.uint8)


def table(objects: Sequence[tuple[str, str]], rng: np.random.Generator) -> np.ndarray:
    """Objects at random places, in the order given, the other slots empty."""
    rows = np.zeros((N_SLOTS, len(SLOT_COLUMNS)), dtype=np.float32)
    for row, (color, shape) in zip(rows, objects, strict=False):
        yaw = rng.uniform(-1, 1)
        row[:3] = (*rng.uniform(-0.25, 0.25, 2), 0.02)
        row[3:9] = (math.cos(yaw), math.sin(yaw), 0, -math.sin(yaw), math.cos(yaw), 0)
        row[COLUMN["half_x"] :][:3] = rng.uniform(0.015, 0.03, 3)
        row[COLUMN[f"is_{shape}"]] = 1.0
        row[COLUMN["red"] :][:3] = COLORS[color]
        row[PRESENT] = 1.0
    return rows


def world(
    count: int, seed: int = 0, pairs: Sequence[tuple[str, str]] = SEEN
) -> tuple[ChunkBatch, np.ndarray]:
    """Reaching for the named one of three objects, and the slot it stands in.

    Distractors share the target's colour or its shape, so both words are needed.
    """
    rng = np.random.default_rng(seed)
    proprio, objects, words, actions, slots = [], [], [], [], []
    for _ in range(count):
        color, shape = pairs[int(rng.integers(len(pairs)))]
        same_color = [p for p in PAIRS if p[0] == color and p[1] != shape]
        same_shape = [p for p in PAIRS if p[1] == shape and p[0] != color]
        others = [same_color[rng.integers(2)], same_shape[rng.integers(5)]]
        rows = table([(color, shape), *others, ("white", "plate")], rng)
        order = rng.permutation(N_SLOTS)
        hand = np.array([*rng.uniform(-0.25, 0.25, 2), 0.2, math.pi, 0, 0, 0.04, -0.04])
        chunk = np.zeros((8, 7))
        chunk[:, :3] = np.clip(2 * (rows[0, :3] - hand[:3]), -1, 1)
        chunk[:, 6] = -1.0
        proprio.append(hand)
        objects.append(rows[order])
        words.append(text(f"put the {color} {shape} on the plate"))
        actions.append(chunk)
        slots.append(int(np.flatnonzero(order == 0)[0]))
    obs = {
        "proprio": np.array(proprio, dtype=np.float32),
        "objects": np.array(objects).reshape(count, -1),
        "instruction": np.array(words),
    }
    valid = np.ones((count, 8), dtype=bool)
    return ChunkBatch(obs, np.array(actions, dtype=np.float32), valid), np.array(slots)
