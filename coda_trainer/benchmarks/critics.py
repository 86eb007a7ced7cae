"""Agreement with a sparse critic, measured on a finished run and written into its folder."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from coda_envs.errors import LearningError
from coda_envs.family import get_family
from coda_envs.programs.potential import PotentialProgram
from coda_envs.text2potential import compile_potential
from coda_trainer.backbone import TrainableBackbone
from coda_trainer.benchmarks.preset import AgreementSettings
from coda_trainer.config import RunConfig
from coda_trainer.config_file import load_run_config
from coda_trainer.evaluation import WIDE_SUITE, scene_jobs, suite_scenes
from coda_trainer.files import write_atomic
from coda_trainer.learning.actor import ActorSpec
from coda_trainer.learning.agreement import HeldOutStates, held_out_states, measure_agreement
from coda_trainer.learning.chunk_critic import NoPotential, StatePotential
from coda_trainer.learning.critic_learner import CriticLearner
from coda_trainer.learning.environment import env_spec
from coda_trainer.learning.exploration import ExplorationNoise
from coda_trainer.learning.reader import backbone_reader
from coda_trainer.learning.replay import Replay
from coda_trainer.learning.rollout import RolloutPool
from coda_trainer.rounds.learning import new_learner
from coda_trainer.rounds.policy import make_policy
from coda_trainer.rounds.run_folder import RunFolder
from coda_trainer.strict_json import dumps


def agreement_file(run: Path, settings: AgreementSettings) -> Path:
    """Where a run keeps what was measured with these settings."""
    digest = hashlib.sha256(settings.model_dump_json().encode()).hexdigest()[:8]
    return run / f"agreement-{digest}.json"


def write_agreement(run: Path, settings: AgreementSettings) -> None:
    """Measure a finished run's agreement, family by family, and write it into its folder.

    The critics learn from the run's last replay, with its last policy as the base. Where no rollout
    of a family succeeded, its curve is null and the reason stands beside it. Raises
    :class:`RunError` where the run has no complete checkpoint.
    """
    config = load_run_config(run)
    _, checkpoint, _ = RunFolder(run).last_checkpoint()
    described = json.loads((checkpoint / "state.json").read_text(encoding="utf-8"))
    backbone = make_policy(config.backbone, config.seed, learns=True)
    backbone.load(checkpoint / "backbone")
    found = []
    with RolloutPool(env_spec(backbone.spec, config.control_hz), config.workers) as pool:
        for name in config.families:
            program = described["families"][name]["program"]
            folder = checkpoint / "families" / name
            found.append(_family(pool, config, name, settings, backbone, folder, program))
    backbone.close()
    data = {"signal": config.signal, "settings": settings.model_dump(), "families": found}
    write_atomic(agreement_file(run, settings), dumps(data, indent=1) + "\n")


def _family(
    pool: RolloutPool,
    config: RunConfig,
    name: str,
    settings: AgreementSettings,
    backbone: TrainableBackbone,
    folder: Path,
    program: dict[str, Any] | None,
) -> dict[str, Any]:
    family, execute = get_family(name), backbone.spec.execute
    scenes = suite_scenes(family, WIDE_SUITE, settings.episodes)
    actor = ActorSpec(
        config.backbone.name,
        config.backbone.options,
        config.seed,
        folder.parents[1] / "backbone",
    )
    # Other seeds than those of the evaluation on the same suite would change nothing: no critic
    # has seen either.
    episodes = pool.run(actor, scene_jobs(scenes, WIDE_SUITE, settings.episodes))
    states: HeldOutStates = held_out_states(
        episodes,
        backbone,
        candidates=settings.candidates,
        noise=ExplorationNoise(std=settings.noise, share=1.0),
        seed=config.seed,
    )
    reader = backbone_reader(backbone, execute, config.seed)
    replay = Replay.load(folder / "replay", reader)
    # Its episodes were read by the policy that the last round began with.
    replay.rebase(reader)
    encoding = replay.stored("encoding").shape[1]
    potential: StatePotential = NoPotential()
    if program is not None:
        refined = PotentialProgram.parse(program["refined"], f"{folder.parents[1]}/state.json")
        potential = compile_potential(refined, family.schema)
    plain = config.model_copy(update={"signal": "sparse"})

    def make(sparse: bool, seed: int) -> CriticLearner:
        return new_learner(
            plain if sparse else config,
            family,
            execute=execute,
            encoding=encoding,
            potential=NoPotential() if sparse else potential,
            seed=seed,
        )

    told = {"family": name, "episodes": len(episodes), "states": len(states.features)}
    told["successes"] = sum(e.success for e in episodes)
    try:
        curve = measure_agreement(
            make,
            replay,
            states,
            updates=settings.updates,
            every=settings.every,
            epsilon=settings.epsilon,
            seed=config.seed,
        )
    except LearningError as error:
        return {**told, "curve": None, "reason": error.problem}
    return {**told, "curve": [a.to_dict() for a in curve], "reason": ""}
