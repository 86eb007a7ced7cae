"""A picture of a potential along an episode: Φ with its stages on top, each stage's terms below."""

from __future__ import annotations

import io
import itertools
from typing import TYPE_CHECKING

import numpy as np

from coda_envs.env import ManipulationEnv
from coda_envs.family import TaskFamily
from coda_envs.programs.potential import PotentialStage, Term, leaves, progress_text
from coda_envs.text2potential.evaluate import Potential
from coda_envs.text2potential.terms import resolve
from coda_envs.view import View

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: Control steps a second of the episode that is drawn.
CONTROL_HZ = 20
#: Inches: the width, the height of Φ's panel, and of a stage's: a base and what each term takes.
WIDTH, PHI_HEIGHT, STAGE_HEIGHT, LINE_HEIGHT = 11.0, 2.6, 0.75, 0.17


def expert_episode(family: TaskFamily, seed: int) -> tuple[np.ndarray, bool]:
    """Features ``[T+1, F]`` of the expert's episode in a fresh generator scene, and its success."""
    env = ManipulationEnv(family.name, control_hz=CONTROL_HZ)
    scene = family.sample(np.random.default_rng(seed), "generator")
    _, info = env.reset(seed=seed, options={"scene": scene})
    expert, rows, over = family.expert(seed), [env.features.copy()], False
    while not over:
        _, _, terminated, truncated, info = env.step(expert.act(env))
        rows.append(env.features.copy())
        over = terminated or truncated
    env.close()
    return np.stack(rows), bool(info["success"])


def potential_picture(potential: Potential, features: np.ndarray) -> bytes:
    """A PNG of Φ, the current stage and every term along ``features [T+1, F]``."""
    # Imported here: it takes a second. Its figures need no display.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    stages = potential.program.stages
    terms = [list(dict.fromkeys(leaves(stage.progress))) for stage in stages]
    heights = [PHI_HEIGHT, *(STAGE_HEIGHT + LINE_HEIGHT * (len(own) + 1) for own in terms)]
    figure = Figure(figsize=(WIDTH, sum(heights) + 0.8), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(len(heights), 1, sharex=True, height_ratios=heights)
    seconds = np.arange(len(features)) / CONTROL_HZ
    current, progress = potential.stage(features), potential.progress(features)
    _draw_phi(axes[0], seconds, potential(features), current, potential.stage_names)
    axes[0].set_title(f"Φ of {potential.program.family}, version {potential.version}", loc="left")
    view = View(potential.schema, features)
    for k, (stage, own) in enumerate(zip(stages, terms, strict=True)):
        values = {term: resolve(term, potential.schema)(view) for term in own}
        _draw_stage(axes[k + 1], seconds, stage, values, progress[:, k], current == k)
    axes[-1].set_xlabel("time (s)")
    buffer = io.BytesIO()
    # Without the software's name and date: the same episode gives the same bytes.
    figure.savefig(buffer, format="png", dpi=100, metadata={"Software": None})
    return buffer.getvalue()


def _draw_phi(
    axes: Axes, seconds: np.ndarray, phi: np.ndarray, current: np.ndarray, names: tuple[str, ...]
) -> None:
    """Φ over bands that name the stage under way."""
    changes = np.flatnonzero(np.diff(current)) + 1
    edges = [0, *changes.tolist(), len(current) - 1]
    for start, end in itertools.pairwise(edges):
        stage = int(current[start])
        axes.axvspan(seconds[start], seconds[end], color=f"C{stage % 10}", alpha=0.15, lw=0)
        # A stage that is over in an instant has no room for its name.
        if stage < len(names) and seconds[end] - seconds[start] > 0.03 * seconds[-1]:
            middle = (seconds[start] + seconds[end]) / 2
            axes.text(middle, 1.06, names[stage], ha="center", va="bottom", fontsize=8)
    axes.plot(seconds, phi, color="black", lw=2)
    axes.set(ylim=(0.0, 1.2), xlim=(0.0, seconds[-1]), ylabel="Φ", yticks=(0.0, 0.5, 1.0))


def _draw_stage(
    axes: Axes,
    seconds: np.ndarray,
    stage: PotentialStage,
    values: dict[Term, np.ndarray],
    progress: np.ndarray,
    under_way: np.ndarray,
) -> None:
    """A stage's terms and, in black, its progress; grey while it is not under way."""
    axes.fill_between(
        seconds, 0.0, 1.0, where=~under_way, step="post", color="0.5", alpha=0.18, lw=0
    )
    for term, value in values.items():
        axes.plot(seconds, value, lw=1.2, label=progress_text(term))
    axes.plot(seconds, progress, color="black", lw=1.5, ls="--", label="progress")
    axes.set(ylim=(-0.05, 1.05), ylabel=stage.name, yticks=(0.0, 1.0))
    axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), fontsize=8, frameon=False)
