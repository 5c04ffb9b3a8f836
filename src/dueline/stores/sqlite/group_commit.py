"""Inserts of several threads in one commit.

Threads that enqueue at the same time share a transaction. The first thread that gets the
connection writes the jobs of all waiting threads; the others find theirs written when they get it.
No thread waits for others, and each call returns after the commit that has its jobs.
"""

import os
from collections import deque
from collections.abc import Sequence
from copy import copy
from typing import Final

import apsw

from dueline.core.errors import DuelineError, StoreReplaced, Unknown
from dueline.core.job import Job
from dueline.stores.sqlite import jobs as sqlite_jobs
from dueline.stores.sqlite.connection import Database, SqliteConnection, refuse_beside, savepoint

JOBS_MAX: Final = 1000
"""Maximum number of jobs of other calls in one commit."""

_OF_ONE: Final = (OverflowError, TypeError, ValueError, apsw.TooBigError, apsw.ConstraintError)
"""Errors caused by the rows of one call; any other error fails the whole commit."""


class _Call:
    """The jobs of one call, and its progress."""

    __slots__ = ("error", "is_over", "is_taken", "jobs", "process")

    def __init__(self, jobs: Sequence[Job]) -> None:
        self.jobs = jobs
        self.is_taken = False
        self.is_over = False
        self.error: BaseException | None = None
        self.process = os.getpid()

    def end(self, error: BaseException | None = None) -> None:
        self.error = error
        self.is_over = True


class GroupCommit:
    """Inserts the jobs of several threads at once."""

    def __init__(self, file: SqliteConnection) -> None:
        self._file = file
        self._waiting: deque[_Call] = deque()

    def add(self, jobs: Sequence[Job]) -> None:
        """Insert jobs in a transaction, possibly together with those of other threads.

        Raises the errors of `SqliteConnection.write`, except for those of other calls' jobs.
        """
        call = _Call(jobs)
        self._waiting.append(call)
        try:
            self._file.read(lambda database: self._lead(database, call))
        except BaseException:
            self._leave(call)
            raise
        if call.error is not None:
            raise call.error

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
            self._file.commit(database, lambda database: _insert(database, calls))
        except (apsw.BusyError, apsw.LockedError):
            self._put_back(calls)
            raise
        except BaseException as error:
            for other in calls[1:]:
                other.end(self._error_for(error))
            call.is_over = True
            raise
        for one in calls:
            one.is_over = True

    def _take(self, call: _Call) -> list[_Call]:
        self._waiting.remove(call)
        calls, count = [call], 0
        while self._waiting and count < JOBS_MAX:
            other = self._waiting.popleft()
            if other.process == call.process:  # not those of the parent process of a fork
                calls.append(other)
                count += len(other.jobs)
        for one in calls:
            one.is_taken = True
        return calls

    def _put_back(self, calls: Sequence[_Call]) -> None:
        for one in calls:
            one.is_taken = False
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
