"""What `coda train` checks before it writes anything: the user's scene, names, the policy."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from command_line import strict
from tiny_run import quiet, replayed, results, resume, tiny

from coda_envs.errors import CodaError, HeldOutError, PluginError, SceneError
from coda_envs.factors import Region
from coda_envs.family import get_family
from coda_envs.scene import Scene
from coda_trainer.cli import main
from coda_trainer.rounds.loop import train

FAMILY = get_family("pick-place")

# A scene of one's own ----------------------------------------------------------------------------


def test_a_scene_of_ones_own_is_shown_trained_on_and_measured(tmp_path: Path) -> None:
    scene = FAMILY.sample(np.random.default_rng(5))
    run = tmp_path / "run"
    train(tiny(strategy="uniform"), run, scene=scene, reporter=quiet())
    assert [s["suite"] for s in results(run)["suites"]] == ["seed", "ood-dev", "own"]
    parts = replayed(run, "pick-place")["parts"]
    own = [r for r in parts["rollouts"]["records"] if r["source"] == "own"]
    assert own
    assert {r["scene"] for r in own} == {scene.id}
    assert scene.id in {r["scene"] for r in parts["demonstrations"]["records"]}
    assert strict((run / "manifest.json").read_text())["scene"] == scene.to_dict()
    # Resuming needs no file: the scene is in the manifest.
    (run / "checkpoints" / "round_001" / "state.json").unlink()
    before = results(run)
    resume(run)
    assert results(run) == before


def _invalid() -> Scene:
    good = FAMILY.sample(np.random.default_rng(0), fixed={"task.distractors": 0})
    return good.edit_many(
        {
            "spatial.receptacle.x": good.values["spatial.target.x"],
            "spatial.receptacle.y": good.values["spatial.target.y"],
        }
    )


def _held_out(region: Region) -> Scene:
    return FAMILY.sample(np.random.default_rng(0), "generator", region)


BAD: dict[str, tuple[Callable[[], Scene], type[CodaError], str]] = {
    "invalid": (_invalid, SceneError, "fails the check"),
    "held out": (lambda: _held_out("ood-dev"), HeldOutError, "ood-dev.*Remedy"),
    # Also where this run does not measure on that suite.
    "headline suite": (lambda: _held_out("ood"), HeldOutError, "'ood'.*Remedy"),
}


@pytest.mark.parametrize("kind", BAD)
def test_a_scene_that_cannot_be_used_is_one_error_and_nothing_is_written(
    tmp_path: Path, kind: str
) -> None:
    make, error, words = BAD[kind]
    with pytest.raises(error, match=words):
        train(tiny(), tmp_path / "run", scene=make(), reporter=quiet())
    assert list(tmp_path.iterdir()) == []


def test_a_scene_of_another_family_is_refused(tmp_path: Path) -> None:
    scene = FAMILY.sample(np.random.default_rng(0)).model_copy(update={"family": "articulated"})
    with pytest.raises(SceneError, match=r"'articulated'.*'pick-place'"):
        train(tiny(), tmp_path / "run", scene=scene, reporter=quiet())
    assert list(tmp_path.iterdir()) == []


# What is checked before anything is written ------------------------------------------------------


@pytest.mark.parametrize(
    ("setting", "code", "words"),
    [
        ("diagnosis.diagnostician=trce", 2, "did you mean 'trace'"),
        ("families=[pick-place, pick-plac]", 3, "did you mean 'pick-place'"),
        ("strategy=codda", 2, "coda"),
        ("backbone.options={lessons: many}", 2, "lessons"),
    ],
)
def test_a_misspelt_part_is_named_before_anything_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], setting: str, code: int, words: str
) -> None:
    file, out = tmp_path / "c.yaml", tmp_path / "run"
    file.write_text(tiny().to_yaml())
    assert main(["train", "--config", str(file), "--set", setting, "--out", str(out)]) == code
    assert words in capsys.readouterr().err
    assert not out.exists()


_PLUGIN = """
from coda_trainer.backbone import BackboneSpec

class Policy:
    def __init__(self, seed):
        self.spec = BackboneSpec("p", horizon=2, execute=1, {spec})
    def reset(self, env_ids=None): ...
    def sample(self, obs, n=1, *, seed=None): ...
    def close(self): ...
    {more}
"""
_LEARNS = "def update(self, b, w): ...\n    def save(self, f): ...\n    def load(self, f): ..."


@pytest.mark.parametrize(
    ("spec", "more", "words"),
    [
        ("trainable=False", "", "cannot be trained"),
        ("trainable=True, state_keys=('joints',)", _LEARNS, "'joints'"),
        (
            "trainable=True, state_keys=('proprio',), images={'wrist': (64, 48, 3)}",
            _LEARNS,
            "'wrist'",
        ),
        ("trainable=True, state_keys=('proprio',), action_dim=8", _LEARNS, "8"),
        ("trainable=True", _LEARNS, "nothing to read"),
    ],
)
def test_a_policy_that_the_loop_cannot_train_is_refused_at_once(
    tmp_path: Path, spec: str, more: str, words: str
) -> None:
    file = tmp_path / "policy.py"
    file.write_text(_PLUGIN.format(spec=spec, more=more))
    with pytest.raises(PluginError, match=words):
        train(tiny(backbone={"name": str(file)}), tmp_path / "run", reporter=quiet())
    assert not (tmp_path / "run").exists()
