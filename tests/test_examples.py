"""What the README points at works as it says."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from coda_envs.env import ManipulationEnv
from coda_envs.errors import SceneError
from coda_envs.family import get_family
from coda_envs.validity import validate
from coda_trainer.backbone import ChunkBatch, TrainableBackbone
from coda_trainer.discovery import make_backbone

ROOT = Path(__file__).parent.parent


def test_the_example_policy_learns_saves_and_acts(tmp_path: Path) -> None:
    path = str(ROOT / "examples" / "tiny_policy.py")
    policy = make_backbone(path, seed=0)
    assert isinstance(policy, TrainableBackbone)
    env = ManipulationEnv("pick-place", control_hz=10)
    rows = [env.reset(seed=seed)[0] for seed in range(16)]
    obs = {key: np.stack([row[key] for row in rows]) for key in rows[0]}
    actions = np.random.default_rng(0).uniform(-0.5, 0.5, (16, 8, 7)).astype(np.float32)
    batch = ChunkBatch(obs, actions, np.ones((16, 8), dtype=bool))
    losses = [policy.update(batch, np.ones(16))["loss"] for _ in range(60)]
    assert losses[-1] < 0.5 * losses[0]
    policy.save(tmp_path)
    again = make_backbone(path, seed=1)
    assert isinstance(again, TrainableBackbone)
    again.load(tmp_path)
    chunk = policy.sample(obs)
    assert chunk.shape == (16, 1, 8, 7)
    assert chunk.tobytes() == again.sample(obs).tobytes()
    env.step(chunk[0, 0, 0])
    env.close()


def test_the_example_policy_stays_short() -> None:
    lines = (ROOT / "examples" / "tiny_policy.py").read_text(encoding="utf-8").splitlines()
    assert len(lines) <= 60


def test_the_readmes_first_python_block_runs() -> None:
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text("utf-8"), re.S)
    first = blocks[0]
    assert "gym.make" in first
    done = subprocess.run([sys.executable, "-c", first], capture_output=True, text=True, cwd="/")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("put the ")


def test_the_example_family_works_like_a_built_in_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "examples" / "new_family")
    env = gym.make("lift:CoDA-Lift-v0", within="generator", reward_mode="shaped")
    check_env(env.unwrapped)
    inner = env.unwrapped
    assert isinstance(inner, ManipulationEnv)
    successes = 0
    for seed in range(20):
        _, info = env.reset(seed=seed)
        expert, done = inner.family.expert(seed), False
        while not done:
            _, _, terminated, truncated, info = env.step(expert.act(inner).astype(np.float32))
            done = terminated or truncated
        successes += info["success"]
    assert successes >= 19
    again = gym.make(gym.spec("CoDA-Lift-v0"))
    first, second = (e.reset(seed=7)[0] for e in (again, gym.make("CoDA-Lift-v0")))
    assert all(first[key].tobytes() == second[key].tobytes() for key in first)


def test_the_example_family_has_regions_and_valid_scenes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "examples" / "new_family")
    importlib.import_module("lift")
    family, rng = get_family("lift"), np.random.default_rng(0)
    for region in ("generator", "ood-dev", "ood", "ood-spatial", "ood-attribute", "ood-far"):
        scene = family.sample(rng, "generator", region)  # type: ignore[arg-type]
        assert family.region(scene) == region
        assert validate(scene).passed
    with pytest.raises(SceneError, match="no scene of 'lift' can be drawn from the region"):
        family.sample(rng, "generator", "ood-task")


def test_the_example_family_is_one_file_and_one_yaml() -> None:
    folder = ROOT / "examples" / "new_family"
    assert {f.name for f in folder.iterdir() if f.is_file()} == {"lift.py", "factors.yaml"}
    assert len((folder / "lift.py").read_text(encoding="utf-8").splitlines()) <= 150


@pytest.mark.slow
def test_the_example_that_diagnoses_a_policy_runs(tmp_path: Path) -> None:
    script = ROOT / "examples" / "diagnose_my_policy.py"
    words = [sys.executable, str(script), "--out", str(tmp_path / "out"), "--episodes", "64"]
    done = subprocess.run(words, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "Wrote" in done.stdout
    assert "episodes succeeded" in (tmp_path / "out" / "report.md").read_text(encoding="utf-8")
