"""Suites: frozen scenes to measure on, stored with their certificates.

``seed`` is drawn from the seed range; the others from cells, or beyond the ranges, where no
training scene may lie. All tuning happens on ``ood-dev``. Apart from ``seed``, half of a suite's
scenes are drawn wide and half are divided evenly among the family's declared difficulty
interactions and the thirds of their magnitude.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from coda_envs.errors import SceneError
from coda_envs.factors import Region
from coda_envs.family import TaskFamily, family_names, get_family
from coda_envs.interactions import THIRDS, Interaction, load_interactions, sample_interaction
from coda_envs.scene import Scene, parse_scene
from coda_envs.validity import Certificate, engine_fingerprint, validate


@dataclass(frozen=True)
class SuiteSpec:
    """What defines a suite: the region, the seed of its draws, and whether it is stratified."""

    region: Region
    seed: int
    stratified: bool = True
    size: int = 200


SUITES: dict[str, SuiteSpec] = {
    "seed": SuiteSpec("generator", 101, stratified=False),
    "ood-dev": SuiteSpec("ood-dev", 102),
    "ood": SuiteSpec("ood", 103),
    "ood-spatial": SuiteSpec("ood-spatial", 104, size=100),
    "ood-attribute": SuiteSpec("ood-attribute", 105, size=100),
    "ood-task": SuiteSpec("ood-task", 106, size=100),
    "ood-far": SuiteSpec("ood-far", 107, stratified=False, size=100),
}
#: Draws for each scene of a suite before its stratum is given up for a wide one.
DRAWS = 30


@dataclass(frozen=True)
class Stratum:
    """The part of a suite that a scene was drawn for; ``wide`` without an interaction."""

    interaction: str = "wide"
    third: int = 0


@dataclass(frozen=True)
class Entry:
    """A scene of a suite, its certificate, and the stratum it was drawn for."""

    scene: Scene
    certificate: Certificate
    stratum: Stratum

    def to_json(self) -> str:
        """One line of the suite's file."""
        return json.dumps(
            {
                "scene": self.scene.to_dict(),
                "certificate": self.certificate.to_dict(),
                "stratum": {"interaction": self.stratum.interaction, "third": self.stratum.third},
            },
            sort_keys=True,
        )


def strata(interactions: Sequence[Interaction], size: int) -> list[Stratum]:
    """The strata of a stratified suite's scenes, in order: wide ones and the others in turn."""
    parts = [Stratum(i.name, part) for i in interactions for part in range(THIRDS)]
    return [
        parts[number // 2 % len(parts)] if number % 2 and parts else Stratum()
        for number in range(size)
    ]


def freeze(family: TaskFamily, name: str, size: int | None = None) -> Iterator[Entry]:
    """Draw a suite's scenes afresh and certify them; those that fail a check are left out.

    A stratum that the suite's region does not have gives its place to a wide scene.
    """
    spec = SUITES[name]
    rng = np.random.default_rng(spec.seed)
    interactions = {i.name: i for i in load_interactions(family)} if spec.stratified else {}
    seen: set[str] = set()
    for wanted in strata(tuple(interactions.values()), size or spec.size):
        yield _certified(family, name, rng, wanted, interactions.get(wanted.interaction), seen)


def _certified(
    family: TaskFamily,
    name: str,
    rng: np.random.Generator,
    wanted: Stratum,
    interaction: Interaction | None,
    seen: set[str],
) -> Entry:
    """The next scene of a stratum that passes every check and is not in the suite yet."""
    spec = SUITES[name]
    for _ in range(DRAWS):
        if interaction is None:
            within = "seed" if name == "seed" else "generator"
            scene = family.sample(rng, within, spec.region)  # type: ignore[arg-type]
        else:
            try:
                scene = sample_interaction(family, interaction, rng, spec.region, wanted.third)
            except SceneError:
                break
        certificate = validate(scene)
        if certificate.passed and scene.id not in seen:
            seen.add(scene.id)
            return Entry(scene, certificate, wanted)
    if interaction is None:
        raise SceneError(
            f"{DRAWS} scenes in a row of {family.name!r} in {spec.region!r} fail a check; "
            f"the last one {certificate.reason}: {certificate.checks[-1].detail}."
        )
    return _certified(family, name, rng, Stratum(), None, seen)


def read_records(family: TaskFamily, name: str) -> list[dict[str, Any]]:
    """The stored records of a suite."""
    text = (family.folder / "suites" / f"{name}.jsonl").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


def read_strata(family: TaskFamily, name: str) -> list[Stratum]:
    """The strata of a suite's scenes, in order."""
    return [Stratum(**record["stratum"]) for record in read_records(family, name)]


def verify(family: TaskFamily, name: str, first: int | None = None) -> list[str]:
    """Recompute the certificates of a suite; what differs, in words (empty: nothing).

    ``first``: how many, in order; None for all. Differences of the settled state beyond 1e-5 and of
    the engine's fingerprint are drift.
    """
    problems: list[str] = []
    region = SUITES[name].region
    for number, record in enumerate(read_records(family, name)[:first]):
        scene = parse_scene(record["scene"], f"{name}[{number}]")
        stored = record["certificate"]
        now = validate(scene)
        if scene.id != stored["scene_id"]:
            problems.append(f"{name}[{number}]: the scene's id has changed")
        if family.region(scene) != region:
            problems.append(f"{name}[{number}]: lies in {family.region(scene)}, not {region}")
        if not now.passed:
            problems.append(f"{name}[{number}]: fails {now.reason} now")
        elif not _close(now.settled, stored["settled"]):
            problems.append(f"{name}[{number}]: settles elsewhere now")
        if stored["engine"] != engine_fingerprint():
            problems.append(
                f"{name}[{number}]: certified by {stored['engine']}, this is {engine_fingerprint()}"
            )
    return problems


def _close(now: Sequence[float], stored: Sequence[float]) -> bool:
    """Whether two settled states agree; another scene's may have another size."""
    return len(now) == len(stored) and bool(np.allclose(now, stored, atol=1e-5))


def main() -> None:
    """``python -m coda_envs.suites FOLDER [FAMILY ...]``: freeze the families' suites."""
    folder, chosen = Path(sys.argv[1]), sys.argv[2:]
    for family_name in chosen or family_names():
        family = get_family(family_name)
        target = folder / family_name.replace("-", "_") / "suites"
        target.mkdir(parents=True, exist_ok=True)
        for name in SUITES:
            entries = list(freeze(family, name))
            lines = "".join(f"{entry.to_json()}\n" for entry in entries)
            (target / f"{name}.jsonl").write_text(lines, encoding="utf-8")
            wide = sum(entry.stratum.interaction == "wide" for entry in entries)
            print(f"{family_name}: {name}, {len(entries)} scenes, {wide} of them wide", flush=True)


if __name__ == "__main__":
    main()
