"""``coda train``: run the loop, or go on with a run that was stopped."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from coda_envs.errors import ConfigError, RunError
from coda_trainer.commands.result import Assignments, Result

if TYPE_CHECKING:
    from coda_trainer.config import RunConfig


@dataclass(frozen=True)
class Train:
    """Train a policy: show it demonstrations, find where it fails, train it there, measure.

    Writes a run folder: config.yaml, manifest.json, memory.sqlite, scenes, checkpoints, metrics.
    A run that was stopped or killed goes on with --resume, with the same numbers as if it had
    never stopped.

    Example: coda train --config configs/demo.yaml --set rounds=3 --out runs/mine
    """

    config: Annotated[Path | None, tyro.conf.arg(metavar="FILE", help_behavior_hint="")] = None
    """The settings, a YAML file; configs/demo.yaml is a small one. Needed unless --resume."""

    set: Annotated[Assignments, tyro.conf.arg(metavar="KEY=VALUE")] = ()
    """Change one setting, e.g. learner.batch_size=64. May be given several times."""

    out: Annotated[Path | None, tyro.conf.arg(metavar="FOLDER", help_behavior_hint="")] = None
    """Where the run is written; by default the first free runs/<name of the config>-<n>."""

    resume: Annotated[Path | None, tyro.conf.arg(metavar="RUN", help_behavior_hint="")] = None
    """Go on with this run folder from its last completed step. It has its own settings."""

    scene: Annotated[Path | None, tyro.conf.arg(metavar="FILE", help_behavior_hint="")] = None
    """A scene file of yours that every round also trains on."""

    memory: Annotated[str | None, tyro.conf.arg(metavar="RUN_OR_DB", help_behavior_hint="")] = None
    """Another run, or its memory: its difficulty modes and programs are trained on, read-only, and
    nothing is diagnosed. Of another family: lift it first, see `coda memory lift`."""

    strategy: Annotated[str | None, tyro.conf.arg(metavar="NAME", help_behavior_hint="")] = None
    """How a round picks its scenes: sft, uniform, graded or coda. Short for --set strategy=…"""

    backbone: Annotated[str | None, tyro.conf.arg(metavar="NAME", help_behavior_hint="")] = None
    """The policy: a built-in or installed name, or module:Class. Short for --set backbone.name=…"""

    plugin: Annotated[Path | None, tyro.conf.arg(metavar="FILE.PY", help_behavior_hint="")] = None
    """A Python file that defines the policy; used in place of --backbone."""

    def run(self) -> Result:
        """Check everything that can be checked, then start the loop."""
        if self.resume is not None:
            return self._go_on(self.resume)
        if self.config is None:
            raise ConfigError(
                "no settings: neither --config nor --resume is given.",
                remedy="coda train --config configs/demo.yaml",
            )
        # Imported here, as everything heavy is: --help must not wait for it.
        from coda_envs.scene import load_scene
        from coda_trainer.config_file import load_config

        config = load_config(self.config, [*self.set, *self._shortcuts()])
        out = self._new_folder(self.config.stem)
        scene = load_scene(self.scene) if self.scene is not None else None
        _check_parts(config)

        from coda_trainer.memory.view import find_memory
        from coda_trainer.rounds.loop import train

        adopted = None if self.memory is None else find_memory(self.memory)
        train(config, out, scene=scene, adopted=adopted)
        return _finished(out)

    def _go_on(self, run: Path) -> Result:
        fixed = {
            "--config": self.config,
            "--set": self.set,
            "--out": self.out,
            "--scene": self.scene,
            "--memory": self.memory,
            "--strategy": self.strategy,
            "--backbone": self.backbone,
            "--plugin": self.plugin,
        }
        given = [flag for flag, value in fixed.items() if value]
        if given:
            raise ConfigError(
                f"{', '.join(given)} cannot be combined with --resume.",
                allowed="--resume RUN alone: the run goes on with the settings in its config.yaml",
                remedy="start a new run to change a setting",
            )
        from coda_trainer.config_file import load_run_config

        config = load_run_config(run)
        _check_parts(config)

        from coda_trainer.rounds.loop import train

        train(config, run, resume=True)
        return _finished(run)

    def _shortcuts(self) -> list[str]:
        """The flags that stand for a setting, as assignments; a JSON string is a YAML string."""
        if self.backbone is not None and self.plugin is not None:
            raise ConfigError(
                f"--backbone {self.backbone} and --plugin {self.plugin} both name the policy.",
                remedy="give one of them",
            )
        given: list[str] = []
        if self.strategy is not None:
            given.append(f"strategy={json.dumps(self.strategy)}")
        if self.backbone is not None:
            given.append(f"backbone.name={json.dumps(self.backbone)}")
        if self.plugin is not None:
            # Absolute, so that the run can be resumed from anywhere.
            given.append(f"backbone.name={json.dumps(str(self.plugin.resolve()))}")
        return given

    def _new_folder(self, stem: str) -> Path:
        if self.out is None:
            number = 1
            while (folder := Path("runs") / f"{stem}-{number}").exists():
                number += 1
            return folder
        if self.out.is_dir() and any(self.out.iterdir()):
            raise RunError(
                f"--out {self.out} is not empty; nothing in it was touched.",
                allowed="a folder that is empty or does not exist",
                remedy=f"choose another one, or go on with it: coda train --resume {self.out}",
            )
        if self.out.exists() and not self.out.is_dir():
            raise RunError(f"--out {self.out} is a file.", allowed="a folder")
        return self.out


def _check_parts(config: RunConfig) -> None:
    """Make sure that everything named exists and loads, before anything is written."""
    from coda_envs.family import get_family
    from coda_trainer.compile.author import check_author
    from coda_trainer.diagnosis.base import make_diagnostician
    from coda_trainer.evaluation import suite_scenes
    from coda_trainer.learning.signals import RULES
    from coda_trainer.recall import make_recall
    from coda_trainer.rounds.policy import make_policy
    from coda_trainer.strategies import make_strategy

    for family in map(get_family, config.families):
        for suite in config.evaluation.suites:
            suite_scenes(family, suite, 1)
    make_diagnostician(config.diagnosis.diagnostician, **config.diagnosis.options)
    check_author(config)
    if config.strategy == "coda":
        make_recall(config)
    learns = make_strategy(config.strategy).learns
    frozen = RULES[config.signal].frozen
    make_policy(config.backbone, config.seed, learns=learns, frozen=frozen).close()


def _finished(run: Path) -> Result:
    return Result(
        data={"run": str(run)},
        view=f"Run: {run}\nNext: coda memory show {run}\n      coda evaluate {run}\n",
    )
