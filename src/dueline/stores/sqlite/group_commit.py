"""Inserts of several threads in one commit."""

from collections.abc import Sequence
from functools import partial
from typing import Final

import apsw

from dueline.core.job import Job
from dueline.stores.group_commit import OF_ONE, Call, GroupCommit, Inserted
from dueline.stores.sqlite import jobs as sqlite_jobs
from dueline.stores.sqlite.connection import Database, SqliteConnection, refuse_beside, savepoint

_OF_ONE: Final = (*OF_ONE, apsw.TooBigError, apsw.ConstraintError)


class FileCommit(GroupCommit[Database]):
    """Inserts the jobs of several threads at once; they take turns for the connection."""

    busy = (apsw.BusyError, apsw.LockedError)

    def __init__(self, file: SqliteConnection) -> None:
        super().__init__()
        self._file = file

    def _run(self, call: Call) -> bool:
        self._file.run(partial(self._lead, call))
        return True

    def _lead(self, call: Call, turn: Database) -> None:
        if turn.in_transaction:  # before it takes the calls of other threads
            refuse_beside(turn)
        super()._lead(call, turn)

    def _write(self, turn: Database, calls: Sequence[Call]) -> None:
        if len(calls) == 1:
            self._file.commit(turn, partial(sqlite_jobs.add, jobs=calls[0].jobs))
        else:
            self._file.commit(turn, partial(_insert, calls=calls))
        for call in calls:
            call.answer = Inserted([True] * len(call.jobs))

    def _error_for(self, error: BaseException) -> BaseException:
        return super()._error_for(
            self._file.translated(error) if isinstance(error, apsw.Error) else error
        )


def _insert(database: Database, calls: Sequence[Call]) -> None:
    """Insert the jobs of all calls, except for calls with invalid rows."""
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
