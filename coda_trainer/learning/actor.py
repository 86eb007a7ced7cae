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
from coda_trainer.learning.exploration import ExplorationNoise
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
    noise: ExplorationNoise | None = None
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
        noise: ExplorationNoise | None = None,
        rngs: Sequence[np.random.Generator] = (),
        multipliers: Sequence[float] = (),
    ) -> np.ndarray:
        """The next actions ``[B, h, A]`` for B observations.

        ``features [B, F]``: the simulator's state, for a critic that picks among samples alone.
        ``noise`` and the choice draw row i from ``rngs[i]``; ``noise`` is scaled by
        ``multipliers[i]``.
        """
        spec = self.backbone.spec
        chunks = self.backbone.sample(obs, self._candidates, seed=seed if spec.seedable else None)
        chunks = np.array(chunks[:, :, : spec.execute], dtype=np.float32)
        chunk = chunks[:, 0] if self.choice is None else self.choice(features, chunks, rngs)
        if self.residual is not None:
            chunk = self.residual.act(encode(self.backbone, obs), chunk)
        if noise is not None:
            chunk = noise(chunk, rngs, multipliers)
        return chunk
