"""Confirmation of a change."""

import sys

import typer

from dueline.cli.errors import Exit, say_failure
from dueline.cli.session import session_of


def is_agreed(question: str, *, yes: bool) -> bool:
    """Return whether the user confirms; without a terminal only `yes` confirms."""
    return yes or (sys.stdin.isatty() and typer.confirm(question, err=True))


def refuse(context: typer.Context, past: str, count: int) -> Exit:
    """Report that nothing was changed for lack of confirmation. past: cancelled, retried."""
    session_of(context).note_result("")
    return say_failure(
        "refused; nothing was changed",
        why=f"The change was not confirmed. Jobs that would be {past}: {count}.",
        attempt="Add --yes, or --dry-run to count only.",
        code=Exit.REFUSED,
    )
