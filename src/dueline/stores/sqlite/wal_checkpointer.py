"""Copies a queue file's log into it, beside those who write.

SQLite has the writer itself do that, in the commit that makes the log a thousand pages long: it
copies them and waits for two flushes while every other writer waits for it. Here a thread does,
on a connection of its own that never holds a transaction; writers go on meanwhile.
"""

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import apsw

PAGES: Final = 1_000
"""So many pages a connection writes before they are copied; SQLite's own measure."""

PAGES_MAX: Final = 8_000
"""At this length of the log, 32 MiB, a commit copies it all the same: whoever writes without a
pause never lets the log begin anew, and what the thread has copied by then costs nothing more."""

PAGES_LONG: Final = 2 * PAGES_MAX
"""At this length the thread keeps writers away while it copies the rest, so that the log begins
anew: several processes that write without a pause append to it while any of them copies. Two that
wrote 1 MB at a time made it 944 MiB long in seconds (November 2026)."""

WRITERS_S: Final = 1.0
"""So long the thread waits for its turn to write; and for whoever reads what is in the log only,
for as long, while writers wait."""

_TURN_S: Final = 0.001
"""How often it tries: SQLite's own pauses grow to 100 ms, and miss the turn (241 to 337 MiB beside
four writers where this leaves 135 to 171)."""

IDLE_S: Final = 10.0
"""A thread that has nothing to copy for so long ends; the next one is started when it is needed."""


class Checkpointer:
    """Sees to the log of one open connection. Threads share it as they do the connection."""

    def __init__(
        self, path: Path, database: apsw.Connection, is_in_place: Callable[[], bool]
    ) -> None:
        """Take the file, and the connection that writes to it; starts no thread yet.

        Args: is_in_place: returns whether the file at the path is still the one that was opened;
          another one that was put in its place is left as it is.
        """
        self._path = path
        self._is_in_place = is_in_place
        self._written = 0
        self._wanted = threading.Event()
        self._guard = threading.Lock()
        self._is_closed = False
        self._long = PAGES_LONG
        self._thread: threading.Thread | None = None
        database.wal_autocheckpoint(PAGES_MAX)

    def committed(self, database: apsw.Connection) -> None:
        """Take note of a commit: wake the thread where there is enough to copy."""
        written, _ = database.status(apsw.SQLITE_DBSTATUS_CACHE_WRITE)
        if written - self._written < PAGES:
            return
        self._written = written
        self._wanted.set()
        with self._guard:
            if self._thread is None and not self._is_closed:
                self._thread = self._started()

    def close(self) -> None:
        """End the thread, behind what it copies, and its connection with it."""
        with self._guard:
            self._is_closed, thread = True, self._thread
        self._wanted.set()
        if thread is not None:
            thread.join()

    def _started(self) -> threading.Thread | None:
        thread = threading.Thread(target=self._loop, name="dueline-checkpoint", daemon=True)
        try:
            thread.start()
        except RuntimeError:  # none can be had, as when the program ends: commits copy the log
            return None
        return thread

    def _loop(self) -> None:
        database: apsw.Connection | None = None
        try:
            while self._is_wanted():
                try:
                    database = database or self._open()
                    self._copy(database)
                except apsw.Error:  # another one copies, the disk is full, the file is gone
                    continue
        finally:
            if database is not None:
                database.close()

    def _copy(self, database: apsw.Connection) -> None:
        """Copy what is in the log; see that it begins anew where it is too long.

        Where somebody reads an old state for long, that cannot be: it is tried again at twice the
        length, since writers have waited for it.
        """
        pages, _ = database.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
        if pages < PAGES_LONG:
            self._long = PAGES_LONG
        if pages < self._long:
            return
        self._long = 2 * pages
        database.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_RESTART)
        self._long = PAGES_LONG

    def _is_wanted(self) -> bool:
        """Wait until there is something to copy; False: the thread is to end."""
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
        database.pragma("application_id")  # without a read the connection does not know the log
        database.set_busy_handler(_waits)
        return database


def _waits(times: int) -> bool:
    """Wait a little for a lock; False: it was waited for long enough."""
    time.sleep(_TURN_S)
    return times < WRITERS_S / _TURN_S
