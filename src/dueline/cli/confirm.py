"""Confirmation of a change."""

import sys

import typer

from dueline.cli.errors import Exit, say_failure


def is_agreed(question: str, *, yes: bool) -> bool:
    """Return whether the user confirms; without a terminal only `yes` confirms."""
    return yes or (sys.stdin.isatty() and typer.confirm(question, err=True))


def refuse(past: str, count: int) -> Exit:
    """Report that nothing was changed for lack of confirmation. past: cancelled, retried."""
    return say_failure(
        "refused; nothing was changed",
        why=f"The change was not confirmed. Jobs that would be {past}: {count}.",
        attempt="Add --yes, or --dry-run to count only.",
        code=Exit.REFUSED,
    )
