"""Inserts, and groups of records, of several threads in one commit."""

from abc import ABC
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, NamedTuple, TypeVar

import apsw

from dueline.core.errors import OF_ONE_CALL
from dueline.core.job import Job
from dueline.core.store import Group
from dueline.stores.group_commit import Call, GroupCommit, Item, Written, write_together
from dueline.stores.sqlite import batches
from dueline.stores.sqlite import jobs as sqlite_jobs
from dueline.stores.sqlite.connection import Database, SqliteConnection, refuse_beside, savepoint

T = TypeVar("T")

_OF_ONE: Final = (*OF_ONE_CALL, apsw.TooBigError, apsw.ConstraintError)


class _FileCommit(GroupCommit[Database, Item], ABC):
    """Writes the items of several threads at once; they take turns for the connection."""

    busy = (apsw.BusyError, apsw.LockedError)

    def __init__(self, file: SqliteConnection) -> None:
        super().__init__()
        self._file = file

    def _run(self, call: Call[Item]) -> bool:
        self._file.run(partial(self._lead, call))
        return True

    def _lead(self, call: Call[Item], turn: Database) -> None:
        if turn.in_transaction:  # before it takes the calls of other threads
            refuse_beside(turn)
        super()._lead(call, turn)

    def _error_for(self, error: BaseException) -> BaseException:
        return super()._error_for(
            self._file.translated(error) if isinstance(error, apsw.Error) else error
        )


class InsertCommit(_FileCommit[Job]):
    """Inserts jobs."""

    def _write(self, turn: Database, calls: Sequence[Call[Job]]) -> None:
        if len(calls) == 1:  # by itself: most calls are alone
            self._file.commit(turn, partial(sqlite_jobs.add, jobs=calls[0].items))
        else:
            self._file.commit(turn, partial(_insert, calls=calls))
        for call in calls:
            call.answer = Written([True] * len(call.items))


class RecordCommit(_FileCommit[Group]):
    """Applies groups of records and jobs."""

    def __init__(self, file: SqliteConnection, now_us: Callable[[], int]) -> None:
        super().__init__(file)
        self._now_us = now_us

    def _write(self, turn: Database, calls: Sequence[Call[Group]]) -> None:
        now_us, writer = self._now_us, _Turn(self._file, turn)
        write_together(calls, lambda own: Written(batches.together(writer, own, now_us())), _OF_ONE)


class _Turn(NamedTuple):
    """Runs calls as transactions of the thread that holds the connection."""

    file: SqliteConnection
    database: Database

    def write(self, work: Callable[[Database], T]) -> T:
        return self.file.commit(self.database, work)


def _insert(database: Database, calls: Sequence[Call[Job]]) -> None:
    """Insert the jobs of all calls, except for calls with invalid rows."""
    if _has_inserted(database, [job for call in calls for job in call.items]) is None:
        return
    for call in calls:
        call.error = _has_inserted(database, call.items)


def _has_inserted(database: Database, jobs: Sequence[Job]) -> Exception | None:
    """Insert jobs, all or nothing; return the error if they are invalid."""
    try:
        with savepoint(database):
            sqlite_jobs.add(database, jobs)
    except _OF_ONE as error:
        return error
    return None
