from __future__ import annotations

from dataclasses import replace
from functools import cache, partial

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from reach_task import (
    ACTIONS,
    EXECUTE,
    FEATURES,
    HORIZON,
    BiasedBase,
    Distance,
    rollouts,
)

from coda_envs.errors import ConfigError, LearningError, RunError
from coda_trainer.learning.alarm import AlarmConfig
from coda_trainer.learning.chunk_critic import NoPotential
from coda_trainer.learning.distillation import distil_selection
from coda_trainer.learning.exploration import ExplorationNoise
from coda_trainer.learning.learner import LearnerConfig, ResidualLearner
from coda_trainer.learning.reader import backbone_reader
from coda_trainer.learning.replay import Replay
from coda_trainer.learning.residual import ResidualActor, ResidualConfig

NOISE = ExplorationNoise(per_dimension=(1.0, 1.0))
SHAPE = ResidualConfig(execute=EXECUTE, scale=(0.2, 0.2), width=64)
CONFIG = LearnerConfig(residual=SHAPE, batch_size=96, width=64, actor_rate=5e-4, anchor=0.3)
READER = backbone_reader(BiasedBase(), EXECUTE, seed=0)


@pytest.fixture(autouse=True)
def _one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@cache
def first_episodes():
    base = rollouts(lambda obs: READER(obs)[1], range(300), NOISE)
    straight = BiasedBase(bias=np.zeros(2, dtype=np.float32))
    expert = rollouts(
        lambda obs: straight.sample(obs)[:, 0], range(900, 940), source="demonstration"
    )
    return base, expert


def new_replay() -> Replay:
    base, expert = first_episodes()
    replay = Replay(READER, EXECUTE)
    replay.add(expert, demonstrations=True)
    replay.add(base)
    return replay


def new_learner(seed=0, potential=None, config=CONFIG) -> ResidualLearner:
    return ResidualLearner(
        config,
        features=FEATURES,
        encoding=FEATURES,
        potential=potential or Distance(),
        seed=seed,
    )


def policy(learner):
    return lambda obs: learner.actor.act(*READER(obs))


def success(act) -> float:
    return float(np.mean([e.success for e in rollouts(act, range(10_000, 10_200))]))


def weights(module) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in module.parameters()])


# What it is for ----------------------------------------------------------------------------------


@pytest.mark.parametrize("potential", [Distance(), NoPotential()], ids=["shaped", "sparse"])
def test_the_residual_repairs_a_biased_base(potential):
    replay, learner = new_replay(), new_learner(potential=potential)
    start = success(policy(learner))
    assert start < 0.5
    learner.warm_up(replay, 200)
    for n in range(2):
        fresh = rollouts(policy(learner), range(1000 + 100 * n, 1100 + 100 * n), NOISE)
        replay.add(fresh)
        learner.observe_rollouts(float(np.mean([e.success for e in fresh])))
        metrics = learner.train(replay, 130)
    assert success(policy(learner)) > start + 0.3
    assert metrics["actor_updates"] == 65
    assert metrics["alarm"] == 0
    assert 0 < metrics["deviation"] < 1

    # The distilled labels carry the repair to whoever clones them.
    noise = ExplorationNoise(std=0.04, share=1.0, per_dimension=(1.0, 1.0))
    episodes = rollouts(policy(learner), range(2000, 2060), noise)
    chunks = distil_selection(episodes, learner.actor, READER, HORIZON)
    kept = [e for e in episodes if e.success]
    assert len(chunks) == sum(e.length for e in kept)
    assert chunks.actions.shape == (len(chunks), HORIZON, ACTIONS)
    # Later steps carry what the episode went on with.
    assert np.allclose(chunks.actions[0, EXECUTE:], kept[0].actions[EXECUTE:HORIZON])
    assert not chunks.actions[~chunks.valid].any()
    label = learner.actor.act(*READER({"state": kept[0].observations["state"][:1]}))
    assert np.allclose(chunks.actions[0, :EXECUTE], label[0], atol=1e-6)
    assert chunks.valid[kept[0].length - 1].tolist() == [True] + [False] * (HORIZON - 1)

    # The critic tells the way to the goal from the way away from it.
    state = np.array([[0.2, 0.0, -0.1, 0.0]], dtype=np.float32)
    away, towards = np.full((EXECUTE, 2), [0.75, 0.0]), np.full((EXECUTE, 2), [-0.75, 0.0])
    score = learner.critic.score(state, np.stack([away, towards])[None])
    assert score.shape == (1, 2)
    assert score.argmax() == 1


def test_a_new_residual_starts_at_the_base():
    obs = {"state": np.random.default_rng(0).uniform(-0.5, 0.5, (50, 4))}
    encoding, base = READER(obs)
    assert np.abs(new_learner().actor.act(encoding, base) - base).max() < 0.01


def test_warm_up_leaves_the_actor_and_moves_the_critic():
    learner = new_learner()
    actor, critic = weights(learner.actor), weights(learner.critic.online)
    metrics = learner.warm_up(new_replay(), 5)
    assert torch.equal(weights(learner.actor), actor)
    assert not torch.equal(weights(learner.critic.online), critic)
    assert metrics["actor_updates"] == 0


def test_reset_actor_starts_from_the_base_and_keeps_the_critic():
    learner, replay = new_learner(), new_replay()
    learner.train(replay, 40)
    critic = weights(learner.critic)
    learner.reset_actor()
    encoding, base = READER({"state": replay.stored("features")[:50]})
    assert np.abs(learner.actor.act(encoding, base) - base).max() < 0.01
    assert torch.equal(weights(learner.critic), critic)
    learner.train(replay, 2)


# Reproducible ------------------------------------------------------------------------------------


def test_the_same_seed_trains_the_same_networks_and_no_global_generator_is_used():
    torch.manual_seed(1)
    before = torch.get_rng_state()
    first, other = new_learner(3), new_learner(4)
    first.train(new_replay(), 10)
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(2)
    second = new_learner(3)
    second.train(new_replay(), 10)
    other.train(new_replay(), 10)
    for part in ("actor", "critic"):
        assert torch.equal(weights(getattr(first, part)), weights(getattr(second, part)))
        assert not torch.equal(weights(getattr(first, part)), weights(getattr(other, part)))


def test_a_loaded_learner_goes_on_bit_for_bit(tmp_path):
    replay, learner = new_replay(), new_learner()
    learner.warm_up(replay, 10)
    later = Distance(0.5)
    learner.set_potential(later)
    learner.train(replay, 10)
    learner.observe_rollouts(0.4)
    learner.save(tmp_path)
    loaded = new_learner(99)
    loaded.load(tmp_path, first=Distance(), potential=later)
    assert learner.train(replay, 20) == loaded.train(replay, 20)
    for part in ("actor", "target_actor", "critic"):
        assert torch.equal(weights(getattr(learner, part)), weights(getattr(loaded, part)))
    assert loaded.alarm.state_dict() == learner.alarm.state_dict()

    learner.save(tmp_path)
    alone = ResidualActor.load(tmp_path)
    inputs = READER({"state": replay.stored("features")[:20]})
    assert np.array_equal(alone.act(*inputs), learner.actor.act(*inputs))


@pytest.mark.parametrize("file", ["learner.json", "learner.pt", "residual.json", "residual.pt"])
@pytest.mark.parametrize("damage", ["missing", "cut short", "other content"])
def test_a_damaged_checkpoint_is_one_clear_error(tmp_path, file, damage):
    new_learner().save(tmp_path)
    path = tmp_path / file
    if damage == "missing":
        path.unlink()
    elif damage == "cut short":
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    else:
        path.write_text("[1, 2]")
    if file.startswith("residual"):
        read = partial(ResidualActor.load, tmp_path)
    else:
        read = partial(new_learner().load, tmp_path, first=Distance(), potential=Distance())
    with pytest.raises(RunError, match=file):
        read()


def test_a_checkpoint_of_another_shape_or_potential_is_refused(tmp_path):
    new_learner().save(tmp_path)
    wide = new_learner(config=replace(CONFIG, width=32))
    with pytest.raises(RunError, match=r"learner\.pt"):
        wide.load(tmp_path, first=Distance(), potential=Distance())
    with pytest.raises(RunError, match="now potential"):
        new_learner().load(tmp_path, first=Distance(), potential=Distance(0.5))


# A potential that changes ------------------------------------------------------------------------


def test_a_new_potential_shifts_online_and_target_by_old_minus_new():
    learner = new_learner(potential=Distance(1.0))
    critic = learner.critic
    rng = np.random.default_rng(0)
    features = rng.uniform(-0.5, 0.5, (30, FEATURES)).astype(np.float32)
    chunk = torch.from_numpy(rng.uniform(-1, 1, (30, EXECUTE, ACTIONS)).astype(np.float32))
    valid = torch.ones(30, EXECUTE)

    def outputs():
        state = critic.read(features)
        with torch.no_grad():
            both = critic.values(state, chunk, valid), critic.target_values(state, chunk, valid)
        return torch.stack(both).numpy()

    first = outputs()
    for scale in (0.5, 0.25):
        learner.set_potential(Distance(scale))
        shift = Distance(1.0)(features) - Distance(scale)(features)
        assert np.allclose(outputs(), first + shift, atol=1e-6)
        # Q − Φ goes on meaning the same Q.
        assert np.allclose(outputs() + Distance(scale)(features), first + Distance(1.0)(features))
    learner.set_potential(Distance(1.0))
    assert np.array_equal(outputs(), first)


def test_actions_that_did_not_run_do_not_count():
    critic = new_learner().critic
    state = critic.read(np.zeros((1, FEATURES), dtype=np.float32))
    valid = torch.tensor([[1.0, 1.0, 0.0, 0.0]])
    one, two = torch.zeros(1, EXECUTE, ACTIONS), torch.zeros(1, EXECUTE, ACTIONS)
    two[:, 2:] = 0.7
    assert torch.equal(critic.values(state, one, valid), critic.values(state, two, valid))
    # A short end is not taken for a chunk of zeros that ran.
    whole = torch.ones(1, EXECUTE)
    assert not torch.equal(critic.values(state, one, valid), critic.values(state, one, whole))


# Bounds ------------------------------------------------------------------------------------------


@settings(max_examples=50, deadline=None)
@given(seed=st.integers(0, 2**31), size=st.floats(0.01, 1e4))
def test_the_residual_never_leaves_its_reach(seed, size):
    rng = np.random.default_rng(seed)
    actor = ResidualActor(ResidualConfig(), 5, torch.Generator().manual_seed(seed))
    with torch.no_grad():
        actor.network[-1].weight.mul_(size)
    base = rng.uniform(-1, 1, (20, 4, 7)).astype(np.float32)
    chunk = actor.act(rng.normal(0, size, (20, 5)), base)
    assert np.all(np.abs(chunk) <= 1)
    assert np.all(np.abs(chunk - base) <= np.array(actor.config.scale) + 1e-6)


def test_the_gradient_passes_where_the_command_is_at_its_limit():
    actor = ResidualActor(ResidualConfig(scale=(0.5,)), 3, torch.Generator().manual_seed(0))
    with torch.no_grad():
        actor.network[-1].bias.fill_(1.0)
    chunk, _ = actor(torch.zeros(2, 3), torch.ones(2, 4, 1))
    assert torch.allclose(chunk, torch.ones(2, 4, 1))
    chunk.sum().backward()
    assert (actor.network[-1].bias.grad > 0).all()


@pytest.mark.parametrize(
    ("encoding", "base"), [((2, 4), (2, 4, 7)), ((2, 5), (2, 3, 7)), ((2, 5), (2, 4, 6))]
)
def test_act_refuses_what_does_not_fit(encoding, base):
    actor = ResidualActor(ResidualConfig(), 5, torch.Generator())
    with pytest.raises(LearningError, match="residual actor got"):
        actor.act(np.zeros(encoding), np.zeros(base))


def test_a_critic_that_runs_away_holds_the_actor_until_it_is_corrected():
    replay = new_replay()
    learner = new_learner(
        potential=NoPotential(), config=replace(CONFIG, alarm=AlarmConfig(window=20), tau=0.2)
    )
    learner.warm_up(replay, 60)
    learner.observe_rollouts(0.3)
    assert learner.train(replay, 10)["alarm"] == 0
    with torch.no_grad():
        for member in (*learner.critic.online, *learner.critic.target):
            member[-1].bias.add_(1.0)
    learner.train(replay, 20)
    learner.observe_rollouts(0.1)
    held = weights(learner.actor)
    metrics = learner.train(replay, 4)
    assert metrics["alarm"] == 1
    assert metrics["actor_updates"] == 0
    assert torch.equal(weights(learner.actor), held)
    for _ in range(30):
        metrics = learner.train(replay, 20)
        if metrics["actor_updates"]:
            break
    assert metrics["alarm"] == 0
    assert not torch.equal(weights(learner.actor), held)


# Errors ------------------------------------------------------------------------------------------


def test_an_empty_replay_says_so():
    with pytest.raises(LearningError, match="empty"):
        new_learner().warm_up(Replay(READER, EXECUTE), 1)


def test_a_loss_that_is_not_finite_stops_before_the_weights_change():
    replay, learner = new_replay(), new_learner()
    learner.train(replay, 2)
    with torch.no_grad():
        learner.critic.online[0][-1].bias.fill_(torch.nan)
    other = weights(learner.critic.online[1])
    with pytest.raises(LearningError, match="critic loss is nan at update 3"):
        learner.train(replay, 1)
    assert torch.equal(weights(learner.critic.online[1]), other)


class Scaled(Distance):
    """A potential that breaks its contract."""

    def __init__(self, factor):
        super().__init__()
        self.factor = factor
        self.version = f"scaled-{factor}"

    def __call__(self, features):
        return self.factor * super().__call__(features)


@pytest.mark.parametrize("factor", [np.nan, 3.0, -1.0])
def test_a_potential_outside_its_range_is_named(factor):
    with pytest.raises(LearningError, match="potential scaled"):
        new_learner(potential=Scaled(factor)).warm_up(new_replay(), 1)


def test_a_replay_of_other_sizes_is_refused():
    base, _ = first_episodes()
    shorter = Replay(READER, EXECUTE - 1)
    shorter.add(base[:3])
    with pytest.raises(LearningError, match="chunks of 3"):
        new_learner().warm_up(shorter, 1)
    cut = Replay(READER, EXECUTE)
    cut.add([replace(e, features=e.features[:, :3]) for e in base[:3]])
    with pytest.raises(LearningError, match="features of shape"):
        new_learner().warm_up(cut, 1)


def test_nothing_to_distil_says_so():
    failures = [e for e in first_episodes()[0] if not e.success]
    with pytest.raises(LearningError, match="nothing to distil"):
        distil_selection(failures, new_learner().actor, READER, HORIZON)


@pytest.mark.parametrize(
    "make",
    [
        lambda: ResidualConfig(scale=(0.2, 1.5)),
        lambda: ResidualConfig(scale=()),
        lambda: ResidualConfig(execute=0),
        lambda: ExplorationNoise(std=-0.1),
        lambda: ExplorationNoise(share=1.1),
        lambda: LearnerConfig(discount=1.2),
        lambda: LearnerConfig(batch_size=0),
        lambda: ExplorationNoise()(np.zeros((1, 4, 2)), [np.random.default_rng(0)]),
    ],
)
def test_settings_out_of_range_are_refused(make):
    with pytest.raises(ConfigError, match="Allowed"):
        make()
