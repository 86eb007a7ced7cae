"""Suites: frozen scenes to measure on, stored with their certificates.

``seed`` is drawn from the seed range; ``ood-dev`` and ``ood`` from the whole generator range, in
cells and combinations that no training scene may lie in. All tuning happens on ``ood-dev``.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from coda_envs.family import TaskFamily, family_names, get_family
from coda_envs.scene import Scene, parse_scene
from coda_envs.validity import Certificate, engine_fingerprint, validate

#: Name → (range, region, seed). The seeds are part of the suites' definition.
SUITES = {
    "seed": ("seed", "generator", 101),
    "ood-dev": ("generator", "ood-dev", 102),
    "ood": ("generator", "ood", 103),
}
#: Scenes in each suite.
SIZE = 200


def freeze(family: TaskFamily, name: str, size: int = SIZE) -> list[tuple[Scene, Certificate]]:
    """Draw a suite's scenes afresh and certify them; those that fail a check are left out."""
    within, region, seed = SUITES[name]
    rng = np.random.default_rng(seed)
    kept: list[tuple[Scene, Certificate]] = []
    while len(kept) < size:
        scene = family.sample(rng, within, region)  # type: ignore[arg-type]
        certificate = validate(scene)
        if certificate.passed:
            kept.append((scene, certificate))
    return kept


def write(path: Path, suite: list[tuple[Scene, Certificate]]) -> None:
    """Store a suite as JSON Lines: ``{"scene": …, "certificate": …}``."""
    lines = [
        json.dumps({"scene": s.to_dict(), "certificate": c.to_dict()}, sort_keys=True)
        for s, c in suite
    ]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def read_records(family: TaskFamily, name: str) -> list[dict[str, Any]]:
    """The stored records of a suite."""
    package = type(family).__module__.rpartition(".")[0]
    text = (resources.files(package) / "suites" / f"{name}.jsonl").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


def verify(family: TaskFamily, name: str, first: int | None = None) -> list[str]:
    """Recompute the certificates of a suite; what differs, in words (empty: nothing).

    ``first``: how many, in order; None for all. Differences of the settled state beyond 1e-5 and of
    the engine's fingerprint are drift.
    """
    problems: list[str] = []
    region = SUITES[name][1]
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
    """``python -m coda_envs.suites FOLDER``: freeze the suites of every family into its folder."""
    folder = Path(sys.argv[1])
    for family_name in family_names():
        family = get_family(family_name)
        target = folder / family_name.replace("-", "_") / "suites"
        target.mkdir(parents=True, exist_ok=True)
        for name in SUITES:
            write(target / f"{name}.jsonl", freeze(family, name))
            print(f"{family_name}: {name} frozen")


if __name__ == "__main__":
    main()
