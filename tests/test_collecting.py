"""Collection: what the learning tools do to a round's episodes.

The policy knows how to pick and place, but freezes above a wide target: it enters the stage "grasp"
there and gets no further.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from round_cases import round_context

from coda_envs.family import get_family
from coda_envs.programs.training import TOOLS, Tools
from coda_envs.scene import Scene
from coda_envs.text2potential import compile_potential
from coda_trainer.backbone import BackboneSpec
from coda_trainer.config import RunConfig
from coda_trainer.episode import Episode
from coda_trainer.learning.chunk_critic import NoPotential
from coda_trainer.rounds.collecting import Collection, unusable
from coda_trainer.rounds.context import RoundContext
from coda_trainer.rounds.learning import demonstration_replay
from coda_trainer.rounds.start import demonstrate
from coda_trainer.strategies.base import RoundPlan
from coda_trainer.strategies.given import given_program

FAMILY = get_family("pick-place")
POTENTIAL = compile_potential(FAMILY.template, FAMILY.schema)


@pytest.fixture
def context(tmp_path: Path) -> Iterator[RoundContext]:
    with ExitStack() as stack:
        yield round_context(stack, tmp_path)


def scenes(size: float, count: int = 4) -> list[Scene]:
    rng = np.random.default_rng(int(1e6 * size))
    fixed = {"attributes.target.size": size, "task.distractors": 0}
    return [FAMILY.sample(rng, "seed", fixed=fixed) for _ in range(count)]


WIDE, HARD = scenes(0.019), scenes(0.0235)


def plan(stage: str = "grasp", **tools: Any) -> RoundPlan:
    program = given_program(FAMILY, stage, ())
    program = program.model_copy(update={"tools": Tools(**tools)})
    return RoundPlan(
        {"wide": WIDE, "mode": HARD}, {"wide": 0.5, "mode": 0.5}, NoPotential(), {"mode": program}
    )


def collected(context: RoundContext, asked: RoundPlan) -> list[list[Episode]]:
    collection = Collection(context, asked)
    actor = context.actor("collected")
    return [collection.run(actor, 16, f"block {block}") for block in range(2)]


def test_resets_start_where_earlier_episodes_of_the_mode_entered_the_stage(
    context: RoundContext,
) -> None:
    first, second = collected(context, plan(stage_resets=0.25))
    # At first nobody has been anywhere.
    assert Counter(e.source for e in first) == {"wide": 8, "mode": 8}
    assert Counter(e.source for e in second) == {"wide": 8, "mode": 6, "mode:reset": 2}
    accepted = {s.id for s in HARD}
    for episode in second:
        if episode.source != "mode:reset":
            assert (episode.began, episode.stage) == (0, "")
            continue
        assert episode.scene.id in accepted
        assert episode.stage == "grasp"
        assert episode.began > 0
        assert POTENTIAL.stage(episode.features[0]) == POTENTIAL.stage_names.index("grasp")
        # It goes on from a moment of an earlier episode in that scene.
        same = [e for e in first if e.source == "mode" and e.scene.id == episode.scene.id]
        moments = [
            np.array_equal(e.features[episode.began], episode.features[0])
            for e in same
            if e.length > episode.began
        ]
        assert any(moments)
    # Their states have served.
    assert all(e.states is None for e in first + second)
    logged = [r for r in context.run.metrics() if r["event"] == "resets"]
    assert [(r["source"], r["purpose"], r["episodes"]) for r in logged] == [("mode", "block 1", 2)]


def test_the_same_round_resets_to_the_same_moments(context: RoundContext) -> None:
    one, other = (collected(context, plan(stage_resets=0.5))[1] for _ in range(2))
    for a, b in zip(one, other, strict=True):
        assert (a.source, a.scene.id, a.seed, a.began) == (b.source, b.scene.id, b.seed, b.began)
        assert a.features.tobytes() == b.features.tobytes()
    assert sum(e.source == "mode:reset" for e in one) == 4


def test_a_stage_that_cannot_be_entered_or_never_was_gives_no_resets(context: RoundContext) -> None:
    # Every episode begins in the first stage; nothing was ever carried.
    for stage in ("reach", "transport"):
        _, second = collected(context, plan(stage, stage_resets=0.5))
        assert {e.source for e in second} == {"wide", "mode"}


def test_resets_are_in_replay_with_their_stage_and_the_weight_of_their_mode(
    context: RoundContext,
) -> None:
    demonstration_replay(context, demonstrate(context))
    replay = context.state.replay
    assert replay is not None
    asked = plan(stage_resets=0.5, replay_weight=3.0)
    for episodes in collected(context, asked):
        replay.add(episodes)
    tags = Counter((r.source, r.stage) for r in replay.rollouts.records)
    assert tags == {("wide", ""): 16, ("mode", ""): 12, ("mode:reset", "grasp"): 4}
    assert asked.replay_weights == {"mode": 3.0, "mode:reset": 3.0}
    draw = replay.draw(
        np.random.default_rng(0), 4000, discount=0.99, source_weights=asked.replay_weights
    )
    lengths: Counter[str] = Counter()
    for record in replay.rollouts.records:
        weight = asked.replay_weights.get(record.source, 1.0)
        lengths[record.source.split(":")[0]] += int(weight * record.length)
    own = ~draw.demonstration
    share = np.mean([s.startswith("mode") for s in draw.source[own]])
    assert share == pytest.approx(lengths["mode"] / lengths.total(), abs=0.03)


def test_failures_past_the_subgoal_are_handed_to_the_distillation(context: RoundContext) -> None:
    episodes, _ = collected(context, plan())
    off, on = (Collection(context, plan("reach", **tools)) for tools in (
        {}, {"hindsight_subgoals": True}
    ))  # fmt: skip
    assert off.subgoal_parts(episodes) == []
    failed = [e for e in episodes if e.source == "mode" and not e.success]
    assert failed
    parts = on.subgoal_parts(episodes)
    # They all get near the target, and freeze there.
    assert {p.episode.seed for p in parts} == {e.seed for e in failed}


def test_a_tool_that_cannot_be_used_is_off_and_the_log_says_why(context: RoundContext) -> None:
    collection = Collection(context, plan(best_of_n=4, replay_weight=2.0))
    (logged,) = [r for r in context.run.metrics() if r["event"] == "tool ignored"]
    assert logged["tool"] == "best_of_n"
    assert "one chunk for an observation" in logged["reason"]
    # Asked for or not, the episodes run with the one sample that there is.
    actor = context.actor("only")
    assert len(collection.run(actor, 4, "block 0", choose=True)) == 4
    Collection(context, plan())
    assert len([r for r in context.run.metrics() if r["event"] == "tool ignored"]) == 1


@pytest.mark.parametrize(
    ("config", "multi_sample", "named"),
    [
        ({}, True, set()),
        ({}, False, {"best_of_n"}),
        ({"learner": {"update": "ppo"}}, True, {"best_of_n", "exploration_noise"}),
        ({"learner": {"update": "weighted"}}, True, {"hindsight_subgoals"}),
        ({"signal": "frozen"}, True, {"best_of_n", "exploration_noise", "hindsight_subgoals"}),
    ],
)
def test_what_a_run_cannot_use(config: dict[str, Any], multi_sample: bool, named: set[str]) -> None:
    spec = BackboneSpec("x", horizon=2, execute=1, multi_sample=multi_sample)
    found = unusable(RunConfig.model_validate(config), spec)
    assert set(found) == named <= set(TOOLS)
