"""``trajectories``: raw retrieval: the scenes of failures like the present ones, again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from coda_envs.scene import Scene
from coda_trainer.episode import Episode
from coda_trainer.recall.base import with_aimed
from coda_trainer.rounds.context import RoundContext
from coda_trainer.rounds.diagnosing import DiagnosisPhase
from coda_trainer.rounds.refining import potential_in_force
from coda_trainer.strategies.base import RoundPlan

SOURCE = "retrieved"
#: Instants of an episode, evenly over its length, at which two are compared.
INSTANTS = 8
#: Failures kept of all rounds; the oldest go first.
KEPT = 2048
#: Earlier failures that each present one asks for.
NEIGHBOURS = 2
#: Numbers that vary less than this over the kept failures tell none from another.
LEAST_SPREAD = 1e-4


class Trajectories:
    """Failed trajectories as they were, found again by likeness. Nobody says why they failed.

    The present failures ask for the nearest ones of earlier rounds (in the first round, of their
    own round), and the round also trains in those scenes, under fresh seeds.
    """

    diagnoses = False
    tests = False

    def plan(
        self,
        context: RoundContext,
        phase: DiagnosisPhase,
        scenes: dict[str, Sequence[Scene]],
        weights: Mapping[str, float],
    ) -> RoundPlan:
        """The wide part, and the retrieved scenes."""
        failures, kept = phase.context.failures, context.state.recalled
        potential = potential_in_force(context, ())
        if not failures:
            return RoundPlan(scenes, weights, potential)
        now = np.stack([outline(e) for e in failures])
        ids = np.array([e.scene.id for e in failures])
        earlier = bool(kept)
        past, past_ids = (kept["outlines"], kept["scene_ids"]) if earlier else (now, ids)
        found = nearest(now, past, NEIGHBOURS, own=not earlier)
        everything = np.concatenate([past, now]) if earlier else now
        every_id = np.concatenate([past_ids, ids]) if earlier else ids
        context.state.recalled = {
            "outlines": everything[-KEPT:],
            "scene_ids": every_id[-KEPT:],
        }
        named = dict.fromkeys(str(past_ids[i]) for i in found)
        if not named:
            return RoundPlan(scenes, weights, potential)
        scenes[SOURCE] = [context.memory.scene(scene_id) for scene_id in named]
        context.log("retrieved", failures=len(failures), past=len(past), scenes=len(named))
        return RoundPlan(scenes, with_aimed(context, weights, {SOURCE: 1.0}), potential)

    def measure(self, context: RoundContext) -> None:
        """Nothing to measure: no modes."""


def outline(episode: Episode) -> np.ndarray:
    """A trajectory in few numbers: its state features at ``INSTANTS`` instants → float32
    ``[INSTANTS · F]``."""
    steps = np.linspace(0, episode.length, INSTANTS).round().astype(int)
    flat: np.ndarray = episode.features[steps].astype(np.float32).ravel()
    return flat


def nearest(now: np.ndarray, past: np.ndarray, neighbours: int, *, own: bool) -> list[int]:
    """Rows of ``past [m, d]`` that are among the ``neighbours`` nearest of some row of
    ``now [n, d]``: first those that are the nearest of one, none twice.

    Every column counts in units of its spread over ``past``; those without any count nothing.
    ``own``: the two are the same rows, and none is its own neighbour.
    """
    spread = past.astype(np.float64).std(0)
    varies = spread > LEAST_SPREAD
    a, b = (rows[:, varies] / spread[varies] for rows in (now, past))
    squares = np.stack([((row - b) ** 2).sum(1) for row in a])
    if own:
        np.fill_diagonal(squares, np.inf)
    # Ties in the order of the rows; a row that is left out stands last.
    order = np.argsort(squares, axis=1, kind="stable")
    order = order[:, : min(neighbours, len(past) - own)]
    return list(dict.fromkeys(int(i) for rank in order.T for i in rank))
