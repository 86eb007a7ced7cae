"""What an episode itself shows: its first stage never done, and the steps to look at."""

from __future__ import annotations

from typing import Any

import numpy as np

from coda_envs import predicates
from coda_envs.features import FeatureSchema
from coda_envs.view import View
from coda_trainer.diagnosis.base import DiagnosisContext
from coda_trainer.episode import Episode

#: Most steps that a diagnosis points to.
MAX_STEPS = 8


def observed(episode: Episode, context: DiagnosisContext, label: str) -> dict[str, Any]:
    """The fields of a diagnosis that follow from the episode alone, as keyword arguments."""
    stage = context.failed_stage(episode)
    return {
        "diagnostician": label,
        "family": context.family.name,
        "scene_id": episode.scene.id,
        "episode_seed": episode.seed,
        "stage": context.family.template.stages[stage].name,
        "failed_predicate": context.failed_predicate(stage),
        "evidence": key_steps(episode, context.family.schema),
    }


def key_steps(episode: Episode, schema: FeatureSchema) -> tuple[int, ...]:
    """Start, closest approach, changes of the grasp, peak height and end, ascending, at most 8.

    They concern the object that the goal is about (its first role). Where the grasp changes often,
    the first changes are kept.
    """
    role = episode.scene.task.goal.roles[0]
    view = View(schema, episode.features)
    gap = np.linalg.norm(view.gripper_position() - view.position(role), axis=-1)
    held = predicates.grasped(view, role)
    steps = {0, episode.length, int(gap.argmin()), int(view.of(role, "z").argmax())}
    for change in np.flatnonzero(held[1:] != held[:-1]) + 1:
        if len(steps) < MAX_STEPS:
            steps.add(int(change))
    return tuple(sorted(steps))
