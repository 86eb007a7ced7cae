"""The PyTorch base class of backbones, and behaviour cloning."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from coda_envs.errors import CodaError, RunError
from coda_envs.family import get_family
from coda_envs.scene import Scene
from coda_trainer.backbone import BackboneSpec, ChunkBatch, ObsBatch
from coda_trainer.episode import Episode
from coda_trainer.learning.behaviour_cloning import chunk_arrays, train_backbone
from coda_trainer.policies.torch_backbone import TorchBackbone, initialised_from


class Linear(TorchBackbone):
    """The smallest policy there can be: actions are a linear function of proprio."""

    module: nn.Linear

    def __init__(self, seed: int = 0) -> None:
        spec = BackboneSpec("linear", 2, 1, state_keys=("proprio",), trainable=True)
        with initialised_from(seed):
            module = nn.Linear(3, 2 * 7)
        super().__init__(spec, module, seed=seed, learning_rate=0.05)

    def loss(self, batch: ChunkBatch, weight: Tensor) -> Tensor:
        error = self._chunks(batch.obs) - torch.as_tensor(batch.actions)
        # Noise on the loss's scale, so that the generator's state matters to what is learnt.
        valid = torch.as_tensor(batch.valid) * torch.rand((), generator=self.generator)
        return (weight[:, None] * valid * error.square().mean(2)).sum() / valid.numel()

    def sample(self, obs: ObsBatch, n: int = 1, *, seed: int | None = None) -> np.ndarray:
        with torch.inference_mode():
            chunks: np.ndarray = self._chunks(obs).clamp(-1, 1).numpy()
        return np.stack([chunks] * n, axis=1)

    def _chunks(self, obs: ObsBatch) -> Tensor:
        chunks: Tensor = self.module(torch.as_tensor(obs["proprio"]))
        return chunks.reshape(-1, 2, 7)


def linear_data(count: int, seed: int = 0) -> ChunkBatch:
    rng = np.random.default_rng(seed)
    proprio = rng.normal(size=(count, 3)).astype(np.float32)
    actions = np.tanh(proprio @ rng.normal(size=(3, 14)) / 4).reshape(count, 2, 7)
    valid = np.ones((count, 2), dtype=bool)
    return ChunkBatch({"proprio": proprio}, actions.astype(np.float32), valid)


# TorchBackbone --------------------------------------------------------------------------------


def test_updates_lower_the_loss_of_a_fixed_batch() -> None:
    backbone, data = Linear(), linear_data(64)
    before = np.square(backbone.sample(data.obs)[:, 0] - data.actions).mean()
    for _ in range(100):
        backbone.update(data, np.ones(64))
    after = np.square(backbone.sample(data.obs)[:, 0] - data.actions).mean()
    assert after < 0.1 * before


def test_a_loaded_backbone_continues_bit_for_bit(tmp_path: Path) -> None:
    first, data = Linear(seed=1), linear_data(32)
    for _ in range(3):
        first.update(data, np.ones(32))
    first.save(tmp_path)
    second = Linear(seed=2)
    second.load(tmp_path)
    for _ in range(3):
        assert first.update(data, np.ones(32)) == second.update(data, np.ones(32))
    np.testing.assert_array_equal(first.sample(data.obs), second.sample(data.obs))


def test_making_a_backbone_leaves_the_global_generator_alone() -> None:
    state = torch.get_rng_state()
    a, b = Linear(seed=5), Linear(seed=5)
    assert torch.equal(state, torch.get_rng_state())
    assert torch.equal(a.module.weight, b.module.weight)


@pytest.mark.parametrize("file", ["model.pt", "training.pt", "spec.json"])
@pytest.mark.parametrize("damage", ["missing", "cut", "other"])
def test_a_damaged_checkpoint_names_its_file(tmp_path: Path, file: str, damage: str) -> None:
    backbone = Linear()
    backbone.save(tmp_path)
    path = tmp_path / file
    if damage == "missing":
        path.unlink()
    elif damage == "cut":
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    elif file == "spec.json":
        path.write_text(path.read_text().replace('"horizon": 2', '"horizon": 3'))
    else:
        torch.save({"weight": torch.zeros(2)}, path)
    with pytest.raises(RunError, match=file.replace(".", r"\.")):
        backbone.load(tmp_path)


def test_a_checkpoint_is_read_without_running_what_it_contains(tmp_path: Path) -> None:
    class Trap:
        def __reduce__(self) -> tuple[object, ...]:
            return Path.touch, (tmp_path / "sprung",)

    backbone = Linear()
    backbone.save(tmp_path)
    torch.save(Trap(), tmp_path / "model.pt")
    with pytest.raises(RunError, match=r"model\.pt"):
        backbone.load(tmp_path)
    assert not (tmp_path / "sprung").exists()


@pytest.mark.parametrize("weight", [np.ones(3), -np.ones(4), np.full(4, np.nan), np.zeros(4)])
def test_weights_that_make_no_sense_are_refused(weight: np.ndarray) -> None:
    with pytest.raises(ValueError, match="weight"):
        Linear().update(linear_data(4), weight)


def test_a_loss_that_is_not_finite_changes_nothing() -> None:
    backbone, data = Linear(), linear_data(4)
    data.obs["proprio"][0, 0] = np.inf
    before = backbone.module.weight.clone()
    with pytest.raises(RunError, match="linear"):
        backbone.update(data, np.ones(4))
    assert torch.equal(before, backbone.module.weight)


# Behaviour cloning ----------------------------------------------------------------------------


@cache
def a_scene() -> Scene:
    return get_family("pick-place").sample(np.random.default_rng(0))


def episode(length: int, offset: int = 0) -> Episode:
    steps = np.arange(offset, offset + length + 1, dtype=np.float32)
    return Episode(
        scene=a_scene(),
        seed=0,
        observations={"proprio": np.repeat(steps[:, None], 3, axis=1)},
        actions=np.repeat(steps[:-1, None], 7, axis=1) + 1,
        features=np.zeros((length + 1, 1), np.float32),
        rewards=np.zeros(length),
        starts=np.arange(0, length, 4),
        terminated=True,
        truncated=False,
        success=True,
    )


@settings(deadline=None)
@given(lengths=st.lists(st.integers(0, 6), min_size=1, max_size=4), horizon=st.integers(1, 5))
def test_chunks_are_the_next_actions_and_never_cross_an_episode(
    lengths: list[int], horizon: int
) -> None:
    episodes = [episode(n, 100 * i) for i, n in enumerate(lengths)]
    if sum(lengths) == 0:
        with pytest.raises(CodaError, match="no episode"):
            chunk_arrays(episodes, horizon)
        return
    data = chunk_arrays(episodes, horizon)
    assert data.actions.shape == (sum(lengths), horizon, 7)
    row = 0
    for source in episodes:
        for start in range(source.length):
            k = min(horizon, source.length - start)
            np.testing.assert_array_equal(data.actions[row, :k], source.actions[start : start + k])
            assert (data.actions[row, k:] == 0).all()
            assert data.valid[row].sum() == data.valid[row, :k].sum() == k
            np.testing.assert_array_equal(
                data.obs["proprio"][row], source.observations["proprio"][start]
            )
            row += 1


def test_training_is_reproducible_and_gives_the_learning_rate_back() -> None:
    data, extra = linear_data(64), linear_data(16, seed=1)
    runs = []
    for _ in range(2):
        backbone = Linear()
        seen: list[int] = []
        metrics = train_backbone(
            backbone,
            data,
            updates=20,
            batch_size=16,
            rng=np.random.default_rng(0),
            demonstrations=extra,
            progress=lambda step, _: seen.append(step),  # noqa: B023
        )
        assert seen == list(range(1, 21))
        assert backbone.optimizer.param_groups[0]["lr"] == backbone.learning_rate
        runs.append((metrics["loss"], backbone.module.weight.detach().numpy().tobytes()))
    assert runs[0] == runs[1]


def test_every_batch_holds_the_share_of_demonstrations_and_the_weights_of_its_chunks() -> None:
    class Recorder(Linear):
        def update(self, batch: ChunkBatch, weight: np.ndarray) -> dict[str, float]:
            batches.append((batch, weight))
            return super().update(batch, weight)

    batches: list[tuple[ChunkBatch, np.ndarray]] = []
    data, extra = linear_data(64), linear_data(16, seed=1)
    extra.obs["proprio"][:] = 7.0
    weight = np.linspace(0.5, 2.0, 64)
    train_backbone(
        Recorder(),
        data,
        updates=5,
        batch_size=20,
        rng=np.random.default_rng(0),
        weight=weight,
        demonstrations=extra,
        demonstration_share=0.25,
    )
    for batch, used in batches:
        shown = (batch.obs["proprio"] == 7.0).all(axis=1)
        assert shown.sum() == 5
        assert (used[shown] == 1).all()
        for row in np.flatnonzero(~shown):
            source = (data.obs["proprio"] == batch.obs["proprio"][row]).all(axis=1)
            assert used[row] == weight[source][0]
