"""Distillation at a round's end: what every family's learner found goes into the one backbone."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from coda_trainer.learning.behaviour_cloning import join_chunks, train_backbone
from coda_trainer.learning.update_rule import Lesson
from coda_trainer.rounds.context import RunContext


def distil(context: RunContext, selections: Sequence[Lesson]) -> None:
    """Train the backbone on the families' selected successes, mixed with all demonstrations.

    One distillation for all families: one after the other, each would undo the one before. The
    distilled backbone is the base of the next round. Without any selection it stays as it is.
    """
    updates = context.config.distil.updates
    if not selections or updates == 0:
        return
    chunks = join_chunks(*(lesson.chunks for lesson in selections))
    with context.report.bar("distillation", updates) as progress:
        metrics = train_backbone(
            context.state.backbone,
            chunks,
            updates=updates,
            batch_size=context.config.sft.batch_size,
            rng=context.rng("distillation"),
            weight=np.concatenate([lesson.weight for lesson in selections]),
            demonstrations=join_chunks(*context.demonstrations()),
            progress=lambda step, _: progress(step),
        )
    context.log("distil", chunks=len(chunks), updates=updates, loss=metrics["loss"])
