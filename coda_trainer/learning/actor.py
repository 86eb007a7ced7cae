"""Actor: what acts in a rollout — a backbone, alone or with a residual or a critic that picks
among its samples, and exploration noise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from coda_trainer.backbone import Backbone, ObsBatch, TrainableBackbone
from coda_trainer.discovery import make_backbone
from coda_trainer.learning.exploration import Noise
from coda_trainer.learning.reader import encode

if TYPE_CHECKING:
    from coda_trainer.learning.choice import ChoiceSpec


@dataclass(frozen=True)
class ActorSpec:
    """An actor as plain data, so that worker processes can build it.

    ``folder``: the backbone's weights (None: as constructed). ``residual``: the residual actor's
    folder. ``choice``: how a critic picks among samples (None: the first one acts). Folders must
    not change while the spec is in use: a worker reads each once.
    """

    backbone: str
    options: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 0
    folder: Path | None = None
    residual: Path | None = None
    noise: Noise | None = None
    choice: ChoiceSpec | None = None

    @property
    def key(self) -> tuple[str, ...]:
        """What a worker's cache tells actors apart by."""
        options = sorted(f"{k}={v!r}" for k, v in self.options.items())
        parts = (self.seed, self.folder, self.residual, self.choice)
        return (self.backbone, *options, *map(str, parts))


class Actor:
    """A built actor: ``chunk(obs, …)`` gives the actions to execute."""

    def __init__(self, spec: ActorSpec) -> None:
        self.backbone: Backbone = make_backbone(spec.backbone, seed=spec.seed, **spec.options)
        if spec.folder is not None:
            assert isinstance(self.backbone, TrainableBackbone)
            self.backbone.load(spec.folder)
        self.residual = None
        if spec.residual is not None:
            # Imported here: a backbone alone must not need torch.
            from coda_trainer.learning.residual import ResidualActor

            self.residual = ResidualActor.load(spec.residual)
        self.choice = None
        self._candidates = 1
        if spec.choice is not None:
            from coda_trainer.learning.choice import Choice

            self.choice = Choice.load(spec.choice)
            self._candidates = spec.choice.candidates

    def chunk(
        self,
        obs: ObsBatch,
        *,
        seed: int,
        features: np.ndarray,
        noise: Noise | None = None,
        rngs: Sequence[np.random.Generator] = (),
        multipliers: Sequence[float] = (),
        candidates: Sequence[int | None] = (),
    ) -> np.ndarray:
        """The next actions ``[B, h, A]`` for B observations.

        ``features [B, F]``: the simulator's state, for a critic that picks among samples alone.
        ``candidates``: of how many, row by row; None, or left out: of as many as the choice says.
        ``noise`` and the choice draw row i from ``rngs[i]``; ``noise`` is scaled by
        ``multipliers[i]``.
        """
        widths = np.full(len(features), self._candidates)
        if self.choice is not None:
            for row, width in enumerate(candidates):
                widths[row] = width or self._candidates
        action_dim = self.backbone.spec.action_dim
        chunk = np.empty((len(features), self.backbone.spec.execute, action_dim), np.float32)
        for width in np.unique(widths).tolist():
            rows = np.flatnonzero(widths == width)
            part = {key: values[rows] for key, values in obs.items()}
            chunk[rows] = self._proposal(part, width, seed, features[rows], rngs, rows)
        if noise is not None:
            chunk = noise(chunk, rngs, multipliers)
        return chunk

    def _proposal(
        self,
        obs: ObsBatch,
        width: int,
        seed: int,
        features: np.ndarray,
        rngs: Sequence[np.random.Generator],
        rows: np.ndarray,
    ) -> np.ndarray:
        """Chunks ``[k, h, A]`` for the k rows that pick among ``width`` candidates, each as the
        residual corrects it: what would be executed is what the critic judges."""
        spec = self.backbone.spec
        sampled = self.backbone.sample(obs, width, seed=seed if spec.seedable else None)
        chunks = np.array(sampled[:, :, : spec.execute], dtype=np.float32)
        if self.residual is not None:
            encoding = np.repeat(encode(self.backbone, obs), width, axis=0)
            chunks = self.residual.act(encoding, chunks.reshape(-1, *chunks.shape[2:]))
            chunks = chunks.reshape(sampled.shape[0], width, *chunks.shape[1:])
        if self.choice is None or width == 1:
            return chunks[:, 0]
        return self.choice(features, chunks, [rngs[row] for row in rows.tolist()])
