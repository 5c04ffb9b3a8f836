"""Checked copies of queue files."""

import os
from contextlib import closing, suppress
from pathlib import Path

import apsw

from dueline.core.clock import SECOND_US
from dueline.core.disk_wait import DiskWait
from dueline.core.errors import Conflict, NotFound, StoreCorrupt, StoreUnavailable
from dueline.core.system import IS_POSIX, NO_LINK
from dueline.stores.sqlite.connection import APPLICATION_ID, PROGRESS_STEPS
from dueline.stores.sqlite.file import COMPANIONS

_WAIT_MS = 60_000
_DISK_US = 600 * SECOND_US
"""How long a copy may make no progress: one flush may write all of it."""


def copy_checked(source: Path, target: Path) -> int:
    """Copy a queue file, also while processes use it, and check the copy.

    The copy has one consistent state, and it appears under its name only when it is complete.

    Returns: the size of the copy in bytes.

    Raises:
      NotFound: there is no file `source`.
      Conflict: `target`, or a log beside it, exists.
      StoreCorrupt: `source` is damaged, or not a queue file.
      StoreUnavailable: a file cannot be read or written, or the disk is full.
    """
    wait = DiskWait(f"{source} or {target}", _DISK_US)
    with wait:
        return _copy_checked(source, target, wait)


def _copy_checked(source: Path, target: Path, wait: DiskWait) -> int:
    if not source.is_file():
        raise NotFound(f"There is no file {source}.")
    for path in (target, *(target.with_name(target.name + suffix) for suffix in COMPANIONS)):
        if path.exists():
            raise Conflict(f"The file {path} exists already.", hint="Choose another, or move it.")
    draft = target.with_name(f"{target.name}.part")
    try:
        os.close(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_RDWR | NO_LINK, 0o600))
    except FileExistsError:
        raise Conflict(
            f"The file {draft} exists: another copy is being made, or one was interrupted.",
            hint="Remove it if no other copy is being made.",
        ) from None
    except OSError as error:
        raise _unwritable(target, error) from error
    try:
        _copy(source, draft, wait)
        _check(draft, wait)
        draft.rename(target)
        _flush(target.parent)
    except OSError as error:
        raise _unwritable(target, error) from error
    except (apsw.NotADBError, apsw.CorruptError) as error:
        raise StoreCorrupt(
            f"The file {source} is damaged: {error}.", hint="See `dueline doctor`."
        ) from error
    except apsw.Error as error:
        raise StoreUnavailable(
            f"The file {source} cannot be copied to {target}: {error}."
        ) from error
    finally:
        with suppress(FileNotFoundError):
            draft.unlink()
    return target.stat().st_size


def _copy(source: Path, draft: Path, wait: DiskWait) -> None:
    with closing(apsw.Connection(str(source), flags=apsw.SQLITE_OPEN_READWRITE)) as database:
        database.set_busy_timeout(_WAIT_MS)
        database.set_progress_handler(wait.progressed, PROGRESS_STEPS)
        if database.pragma("application_id") != APPLICATION_ID:
            raise StoreCorrupt(f"The file {source} is not a queue file of dueline.")
        database.execute("VACUUM INTO ?", (str(draft),))
    with draft.open("rb") as file:
        os.fsync(file.fileno())


def _check(draft: Path, wait: DiskWait) -> None:
    with closing(apsw.Connection(str(draft), flags=apsw.SQLITE_OPEN_READONLY)) as database:
        database.set_progress_handler(wait.progressed, PROGRESS_STEPS)
        finding = database.pragma("integrity_check")
    if finding != "ok":
        raise StoreCorrupt(f"The copy is damaged: {finding}.", hint="Check the disk.")


def _flush(folder: Path) -> None:
    """Flush the entries of a folder, where a system can open one."""
    if not IS_POSIX:
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _unwritable(target: Path, error: OSError) -> StoreUnavailable:
    return StoreUnavailable(
        f"The file {target} cannot be written: {error.strerror or error}.",
        hint="Create its folder, and give this user the right to write in it.",
    )
