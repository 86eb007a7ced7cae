"""A plugin for the tests of the loop: the expert, played from observations, with a weakness.

It knows how to pick and place, but freezes above a target wider than ``WIDE`` until it has had
``lessons`` updates. So a round finds a real difficulty mode within seconds, and training removes
it. In scenes of other families, which have no place to put things on, it holds still. With
``KILL_AT`` in the environment it kills its process when it is saved into a folder whose path holds
that text, at ``update:N.``, or at the first ``load:``.
"""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import numpy as np

from coda_envs.family import get_family
from coda_envs.instruction import decode_instruction
from coda_envs.props import COLORS, SHAPES
from coda_envs.sensing import SLOT_COLUMNS, object_table
from coda_trainer.backbone import BackboneSpec, ChunkBatch, ObsBatch

FAMILY = get_family("pick-place")
COLUMN = {name: i for i, name in enumerate(SLOT_COLUMNS)}
#: Half width (m) of the widest target it dares to grasp; the seed range goes from 0.018 to 0.024.
WIDE = 0.0215
#: The gap between the pads (m) when they are open.
OPEN = 0.078


class WeakPolicy:
    """See the module's docstring."""

    def __init__(self, seed: int = 0, lessons: int = 100) -> None:
        self.spec = BackboneSpec(
            name="weak_policy",
            horizon=2,
            execute=1,
            state_keys=("proprio", "objects"),
            trainable=True,
        )
        self.lessons = lessons
        self.updates = 0

    def reset(self, env_ids: Sequence[int] | None = None) -> None:
        """It remembers nothing."""

    def close(self) -> None:
        """It holds nothing."""

    def sample(self, obs: ObsBatch, n: int = 1, *, seed: int | None = None) -> np.ndarray:
        actions = np.stack(
            [
                self._act(*row)
                for row in zip(
                    obs["proprio"], object_table(obs["objects"]), obs["instruction"], strict=True
                )
            ]
        )
        return np.tile(actions[:, None, None], (1, n, self.spec.horizon, 1)).astype(np.float32)

    def update(self, batch: ChunkBatch, weight: np.ndarray) -> dict[str, float]:
        self.updates += 1
        _maybe_die(f"update:{self.updates}.")
        return {"loss": 1.0 / self.updates}

    def save(self, folder: Path) -> None:
        (folder / "weak.json").write_text(json.dumps({"updates": self.updates}))
        _maybe_die(str(folder))

    def load(self, folder: Path) -> None:
        _maybe_die(f"load:{folder}")
        self.updates = json.loads((folder / "weak.json").read_text())["updates"]

    def _act(self, proprio: np.ndarray, objects: np.ndarray, instruction: np.ndarray) -> np.ndarray:
        shapes = objects[:, COLUMN["is_plate"]] + objects[:, COLUMN["is_tray"]]
        if not (shapes * objects[:, COLUMN["present"]]).any():
            return np.zeros(7)
        state = _state(proprio, objects, decode_instruction(instruction))
        action = FAMILY.expert().act(state)  # type: ignore[arg-type]
        view = state.features
        wide = view[FAMILY.schema.index("target.half_y")] > WIDE
        low = view[FAMILY.schema.index("gripper.z")] < 0.10
        if wide and low and self.updates < self.lessons:
            return np.array([0.0, 0.0, 0.1, 0.0, 0.0, 0.0, -1.0])
        return action


def _maybe_die(where: str) -> None:
    wanted = os.environ.get("KILL_AT")
    if wanted and wanted in where:
        os.kill(os.getpid(), signal.SIGKILL)


def _state(proprio: np.ndarray, objects: np.ndarray, text: str) -> SimpleNamespace:
    """What the expert reads of an environment, made from what a policy may see."""
    schema = FAMILY.schema
    features = np.zeros(schema.size)

    def put(role: str, **values: float) -> None:
        for name, value in values.items():
            features[schema.index(f"{role}.{name}")] = value

    angle = float(np.linalg.norm(proprio[3:6]))
    axis = proprio[3:6] / max(angle, 1e-9)
    x_axis = np.array([1.0, 0.0, 0.0])
    turned = (
        x_axis * np.cos(angle)
        + np.cross(axis, x_axis) * np.sin(angle)
        + axis * axis[0] * (1 - np.cos(angle))
    )
    opening = float(proprio[6] - proprio[7])
    x, y, z = (float(v) for v in proprio[:3])
    closed = opening < OPEN
    put("gripper", x=x, y=y, z=z, yaw=float(np.arctan2(turned[1], turned[0])), opening=opening)
    put("gripper", command=1.0 if closed else -1.0)

    others = iter(("distractor_1", "distractor_2"))
    found = {}
    for row in objects[objects[:, COLUMN["present"]] > 0.5]:
        shape = SHAPES[int(np.argmax(row[COLUMN["is_" + SHAPES[0]] :][: len(SHAPES)]))]
        rgb = row[COLUMN["red"] : COLUMN["blue"] + 1]
        color = min(COLORS, key=lambda c: float(np.abs(np.array(COLORS[c][:3]) - rgb).sum()))
        if shape in ("plate", "tray"):
            role = "receptacle"
        elif _named(text, shape, color):
            role = "target"
        else:
            role = next(others)
        found[role] = row
        bx, by, bz = (float(v) for v in row[:3])
        hx, hy, hz = (float(row[COLUMN[f"half_{a}"]]) for a in "xyz")
        put(role, present=1.0, x=bx, y=by, z=bz, half_x=hx, half_y=hy, half_z=hz)
        yaw = float(np.arctan2(row[COLUMN["r10"]], row[COLUMN["r00"]]))
        period = {"bar": np.pi, "cube": np.pi / 2}.get(shape, 0.0)
        put(role, yaw=yaw, yaw_period=period)
        if shape in ("plate", "tray"):
            put(role, inner=hx - 0.01, surface_z=0.008 if shape == "tray" else 0.01)
    target, plate = found["target"], found["receptacle"]
    held = closed and opening < 2 * float(target[COLUMN["half_y"]]) + 0.006
    near = float(np.hypot(*(target[:2] - proprio[:2]))) < 0.02
    put("target", left=float(held and near), right=float(held and near))
    rests = float(target[2]) - features[schema.index("target.half_z")] < (
        features[schema.index("receptacle.surface_z")] + 0.006
    )
    put("target", supported=float(rests and float(np.hypot(*(target[:2] - plate[:2]))) < 0.05))
    return SimpleNamespace(family=FAMILY, features=features, control_hz=10)


def _named(text: str, shape: str, color: str) -> bool:
    """Whether the instruction is true of an object of this shape and colour."""
    words = set(re.findall(r"[a-z]+", text))
    named_color, named_shape = words & set(COLORS), words & set(SHAPES) - {"plate", "tray"}
    return (not named_color or color in named_color) and (not named_shape or shape in named_shape)
