"""A short film of the expert: main camera and wrist camera side by side, as a GIF that loops."""

from __future__ import annotations

import io
from dataclasses import dataclass

import numpy as np
from PIL import Image, ImageDraw

from coda_envs.env import ManipulationEnv
from coda_envs.errors import SceneError
from coda_envs.family import TaskFamily
from coda_envs.gallery.panels import font, length, write

#: Largest file (bytes).
MAX_BYTES = 2_000_000
#: Height and width of the two pictures, height of the caption, white between them (pixels).
_AGENTVIEW = (300, 400)
_WRIST = (300, 300)
_CAPTION = 30
_GAP = 4
_LETTERS = 18
_HZ = 20
#: Least steps between two frames, and how long the last one stays (ms).
_STRIDE = 2
_STAY = 1500
#: Scenes drawn before giving up.
TRIES = 20


@dataclass(frozen=True)
class Film:
    """Frames of a successful episode, one a control step, and how it was made."""

    instruction: str
    scene_id: str
    frames: tuple[Image.Image, ...]

    def gif(self) -> bytes:
        """The film as a GIF of at most :data:`MAX_BYTES`, at its own speed."""
        stride = _STRIDE
        while True:
            content = self._encoded(stride)
            if len(content) <= MAX_BYTES:
                return content
            stride += 1

    def _encoded(self, stride: int) -> bytes:
        shown = [*self.frames[:-1:stride], self.frames[-1]]
        # One palette for all frames: pixels that stay as they are need no bytes.
        palette = _contact_sheet(shown).quantize(method=Image.Quantize.MAXCOVERAGE)
        frames = [frame.quantize(palette=palette, dither=Image.Dither.NONE) for frame in shown]
        duration = [1000 * stride // _HZ] * (len(frames) - 1) + [_STAY]
        buffer = io.BytesIO()
        frames[0].save(
            buffer, "GIF", save_all=True, append_images=frames[1:], duration=duration, loop=0
        )
        return buffer.getvalue()


def shoot(family: TaskFamily, seed: int) -> Film:
    """The first of the generator range's scenes, drawn from ``seed``, that the expert solves.

    Raises :class:`SceneError` where it solves none of :data:`TRIES`.
    """
    rng = np.random.default_rng(seed)
    env = ManipulationEnv(family.name, control_hz=_HZ, reward_mode="shaped")
    try:
        for attempt in range(TRIES):
            scene = family.sample(rng, "generator")
            _, info = env.reset(seed=attempt, options={"scene": scene})
            expert, ended = family.expert(attempt), False
            frames = [_frame(env, info["stage"])]
            while not ended:
                _, _, terminated, truncated, info = env.step(expert.act(env))
                frames.append(_frame(env, info["stage"]))
                ended = terminated or truncated
            if info["success"]:
                return Film(scene.task.instruction, scene.id, tuple(frames))
    finally:
        env.close()
    raise SceneError(
        f"the expert of {family.name!r} solves none of {TRIES} scenes.", remedy="try another seed"
    )


def _frame(env: ManipulationEnv, stage: int) -> Image.Image:
    """Both pictures over a line with the instruction and the stage that the episode is in."""
    views = [_smooth(env, "agentview", _AGENTVIEW), _smooth(env, "wrist", _WRIST)]
    width = sum(view.width for view in views) + _GAP
    frame = Image.new("RGB", (width, views[0].height + _CAPTION), "white")
    frame.paste(views[0], (0, 0))
    frame.paste(views[1], (views[0].width + _GAP, 0))
    names = (*env.family.template.stage_names, "done")
    name, letters = names[stage], font(_LETTERS)
    draw, top = ImageDraw.Draw(frame), views[0].height + 3
    right = width - length(name, letters) - _GAP
    write(draw, (right, top), name, letters, "#1a5fb4")
    instruction = env.scene.task.instruction
    small = letters
    while length(instruction, small) > right - 3 * _GAP and small.size > 8:
        small = font(round(small.size) - 1)
    write(draw, (_GAP, top), instruction, small, "#111111")
    return frame


def _smooth(env: ManipulationEnv, camera: str, size: tuple[int, int]) -> Image.Image:
    """A picture drawn at twice its size and made smaller, which smooths its edges."""
    height, width = size
    return Image.fromarray(env.picture(camera, 2 * height, 2 * width)).reduce(2)


def _contact_sheet(frames: list[Image.Image]) -> Image.Image:
    """Some frames above one another: the colours that the palette must serve."""
    some = [frames[i] for i in np.linspace(0, len(frames) - 1, 6).round().astype(int)]
    sheet = Image.new("RGB", (some[0].width, some[0].height * len(some)))
    for number, frame in enumerate(some):
        sheet.paste(frame, (0, number * frame.height))
    return sheet
