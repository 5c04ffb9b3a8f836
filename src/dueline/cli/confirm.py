"""Somebody says yes."""

import sys

import typer

from dueline.cli.errors import Exit, say_failure


def is_agreed(question: str, *, yes: bool) -> bool:
    """Ask, unless that was answered before; where nobody can be asked the answer is no."""
    return yes or (sys.stdin.isatty() and typer.confirm(question, err=True))


def refuse(past: str, count: int) -> Exit:
    """Say that nothing was changed, since nobody said yes; `past`: cancelled, retried."""
    return say_failure(
        "refused; nothing was changed",
        why=f"Nobody said yes; jobs that would be {past}: {count}.",
        attempt="Add --yes, or --dry-run to see the number only.",
        code=Exit.REFUSED,
    )
