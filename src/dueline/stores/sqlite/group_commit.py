"""Inserts of several threads in one commit.

Threads that enqueue at the same time share a transaction. The first one waits for the connection,
and writes the jobs of all that wait behind it; each of these is woken by itself after the commit.
No thread waits for company, and each call returns after the commit that has its jobs.
"""

import os
import threading
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from copy import copy
from functools import partial
from typing import Final

import apsw

from dueline.core.errors import DuelineError, StoreReplaced, Unknown
from dueline.core.job import Job
from dueline.stores.sqlite import jobs as sqlite_jobs
from dueline.stores.sqlite.connection import Database, SqliteConnection, refuse_beside, savepoint

JOBS_MAX: Final = 1000
"""Maximum number of jobs of other calls in one commit."""

TURN_S: Final = 0.05
"""Time after which a call waits for the connection itself, in seconds, if the thread before it was
interrupted and woke nobody."""

_OF_ONE: Final = (OverflowError, TypeError, ValueError, apsw.TooBigError, apsw.ConstraintError)
"""Errors caused by the rows of one call; any other error fails the whole commit."""


class _Call:
    """The jobs of one call, and its progress.

    turn: locked until its thread must go on; None if that waits for the connection.
    """

    __slots__ = ("error", "is_over", "is_taken", "jobs", "process", "turn")

    def __init__(self, jobs: Sequence[Job], *, is_alone: bool) -> None:
        self.jobs = jobs
        self.is_taken = False
        self.is_over = False
        self.error: BaseException | None = None
        self.process = os.getpid()
        self.turn: threading.Lock | None = None
        if not is_alone:
            self.turn = threading.Lock()
            self.turn.acquire()

    def end(self, error: BaseException | None = None) -> None:
        self.error = error
        self.is_over = True
        self.wake()

    def wake(self) -> None:
        if self.turn is not None:
            with suppress(RuntimeError):  # the waiting thread was woken already
                self.turn.release()


class GroupCommit:
    """Inserts the jobs of several threads at once."""

    def __init__(self, file: SqliteConnection) -> None:
        self._file = file
        self._waiting: deque[_Call] = deque()

    def add(self, jobs: Sequence[Job]) -> None:
        """Insert jobs in a transaction, possibly together with those of other threads.

        Raises the errors of `SqliteConnection.write`, except for those of other calls' jobs.
        """
        call = _Call(jobs, is_alone=not self._waiting)
        self._waiting.append(call)
        try:
            if call.turn is not None and not self._is_first(call):
                call.turn.acquire(timeout=TURN_S)
            if not call.is_over:
                self._file.run(lambda database: self._lead(database, call))
        except BaseException:
            self._leave(call)
            raise
        finally:
            if self._waiting:
                self._wake_first()
        if call.error is not None:
            raise call.error

    def _is_first(self, call: _Call) -> bool:
        """Return whether a call waits for the connection; without it another thread took it."""
        try:
            return self._waiting[0] is call
        except IndexError:
            return False

    def _wake_first(self) -> None:
        """Wake the first call that waits: no thread may be before it any more."""
        with suppress(IndexError):
            self._waiting[0].wake()

    def _leave(self, call: _Call) -> None:
        """Withdraw a call that was not written; raise Unknown if another thread writes it."""
        try:
            self._waiting.remove(call)
        except ValueError:
            if call.is_taken and not call.is_over:
                raise _unknown() from None

    def _lead(self, database: Database, call: _Call) -> None:
        """Write all waiting calls, unless this one is written already."""
        if call.is_over:
            return
        if call.is_taken:  # the thread that took it was interrupted
            call.end(_unknown())
            return
        refuse_beside(database)
        calls = self._take(call)
        try:
            self._file.commit(database, partial(_insert, calls=calls))
        except (apsw.BusyError, apsw.LockedError):
            self._put_back(calls)
            raise
        except BaseException as error:
            for other in calls[1:]:
                other.end(self._error_for(error))
            call.is_over = True
            raise
        for joined in calls:
            joined.end(joined.error)

    def _take(self, call: _Call) -> list[_Call]:
        self._waiting.remove(call)
        calls, count = [call], 0
        while self._waiting and count < JOBS_MAX:
            other = self._waiting.popleft()
            if other.process == call.process:  # not those of the parent process of a fork
                calls.append(other)
                count += len(other.jobs)
        for joined in calls:
            joined.is_taken = True
        return calls

    def _put_back(self, calls: Sequence[_Call]) -> None:
        for call in calls:
            call.is_taken = False
        self._waiting.extendleft(reversed(calls))

    def _error_for(self, error: BaseException) -> BaseException:
        """Return the error of a commit for another call."""
        if isinstance(error, apsw.Error):
            return self._file.translated(error)
        if isinstance(error, StoreReplaced):
            return copy(error)
        # A time limit may have interrupted the writing thread after the commit.
        is_of_store = isinstance(error, DuelineError) and isinstance(error.__cause__, apsw.Error)
        return copy(error) if is_of_store else _unknown()


def _insert(database: Database, calls: Sequence[_Call]) -> None:
    """Insert the jobs of all calls, except for calls with invalid rows."""
    if len(calls) == 1:
        sqlite_jobs.add(database, calls[0].jobs)
        return
    if _has_inserted(database, [job for call in calls for job in call.jobs]) is None:
        return
    for call in calls:
        call.error = _has_inserted(database, call.jobs)


def _has_inserted(database: Database, jobs: Sequence[Job]) -> Exception | None:
    """Insert jobs, all or nothing; return the error if they are invalid."""
    try:
        with savepoint(database):
            sqlite_jobs.add(database, jobs)
    except _OF_ONE as error:
        return error
    return None


def _unknown() -> Unknown:
    return Unknown(
        "The thread that wrote these jobs together with its own was interrupted.",
        hint="Repeat the call with the same ids.",
    )
