"""Finding a backbone, the PyTorch base class, and behaviour cloning."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from coda_envs.errors import CodaError, ConfigError, PluginError, RunError
from coda_envs.family import get_family
from coda_envs.scene import Scene
from coda_trainer.backbone import (
    REGISTERED,
    BackboneSpec,
    ChunkBatch,
    ObsBatch,
    TrainableBackbone,
    register_backbone,
)
from coda_trainer.discovery import backbone_sources, check_backbone_sources, make_backbone
from coda_trainer.episode import Episode
from coda_trainer.learning.behaviour_cloning import chunk_arrays, train_backbone
from coda_trainer.policies.torch_backbone import TorchBackbone, initialised_from

PLUGIN = """
from coda_trainer.backbone import BackboneSpec
import numpy as np

print("a plugin that talks when it is imported")


class Still:
    def __init__(self, seed: int = 0, horizon: int = 4, scale: float = 1.0) -> None:
        self.spec = BackboneSpec(name="still", horizon=horizon, execute=1)
        self.seed, self.scale = seed, scale

    def reset(self, env_ids=None):
        pass

    def sample(self, obs, n=1, *, seed=None):
        return np.zeros((len(obs["proprio"]), n, self.spec.horizon, 7), np.float32)

    def close(self):
        pass
"""


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
        result: Tensor = (weight[:, None] * valid * error.square().mean(2)).sum()
        return result / batch.valid.sum()

    def sample(self, obs: ObsBatch, n: int = 1, *, seed: int | None = None) -> np.ndarray:
        with torch.inference_mode():
            chunks = self._chunks(obs).clamp(-1, 1)
            return np.asarray(chunks[:, None].expand(-1, n, -1, -1))

    def _chunks(self, obs: ObsBatch) -> Tensor:
        chunks: Tensor = self.module(torch.as_tensor(obs["proprio"]))
        return chunks.reshape(-1, 2, 7)


def linear_data(count: int, seed: int = 0) -> ChunkBatch:
    rng = np.random.default_rng(seed)
    proprio = rng.normal(size=(count, 3)).astype(np.float32)
    actions = np.tanh(proprio @ rng.normal(size=(3, 14)) / 4).reshape(count, 2, 7)
    valid = np.ones((count, 2), dtype=bool)
    return ChunkBatch({"proprio": proprio}, actions.astype(np.float32), valid)


@pytest.fixture
def plugin(tmp_path: Path) -> Path:
    path = tmp_path / "still.py"
    path.write_text(PLUGIN)
    return path


@pytest.fixture
def registry() -> Iterator[None]:
    before = dict(REGISTERED)
    yield
    REGISTERED.clear()
    REGISTERED.update(before)


def install(folder: Path, monkeypatch: pytest.MonkeyPatch, name: str, code: str, dist: str) -> None:
    """Put a distribution with one ``coda.backbones`` entry point onto the import path."""
    module = f"plugin_of_{dist}"
    (folder / f"{module}.py").write_text(code)
    info = folder / f"{dist}-1.2.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {dist}\nVersion: 1.2\n")
    (info / "entry_points.txt").write_text(f"[coda.backbones]\n{name} = {module}:Still\n")
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.delitem(sys.modules, module, raising=False)


# Discovery ------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", ["", ":Still"])
def test_a_file_gives_its_backbone_and_its_prints_stay_off_stdout(
    plugin: Path, suffix: str, capsys: pytest.CaptureFixture[str]
) -> None:
    backbone = make_backbone(f"{plugin}{suffix}", seed=3, horizon=5)
    assert backbone.spec.horizon == 5
    assert backbone.seed == 3  # type: ignore[attr-defined]
    out, err = capsys.readouterr()
    assert out == ""
    assert "talks" in err


def test_a_module_and_class_give_the_backbone() -> None:
    backbone = make_backbone("coda_trainer.policies.flow_chunk:FlowChunk", seed=0, width=8)
    assert backbone.spec.name == "flow_chunk"
    assert isinstance(backbone, TrainableBackbone)


def test_a_registered_name_is_found_and_a_built_in_name_cannot_be_taken(registry: None) -> None:
    register_backbone("linear", Linear)
    assert make_backbone("linear", seed=0).spec.name == "linear"
    assert ("linear", "registered") in {(s.name, s.origin) for s in backbone_sources()}
    with pytest.raises(PluginError, match="flow_chunk"):
        register_backbone("flow_chunk", Linear)


def test_an_unknown_name_is_answered_with_the_nearest_one() -> None:
    with pytest.raises(ConfigError, match="did you mean 'flow_chunk'"):
        make_backbone("flow_chunks", seed=0)


def test_an_unknown_option_is_answered_with_the_nearest_one() -> None:
    with pytest.raises(ConfigError, match="did you mean 'horizon'"):
        make_backbone("flow_chunk", seed=0, horizn=4)


@pytest.mark.parametrize("value", ["8", 8.5, True, None])
def test_an_option_of_the_wrong_type_is_refused(value: object) -> None:
    with pytest.raises(ConfigError, match="horizon"):
        make_backbone("flow_chunk", seed=0, horizon=value)


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("import no_such_package", "no_such_package"),
        ("raise SystemExit('no accelerator')", "no accelerator"),
        ("def broken(:", "SyntaxError"),
        ("x = 1", "0 backbone classes"),
        (PLUGIN + "\nclass Second(Still):\n    pass\n", "Still, Second"),
        (PLUGIN.replace("BackboneSpec(name", "dict(name"), "BackboneSpec"),
        (PLUGIN.replace("execute=1)", "execute=1, trainable=True)"), "update, save, load"),
        (PLUGIN.replace("seed: int = 0, ", "").replace("seed, scale", "0, scale"), "no 'seed'"),
        (PLUGIN.replace("self.seed, ", "raise OSError('no disk')\n        #"), "no disk"),
    ],
)
def test_a_broken_plugin_says_which_file_and_why(tmp_path: Path, code: str, words: str) -> None:
    path = tmp_path / "broken.py"
    path.write_text(code)
    with pytest.raises(PluginError) as caught:
        make_backbone(str(path), seed=0)
    assert str(path) in str(caught.value)
    assert words in str(caught.value)


def test_a_missing_file_or_class_is_named(plugin: Path) -> None:
    with pytest.raises(PluginError, match=r"absent\.py does not exist"):
        make_backbone(str(plugin.parent / "absent.py"), seed=0)
    with pytest.raises(PluginError, match="did you mean 'Still'"):
        make_backbone(f"{plugin}:Stil", seed=0)


def test_an_installed_backbone_is_listed_without_import_and_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, monkeypatch, "still", PLUGIN, "calm")
    source = next(s for s in backbone_sources() if s.name == "still")
    assert (source.origin, source.distribution, source.problem) == ("entry point", "calm 1.2", "")
    assert "plugin_of_calm" not in sys.modules
    assert make_backbone("still", seed=0).spec.name == "still"
    assert check_backbone_sources() == [(source, "")]


def test_an_installed_backbone_that_fails_names_entry_point_distribution_and_cause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, monkeypatch, "still", "raise ImportError('wrong jax')", "hasty")
    with pytest.raises(PluginError) as caught:
        make_backbone("still", seed=0)
    for words in ("'still'", "hasty 1.2", "plugin_of_hasty:Still", "wrong jax"):
        assert words in str(caught.value)
    assert "wrong jax" in check_backbone_sources()[0][1]


def test_an_installed_backbone_cannot_take_a_built_in_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, monkeypatch, "flow_chunk", PLUGIN, "greedy")
    assert make_backbone("flow_chunk", seed=0, width=8).spec.name == "flow_chunk"
    assert "belongs to a built-in" in check_backbone_sources()[0][1]


def test_two_distributions_with_one_name_are_refused_not_chosen_between(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, monkeypatch, "still", PLUGIN, "first")
    install(tmp_path, monkeypatch, "still", PLUGIN, "second")
    with pytest.raises(PluginError, match=r"first 1\.2.*second 1\.2"):
        make_backbone("still", seed=0)


def test_listing_backbones_loads_no_torch() -> None:
    code = (
        "import sys; from coda_trainer.discovery import backbone_sources; backbone_sources();"
        "sys.exit('torch' in sys.modules)"
    )
    root = Path(__file__).parents[1]
    assert subprocess.run([sys.executable, "-c", code], check=False, cwd=root).returncode == 0


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
