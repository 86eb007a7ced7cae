"""``coda diagnose``: find out what a policy cannot do, and test each claim."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from coda_envs.errors import ConfigError
from coda_trainer.commands.result import Json, Result, table

Options = tyro.conf.UseAppendAction[tuple[str, ...]]


@dataclass(frozen=True)
class Diagnose:
    """Find out what a policy cannot do: diagnose its failures and test the likeliest claims.

    The policy is that of a run, or a backbone of your own, which need not be trainable. It acts in
    scenes of the demonstrations' range with one to three factors changed. Each claim about a factor
    is tested in matched scenes: with it, without it, and with another factor changed as far.

    Example: coda diagnose runs/demo-1 --out diagnosis
    Example: coda diagnose my_policy.py:MyPolicy --family pick-place
    """

    policy: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="RUN|BACKBONE")]
    """A run folder; or a backbone's name, module:Class, or Python file."""

    family: Annotated[str | None, tyro.conf.arg(metavar="NAME", help_behavior_hint="")] = None
    """The family to examine it in; by default the run's first one."""

    episodes: Annotated[int, tyro.conf.arg(metavar="N")] = 256
    """Episodes in which failures are looked for."""

    claims: Annotated[int, tyro.conf.arg(metavar="N")] = 4
    """Most claims that are tested."""

    per_arm: Annotated[int, tyro.conf.arg(metavar="N")] = 32
    """Most rollouts in each of the three arms of a test."""

    diagnostician: Annotated[str, tyro.conf.arg(metavar="NAME")] = "trace"
    """Who makes the claims: trace, vlm, or an installed one."""

    option: Annotated[Options, tyro.conf.arg(metavar="NAME=VALUE")] = ()
    """An option of the diagnostician, such as model=...; may be given several times."""

    seed: Annotated[int, tyro.conf.arg(metavar="N")] = 0
    """Everything random follows from it."""

    workers: Annotated[int, tyro.conf.arg(metavar="N")] = 1
    """Processes that run rollouts. The results do not depend on it."""

    out: Annotated[Path, tyro.conf.arg(metavar="FOLDER")] = Path("diagnosis")
    """Where report.md, diagnosis.json and the pictures go."""

    json: Json = False

    def run(self) -> Result:
        """Examine, write the folder, and list the difficulties."""
        for name, least in (("episodes", 1), ("claims", 0), ("per_arm", 1), ("workers", 1)):
            if getattr(self, name) < least:
                raise ConfigError(
                    f"--{name.replace('_', '-')} is {getattr(self, name)}.",
                    allowed=f"a whole number from {least}",
                )
        if self.seed < 0:
            raise ConfigError(f"--seed is {self.seed}.", allowed="a whole number from 0")
        if self.out.exists() and not self.out.is_dir():
            raise ConfigError(f"--out {self.out} is a file.", allowed="a folder, or a new name")
        # Imported here: torch takes seconds.
        import torch

        from coda_envs.family import get_family
        from coda_trainer.diagnosis.base import make_diagnostician
        from coda_trainer.diagnosis.examine import examine
        from coda_trainer.learning.rollout import RolloutPool
        from coda_trainer.policy_source import policy_source
        from coda_trainer.report.examination import write_examination
        from coda_trainer.yaml_input import parse_assignment

        options = dict(parse_assignment(text, ConfigError) for text in self.option)
        diagnostician = make_diagnostician(self.diagnostician, **options)
        source = policy_source(self.policy)
        name = source.family(self.family, self.policy)
        torch.set_num_threads(1)
        with RolloutPool(source.env, self.workers) as pool:
            found = examine(
                pool,
                source.actor,
                get_family(name),
                diagnostician,
                episodes=self.episodes,
                claims=self.claims,
                per_arm=self.per_arm,
                seed=self.seed,
                say=lambda text: print(text, file=sys.stderr, flush=True),
            )
        files = write_examination(found, self.out)
        data = {"policy": self.policy, **found.to_dict(), "files": [str(f) for f in files]}
        rows = [
            (d["factor"], d["direction"], d["stage"], d["verdict"], d["failures"])
            for d in data["difficulties"]
        ]
        title = (
            f"{self.policy} in {name}: {data['successes']} of {data['episodes']} succeeded; "
            f"see {files[1]}"
        )
        columns = ("factor", "side", "stage", "verdict", "failures")
        return Result(data=data, view=table(title, columns, rows))
