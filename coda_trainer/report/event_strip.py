"""A film strip of an episode with what happened under each frame."""

from __future__ import annotations

import io

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from coda_envs.env import ManipulationEnv
from coda_envs.family import get_family
from coda_trainer.diagnosis.events import Event, episode_events
from coda_trainer.diagnosis.evidence import key_steps
from coda_trainer.episode import Episode
from coda_trainer.replay_frames import frames_at

#: Size of a frame (pixels), frames in a row, and the height of the words below one.
HEIGHT, WIDTH, COLUMNS, CAPTION = 240, 320, 4, 74
LINE, MARGIN, CHARACTERS = 16, 6, 46
#: Frames of a strip: the events' first, then the keyframes'.
MAX_FRAMES = 8
INK, PAPER, MUTED = (30, 30, 30), (255, 255, 255), (110, 110, 110)


def event_strip(episode: Episode, control_hz: int) -> bytes:
    """A PNG of up to ``MAX_FRAMES`` frames of the episode, in rows, each with its step and events.

    The episode is played again. Raises :class:`CodaError` where rendering is not available.
    """
    family = get_family(episode.scene.family)
    events = episode_events(episode, family)
    steps = strip_steps(episode, events)
    env = ManipulationEnv(family.name, control_hz=control_hz)
    try:
        frames = frames_at(env, episode, set(steps), ("agentview",), (HEIGHT, WIDTH))
    finally:
        env.close()
    rows = -(-len(steps) // COLUMNS)
    columns = min(len(steps), COLUMNS)
    size = (columns * (WIDTH + MARGIN) + MARGIN, 30 + rows * (HEIGHT + CAPTION))
    sheet = Image.new("RGB", size, PAPER)
    draw = ImageDraw.Draw(sheet)
    outcome = "success" if episode.success else f"failure: {episode.failure or 'out of time'}"
    title = f"“{episode.scene.task.instruction}” ({outcome})"
    draw.text((MARGIN, 7), title, INK, ImageFont.load_default(14))
    font = ImageFont.load_default(11)
    for place, step in enumerate(steps):
        left = MARGIN + (place % COLUMNS) * (WIDTH + MARGIN)
        top = 30 + (place // COLUMNS) * (HEIGHT + CAPTION)
        sheet.paste(Image.fromarray(frames[step, "agentview"]), (left, top))
        words = [e.text for e in events if e.step == step]
        seconds = f"step {step}, {step / control_hz:.1f} s"
        draw.text((left, top + HEIGHT + 3), seconds, MUTED, font)
        for line, text in enumerate(_shortened(words)):
            draw.text((left, top + HEIGHT + 3 + (line + 1) * LINE), text, INK, font)
    buffer = io.BytesIO()
    sheet.save(buffer, format="PNG")
    return buffer.getvalue()


def strip_steps(episode: Episode, events: list[Event]) -> list[int]:
    """The steps that a strip shows, ascending: start and end, then events by kind, then keyframes,
    then any others evenly.

    Stages and drops say most; touches come last.
    """
    order = ("stage", "drop", "undone", "grasp", "release", "touch")
    wanted = [0, episode.length]
    for kind in order:
        wanted += [e.step for e in events if e.kind == kind]
    wanted += key_steps(episode, get_family(episode.scene.family).schema)
    wanted += np.linspace(0, episode.length, MAX_FRAMES).round().astype(int).tolist()
    return sorted(np.array(list(dict.fromkeys(wanted))[:MAX_FRAMES]).tolist())


def _shortened(words: list[str]) -> list[str]:
    """At most three lines of a frame's width."""
    most = (CAPTION - 2 * LINE) // LINE + 1
    kept = (
        words if len(words) <= most else [*words[: most - 1], f"and {len(words) - most + 1} more"]
    )
    return [w if len(w) <= CHARACTERS else w[: CHARACTERS - 3] + "..." for w in kept]
