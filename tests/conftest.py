"""Settings that all tests share."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from command_line import Answer, Coda
from hypothesis import settings

from coda_trainer.cli import main

if TYPE_CHECKING:
    from coda_trainer.learning.actor import ActorSpec

# No test may fail because the machine is busy.
settings.register_profile("coda", deadline=None)
settings.load_profile("coda")


@pytest.fixture
def coda(
    capfd: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Coda:
    """Run one command line in this process, in an empty folder."""
    monkeypatch.chdir(tmp_path)

    def call(*words: str | Path) -> Answer:
        capfd.readouterr()
        code = main([str(word) for word in words])
        return Answer(code, *capfd.readouterr())

    return call


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of one round in which a difficulty mode arises. Not to be changed: see ``copied``."""
    # Imported here: most tests need no torch.
    from tiny_run import quiet, tiny

    from coda_trainer.rounds.loop import train

    run = tmp_path_factory.mktemp("loop") / "finished"
    train(tiny(), run, reporter=quiet())
    return run


@pytest.fixture(scope="session")
def flow(tmp_path_factory: pytest.TempPathFactory) -> ActorSpec:
    """The built-in policy after a few updates on pick-place, with exploration noise."""
    from rollout_cases import trained_flow

    return trained_flow(tmp_path_factory.mktemp("flow"))


@pytest.fixture
def copied(finished: Path, tmp_path: Path) -> Path:
    """The finished run, to be harmed."""
    return Path(shutil.copytree(finished, tmp_path / "copied"))
