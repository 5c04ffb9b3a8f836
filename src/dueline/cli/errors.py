"""What went wrong, as three lines."""

import sys
from enum import IntEnum

import typer

from dueline.core.errors import (
    BadInput,
    ConfigError,
    Conflict,
    DuelineError,
    NotFound,
    SchemaMismatch,
    StoreCorrupt,
    StoreUnavailable,
    Unknown,
)
from dueline.core.text import one_line


class Exit(IntEnum):
    """What the command's exit code says; interrupted is 128 and the signal's number."""

    DONE = 0
    NEGATIVE = 1
    USAGE = 2
    STORE = 3
    NOT_FOUND = 4
    REFUSED = 5
    CHECK = 6
    CONFIG = 7
    TIMEOUT = 124
    INTERRUPTED = 130
    TERMINATED = 143


_KINDS: tuple[tuple[type[DuelineError], Exit, str], ...] = (
    (ConfigError, Exit.CONFIG, "no app or store to work with"),
    (BadInput, Exit.USAGE, "that cannot be done; nothing was written"),
    (NotFound, Exit.NOT_FOUND, "nothing goes by that name"),
    (Conflict, Exit.REFUSED, "refused; nothing was changed"),
    (SchemaMismatch, Exit.STORE, "the store was made by another version"),
    (StoreCorrupt, Exit.STORE, "the store cannot be read"),
    (Unknown, Exit.STORE, "it is not known whether that was done"),
    (StoreUnavailable, Exit.STORE, "the store cannot be used; nothing was written"),
    (DuelineError, Exit.NEGATIVE, "that did not go well"),
)


def show_error(error: DuelineError, *, about: str = "dueline") -> Exit:
    """Say on stderr what happened, why, and what to try; answer the exit code.

    Args: about: the command, for where the error itself has no advice.
    """
    code, what = next((code, what) for kind, code, what in _KINDS if isinstance(error, kind))
    return say_failure(
        what, why=error.message, attempt=error.hint or f"See `{about} --help`.", code=code
    )


def show_usage(error: typer.TyperException) -> Exit:
    """Say on stderr what is wrong with the command's own words."""
    context = getattr(error, "ctx", None)
    about = context.command_path if context is not None else "dueline"
    return say_failure(
        "that is no command of dueline; nothing was done",
        why=error.format_message(),
        attempt=f"See `{about} --help`.",
        code=Exit.USAGE,
    )


def say_failure(what: str, *, why: str, attempt: str, code: Exit) -> Exit:
    """Write the three lines; each stays one line whatever the texts hold."""
    for label, text in (("dueline", what), ("    why", why), ("    try", attempt)):
        print(f"{label}: {one_line(text)}", file=sys.stderr)  # noqa: T201
    return code
