"""Finding a backbone by name, module or file, and what is said when that fails."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from coda_envs.errors import ConfigError, PluginError
from coda_trainer.backbone import REGISTERED, TrainableBackbone, register_backbone
from coda_trainer.discovery import backbone_sources, check_backbone_sources, make_backbone
from coda_trainer.policies.flow_chunk import FlowChunk

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
    register_backbone("mine", FlowChunk)
    assert make_backbone("mine", seed=0, width=8).spec.name == "flow_chunk"
    assert ("mine", "registered") in {(s.name, s.origin) for s in backbone_sources()}
    with pytest.raises(PluginError, match="flow_chunk"):
        register_backbone("flow_chunk", FlowChunk)


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
