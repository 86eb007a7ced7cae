"""The bounded residual actor a = clip(b + s·tanh(r(e, b))) on a frozen backbone's chunk b."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

import numpy as np
import torch
from torch import Tensor, nn

from coda_envs.errors import ConfigError, LearningError, RunError
from coda_trainer.learning.chunk_basis import chunk_basis
from coda_trainer.learning.networks import Normaliser, mlp
from coda_trainer.learning.states import load_states

#: Reach of the residual for (x, y, z, rotation x, rotation y, yaw, gripper), in action units.
SCALE = (0.15, 0.15, 0.15, 0.02, 0.02, 0.2, 0.3)


@dataclass(frozen=True)
class ResidualConfig:
    """Shape and reach of a residual actor.

    ``execute``: h, the actions of a chunk that run. ``scale``: s, the most that the residual adds
    to each of the A action dimensions; a loose residual collapses (docs/learning.md). ``shift``:
    one residual for all h actions of a chunk, which leaves the critic A directions to judge in
    place of h·A. ``start``: factor on the last layer's first weights, so that training starts at b.
    ``basis``: h·A numbers for a chunk, coordinates of :func:`chunk_basis`, each within ``scale``;
    such a chunk is the mean of a Gaussian and may leave [-1, 1].
    """

    execute: int = 4
    scale: tuple[float, ...] = SCALE
    shift: bool = True
    width: int = 192
    start: float = 0.01
    basis: bool = False

    def __post_init__(self) -> None:
        if self.execute < 1 or self.width < 1:
            raise ConfigError(
                f"the residual has execute={self.execute} and width={self.width}.",
                allowed="whole numbers from 1",
            )
        if self.shift and self.basis:
            raise ConfigError(
                "the residual has shift=True and basis=True.",
                allowed="one of the two",
                remedy="set shift=False for a residual in the basis",
            )
        if not self.scale or not all(0 < s <= 1 for s in self.scale):
            raise ConfigError(
                f"the residual's scale is {self.scale}.",
                allowed="one number in (0, 1] for each action dimension",
            )


class ResidualActor(nn.Module):
    """r(e, b), and the chunk it makes of a base chunk."""

    scale: Tensor
    vectors: Tensor

    def __init__(self, config: ResidualConfig, encoding: int, generator: torch.Generator) -> None:
        """``encoding``: E, the size of the base's encoding. Weights come from ``generator``."""
        super().__init__()
        self.config = config
        self.encoding_size = encoding
        actions = config.execute * len(config.scale)
        outputs = len(config.scale) if config.shift else actions
        self.normaliser = Normaliser(encoding)
        self.network = mlp(encoding + actions, outputs, config.width, generator)
        last = self.network[-1]
        assert isinstance(last, nn.Linear)
        with torch.no_grad():
            last.weight.mul_(config.start)
            last.bias.mul_(config.start)
        self.register_buffer("scale", torch.tensor(config.scale), persistent=False)
        vectors = torch.from_numpy(chunk_basis(config.execute).astype(np.float32))
        self.register_buffer("vectors", vectors, persistent=False)

    def forward(self, encoding: Tensor, base: Tensor) -> tuple[Tensor, Tensor]:
        """``(chunk [B, h, A], tanh(r) [B, h, A])`` for ``encoding [B, E]``, ``base [B, h, A]``;
        tanh(r) in coordinates of the basis where the residual is."""
        inputs = torch.cat([self.normaliser(encoding), base.flatten(1)], dim=1)
        steps = 1 if self.config.shift else base.shape[1]
        lean = torch.tanh(self.network(inputs)).view(len(base), steps, -1).expand_as(base)
        if self.config.basis:
            # Not clipped: it is the mean of a Gaussian whose samples the environment clips.
            return base + torch.einsum("kt,bka->bta", self.vectors, self.scale * lean), lean
        wanted = base + self.scale * lean
        # The gradient passes the clip: a gripper command lies at ±1 nearly always, and where the
        # first weights happen to push outwards it could never learn to turn round.
        chunk = wanted + (wanted.clamp(-1.0, 1.0) - wanted).detach()
        return chunk, lean

    @torch.no_grad()
    def act(self, encoding: np.ndarray, base: np.ndarray) -> np.ndarray:
        """The noiseless chunk ``[B, h, A]`` float32, in [-1, 1] but for a residual in the basis.

        ``base`` may be longer than h; what lies beyond is not looked at. Raises
        :class:`LearningError` where the shapes do not fit the actor.
        """
        h, a = self.config.execute, len(self.config.scale)
        if (
            encoding.shape[1:] != (self.encoding_size,)
            or base.ndim != 3
            or base.shape[1] < h
            or base.shape[2] != a
        ):
            raise LearningError(
                f"the residual actor got encoding {encoding.shape} and base {base.shape}.",
                allowed=f"[B, {self.encoding_size}] and [B, ≥ {h}, {a}]",
                remedy="use the backbone that the actor was trained on",
            )
        chunk, _ = self(
            torch.from_numpy(np.ascontiguousarray(encoding, dtype=np.float32)),
            torch.from_numpy(np.ascontiguousarray(base[:, :h], dtype=np.float32)),
        )
        if self.config.basis:
            return np.asarray(chunk.numpy())
        # The sum that carries the gradient can leave the range by a rounding error.
        return np.asarray(chunk.clamp(-1.0, 1.0).numpy())

    def save(self, folder: Path) -> None:
        """Write ``residual.json`` and ``residual.pt`` into an existing folder."""
        described = {"config": asdict(self.config), "encoding": self.encoding_size}
        (folder / "residual.json").write_text(json.dumps(described, indent=1), encoding="utf-8")
        torch.save(self.state_dict(), folder / "residual.pt")

    @classmethod
    def load(cls, folder: Path) -> Self:
        """The actor that :meth:`save` wrote. Raises :class:`RunError` naming the bad file."""
        path = folder / "residual.json"
        try:
            described = json.loads(path.read_text(encoding="utf-8"))
            config = described["config"]
            config["scale"] = tuple(config["scale"])
            actor = cls(ResidualConfig(**config), described["encoding"], torch.Generator())
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise RunError(
                f"{path} is not a residual actor: {error}.", remedy="use another checkpoint"
            ) from error
        load_states(folder / "residual.pt", {"": actor})
        return actor
