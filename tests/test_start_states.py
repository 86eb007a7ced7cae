"""Start states: an episode continued from one is the rest of the original; stages are practised."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from env_cases import scene, tray_scene
from rollout_cases import ENV, jobs
from tiny_run import WEAK

from coda_envs.errors import LearningError, SceneError
from coda_envs.family import BUILT_IN, get_family
from coda_envs.text2potential.evaluate import compile_potential
from coda_trainer.episode import Episode
from coda_trainer.learning.actor import ActorSpec
from coda_trainer.learning.jobs import Job
from coda_trainer.learning.recording import Apart, Recorder, Together
from coda_trainer.learning.rollout import RolloutPool
from coda_trainer.learning.start_states import stage_starts, stage_weights, start_states

FAMILY = get_family("pick-place")
POTENTIAL = compile_potential(FAMILY.template, FAMILY.schema)
ALL = np.arange(2)


def played(recorded: Recorder, asked: list[Job], actions: list[np.ndarray]) -> list[Episode]:
    """The episodes of two jobs under given actions, looking every third step."""
    slots = ALL
    recorded.start(slots, asked)
    for step in range(max(map(len, actions))):
        slots = np.array([s for s in slots if step < len(actions[s])])
        if step % 3 == 0:
            recorded.look(slots, keep_states=True)
        ended = recorded.step(slots, np.stack([actions[s][step] for s in slots]))
        assert ended.tolist() == [step == len(actions[s]) - 1 for s in slots]
    return [recorded.episode(slot) for slot in ALL.tolist()]


@pytest.mark.parametrize("family", BUILT_IN)
@pytest.mark.parametrize("kind", [Together, Apart])
def test_a_continued_episode_is_the_rest_of_the_original(
    family: str, kind: type[Together] | type[Apart]
) -> None:
    # The expert's actions move things; two scenes are two topologies more often than not.
    asked = jobs(2, seed=4, family=family)
    with RolloutPool(ENV) as pool:
        actions = [e.actions for e in pool.demonstrate(0.1, asked)]
    originals = played(Together(family, ENV, 2), asked, actions)
    look = min(len(e.starts) for e in originals) - 2
    begun = [replace(j, start=e.start_state(look)) for j, e in zip(asked, originals, strict=True)]
    rests = played(kind(family, ENV, 2), begun, [a[3 * look :] for a in actions])
    for original, rest in zip(originals, rests, strict=True):
        first = int(original.starts[look])
        assert rest.began == first > 0
        assert rest.length == original.length - first
        for name in ("actions", "features", "rewards"):
            assert getattr(rest, name).tobytes() == getattr(original, name)[first:].tobytes(), name
        for key, values in original.observations.items():
            assert rest.observations[key].tobytes() == values[first:].tobytes(), key
        assert rest.starts.tolist() == [s - first for s in original.starts if s >= first]
        assert rest.success == original.success
        assert rest.start_state(1).steps == original.start_state(look + 1).steps


def test_the_time_that_was_left_is_the_time_there_is(flow: ActorSpec) -> None:
    with RolloutPool(ENV) as pool:
        first = pool.run(flow, jobs(3), keep_states=True)
        assert all(e.truncated for e in first)
        middle = [Job(e.scene, 50 + i, start=e.start_state(5)) for i, e in enumerate(first)]
        rest = pool.run(flow, middle, keep_states=True)
    for whole, tail in zip(first, rest, strict=True):
        assert tail.began == whole.starts[5] > 0
        assert tail.began + tail.length == whole.length
        # Another seed: the things stand in other slots, in the same places.
        assert np.array_equal(tail.features[0], whole.features[tail.began])
        assert not np.array_equal(
            tail.observations["objects"][0], whole.observations["objects"][tail.began]
        )


def test_states_are_kept_only_when_asked_for(flow: ActorSpec) -> None:
    with RolloutPool(ENV) as pool:
        (episode,) = pool.run(flow, jobs(1))
    assert episode.states is None
    with pytest.raises(LearningError, match=r"has no states.*keep_states=True"):
        episode.start_state(0)


def test_a_state_that_does_not_fit_is_named() -> None:
    at = scene()
    recorded = Together("pick-place", ENV, 1)
    only = np.zeros(1, dtype=np.int64)
    recorded.start(only, [Job(at, 0)])
    recorded.look(only, keep_states=True)
    recorded.step(only, np.zeros((1, 7)))
    state = recorded.episode(0).start_state(0)
    for job, named in (
        (Job(tray_scene(), 0, start=state), f"one of the scene {at.id[:8]}"),
        (Job(at, 0, start=replace(state, physics=state.physics[1:])), r"physics \(185,\)"),
        (Job(at, 0, start=replace(state, steps=50)), "used 50 steps.*0 to 49"),
    ):
        for kind in (recorded, Apart("pick-place", ENV, 1)):
            with pytest.raises(SceneError, match=named):
                kind.start(only, [job])


@pytest.fixture(scope="module")
def some() -> list[Episode]:
    """Episodes of a policy that knows how, looks at every step, and freezes over wide targets."""
    asked = [
        Job(scene(attributes__target__size=size, spatial__target__x=0.01 * i), i)
        for i, size in enumerate((0.018, 0.024) * 3)
    ]
    with RolloutPool(ENV) as pool:
        return pool.run(ActorSpec(WEAK), asked, keep_states=True)


def test_stages_are_entered_where_the_potential_says(some: list[Episode]) -> None:
    found = stage_starts(some, POTENTIAL)
    assert {start.stage for start in found} == set(range(1, len(POTENTIAL.stage_names)))
    by_id = {e.scene.id: e for e in some}
    recorded = Together("pick-place", ENV, 1)
    for start in found:
        job = Job(start.scene, 0, start=start.state)
        recorded.start(np.zeros(1, dtype=np.int64), [job])
        recorded.look(np.zeros(1, dtype=np.int64))
        recorded.step(np.zeros(1, dtype=np.int64), np.zeros((1, 7)))
        features = recorded.episode(0).features[0]
        assert POTENTIAL.stage(features) == start.stage
        assert np.array_equal(features, by_id[start.scene.id].features[start.state.steps])


def test_the_stage_where_most_are_stuck_is_practised_most(some: list[Episode]) -> None:
    weights = stage_weights(some, POTENTIAL)
    reached = [max(POTENTIAL.stage(e.features).tolist()) for e in some]
    for stage, weight in enumerate(weights):
        there = [r for r in reached if r >= stage]
        expected = sum(r == stage for r in there) / len(there) if there else 0.0
        assert weight == pytest.approx(expected)
    # Half of them get near the target and no further: grasping is what needs practice.
    assert weights.tolist() == [0.0, 0.5, 0.0, 0.0, 0.0]
    drawn = start_states(some, POTENTIAL, np.random.default_rng(0), 30)
    assert {start.stage for start in drawn} == {1}
    # Where all succeed, nothing does.
    easy = [e for e in some if e.success]
    assert start_states(easy, POTENTIAL, np.random.default_rng(0), 5) == []


def test_draws_follow_the_generator(some: list[Episode]) -> None:
    drawn = [start_states(some, POTENTIAL, np.random.default_rng(s), 20) for s in (0, 0, 1)]
    ids = [[(start.scene.id, start.state.steps) for start in one] for one in drawn]
    assert ids[0] == ids[1] != ids[2]
    # A stage that somebody asks for is entered by those alone that got there.
    carried = start_states(some, POTENTIAL, np.random.default_rng(0), 20, stage=3)
    assert len(carried) == 20
    assert {start.stage for start in carried} == {3}
    assert {start.scene.id for start in carried} == {e.scene.id for e in some if e.success}
    for stage in (0, 5):
        with pytest.raises(LearningError, match=rf"stage {stage} of the .*cannot be entered.*1 to"):
            start_states(some, POTENTIAL, np.random.default_rng(0), 1, stage=stage)
