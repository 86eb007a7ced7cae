"""The policies on images: what they read, the protocol's promises, learning, and a whole run."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from policy_cases import text
from tiny_run import metrics, quiet, tiny

from coda_envs.errors import ConfigError, PluginError, RunError
from coda_envs.family import get_family
from coda_trainer.backbone import BackboneSpec, ChunkBatch
from coda_trainer.discovery import make_backbone
from coda_trainer.learning.actor import ActorSpec
from coda_trainer.learning.behaviour_cloning import chunk_arrays, take_chunks, train_backbone
from coda_trainer.learning.demonstrations import collect_demonstrations
from coda_trainer.learning.environment import env_spec
from coda_trainer.learning.rollout import Job, RolloutPool
from coda_trainer.policies.chunk_policy import ChunkPolicy
from coda_trainer.rounds.loop import train

NAMES = ("flow_chunk_rgb", "regression_chunk_rgb")
SIZE = 32
FAMILY = get_family("pick-place")


def scenes(count: int, seed: int = 0) -> ChunkBatch:
    """A square of the named colour, another of some other colour; the actions lead to it."""
    rng = np.random.default_rng(seed)
    colours = {"red": (217, 38, 36), "blue": (41, 89, 204)}
    images = np.full((count, SIZE, SIZE, 3), 128, np.uint8)
    actions = np.zeros((count, 8, 7), np.float32)
    words = []
    for i in range(count):
        named = ("red", "blue")[i % 2]
        columns = rng.permutation([4, 12, 20])[:2]
        for colour, column in zip(sorted(colours, key=lambda c: c != named), columns, strict=True):
            row = rng.integers(4, SIZE - 10)
            images[i, row : row + 6, column : column + 6] = colours[colour]
            if colour == named:
                actions[i, :, 0], actions[i, :, 1] = (column - 12) / 10, (row - 13) / 20
        words.append(text(f"put the {named} cube on the plate"))
    obs = {
        "agentview": images,
        "wrist": np.full_like(images, 90),
        "proprio": np.tile(np.float32([0, 0, 0.2, np.pi, 0, 0, 0.04, -0.04]), (count, 1)),
        "instruction": np.array(words),
    }
    return ChunkBatch(obs, actions, np.ones((count, 8), dtype=bool))


def small(name: str, seed: int = 0) -> ChunkPolicy:
    backbone = make_backbone(name, seed=seed, width=32, image_size=SIZE)
    assert isinstance(backbone, ChunkPolicy)
    for _ in range(2):
        backbone.update(scenes(16), np.ones(16))
    return backbone


def weights(backbone: ChunkPolicy) -> list[bytes]:
    return [p.detach().numpy().tobytes() for p in backbone.parameters()]


# The protocol's promises ----------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_images_and_no_table_of_objects_are_read(name: str) -> None:
    backbone, obs = small(name), scenes(5).obs
    spec = backbone.spec
    assert spec.name == name
    assert dict(spec.images) == dict.fromkeys(("agentview", "wrist"), (SIZE, SIZE, 3))
    assert spec.state_keys == ("proprio", "instruction")
    chunks = backbone.sample(obs, seed=0)
    assert chunks.shape == (5, 1, 8, 7)
    assert np.abs(chunks).max() <= 1
    code = backbone.encode(obs)
    assert code.dtype == np.float32
    assert np.isfinite(code).all()
    for key in ("agentview", "wrist"):
        dark = {**obs, key: np.zeros_like(obs[key])}
        assert np.abs(backbone.encode(dark) - code).max() > 1e-3


def test_candidates_are_those_of_the_policy_on_states() -> None:
    obs = scenes(3).obs
    assert small("flow_chunk_rgb").sample(obs, n=3, seed=0).shape == (3, 3, 8, 7)
    with pytest.raises(PluginError, match="regression_chunk_rgb was asked for 2 candidates"):
        small("regression_chunk_rgb").sample(obs, n=2)


@pytest.mark.parametrize("name", NAMES)
def test_the_same_seed_gives_the_same_weights_and_chunks(name: str) -> None:
    obs, first = scenes(4).obs, small(name)
    assert weights(first) == weights(small(name)) != weights(small(name, seed=1))
    assert first.sample(obs, seed=3).tobytes() == small(name).sample(obs, seed=3).tobytes()


@pytest.mark.parametrize("name", NAMES)
def test_a_loaded_policy_goes_on_bit_for_bit_with_its_normalisation(
    name: str, tmp_path: Path
) -> None:
    first, batch = small(name), scenes(16)
    first.save(tmp_path)
    second = make_backbone(name, seed=9, width=32, image_size=SIZE)
    assert isinstance(second, ChunkPolicy)
    second.load(tmp_path)
    assert first.sample(batch.obs, seed=0).tobytes() == second.sample(batch.obs, seed=0).tobytes()
    moved = scenes(16, seed=2)
    moved.obs["proprio"][:, :3] += 0.3
    second.prepare(moved)
    assert first.update(batch, np.ones(16)) == second.update(batch, np.ones(16))
    assert weights(first) == weights(second)


def test_a_checkpoint_of_another_image_size_is_refused(tmp_path: Path) -> None:
    small("flow_chunk_rgb").save(tmp_path)
    other = make_backbone("flow_chunk_rgb", seed=0, width=32, image_size=48)
    assert isinstance(other, ChunkPolicy)
    with pytest.raises(RunError, match="images"):
        other.load(tmp_path)


def test_what_does_not_fit_is_named() -> None:
    backbone, obs = small("flow_chunk_rgb"), scenes(2).obs
    with pytest.raises(PluginError, match=r"'wrist'.*obs_mode"):
        backbone.sample({k: v for k, v in obs.items() if k != "wrist"})
    with pytest.raises(PluginError, match=r"'agentview' of shape.*32, 32, 3"):
        backbone.sample({**obs, "agentview": obs["agentview"][:, ::2]})
    with pytest.raises(ConfigError, match="image_size is 8"):
        make_backbone("flow_chunk_rgb", seed=0, image_size=8)
    with pytest.raises(ConfigError, match=r"'image_size'.*'large'"):
        make_backbone("flow_chunk_rgb", seed=0, image_size="large")


def test_many_images_are_read_as_a_few_are() -> None:
    backbone, obs = small("flow_chunk_rgb"), scenes(300).obs
    whole = backbone.encode(obs)
    part = backbone.encode({k: v[290:] for k, v in obs.items()})
    np.testing.assert_allclose(whole[290:], part, atol=1e-4)


# Learning -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_updates_lower_the_loss_and_rows_of_weight_zero_change_nothing(name: str) -> None:
    batch, weight = scenes(32), np.ones(32)
    backbone = make_backbone(name, seed=0, width=32, image_size=SIZE)
    assert isinstance(backbone, ChunkPolicy)
    losses = [backbone.update(batch, weight)["loss"] for _ in range(40)]
    assert np.mean(losses[-5:]) < 0.7 * np.mean(losses[:5])

    weight[::2] = 0.0
    other = take_chunks(batch, np.arange(32))
    other.obs["agentview"][::2] = 0
    other.actions[::2] = 0.9
    a, b = small(name), small(name)
    a.update(batch, weight)
    b.update(other, weight)
    assert weights(a) == weights(b)


@pytest.mark.slow
def test_the_instruction_decides_which_colour_is_reached_for() -> None:
    backbone = make_backbone("regression_chunk_rgb", seed=0, width=64, image_size=SIZE)
    assert isinstance(backbone, ChunkPolicy)
    rng = np.random.default_rng(0)
    train_backbone(backbone, scenes(400), updates=200, batch_size=32, rng=rng)
    fresh = scenes(60, seed=7)
    reached = backbone.sample(fresh.obs)[:, 0, :, 0].mean(1)
    told_otherwise = {**fresh.obs, "instruction": np.roll(fresh.obs["instruction"], 1, axis=0)}
    away = backbone.sample(told_otherwise)[:, 0, :, 0].mean(1)
    assert np.abs(reached - fresh.actions[:, 0, 0]).mean() < 0.25
    assert np.abs(away - fresh.actions[:, 0, 0]).mean() > 0.5


# Environments and runs ------------------------------------------------------------------------


def spec(images: dict[str, tuple[int, int, int]], *keys: str) -> BackboneSpec:
    return BackboneSpec("p", horizon=2, execute=1, images=images, state_keys=keys)


def test_the_environment_shows_what_the_policy_reads() -> None:
    both = {"agentview": (64, 64, 3), "wrist": (64, 64, 3)}
    state, rgb = env_spec(spec({}, "proprio", "objects"), 20), env_spec(spec(both, "proprio"), 10)
    assert (state.obs_mode, state.control_hz) == ("state", 20)
    assert (rgb.obs_mode, rgb.image_size) == ("rgb", 64)
    assert env_spec(spec(both, "objects"), 10).obs_mode == "rgb+state"
    for wrong, word in [
        (spec({"front": (64, 64, 3)}), "'front'"),
        (spec({}, "joints"), "'joints'"),
        (spec({"wrist": (64, 48, 3)}), "square"),
        (spec({"agentview": (64, 64, 3), "wrist": (32, 32, 3)}), "one size"),
    ]:
        with pytest.raises(PluginError, match=word):
            env_spec(wrong, 10)


@pytest.mark.slow
def test_a_policy_on_images_learns_from_demonstrations_and_acts(tmp_path: Path) -> None:
    backbone = make_backbone("flow_chunk_rgb", seed=0, width=64, image_size=SIZE)
    assert isinstance(backbone, ChunkPolicy)
    rng = np.random.default_rng(0)
    with RolloutPool(env_spec(backbone.spec, 10)) as pool:
        episodes = collect_demonstrations(pool, FAMILY, 4, 0.1, rng)
        chunks = chunk_arrays(episodes, backbone.spec.horizon)
        assert chunks.obs["agentview"].dtype == np.uint8
        losses: list[float] = []
        train_backbone(
            backbone, chunks, updates=100, batch_size=32, rng=rng,
            progress=lambda _, found: losses.append(found["loss"]),
        )  # fmt: skip
        assert np.mean(losses[-10:]) < 0.5 * np.mean(losses[:10])
        backbone.save(tmp_path)
        options = {"width": 64, "image_size": SIZE}
        actor = ActorSpec("flow_chunk_rgb", options, 0, tmp_path)
        jobs = [Job(e.scene, e.seed) for e in episodes[:2]]
        acted = pool.run(actor, jobs)
        again = pool.run(actor, jobs)
    for one, other in zip(acted, again, strict=True):
        assert one.actions.tobytes() == other.actions.tobytes()
        # It goes for the objects: the hand comes down and away from where it starts.
        way = one.observations["proprio"][:, :3] - one.observations["proprio"][0, :3]
        assert np.linalg.norm(way, axis=1).max() > 0.1


@pytest.mark.slow
def test_a_whole_round_with_images(tmp_path: Path) -> None:
    run = tmp_path / "run"
    config = tiny(
        strategy="uniform",
        backbone={"name": "flow_chunk_rgb", "options": {"width": 16, "image_size": 16}},
        demonstrations={"episodes": 4},
        sft={"updates": 10, "batch_size": 16},
        collect={"warm_up_episodes": 2, "episodes": 2, "episodes_per_block": 2},
        distil={"episodes": 2, "updates": 2},
        evaluation={"suites": ["seed"], "episodes": 2},
    )
    train(config, run, reporter=quiet())
    events = [record["event"] for record in metrics(run)]
    assert {"sft", "warm_up", "block", "evaluation"} <= set(events)
    (file,) = (run / "checkpoints" / "round_001").rglob("replay.npz")
    with np.load(file) as stored:
        images = stored["rollouts/observation.agentview"]
    assert images.dtype == np.uint8
    assert images.shape[1:] == (16, 16, 3)
