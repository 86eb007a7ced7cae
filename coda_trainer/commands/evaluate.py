"""``coda evaluate``: measure a run's policy on the frozen suites of its families."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from coda_envs.errors import ConfigError
from coda_trainer.commands.result import Json, Result, table


@dataclass(frozen=True)
class Evaluate:
    """Measure the policy of a run on a suite of scenes that it was not trained on.

    The figure is the backbone alone, for each family of the run and for all of them together.
    Success comes with its number of episodes and a 95% interval.

    Example: coda evaluate runs/demo-1 --suite ood-dev --episodes 200
    """

    run_folder: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(name="run", metavar="RUN")]
    """The run folder."""

    suite: Literal[
        "seed", "wide", "ood-dev", "ood", "ood-spatial", "ood-attribute", "ood-task", "ood-far"
    ] = "ood-dev"
    """seed: like the demonstrations; wide: fresh scenes of the whole generator range, outside every
    held-out region; ood-dev, ood: compositions held out from training;
    ood-spatial, ood-attribute, ood-task: held out in one group of factors; ood-far: beyond every
    range, in new words."""

    family: Annotated[str | None, tyro.conf.arg(metavar="NAME", help_behavior_hint="")] = None
    """This family alone, which may be one that the run was not trained on."""

    episodes: Annotated[int, tyro.conf.arg(metavar="N")] = 200
    """How many episodes of each family, each on another scene or seed."""

    json: Json = False

    def run(self) -> Result:
        """Evaluate and report."""
        if self.episodes < 1:
            raise ConfigError(f"--episodes is {self.episodes}.", allowed="a whole number from 1")
        from coda_trainer.config_file import load_run_config

        load_run_config(self.run_folder)

        from coda_trainer.evaluation import evaluate_run

        data = evaluate_run(
            self.run_folder, suite=self.suite, episodes=self.episodes, family=self.family
        )
        shown = data["families"] if len(data["families"]) == 1 else [*data["families"], data]
        rows = [
            (
                figures["family"],
                figures["n"],
                figures["successes"],
                "{:.3f} [{:.3f}, {:.3f}]".format(figures["rate"], *figures["interval95"]),
            )
            for figures in shown
        ]
        title = f"{self.run_folder} on {self.suite}, policy of round {data['round']}"
        columns = ("family", "n", "successes", "rate [95%]")
        return Result(data=data, view=table(title, columns, rows))
