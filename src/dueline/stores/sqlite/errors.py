"""Errors of SQLite as those of the project."""

from pathlib import Path

import apsw

from dueline.core.errors import DuelineError, StoreCorrupt, StoreUnavailable


def translated(error: apsw.Error, path: Path) -> DuelineError:
    """Translate an error of SQLite about a queue file."""
    match error:
        case apsw.NotADBError():
            return StoreCorrupt(
                f"The file {path} is not a SQLite database.",
                hint="Choose another file for the queue; this one was left as it is.",
            )
        case apsw.CorruptError() | apsw.SQLError(args=["unsupported file format", *_]):
            return StoreCorrupt(
                f"The queue file {path} is damaged: {error}.",
                hint="Restore it from a backup, or save what can be read (`.recover`).",
            )
        case apsw.IOError() if "short read" in str(error).lower():
            return StoreCorrupt(
                f"The queue file {path} is cut off: {error}.",
                hint="Restore it from a backup.",
            )
        case apsw.FullError():
            return StoreUnavailable(
                f"The disk of {path} is full; nothing was written.",
                hint="Free some space; stored data is intact.",
            )
    return StoreUnavailable(
        f"SQLite refused a call on {path}: {error}.",
        hint="Check the file's permissions and its disk.",
    )
