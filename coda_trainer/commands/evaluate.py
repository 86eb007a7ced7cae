"""``coda evaluate``: measure a run's policy on a frozen suite."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from coda_envs.errors import ConfigError
from coda_trainer.commands.result import Json, Result, table


@dataclass(frozen=True)
class Evaluate:
    """Measure the policy of a run on a suite of scenes that it was not trained on.

    The figure is the backbone alone. Success comes with its number of episodes and a 95%
    interval.

    Example: coda evaluate runs/demo-1 --suite ood-dev --episodes 200
    """

    run_folder: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(name="run", metavar="RUN")]
    """The run folder."""

    suite: Literal[
        "seed", "ood-dev", "ood", "ood-spatial", "ood-attribute", "ood-task", "ood-far"
    ] = "ood-dev"
    """seed: like the demonstrations; ood-dev, ood: compositions held out from training;
    ood-spatial, ood-attribute, ood-task: held out in one group of factors; ood-far: beyond every
    range, in new words."""

    episodes: Annotated[int, tyro.conf.arg(metavar="N")] = 200
    """How many episodes, each on another scene or seed."""

    json: Json = False

    def run(self) -> Result:
        """Evaluate and report."""
        if self.episodes < 1:
            raise ConfigError(f"--episodes is {self.episodes}.", allowed="a whole number from 1")
        from coda_trainer.config_file import load_run_config

        load_run_config(self.run_folder)

        from coda_trainer.evaluation import evaluate_run

        data = evaluate_run(self.run_folder, suite=self.suite, episodes=self.episodes)
        title = f"{self.run_folder} on {self.suite}"
        return Result(data=data, view=table(title, ("figure", "value"), list(_flat(data))))


def _flat(data: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """The figures of a nested report, one a row: ``("success.rate", 0.41)``."""
    for name, value in data.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield prefix + name, round(value, 4) if isinstance(value, float) else value
