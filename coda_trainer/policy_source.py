"""Where a policy comes from: a run folder, or a backbone by name, class or file."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from coda_envs.errors import ConfigError, RunError
from coda_trainer.config_file import load_run_config
from coda_trainer.discovery import make_backbone
from coda_trainer.learning.actor import ActorSpec
from coda_trainer.learning.environment import env_spec
from coda_trainer.learning.jobs import EnvSpec


@dataclass(frozen=True)
class PolicySource:
    """A policy that can act: its actor, the environment that it needs, and, of a run, the
    ``families`` that it was trained on and the ``round`` that it is of."""

    actor: ActorSpec
    env: EnvSpec
    families: Sequence[str] = ()
    round: int | None = None

    def family(self, wanted: str | None, policy: str) -> str:
        """The family to act in: ``wanted``, else the run's first one.

        Raises :class:`ConfigError` naming ``policy`` where neither says it.
        """
        if wanted is None and not self.families:
            raise ConfigError(
                f"{policy} does not say which family it is for.", remedy="give one by --family"
            )
        return wanted or self.families[0]


def policy_source(policy: str, control_hz: int = 10) -> PolicySource:
    """The newest policy of a run folder, or a backbone as it is constructed, at ``control_hz``.

    Raises :class:`RunError` where the folder is no run with a policy, and :class:`ConfigError` or
    :class:`PluginError` where there is no such backbone or it does not load.
    """
    if Path(policy).is_dir():
        return run_policy(Path(policy))
    backbone = make_backbone(policy, seed=0)
    env = env_spec(backbone.spec, control_hz)
    backbone.close()
    return PolicySource(ActorSpec(policy), env)


def run_policy(run: Path) -> PolicySource:
    """The newest policy of a run folder; checkpoints that are broken are named and passed over.

    Raises :class:`RunError` where the folder is no run or has no complete checkpoint.
    """
    # Imported here: most uses of a backbone have no run.
    from coda_trainer.rounds.run_folder import RunFolder

    config = load_run_config(run)
    round, checkpoint, problems = RunFolder(run).last_checkpoint()
    for problem in problems:
        print(f"{problem}; it is left out", file=sys.stderr)
    folder = checkpoint / "backbone"
    if not folder.is_dir():
        raise RunError(f"{checkpoint} holds no backbone.", remedy="choose another run")
    options = config.backbone.options
    backbone = make_backbone(config.backbone.name, seed=config.seed, **options)
    env = env_spec(backbone.spec, config.control_hz)
    backbone.close()
    actor = ActorSpec(config.backbone.name, options, config.seed, folder)
    return PolicySource(actor, env, config.families, round)
