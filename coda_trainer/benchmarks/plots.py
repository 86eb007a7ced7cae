"""Pictures of curves and intervals, drawn without a display."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: Okabe and Ito's colours, which colour-blind readers tell apart.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#555555", "#F0E442")
MARKERS = "osD^vP*X"


def canvas(panels: int) -> tuple[Figure, list[Axes]]:
    """A figure with panels side by side."""
    # Imported here: no other command needs matplotlib, which takes a second.
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(
        1, panels, figsize=(5.2 * panels, 4.2), squeeze=False, layout="constrained"
    )
    for axis in axes[0]:
        axis.spines[["top", "right"]].set_visible(False)
        axis.grid(alpha=0.25)
    return figure, list(axes[0])


def save(figure: Figure, path: Path) -> None:
    """Write a PNG that holds no date."""
    from matplotlib import pyplot

    figure.savefig(path, dpi=130, metadata={"Software": None})
    pyplot.close(figure)


def draw_curve(
    axis: Axes,
    curve: Sequence[Mapping[str, Any]],
    label: str,
    number: int,
    *,
    x: str = "updates",
    scale: float = 100.0,
    line: str = "-",
) -> None:
    """A mean with a band of one standard error over runs, where there are several.

    ``number`` decides colour and marker, ``line`` is matplotlib's style.
    """
    if not curve:
        return
    colour = COLOURS[number % len(COLOURS)]
    across = [point[x] for point in curve]
    means = [scale * point["mean"] for point in curve]
    marker = MARKERS[number % len(MARKERS)]
    axis.plot(across, means, ls=line, marker=marker, ms=5, color=colour, label=label)
    if all(point["standard_error"] is not None for point in curve):
        errors = [scale * point["standard_error"] for point in curve]
        low = [m - e for m, e in zip(means, errors, strict=True)]
        high = [m + e for m, e in zip(means, errors, strict=True)]
        axis.fill_between(across, low, high, color=colour, alpha=0.15, linewidth=0)


def finish(axis: Axes) -> None:
    """Percentages from zero, and the curves' names; once everything is drawn."""
    axis.set_ylim(bottom=0)
    if axis.get_legend_handles_labels()[0]:
        axis.legend(frameon=False, fontsize=8)


def draw_intervals(
    axis: Axes, rows: Sequence[tuple[str, Mapping[str, Any] | None]], title: str
) -> None:
    """Success of each arm with its interval, one below the other."""
    for place, (_, found) in enumerate(rows):
        if found is None:
            continue
        low, high = found["interval95"]
        mean = found["successes"] / found["n"]
        colour = COLOURS[place % len(COLOURS)]
        # At 0 and at 1 the interval's end is the rate itself, but for rounding.
        error = [[100 * max(mean - low, 0.0)], [100 * max(high - mean, 0.0)]]
        axis.errorbar(100 * mean, place, xerr=error, fmt="o", color=colour, capsize=3)
    axis.set_yticks(range(len(rows)), [label for label, _ in rows])
    axis.set_ylim(len(rows) - 0.5, -0.5)
    axis.set_xlim(left=0)
    axis.set_xlabel("success [%], 95% intervals")
    axis.set_title(title, loc="left", fontsize=11)


def draw_shares(
    axis: Axes,
    shares: Sequence[Sequence[float | None]],
    rows: Sequence[str],
    columns: Sequence[str],
    title: str,
) -> None:
    """Shares in [0, 1] as shaded squares with their per cent; a dash where there is none."""
    values = [[float("nan") if share is None else share for share in row] for row in shares]
    axis.imshow(values, cmap="Blues", vmin=0.0, vmax=1.0, aspect="auto")
    for y, row in enumerate(shares):
        for x, share in enumerate(row):
            text = "–" if share is None else f"{100 * share:.0f}"
            colour = "white" if share is not None and share > 0.6 else "black"
            axis.text(x, y, text, ha="center", va="center", color=colour)
    axis.set_xticks(range(len(columns)), columns, fontsize=8)
    axis.set_yticks(range(len(rows)), rows, fontsize=8)
    axis.grid(visible=False)
    axis.set_title(title, loc="left", fontsize=10)
