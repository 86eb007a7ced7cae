"""What ``coda doctor`` looks at: versions, rendering, plugins, disk and cores."""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from packaging.specifiers import SpecifierSet

DISTRIBUTION = "coda-robotics"
#: A run with its checkpoints and videos takes about this much; less is a warning.
DISK_BYTES = 2_000_000_000
RENDER_SECONDS = 120


@dataclass(frozen=True)
class Finding:
    """One thing looked at. ``warn``: something optional does not work; ``fail``: CoDA needs it."""

    name: str
    status: Literal["ok", "warn", "fail"]
    found: str
    remedy: str = ""


def examine() -> list[Finding]:
    """All findings, in a fixed order. Raises nothing: what goes wrong is a finding."""
    return [*versions(), rendering(), *plugins(), *machine(Path.cwd())]


def versions() -> Iterator[Finding]:
    """Python and every dependency against the ranges that the installed package declares."""
    from packaging.requirements import Requirement
    from packaging.specifiers import SpecifierSet

    here = ".".join(map(str, sys.version_info[:3]))
    try:
        metadata = importlib.metadata.metadata(DISTRIBUTION)
    except importlib.metadata.PackageNotFoundError:
        yield Finding(
            DISTRIBUTION,
            "warn",
            "not installed, so its supported versions are not known",
            "run `make venv`, or `pip install -e .` in the checkout",
        )
        return
    wanted = SpecifierSet(metadata["Requires-Python"])
    good = wanted.contains(here)
    yield Finding(
        "python", "ok" if good else "fail", here, "" if good else f"install Python {wanted}"
    )
    for line in importlib.metadata.requires(DISTRIBUTION) or ():
        requirement = Requirement(line)
        if requirement.marker is None:
            yield _version(requirement.name, requirement.specifier, None)
            continue
        for extra in ("sb3", "llm", "libero"):
            if requirement.marker.evaluate({"extra": extra}):
                yield _version(requirement.name, requirement.specifier, extra)


def _version(name: str, wanted: SpecifierSet, extra: str | None) -> Finding:
    """``wanted``: the supported range; ``extra``: the optional feature that needs it, if any."""
    install = f"pip install '{DISTRIBUTION}[{extra}]'" if extra else f"pip install '{name}{wanted}'"
    try:
        version = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        if extra:
            return Finding(name, "ok", f"not installed (optional, extra {extra})")
        return Finding(name, "fail", "not installed", install)
    if wanted.contains(version, prereleases=True):
        return Finding(name, "ok", version)
    return Finding(
        name,
        "warn" if extra else "fail",
        f"{version}, supported is {wanted}",
        f"pip install '{name}{wanted}'",
    )


#: Runs in a process of its own: a driver that crashes must not take the doctor with it.
_RENDER = """
import os
import coda_envs
import mujoco
model = mujoco.MjModel.from_xml_string(
    '<mujoco><worldbody><light pos="0 0 3"/><geom type="sphere" size=".1" rgba="1 0 0 1"/>'
    '<camera name="c" pos="0 -1 0" xyaxes="1 0 0 0 0 1"/></worldbody></mujoco>'
)
data = mujoco.MjData(model)
mujoco.mj_forward(model, data)
with mujoco.Renderer(model, 32, 32) as renderer:
    renderer.update_scene(data, camera="c")
    picture = renderer.render()
assert picture[16, 16, 0] > picture[0, 0, 0], "the picture is empty"
print("drawn with MUJOCO_GL=" + os.environ.get("MUJOCO_GL", "(not set)"))
"""

_RENDER_REMEDY = (
    "on Debian or Ubuntu `apt-get install libegl1 libgl1` and MUJOCO_GL=egl, or "
    "`apt-get install libosmesa6` and MUJOCO_GL=osmesa"
)


def rendering() -> Finding:
    """Whether MuJoCo draws a picture here, tried in a process of its own."""
    if os.environ.get("MUJOCO_GL", "").lower() in ("disable", "disabled", "off", "false", "0"):
        return Finding(
            "rendering", "warn", "switched off by MUJOCO_GL", "unset MUJOCO_GL for pictures"
        )
    try:
        done = subprocess.run(
            [sys.executable, "-c", _RENDER],
            capture_output=True,
            text=True,
            timeout=RENDER_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        found = f"no picture within {RENDER_SECONDS} s"
        return Finding("rendering", "fail", found, _RENDER_REMEDY)
    if done.returncode == 0:
        return Finding("rendering", "ok", done.stdout.strip())
    lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
    # After a fault the interpreter may complain about the clean-up; the fault itself comes first.
    causes = [line for line in lines if "Error: " in line and not line.startswith(" ")]
    driver = os.environ.get("MUJOCO_GL", "not set")
    found = f"{(causes or lines[-1:])[0]} (MUJOCO_GL is {driver})"
    return Finding("rendering", "fail", found, _RENDER_REMEDY)


def plugins() -> Iterator[Finding]:
    """Every installed plugin: whether it loads, and whether its name is free."""
    from coda_envs import family
    from coda_trainer import discovery

    for source, problem in discovery.check_backbone_sources():
        yield _plugin("backbone", source.name, source.distribution, source.target, problem)
    for kind, group, taken in (
        ("family", "coda.families", family.BUILT_IN),
        ("diagnostician", "coda.diagnosticians", ("trace",)),
    ):
        for entry in importlib.metadata.entry_points(group=group):
            owner = f"{entry.dist.name} {entry.dist.version}" if entry.dist else "unknown"
            problem = (
                f"the name {entry.name!r} belongs to a built-in" if entry.name in taken else ""
            )
            # A plugin may print or leave the interpreter when it is imported.
            try:
                with contextlib.redirect_stdout(sys.stderr):
                    entry.load()
            except (Exception, SystemExit) as error:
                problem = f"does not load: {type(error).__name__}: {error}"
            yield _plugin(kind, entry.name, owner, entry.value, problem)


def _plugin(kind: str, name: str, owner: str, target: str, problem: str) -> Finding:
    found = f"{owner} ({target})" + (f": {problem}" if problem else "")
    remedy = f"repair or uninstall {owner}" if problem else ""
    return Finding(f"{kind} {name}", "warn" if problem else "ok", found, remedy)


def machine(folder: Path) -> Iterator[Finding]:
    """Free disk where runs are written, and cores this process may use."""
    free = shutil.disk_usage(folder).free
    enough = free >= DISK_BYTES
    yield Finding(
        "disk",
        "ok" if enough else "warn",
        f"{free / 1e9:.1f} GB free in {folder}",
        "" if enough else f"a run may need {DISK_BYTES / 1e9:g} GB: free some space",
    )
    yield Finding("cores", "ok", str(len(os.sched_getaffinity(0))))
