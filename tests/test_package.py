"""The package as a whole: which way imports run, what stays light, what a wheel carries."""

from __future__ import annotations

import ast
import json
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ("coda_envs", "coda_trainer", "task_families")
HEAVY = {"torch", "stable_baselines3", "openai", "ray"}
#: What each package may not import, by the first part of a module's name (design: Layout).
FORBIDDEN = {
    "coda_envs": HEAVY | {"coda_trainer", "task_families", "plugins", "tests"},
    "task_families": HEAVY | {"coda_trainer", "plugins", "tests"},
    "coda_trainer": {"task_families", "plugins", "tests"},
}


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {
    module_name(path): path for name in PACKAGES for path in sorted((ROOT / name).rglob("*.py"))
}
TREES = {name: ast.parse(path.read_text()) for name, path in MODULES.items()}


def imported(node: ast.AST) -> Iterator[str]:
    """Modules that one import statement names, ours resolved down to the submodule."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        assert node.level == 0, "imports are absolute"
        assert node.module is not None
        for alias in node.names:
            inner = f"{node.module}.{alias.name}"
            yield inner if inner in MODULES else node.module


def run_at_import(node: ast.AST) -> Iterator[ast.AST]:
    """The statements that run when a module is imported: no functions, no TYPE_CHECKING."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.dump(child.test):
            continue
        yield child
        yield from run_at_import(child)


@pytest.mark.parametrize("package", PACKAGES)
def test_imports_run_one_way(package: str) -> None:
    broken = [
        f"{name} imports {target}"
        for name, tree in TREES.items()
        if name.split(".")[0] == package
        for node in ast.walk(tree)
        for target in imported(node)
        if target.split(".")[0] in FORBIDDEN[package]
    ]
    assert not broken


def test_only_the_registry_names_the_built_in_families() -> None:
    naming = {
        name
        for name, tree in TREES.items()
        if name.split(".")[0] in ("coda_envs", "coda_trainer")
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and node.value.startswith("task_families")
    }
    assert naming == {"coda_envs.family"}


def with_packages(module: str) -> Iterator[str]:
    """The module and the packages that it lies in: importing it runs them first."""
    parts = module.split(".")
    return (".".join(parts[: i + 1]) for i in range(len(parts)))


def test_no_module_imports_itself_in_a_circle() -> None:
    graph = {
        name: {
            found
            for node in run_at_import(tree)
            for target in imported(node)
            for found in with_packages(target)
            # A module's own packages are under way when it is imported.
            if found in MODULES and not name.startswith(f"{found}.") and found != name
        }
        for name, tree in TREES.items()
    }
    # Take away modules that import nothing that is left; a circle is what cannot be taken away.
    left = dict(graph)
    while free := [name for name, targets in left.items() if not targets & left.keys()]:
        for name in free:
            del left[name]
    assert not left, f"a circle among {sorted(left)}"


def test_files_stay_short() -> None:
    long = {name: n for name, path in MODULES.items() if (n := path.read_text().count("\n")) > 400}
    assert not long


def loaded_after(code: str) -> set[str]:
    """First parts of all modules in a fresh process that ran ``code``."""
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\nimport sys\nprint(*sys.modules, file=sys.stderr)"],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=True,
    )
    return {name.split(".")[0] for name in done.stderr.split()}


def test_importing_the_environments_stays_light() -> None:
    assert not loaded_after("import coda_envs") & (HEAVY | {"mujoco", "numba"})
    # The kernels come with the first arm that moves.
    assert not loaded_after("import coda_envs.env") & (HEAVY | {"numba"})


def test_help_stays_light() -> None:
    commands = ["", "train", "doctor", "evaluate", "memory show", "scene new", "scene strip",
                "envs check", "envs gallery", "suites verify"]  # fmt: skip
    calls = "\n".join(f"assert main({[*words.split(), '--help']!r}) == 0" for words in commands)
    loaded = loaded_after(f"from coda_trainer.cli import main\n{calls}")
    assert not loaded & (HEAVY | {"mujoco", "numba", "scipy", "sqlalchemy"})


def test_makefile_and_ci_agree_with_the_package() -> None:
    pins = dict(
        line.split("==")
        for line in (ROOT / "constraints.txt").read_text().splitlines()
        if not line.startswith("#")
    )
    assert pins["mujoco"] == "3.17.0"
    assert "+" not in pins["torch"]
    assert os.access(ROOT / ".ci" / "run", os.X_OK)


DATA = (".yaml", ".json", ".jsonl", ".npz", ".html", ".jinja", ".typed")


@pytest.mark.slow
def test_wheel_works_without_the_checkout(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    for name in PACKAGES:
        shutil.copytree(
            ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__", "*.pyc")
        )
    for name in ("pyproject.toml", "LICENSE", "NOTICE"):
        shutil.copy(ROOT / name, source)
    subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", tmp_path, source],
        check=True,
        capture_output=True,
    )
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        carried = set(archive.namelist())
        archive.extractall(tmp_path / "site")
    expected = {
        str(path.relative_to(source))
        for name in PACKAGES
        for path in (source / name).rglob("*")
        if path.suffix in (*DATA, ".py")
    }
    assert any(name.endswith("factors.yaml") for name in expected)
    assert expected <= carried
    assert not any(name.startswith("tests") for name in carried)

    empty = tmp_path / "empty"
    empty.mkdir(mode=0o555)

    def coda(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "coda_trainer.cli", *words],
            capture_output=True,
            text=True,
            cwd=empty,
            env={**os.environ, "PYTHONPATH": str(tmp_path / "site")},
        )

    made = coda("scene", "new", "--seed", "3")
    assert (made.returncode, made.stdout[:7]) == (0, "family:"), made.stderr
    doctor = coda("doctor", "--json")
    findings = {f["name"]: f for f in json.loads(doctor.stdout)["findings"]}
    assert findings["mujoco"]["status"] == "ok"
    assert findings["torch"]["status"] == "ok"
    assert coda("--version").stdout == "0.1.0\n"
    assert not list(empty.iterdir())
