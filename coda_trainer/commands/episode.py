"""``coda episode``: rollouts as files, and what happened in them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from coda_envs.errors import CodaError, ConfigError
from coda_trainer.commands.result import Json, Result, table


@dataclass(frozen=True)
class EpisodeRecord:
    """Run a policy on a suite and keep the episodes in one file.

    Example: coda episode record runs/demo-1 --suite ood-dev --episodes 20 -o dev.episodes
    """

    policy: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="RUN|BACKBONE")]
    """A run folder; or a backbone's name, module:Class, or Python file."""

    out: Annotated[Path, tyro.conf.arg(aliases=("-o",), metavar="FILE")]
    """The file to write."""

    family: Annotated[str | None, tyro.conf.arg(metavar="NAME", help_behavior_hint="")] = None
    """The kind of task; by default the run's first family."""

    suite: str = "ood-dev"
    """A frozen suite, or wide or hard."""

    episodes: Annotated[int, tyro.conf.arg(metavar="N")] = 20
    """How many."""

    json: Json = False

    def run(self) -> Result:
        """Play and write."""
        if self.episodes < 1:
            raise ConfigError(f"--episodes is {self.episodes}.", allowed="a whole number from 1")
        from coda_trainer.files import check_place

        check_place(self.out)
        # Imported here: torch takes seconds.
        import torch

        from coda_envs.family import get_family
        from coda_trainer.episode_file import write_episodes
        from coda_trainer.evaluation import suite_jobs
        from coda_trainer.learning.rollout import RolloutPool
        from coda_trainer.policy_source import policy_source

        source = policy_source(self.policy)
        name = source.family(self.family, self.policy)
        jobs = suite_jobs(get_family(name), self.suite, self.episodes)
        torch.set_num_threads(1)
        with RolloutPool(source.env) as pool:
            episodes = pool.run(source.actor, jobs)
        write_episodes(self.out, episodes, source.env.control_hz)
        data = {
            "file": str(self.out),
            "family": name,
            "suite": self.suite,
            "episodes": len(episodes),
            "successes": sum(e.success for e in episodes),
        }
        view = f"{data['successes']} of {len(episodes)} succeeded; wrote {self.out}\n"
        return Result(data=data, view=view)


@dataclass(frozen=True)
class EpisodeShow:
    """Tell what happened in a recorded episode, and draw it as a film strip.

    Without an index it lists the file's episodes.

    Example: coda episode show dev.episodes 3 -o strip.png
    """

    file: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="FILE")]
    """An episode file."""

    index: Annotated[
        int | None, tyro.conf.Positional, tyro.conf.arg(metavar="INDEX", help_behavior_hint="")
    ] = None
    """Which episode, from 0."""

    out: Annotated[
        Path | None, tyro.conf.arg(aliases=("-o",), metavar="PNG", help_behavior_hint="")
    ] = None
    """The picture to write."""

    json: Json = False

    def run(self) -> Result:
        """Read; list, or tell and draw."""
        from coda_envs.family import get_family
        from coda_trainer.diagnosis.events import episode_events
        from coda_trainer.episode_file import read_episode, read_episodes
        from coda_trainer.files import check_place, write_atomic

        if self.index is None:
            if self.out is not None:
                raise ConfigError(
                    f"--out {self.out} has no episode to draw.", remedy="say which one by its index"
                )
            rows = [
                {
                    "index": i,
                    "success": e.success,
                    "steps": e.length,
                    "failure": e.failure,
                    "instruction": e.scene.task.instruction,
                }
                for i, (e, _) in enumerate(read_episodes(self.file))
            ]
            columns = ("index", "success", "steps", "failure", "instruction")
            listed = [tuple(str(row[c]) for c in columns) for row in rows]
            return Result(
                data={"file": str(self.file), "episodes": rows},
                view=table(str(self.file), columns, listed),
            )
        if self.out is not None:
            if self.out.suffix.lower() != ".png":
                raise CodaError(
                    f"--out {self.out} is not a PNG file.", allowed="a name ending in .png"
                )
            check_place(self.out)
        episode, control_hz = read_episode(self.file, self.index)
        events = episode_events(episode, get_family(episode.scene.family))
        if self.out is not None:
            from coda_trainer.report.event_strip import event_strip

            write_atomic(self.out, event_strip(episode, control_hz))
        data = {
            "family": episode.scene.family,
            "scene_id": episode.scene.id,
            "seed": episode.seed,
            "instruction": episode.scene.task.instruction,
            "success": episode.success,
            "steps": episode.length,
            "control_hz": control_hz,
            "events": [e.to_dict() for e in events],
            "picture": None if self.out is None else str(self.out),
        }
        shown = [(str(e.step), f"{e.step / control_hz:.1f}", e.kind, e.text) for e in events]
        title = f"“{episode.scene.task.instruction}”, scene {episode.scene.id[:12]}"
        return Result(data=data, view=table(title, ("step", "s", "event", ""), shown))
