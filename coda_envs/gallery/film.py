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
#: Control steps between two frames, and how long the last one stays (ms).
_STEPS = 2
_STAY = 1500
#: Half of a GIF's colours.
_HALF = 128
#: Scenes drawn before giving up.
TRIES = 20


@dataclass(frozen=True)
class Film:
    """A successful episode: a frame every ``_STEPS`` control steps, and the last state's."""

    instruction: str
    scene_id: str
    frames: tuple[Image.Image, ...]

    def gif(self) -> bytes:
        """The film as a GIF of at most :data:`MAX_BYTES`, of every frame or else of fewer."""
        for stride in range(1, len(self.frames) + 1):
            content = self._encoded(stride)
            if len(content) <= MAX_BYTES:
                break
        return content

    def _encoded(self, stride: int) -> bytes:
        shown = [*self.frames[:-1:stride], self.frames[-1]]
        # One palette for all frames: pixels that stay as they are need no bytes.
        palette = _palette(shown)
        frames = [frame.quantize(palette=palette, dither=Image.Dither.NONE) for frame in shown]
        duration = [1000 * _STEPS * stride // _HZ] * (len(frames) - 1) + [_STAY]
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
            frames, steps = [_frame(env, info["stage"])], 0
            while not ended:
                _, _, terminated, truncated, info = env.step(expert.act(env))
                ended, steps = terminated or truncated, steps + 1
                if ended or steps % _STEPS == 0:
                    frames.append(_frame(env, info["stage"]))
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


def _palette(frames: list[Image.Image]) -> Image.Image:
    """256 colours for all frames: half of them by how many pixels have them, for smooth surfaces,
    half by how far they lie apart, so that a small thing keeps its colour."""
    some = [frames[i] for i in np.linspace(0, len(frames) - 1, 6).round().astype(int)]
    sample = Image.fromarray(np.concatenate([np.asarray(frame) for frame in some]))
    colors: list[int] = []
    for method in (Image.Quantize.MEDIANCUT, Image.Quantize.MAXCOVERAGE):
        found = sample.quantize(_HALF, method=method).getpalette() or []
        colors += found[: 3 * _HALF]
    palette = Image.new("P", (1, 1))
    # The caption's paper for certain; black fills what few colours leave free.
    palette.putpalette([255, 255, 255, *colors[:-3]])
    return palette
