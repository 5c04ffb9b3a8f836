"""Errors as three lines, and exit codes."""

import sys
from collections.abc import Mapping
from enum import IntEnum
from typing import Final

import typer

from dueline.cli.suggestions import with_suggestion
from dueline.core.errors import (
    BadInput,
    ConfigError,
    Conflict,
    DuelineError,
    HistoryExpired,
    LakeCorrupt,
    LakeUnavailable,
    NotFound,
    SchemaMismatch,
    StoreCorrupt,
    StoreUnavailable,
    Unknown,
)
from dueline.core.text import one_line


class Exit(IntEnum):
    """Exit codes of the command; a signal gives 128 plus its number."""

    DONE = 0
    NEGATIVE = 1
    USAGE = 2
    STORE = 3
    NOT_FOUND = 4
    REFUSED = 5
    CHECK = 6
    CONFIG = 7
    LEFT = 8
    TIMEOUT = 124
    INTERRUPTED = 130
    TERMINATED = 143


MEANINGS: Final[Mapping[Exit, str]] = {
    Exit.DONE: "Success",
    Exit.NEGATIVE: "The job ended without a result (`enqueue --wait`), or another failure",
    Exit.USAGE: "Invalid command line or input; nothing was done",
    Exit.STORE: "The store or a pipeline table is unavailable, damaged, or of another version",
    Exit.NOT_FOUND: "Not found",
    Exit.REFUSED: "Rejected: a conflict, or no confirmation",
    Exit.CHECK: "A check failed: `doctor`, `health`, `pipeline verify` or `pipeline audit`; or "
    "history expired before the pipeline copied it",
    Exit.CONFIG: "No application or store is configured, or a package or Java is missing",
    Exit.LEFT: "`worker --burst` or `--until-done` ended, and jobs of its queues are ready or "
    "retrying",
    Exit.TIMEOUT: "`--timeout` expired; the job or the queue continues",
    Exit.INTERRUPTED: "Interrupted by Ctrl-C; a worker exits after its drain",
    Exit.TERMINATED: "Stopped by SIGTERM; a worker exits after its drain",
}
"""What each exit code means; docs/reference/cli.md lists them."""

_KINDS: tuple[tuple[type[DuelineError], Exit, str], ...] = (
    (LakeUnavailable, Exit.STORE, "the tables cannot be read or written"),
    (ConfigError, Exit.CONFIG, "the configuration is incomplete or wrong"),
    (BadInput, Exit.USAGE, "invalid input; nothing was done"),
    (NotFound, Exit.NOT_FOUND, "not found"),
    (Conflict, Exit.REFUSED, "refused; nothing was changed"),
    (SchemaMismatch, Exit.STORE, "the store was made by another version"),
    (LakeCorrupt, Exit.STORE, "the tables cannot be read"),
    (HistoryExpired, Exit.CHECK, "history expired before it was copied"),
    (StoreCorrupt, Exit.STORE, "the store cannot be read"),
    (Unknown, Exit.STORE, "the outcome is unknown; the write may or may not have happened"),
    (StoreUnavailable, Exit.STORE, "the store is unavailable; nothing was written"),
    (DuelineError, Exit.NEGATIVE, "the command failed"),
)


def show_error(error: DuelineError, *, about: str = "dueline") -> Exit:
    """Print what happened, why and what to try to stderr; return the exit code.

    Args: about: the command whose --help is the advice if the error has none.
    """
    code, what = next((code, what) for kind, code, what in _KINDS if isinstance(error, kind))
    return say_failure(
        what, why=error.message, attempt=error.hint or f"See `{about} --help`.", code=code
    )


def show_usage(error: typer.TyperException) -> Exit:
    """Print what is wrong with the command line to stderr; return the exit code."""
    context = getattr(error, "ctx", None)
    about = context.command_path if context is not None else "dueline"
    names = getattr(context.command, "commands", ()) if context is not None else ()
    return say_failure(
        "invalid command line; nothing was done",
        why=with_suggestion(error.format_message(), names, about=about),
        attempt=f"See `{about} --help`.",
        code=Exit.USAGE,
    )


def say_failure(what: str, *, why: str, attempt: str, code: Exit) -> Exit:
    """Print the three lines; each stays one line, whatever the strings contain."""
    for label, text in (("dueline", what), ("    why", why), ("    try", attempt)):
        print(f"{label}: {one_line(text)}", file=sys.stderr)  # noqa: T201
    return code
