"""Groups of calls that are applied together, in SQLite's tables."""

from collections.abc import Sequence

from dueline.core.store import NO_VERSION, Commit, Delete, Group, Put
from dueline.stores.joint_groups import Tables, Writer
from dueline.stores.sqlite import jobs as sqlite_jobs
from dueline.stores.sqlite import streams
from dueline.stores.sqlite.connection import Database, first, savepoint


def together(writer: Writer[Database], groups: Sequence[Group], now_us: int) -> Sequence[bool]:
    """Apply groups, each all or nothing, in one transaction."""

    def commit_all(database: Database, commits: Sequence[Commit]) -> bool:
        return all(_commit(database, commit, now_us) for commit in commits)

    tables = Tables(sqlite_jobs.settle, commit_all, sqlite_jobs.add, streams.append, savepoint)
    return tables.together(writer, groups)


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
