"""What a run says while it works: bars on a terminal, plain lines elsewhere, on standard error."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from coda_trainer.report.progress import Reporter


def say(reporter: Reporter) -> None:
    reporter.headline("Round 1 [of 2]")
    with reporter.bar("episodes", 20) as progress:
        progress(10)
        progress(20)
    reporter.line("checkpoint /a/very/long/path" + "/folder" * 20 + " is damaged [here]")


def test_without_a_terminal_there_are_plain_lines(capsys: pytest.CaptureFixture[str]) -> None:
    say(Reporter())
    out, err = capsys.readouterr()
    assert out == ""
    assert "\x1b" not in err
    lines = err.splitlines()
    # A path is never broken over two lines, and brackets stay as they are.
    assert lines == [
        "Round 1 [of 2]",
        "  episodes: 20",
        "  checkpoint /a/very/long/path" + "/folder" * 20 + " is damaged [here]",
    ]


def test_on_a_terminal_there_are_bars() -> None:
    screen = io.StringIO()
    say(Reporter(Console(file=screen, force_terminal=True, width=100)))
    assert "━" in screen.getvalue()
    assert "20/20" in screen.getvalue()


def test_an_error_inside_a_bar_comes_through(capsys: pytest.CaptureFixture[str]) -> None:
    for console in (None, Console(file=io.StringIO(), force_terminal=True)):
        with pytest.raises(ValueError, match="broken"), Reporter(console).bar("episodes", 3):
            raise ValueError("broken")
    # What was not done is not said to be done.
    assert "episodes: 3" not in capsys.readouterr().err
