"""How hard the declared interactions are: the probe behind each family's ``interactions.yaml``.

For every interaction: its share of the generator's volume; the success of a policy cloned from
seed-range demonstrations, by thirds of magnitude, with the other factors in the seed range and
with them wide; and that of the family's expert, wide. Scenes lie in the generator region; no
held-out scene is touched. Run ``python benchmarks/interactions.py``; it
takes about five minutes a family on two cores and writes ``results/benchmarks/interactions.json``
after each family.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from report import FOLDER, circumstances, write

from coda_envs.env import ManipulationEnv
from coda_envs.errors import SceneError
from coda_envs.factor import RangeName
from coda_envs.family import BUILT_IN, TaskFamily, get_family
from coda_envs.interactions import THIRDS, Interaction, load_interactions, sample_interaction
from coda_envs.scene import Scene
from coda_trainer.config_file import load_config
from coda_trainer.evaluation import evaluate, scene_jobs
from coda_trainer.learning.actor import ActorSpec
from coda_trainer.learning.rollout import EnvSpec, RolloutPool
from coda_trainer.rounds.loop import train
from coda_trainer.rounds.run_folder import RunFolder
from coda_trainer.statistics import wilson

CONFIG = Path(__file__).parent.parent / "configs" / "demo.yaml"
VOLUME_SCENES = 3000
#: Scenes of each third, and of the wide draw they are compared with.
POLICY_SCENES = 48
EXPERT_SCENES = 40
WIDE_SCENES = 96
SEED = 91_000
#: Where the factors lie that an interaction says nothing about: it alone, or among all others.
RANGES: tuple[RangeName, ...] = ("seed", "generator")


def main() -> None:
    """Probe the families, print the tables, write the file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("families", nargs="*", default=list(BUILT_IN))
    chosen = parser.parse_args().families
    # Families that are not probed now keep what was found of them.
    file = FOLDER / "interactions.json"
    figures: dict[str, Any] = json.loads(file.read_text())["figures"] if file.is_file() else {}
    for name in chosen:
        figures[name] = {"commit": circumstances()["commit"], **probe(get_family(name))}
        print(write("interactions", figures), flush=True)


def probe(family: TaskFamily) -> dict[str, Any]:
    """All figures of one family."""
    rng = np.random.default_rng(SEED)
    declared = load_interactions(family)
    draws = [family.sample(rng, "generator").values for _ in range(VOLUME_SCENES)]
    with tempfile.TemporaryDirectory() as folder:
        actor, spec = _cloned(family, Path(folder) / "run")
        with RolloutPool(spec, workers=2) as pool:

            def policy(scenes: Sequence[Scene]) -> dict[str, Any]:
                found, _ = evaluate(pool, actor, scene_jobs(scenes, "probe", len(scenes)), "probe")
                return _rate(found.successes, found.n)

            wide = {
                within: policy([family.sample(rng, within) for _ in range(WIDE_SCENES)])
                for within in RANGES
            }
            print(f"{family.name}: cloned policy {_words(wide['seed'])} on the seed range,"
                  f" {_words(wide['generator'])} wide")  # fmt: skip
            figures: dict[str, Any] = {"policy": wide, "interactions": {}}
            for one in declared:
                alone, thirds = (
                    [_scenes(family, one, rng, part, within) for part in range(THIRDS)]
                    for within in RANGES
                )
                spread = [scene for part in zip(*thirds, strict=True) for scene in part]
                figures["interactions"][one.name] = found = {
                    "needs": one.needs,
                    "volume": sum(one.magnitude(v) is not None for v in draws) / len(draws),
                    "policy_by_third": [policy(scenes) if scenes else None for scenes in alone],
                    "policy_by_third_wide": [policy(scenes) for scenes in thirds],
                    "expert": _expert(family, spread[:EXPERT_SCENES]),
                }
                print(f"  {one.name}: volume {100 * found['volume']:.1f}%,"
                      f" expert {_words(found['expert'])}")  # fmt: skip
                for key in ("policy_by_third", "policy_by_third_wide"):
                    print(f"    {key:22s} " + ", ".join(map(_words, found[key])), flush=True)
    return figures


def _cloned(family: TaskFamily, folder: Path) -> tuple[ActorSpec, EnvSpec]:
    """The built-in policy after the demo's demonstrations and fine-tuning, nothing else."""
    settings = (f"families=[{family.name}]", "strategy=sft", "evaluation.episodes=1")
    config = load_config(CONFIG, settings)
    train(config, folder)
    _, checkpoint, _ = RunFolder(folder).last_checkpoint()
    actor = ActorSpec(
        config.backbone.name, config.backbone.options, config.seed, checkpoint / "backbone"
    )
    return actor, EnvSpec(config.control_hz)


def _scenes(
    family: TaskFamily,
    one: Interaction,
    rng: np.random.Generator,
    part: int,
    within: RangeName,
) -> list[Scene]:
    """The scenes of a third; none where the other factors' range leaves them no training cell."""
    try:
        return [
            sample_interaction(family, one, rng, "generator", part, within)
            for _ in range(POLICY_SCENES)
        ]
    except SceneError:
        return []


def _expert(family: TaskFamily, scenes: Sequence[Scene]) -> dict[str, Any]:
    env = ManipulationEnv(family.name)
    successes = 0
    for number, scene in enumerate(scenes):
        env.reset(seed=SEED + number, options={"scene": scene})
        expert = family.expert(number)
        done = False
        while not done:
            _, _, terminated, truncated, info = env.step(expert.act(env))
            done = terminated or truncated
        successes += bool(info["success"])
    env.close()
    return _rate(successes, len(scenes))


def _rate(successes: int, n: int) -> dict[str, Any]:
    return {"rate": successes / n, "n": n, "interval95": wilson(successes, n)}


def _words(found: dict[str, Any] | None) -> str:
    if found is None:
        return "not measured"
    low, high = found["interval95"]
    return f"{found['rate']:.2f} [{low:.2f}, {high:.2f}]"


if __name__ == "__main__":
    main()
