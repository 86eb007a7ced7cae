"""What a run says of a model that writes programs."""

from __future__ import annotations

from coda_trainer.compile.author import ModelAuthor
from coda_trainer.rounds.context import RoundContext


def report_author(context: RoundContext, wrote: str, author: ModelAuthor) -> None:
    """Log what a round's programs of a kind cost, and why the compiler stood in for some."""
    for problem in author.problems:
        context.report.line(f"the compiler's {wrote} program stands: {problem}")
    context.log(
        "author",
        author=author.name,
        wrote=wrote,
        stood_in=len(author.problems),
        problems=author.problems,
        **author.usage(),
    )
