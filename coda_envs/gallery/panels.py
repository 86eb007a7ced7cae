"""Pictures in rows with captions under them. The font is Pillow's own, so that a sheet looks the
same on every machine; it has no arrow, which is drawn here."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from PIL import Image, ImageDraw, ImageFont

ARROW = "→"
#: Between panels and around them, and between a picture and its caption (pixels).
GAP = 14
_PAPER = "white"
_INK = {"title": "#111111", "line": "#555555"}
#: Heights of the letters' boxes (pixels), for pictures as wide as :data:`REFERENCE`.
_SIZE = {"title": 25, "line": 21}
_LEADING = 1.25
REFERENCE = 480


@dataclass(frozen=True)
class Panel:
    """A picture with a title and further lines under it. Long lines are broken."""

    picture: Image.Image
    title: str
    lines: tuple[str, ...] = ()


def sheet(panels: Sequence[Panel], columns: int) -> Image.Image:
    """The panels in rows of ``columns``, captions of a row as tall as its longest."""
    width, height = panels[0].picture.size
    captions = [_caption(panel, width) for panel in panels]
    rows = [range(i, min(i + columns, len(panels))) for i in range(0, len(panels), columns)]
    tall = [max(captions[i].height for i in row) for row in rows]
    whole = Image.new(
        "RGB",
        (
            GAP + min(columns, len(panels)) * (width + GAP),
            GAP + sum(height + caption + GAP for caption in tall),
        ),
        _PAPER,
    )
    top = GAP
    for row, caption in zip(rows, tall, strict=True):
        for column, i in enumerate(row):
            left = GAP + column * (width + GAP)
            whole.paste(panels[i].picture, (left, top))
            whole.paste(captions[i], (left, top + height))
        top += height + caption + GAP
    return whole


def png(image: Image.Image) -> bytes:
    """The image as a PNG file."""
    buffer = io.BytesIO()
    image.save(buffer, "PNG", optimize=True)
    return buffer.getvalue()


@lru_cache(maxsize=16)
def font(size: int) -> ImageFont.FreeTypeFont:
    """Pillow's own font at a height in pixels."""
    found = ImageFont.load_default(size)
    assert isinstance(found, ImageFont.FreeTypeFont)
    return found


def _caption(panel: Panel, width: int) -> Image.Image:
    scale = width / REFERENCE
    texts = [("title", panel.title), *(("line", line) for line in panel.lines)]
    drawn = [
        (kind, part) for kind, text in texts for part in broken(text, _font(kind, scale), width)
    ]
    height = GAP // 2 + sum(_height(kind, scale) for kind, _ in drawn)
    image = Image.new("RGB", (width, height), _PAPER)
    draw, top = ImageDraw.Draw(image), GAP // 2
    for kind, text in drawn:
        write(draw, (0, top), text, _font(kind, scale), _INK[kind])
        top += _height(kind, scale)
    return image


def _font(kind: str, scale: float) -> ImageFont.FreeTypeFont:
    return font(round(_SIZE[kind] * scale))


def _height(kind: str, scale: float) -> int:
    return round(_SIZE[kind] * scale * _LEADING)


def length(text: str, letters: ImageFont.FreeTypeFont) -> float:
    """Width of a text (pixels), arrows included."""
    parts = text.split(ARROW)
    return sum(letters.getlength(part) for part in parts) + letters.size * (len(parts) - 1)


def broken(text: str, letters: ImageFont.FreeTypeFont, width: float) -> list[str]:
    """The text in lines of at most ``width`` pixels: between words, within one that is too long."""
    lines: list[str] = []
    line = ""
    for word in text.split():
        longer = f"{line} {word}" if line else word
        if length(longer, letters) <= width:
            line = longer
            continue
        if line:
            lines.append(line)
        while length(word, letters) > width and len(word) > 1:
            fits = next(n for n in range(len(word), 0, -1) if n == 1 or
                        length(word[:n], letters) <= width)  # fmt: skip
            lines.append(word[:fits])
            word = word[fits:]
        line = word
    return [*lines, line] if line else lines


def write(
    draw: ImageDraw.ImageDraw,
    at: tuple[float, float],
    text: str,
    letters: ImageFont.FreeTypeFont,
    ink: str,
) -> None:
    """Write one line of text, its upper left corner at ``at`` (pixels)."""
    left, top = at
    for number, part in enumerate(text.split(ARROW)):
        if number:
            _draw_arrow(draw, (left, top), letters.size, ink)
            left += letters.size
        draw.text((left, top), part, fill=ink, font=letters)
        left += letters.getlength(part)


def _draw_arrow(draw: ImageDraw.ImageDraw, at: tuple[float, float], size: float, ink: str) -> None:
    """An arrow to the right in a square of ``size`` pixels, at the height of small letters."""
    left, right, middle = at[0] + 0.1 * size, at[0] + 0.9 * size, at[1] + 0.66 * size
    thick, head = max(1, round(size / 12)), 0.2 * size
    draw.line((left, middle, right, middle), fill=ink, width=thick)
    for side in (-head, head):
        draw.line((right - head, middle + side, right, middle), fill=ink, width=thick)
