"""Pictures of episodes: a strip of frames, replayed from the recorded actions."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import imageio.v3 as iio
import numpy as np

from coda_envs.env import ManipulationEnv
from coda_envs.errors import CodaError
from coda_trainer.episode import Episode
from coda_trainer.replay_frames import frames_at
from coda_trainer.rounds.context import RoundContext

#: Frames in a strip, and their size (pixels).
FRAMES = 6
SIZE = (240, 320)


def replay_frames(env: ManipulationEnv, episode: Episode, count: int = FRAMES) -> list[np.ndarray]:
    """``count`` evenly spaced agentview pictures of an episode, the last state included.

    The episode is played again from its scene, seed and actions, which gives the same states.
    """
    wanted = np.linspace(0, episode.length, count).round().astype(int).tolist()
    return list(frames_at(env, episode, set(wanted), ("agentview",), SIZE).values())


def draw_strip(env: ManipulationEnv, episode: Episode, path: Path) -> None:
    """Write the episode's frames side by side as a PNG."""
    iio.imwrite(path, np.concatenate(replay_frames(env, episode), axis=1))


def draw_examples(context: RoundContext, episodes: Sequence[Episode]) -> None:
    """A family's first failure and first success among ``episodes``, as strips in ``frames/``.

    Where rendering is not available the run goes on without pictures, and says so.
    """
    env = ManipulationEnv(context.family.name, control_hz=context.config.control_hz)
    try:
        for name, wanted in (("failure", False), ("success", True)):
            found = next((e for e in episodes if e.success == wanted), None)
            if found is None:
                context.report.line(f"no {name} of {context.family.name} to draw")
                continue
            path = context.run.path / "frames" / f"{context.family.name}_{name}.png"
            draw_strip(env, found, path)
            context.log(
                "frames",
                outcome=name,
                file=f"frames/{path.name}",
                instruction=found.scene.task.instruction,
                scene=found.scene.id,
                reason=found.failure or ("" if found.success else "out of time"),
            )
    except CodaError as error:
        context.report.line(f"no pictures: {error}")
    finally:
        env.close()
