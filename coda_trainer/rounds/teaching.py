"""Lessons: updates of the backbone within a round, and the way back when one did harm."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from coda_trainer.episode import Episode
from coda_trainer.learning.behaviour_cloning import join_chunks, train_backbone
from coda_trainer.learning.success_alarm import SuccessAlarm
from coda_trainer.learning.update_rule import Lesson
from coda_trainer.learning.weighted import effective_size
from coda_trainer.rounds.context import RunContext


def teach(context: RunContext, lessons: Sequence[Lesson], block: int) -> None:
    """Train the one backbone on the lessons of all families, mixed with all demonstrations."""
    settings = context.config.learner
    if not lessons or settings.backbone_updates == 0:
        return
    weight = np.concatenate([lesson.weight for lesson in lessons])
    metrics = train_backbone(
        context.state.backbone,
        join_chunks(*(lesson.chunks for lesson in lessons)),
        updates=settings.backbone_updates,
        batch_size=context.config.sft.batch_size,
        rng=context.rng(f"lesson {block}"),
        weight=weight,
        demonstrations=join_chunks(*context.demonstrations()),
        demonstration_share=settings.demo_share,
    )
    context.log(
        "lesson",
        block=block,
        chunks=len(weight),
        effective_size=effective_size(weight),
        updates=settings.backbone_updates,
        loss=metrics["loss"],
    )


class BackboneGuard:
    """Remembers the backbone that succeeded most in the round, and brings it back after a fall.

    A fall is one of success over all families together, on scenes that are drawn alike. It is seen
    in the rollouts after the lesson that did the harm.
    """

    def __init__(self, context: RunContext) -> None:
        self._context = context
        self._alarm = SuccessAlarm()
        self._best: Path | None = None

    def harmed(self, episodes: Sequence[Episode], folder: Path | None, when: str) -> bool:
        """Whether the backbone saved in ``folder``, which acted in ``episodes``, has fallen; the
        best one acts and learns from then on."""
        if folder is None or not episodes:
            return False
        success = sum(e.success for e in episodes) / len(episodes)
        if self._alarm.observe(success, len(episodes)):
            self._best = folder
        if not self._alarm.ringing or self._best is None:
            return False
        self._context.state.backbone.load(self._best)
        self._context.log("reverted", when=when, success=success)
        return True
