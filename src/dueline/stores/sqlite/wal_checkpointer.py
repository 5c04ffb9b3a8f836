"""Checkpoints the log of a queue file in a thread.

SQLite itself checkpoints in the commit that makes the log a thousand pages long: the writer copies
the pages and waits for two flushes while all other writers wait. Here a thread does this on its
own connection, which never holds a transaction, so writers are not blocked.
"""

import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

import apsw

from dueline.core.system import flush_data

PAGES: Final = 1_000
"""Number of pages that a connection writes before a checkpoint; SQLite's own default."""

PAGES_MAX: Final = 8_000
"""Length of the log, 32 MiB, at which a commit checkpoints: constant writes keep the log from
restarting, and pages that the thread has copied by then cost nothing more."""

PAGES_LONG: Final = 2 * PAGES_MAX
"""Length of the log at which the thread blocks writers while it copies the rest, so that the log
restarts. Otherwise processes that write constantly make it grow without bound."""

WRITERS_S: Final = 1.0
"""Maximum time that the thread waits for the write lock, and then for readers of the log, in
seconds; writers wait during the second part."""

_TURN_S: Final = 0.001
"""Time between attempts, in seconds: SQLite's own pauses grow to 100 ms and miss the lock."""

SINGLE_PAGES_MAX: Final = 16
"""Average number of pages of a commit up to which calls count as single ones. Their log is kept
PAGES long: a flush that makes a file longer takes twice as long as one that overwrites it."""

SINGLE_COMMITS: Final = 32
"""Number of single calls after which the log gets its full length at once, in zeros, which are no
commits to SQLite. Programs that make a few calls do not pay for it."""

_FRAME_BYTES: Final = 4096 + 24
_PIECE: Final = bytes(64 * _FRAME_BYTES)

IDLE_S: Final = 10.0
"""Time without work after which the thread ends, in seconds; a later commit starts a new one."""


class Checkpointer:
    """Checkpoints the log of one open connection. Thread-safe; starts a thread when needed.

    Args:
      path: The file.
      database: The connection that writes to it.
      is_in_place: Returns whether the file at the path is still the one that was opened.
      flushes: Whether commits are flushed.
    """

    def __init__(
        self,
        path: Path,
        database: apsw.Connection,
        is_in_place: Callable[[], bool],
        *,
        flushes: bool,
    ) -> None:
        self._path = path
        self._is_in_place = is_in_place
        self._written = 0
        self._commits = 0
        self._is_single = self._restarts = False
        self._is_extended = not flushes
        self._wanted = threading.Event()
        self._guard = threading.Lock()
        self._is_closed = False
        self._long = PAGES_LONG
        self._thread: threading.Thread | None = None
        database.wal_autocheckpoint(PAGES_MAX)

    def committed(self, database: apsw.Connection) -> None:
        """Wake the thread after a commit if there is enough to copy.

        The log of single calls is restarted here: the thread would hold up writers of this process
        that do not know for how long.
        """
        written, _ = database.status(apsw.SQLITE_DBSTATUS_CACHE_WRITE)
        self._commits += 1
        if self._restarts:  # the thread has copied nearly all: this takes a flush or two
            self._restarts = False
            with suppress(apsw.Error):  # other processes write or read
                database.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_RESTART)
        is_extension_due = self._commits >= SINGLE_COMMITS and not self._is_extended
        if written - self._written < PAGES and not is_extension_due:
            return
        self._is_single = written - self._written <= self._commits * SINGLE_PAGES_MAX
        self._written, self._commits = written, 0
        self._wanted.set()
        with self._guard:
            if self._thread is None and not self._is_closed:
                self._thread = self._started()

    def close(self) -> None:
        """End the thread after its current copy, and close its connection."""
        with self._guard:
            self._is_closed, thread = True, self._thread
        self._wanted.set()
        if thread is not None:
            thread.join()

    def _started(self) -> threading.Thread | None:
        thread = threading.Thread(target=self._loop, name="dueline-checkpoint", daemon=True)
        try:
            thread.start()
        except RuntimeError:  # such as when the program ends: commits checkpoint
            return None
        return thread

    def _loop(self) -> None:
        database: apsw.Connection | None = None
        try:
            while self._is_wanted():
                try:
                    database = database or self._open()
                    if self._is_single and not self._is_extended:
                        self._extend()
                    self._copy(database)
                except apsw.Error:  # another process copies, or disk full, or no file
                    continue
        finally:
            if database is not None:
                database.close()

    def _copy(self, database: apsw.Connection) -> None:
        """Copy the log, and restart it if it is too long.

        A reader of an old state prevents the restart. It is tried again at twice the length only,
        since writers have to wait for it.
        """
        pages, _ = database.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
        if pages < PAGES_LONG:
            self._long = PAGES_LONG
        self._restarts = self._is_single and pages >= PAGES
        if pages < self._long:
            return
        self._long = 2 * pages
        database.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_RESTART)
        self._long = PAGES_LONG

    def _extend(self) -> None:
        """Append zeros to the log, up to the length that it is kept at.

        Appending overwrites nothing, even if other processes write at the same time.
        """
        self._is_extended = True
        with suppress(OSError):  # the file is gone, or the disk is full
            log = os.open(f"{self._path}-wal", os.O_WRONLY | os.O_APPEND)
            try:
                lacking = min(PAGES, PAGES_MAX) * 5 // 4 * _FRAME_BYTES - os.fstat(log).st_size
                for _ in range(0, lacking, len(_PIECE)):
                    os.write(log, _PIECE)
                    flush_data(log)
            finally:
                os.close(log)

    def _is_wanted(self) -> bool:
        """Wait until there is something to copy; return False if the thread must end."""
        self._wanted.wait(IDLE_S)
        with self._guard:
            if self._is_closed or not self._wanted.is_set():
                self._thread = None
                return False
            self._wanted.clear()
            return True

    def _open(self) -> apsw.Connection:
        database = apsw.Connection(str(self._path), flags=apsw.SQLITE_OPEN_READWRITE)
        database.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        if not self._is_in_place():
            database.close()
            raise apsw.NotADBError
        database.pragma("application_id")  # a connection finds the log at its first read
        database.set_busy_handler(_waits)
        return database


def _waits(times: int) -> bool:
    """Wait briefly for a lock; return False after WRITERS_S."""
    time.sleep(_TURN_S)
    return times < WRITERS_S / _TURN_S
