"""Groups of calls that are applied together, in SQLite's tables."""

from collections.abc import Sequence
from contextlib import suppress
from itertools import chain

from dueline.core.store import NO_VERSION, Commit, Delete, Group, Put
from dueline.stores.sqlite import jobs as sqlite_jobs
from dueline.stores.sqlite import streams
from dueline.stores.sqlite.connection import Database, Executor, first, savepoint


class _Refused(Exception):
    """A condition of a group failed."""


def together(connection: Executor, groups: Sequence[Group], now_us: int) -> Sequence[bool]:
    """Apply groups, each all or nothing, in one transaction.

    Tries all groups at once, then group by group if a condition fails. Also group by group, if one
    group adds a job that another one settles. Both are rare.
    """
    if _may_mix(groups):
        with suppress(_Refused):  # rolls back the transaction: a savepoint would cost more
            connection.write(lambda database: _apply(database, groups, now_us))
            return [True] * len(groups)
        if len(groups) == 1:
            return [False]
    return connection.write(
        lambda database: [_attempt(database, group, now_us) for group in groups]
    )


def _may_mix(groups: Sequence[Group]) -> bool:
    """Return whether all outcomes can be applied before all inserts."""
    if len(groups) == 1:
        return True
    added = {job.id for group in groups for job in group.jobs}
    return not any(verdict.job.id in added for group in groups for verdict in group.verdicts)


def _attempt(database: Database, group: Group, now_us: int) -> bool:
    """Apply a group; roll it back if a condition fails."""
    try:
        with savepoint(database):
            _apply(database, [group], now_us)
    except _Refused:
        return False
    return True


def _apply(database: Database, groups: Sequence[Group], now_us: int) -> None:
    """Apply groups as one.

    Raises:
      _Refused: A condition failed; earlier writes are not rolled back.
    """
    verdicts = list(chain.from_iterable(group.verdicts for group in groups))
    if not all(sqlite_jobs.settle(database, verdicts)):
        raise _Refused
    commits = [commit for group in groups for commit in group.commits]
    if not all(_commit(database, commit, now_us) for commit in commits):
        raise _Refused
    jobs = [job for group in groups for job in group.jobs]
    if jobs:
        sqlite_jobs.add(database, jobs)
    rows = list(chain.from_iterable(group.rows for group in groups))
    if rows:
        streams.append(database, rows)


def _commit(database: Database, commit: Commit, now_us: int) -> bool:
    puts = [put for put in commit.writes if isinstance(put, Put) and put.expect is None]
    if len(puts) == len(commit.writes):
        _put(database, commit.partition, puts, now_us)
        return True
    for write in commit.writes:
        place = (commit.partition, write.key)
        if write.expect is not None:
            version = first(
                database,
                "SELECT version FROM records WHERE partition = ? AND key = ?"
                " AND (expires_us IS NULL OR expires_us > ?)",
                (*place, now_us),
            )
            if (version or NO_VERSION) != write.expect:
                return False
        if isinstance(write, Delete):
            database.execute("DELETE FROM records WHERE partition = ? AND key = ?", place)
        else:
            _put(database, commit.partition, [write], now_us)
    return True


def _put(database: Database, partition: str, puts: Sequence[Put], now_us: int) -> None:
    database.executemany(
        "INSERT INTO records (partition, key, version, value, expires_us) VALUES (?, ?, ?, ?, ?)"
        " ON CONFLICT DO UPDATE SET version = excluded.version, value = excluded.value,"
        " expires_us = excluded.expires_us",
        [(partition, put.key, put.version, put.value, put.expires_us) for put in puts],
    )
    expiring = sum(put.expires_us is not None for put in puts)
    if expiring:  # each write deletes up to two expired records
        database.execute(
            "DELETE FROM records WHERE rowid IN"
            " (SELECT rowid FROM records WHERE expires_us <= ? LIMIT ?)",
            (now_us, 2 * expiring),
        )
