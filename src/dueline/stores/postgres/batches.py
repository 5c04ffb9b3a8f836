"""Groups of calls that are applied together, in PostgreSQL's tables."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import chain

from dueline.core.store import Group
from dueline.stores.postgres import jobs as postgres_jobs
from dueline.stores.postgres import records, streams
from dueline.stores.postgres.database import Database, Executor


class _Refused(Exception):
    """A condition of a group failed."""


def together(connection: Executor, groups: Sequence[Group]) -> Sequence[bool]:
    """Apply groups, each all or nothing, in one transaction.

    Tries all groups at once, then group by group if a condition fails. Also group by group, if one
    group adds a job that another one settles. Both are rare.
    """
    if _may_mix(groups):
        with suppress(_Refused):  # rolls back the transaction: a savepoint would cost more
            connection.write(lambda database: _apply(database, groups))
            return [True] * len(groups)
        if len(groups) == 1:
            return [False]
    return connection.write(lambda database: [_attempt(database, group) for group in groups])


def _may_mix(groups: Sequence[Group]) -> bool:
    """Return whether all outcomes can be applied before all inserts."""
    if len(groups) == 1:
        return True
    added = {job.id for group in groups for job in group.jobs}
    return not any(verdict.job.id in added for group in groups for verdict in group.verdicts)


def _attempt(database: Database, group: Group) -> bool:
    """Apply a group; roll it back if a condition fails."""
    try:
        with savepoint(database):
            _apply(database, [group])
    except _Refused:
        return False
    return True


@contextmanager
def savepoint(database: Database) -> Iterator[None]:
    """Roll back the statements of the block if it raises; the transaction stays open."""
    database.execute("SAVEPOINT dueline_block")
    try:
        yield
    except BaseException:
        database.later.clear()
        if not database.connection.closed:
            database.execute("ROLLBACK TO dueline_block")
            database.execute("RELEASE dueline_block")
        raise
    database.execute("RELEASE dueline_block")


def _apply(database: Database, groups: Sequence[Group]) -> None:
    """Apply groups as one.

    Raises:
      _Refused: A condition failed; earlier writes are not rolled back.
    """
    verdicts = list(chain.from_iterable(group.verdicts for group in groups))
    if verdicts and not all(postgres_jobs.settle(database, verdicts)):
        raise _Refused
    commits = [commit for group in groups for commit in group.commits]
    if commits and not records.commit(database, commits):
        raise _Refused
    jobs = [job for group in groups for job in group.jobs]
    if jobs:
        postgres_jobs.add(database, jobs)
    rows = list(chain.from_iterable(group.rows for group in groups))
    if rows:
        streams.append(database, rows)
