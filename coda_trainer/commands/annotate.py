"""``coda annotate``: people say why episodes failed, without seeing what anybody else said."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from coda_envs.errors import CodaError, ConfigError
from coda_trainer.commands.result import Json, Result, table

if TYPE_CHECKING:
    from coda_trainer.episode import Episode


@dataclass(frozen=True)
class AnnotateLabel:
    """Label the failures of an episode file: for each, the stage and the factor that made it fail.

    Shows what happened and the scene's factors, asks two questions, and keeps each answer at once.
    It never shows a diagnosis, nor how a scene was made. Called again it goes on where it stopped.

    Example: coda annotate label dev.episodes --by anna -o anna.jsonl --pictures strips
    """

    file: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="FILE")]
    """An episode file, see `coda episode record`."""

    by: Annotated[str, tyro.conf.arg(metavar="NAME")]
    """Who labels."""

    out: Annotated[Path, tyro.conf.arg(aliases=("-o",), metavar="FILE")]
    """The file of labels, which is added to."""

    pictures: Annotated[Path | None, tyro.conf.arg(metavar="FOLDER", help_behavior_hint="")] = None
    """Draw each episode as a film strip into this folder, to look at while labelling."""

    json: Json = False

    def run(self) -> Result:
        """Ask about each failure that has no label yet."""
        from coda_trainer.diagnosis.annotation import MAX_TEXT, Label, append_label, read_labels
        from coda_trainer.episode_file import read_episodes
        from coda_trainer.files import check_place

        if not self.by.strip() or len(self.by) > MAX_TEXT:
            raise ConfigError(f"--by is {self.by[:40]!r}.", allowed="a name")
        check_place(self.out)
        done = read_labels(self.out) if self.out.exists() else {}
        others = sorted({label.annotator for label in done.values()} - {self.by})
        if others:
            raise ConfigError(
                f"{self.out} has labels by {others[0]!r}.", remedy="give each annotator a file"
            )
        given = left = 0
        ended = False
        for index, (episode, control_hz) in enumerate(read_episodes(self.file)):
            if episode.success or (episode.scene.id, episode.seed) in done:
                continue
            if ended:
                left += 1
                continue
            self._show(episode, control_hz, index)
            answer = _ask(episode)
            if answer is None:
                ended = True
                left += 1
                continue
            label = Label(self.by, episode.scene.id, episode.seed, *answer)
            append_label(self.out, label)
            given += 1
        data = {"file": str(self.out), "labels": len(done) + given, "new": given, "left": left}
        return Result(data, f"{given} new labels in {self.out}, {left} failures left\n")

    def _show(self, episode: Episode, control_hz: int, index: int) -> None:
        from coda_envs.family import get_family
        from coda_trainer.diagnosis.events import episode_events
        from coda_trainer.files import write_atomic

        _say(f"\nEpisode {index}: “{episode.scene.task.instruction}”")
        for event in episode_events(episode, get_family(episode.scene.family)):
            _say(f"  {event.step / control_hz:5.1f} s  {event.text}")
        if self.pictures is not None:
            from coda_trainer.report.event_strip import event_strip

            self.pictures.mkdir(parents=True, exist_ok=True)
            path = self.pictures / f"episode-{index}.png"
            write_atomic(path, event_strip(episode, control_hz))
            _say(f"  picture: {path}")


@dataclass(frozen=True)
class AnnotateAgree:
    """How far two annotators agree: Cohen's kappa on stage and factor, with its interval.

    Example: coda annotate agree anna.jsonl ben.jsonl
    """

    first: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="FILE")]
    """Labels of one annotator."""

    second: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="FILE")]
    """Labels of another."""

    json: Json = False

    def run(self) -> Result:
        """Compare."""
        from coda_trainer.diagnosis.annotation import agreement, read_labels

        one, two = read_labels(self.first), read_labels(self.second)
        for path, labels in ((self.first, one), (self.second, two)):
            if not labels:
                raise CodaError(f"{path} has no labels.", remedy="label some episodes first")
        found = agreement(one, two)
        rows = []
        for what, a in found.items():
            interval = "–" if a.interval95 is None else "[{:.2f}, {:.2f}]".format(*a.interval95)
            kappa = "not measured" if a.kappa is None else f"{a.kappa:.2f}"
            rows.append((what, str(a.n), f"{100 * a.equal:.1f}", kappa, interval))
        columns = ("", "episodes", "equal [%]", "kappa", "95%")
        names = [next(iter(labels.values())).annotator for labels in (one, two)]
        data = {"annotators": names, **{what: a.to_dict() for what, a in found.items()}}
        return Result(data, table(f"{names[0]} and {names[1]}", columns, rows))


def _ask(episode: Episode) -> tuple[str, str] | None:
    """Stage and factor, empty for "cannot tell"; None where the input ended or the user quits."""
    from coda_envs.family import get_family

    family = get_family(episode.scene.family)
    stage = _choose("Which stage was the first that was not done?", family.template.stage_names)
    if stage is None:
        return None
    paths = sorted(episode.scene.values)
    shown = [f"{family.space[p].meaning}: {episode.scene.values[p]}  ({p})" for p in paths]
    place = _choose("What of the scene made it fail?", shown)
    if place is None:
        return None
    return stage, paths[shown.index(place)] if place else ""


def _choose(question: str, options: Sequence[str]) -> str | None:
    """One of the options, empty for "cannot tell", None at the end of the input or at q."""
    _say(question)
    for number, option in enumerate(options, start=1):
        _say(f"  {number:2d}  {option}")
    while True:
        _say("Number, 0 if you cannot tell, q to stop: ", end="")
        line = sys.stdin.readline()
        word = line.strip().lower()
        if not line or word == "q":
            return None
        if word.isascii() and word.isdigit() and len(word) < 4 and int(word) <= len(options):
            return options[int(word) - 1] if int(word) else ""
        _say(f"{word[:20]!r} is none of these.")


def _say(text: str, end: str = "\n") -> None:
    print(text, end=end, file=sys.stderr, flush=True)
