"""``trajectories``: raw retrieval: the scenes of failures like the present ones, again."""

from __future__ import annotations

import numpy as np

from coda_trainer.episode import Episode
from coda_trainer.recall.base import Wide
from coda_trainer.rounds.context import RoundContext
from coda_trainer.rounds.diagnosing import DiagnosisPhase
from coda_trainer.rounds.refining import potential_in_force
from coda_trainer.strategies.base import RoundPlan

SOURCE = "retrieved"
#: Instants of an episode, evenly over its length, at which two are compared.
INSTANTS = 8
#: Failures kept of all rounds; the oldest go first.
KEPT = 2048


class Trajectories:
    """Failed trajectories as they were, found again by likeness. Nobody says why they failed.

    The present failures ask for the nearest ones of earlier rounds (in the first round, of their
    own round), and the round also trains in those scenes, under fresh seeds.
    """

    diagnoses = False
    tests = False

    def plan(self, context: RoundContext, phase: DiagnosisPhase, wide: Wide) -> RoundPlan:
        """The wide part, and the retrieved scenes."""
        failures, kept = phase.context.failures, context.state.recalled
        potential = potential_in_force(context, ())
        if not failures:
            return wide.plan(potential)
        now = np.stack([outline(e) for e in failures])
        ids = np.array([e.scene.id for e in failures])
        earlier = bool(kept)
        past, past_ids = (kept["outlines"], kept["scene_ids"]) if earlier else (now, ids)
        count = context.config.collect.scenes_per_mode * context.config.diagnosis.max_tested
        found = nearest(now, past, count, own=not earlier)
        everything = np.concatenate([past, now]) if earlier else now
        every_id = np.concatenate([past_ids, ids]) if earlier else ids
        context.state.recalled = {
            "outlines": everything[-KEPT:],
            "scene_ids": every_id[-KEPT:],
        }
        named = dict.fromkeys(str(past_ids[i]) for i in found)
        context.log("retrieved", failures=len(failures), past=len(past), scenes=len(named))
        scenes = [context.memory.scene(scene_id) for scene_id in named]
        return wide.beside(context, {SOURCE: scenes} if scenes else {}, potential)

    def measure(self, context: RoundContext) -> None:
        """Nothing to measure: no modes."""


def outline(episode: Episode) -> np.ndarray:
    """A trajectory in few numbers: its state features at ``INSTANTS`` instants → float32
    ``[INSTANTS · F]``."""
    steps = np.linspace(0, episode.length, INSTANTS).round().astype(int)
    flat: np.ndarray = episode.features[steps].astype(np.float32).ravel()
    return flat


def nearest(now: np.ndarray, past: np.ndarray, count: int, *, own: bool) -> list[int]:
    """Up to ``count`` rows of ``past [m, d]``, each the nearest, then the second nearest … of some
    row of ``now [n, d]``; in the order in which they are found, none twice.

    Every column counts in units of its spread over ``past``. ``own``: the two are the same rows,
    and none is its own neighbour.
    """
    spread = np.maximum(past.std(0), 1e-6)
    a, b = now / spread, past / spread
    squares = (a**2).sum(1)[:, None] + (b**2).sum(1)[None] - 2.0 * (a @ b.T)
    if own:
        np.fill_diagonal(squares, np.inf)
    # Ties in the order of the rows; a row that is left out stands last.
    order = np.argsort(squares, axis=1, kind="stable")
    if own:
        order = order[:, :-1]
    found = dict.fromkeys(int(i) for rank in order.T for i in rank)
    return list(found)[:count]
