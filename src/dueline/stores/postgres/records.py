"""Records in PostgreSQL's tables."""

import json
from collections.abc import Mapping, Sequence
from functools import cache
from itertools import chain

from dueline.core.store import NO_VERSION, Commit, Delete, Put, Record, Write
from dueline.core.store_capabilities import RecordsPage
from dueline.stores.postgres.arrays import columns_of
from dueline.stores.postgres.database import NOW_US, Database, Query

_IS_LIVE = f"(expires_us IS NULL OR expires_us > {NOW_US})"
_SET = "SET version = excluded.version, value = excluded.value, expires_us = excluded.expires_us"
_PUT = (
    "INSERT INTO @records AS r (partition, key, version, value, expires_us)"
    " SELECT * FROM unnest(%s::text[], %s::text[], %s::bytea[], %s::bytea[], %s::bigint[])"
    f" ON CONFLICT (partition, key) DO UPDATE {_SET}"
)
_CREATE = f"{_PUT} WHERE NOT (r.expires_us IS NULL OR r.expires_us > {NOW_US})"
_REPLACE = (
    "UPDATE @records SET version = %s, value = %s, expires_us = %s"
    f" WHERE partition = %s AND key = %s AND version = %s AND {_IS_LIVE}"
)
_DELETE = "DELETE FROM @records WHERE partition = %s AND key = %s"
_EACH = (
    "unnest(%s::text[], %s::text[]) AS k (partition, key) CROSS JOIN LATERAL (SELECT ctid AS tid"
    " FROM @records AS r WHERE r.partition = k.partition AND r.key = k.key"
)
_ONE = "ORDER BY r.partition, r.key LIMIT 1"
_DELETE_EXPIRED = (
    "DELETE FROM @records WHERE ctid = ANY(ARRAY("
    f"SELECT tid FROM {_EACH} AND r.expires_us <= {NOW_US} {_ONE} FOR UPDATE) AS held))"
)
_REPLACE_EACH = (
    "UPDATE @records AS r SET version = k.version, value = k.value, expires_us = k.expires_us"
    " FROM unnest(%s::text[], %s::text[], %s::bytea[], %s::bytea[], %s::bigint[], %s::bytea[])"
    " AS k (partition, key, version, value, expires_us, expect)"
    " WHERE r.partition = k.partition AND r.key = k.key AND r.version = k.expect"
    f" AND (r.expires_us IS NULL OR r.expires_us > {NOW_US})"
)
_REPLACE_AND_CREATE = (
    f"WITH replaced AS ({_REPLACE_EACH} RETURNING 1), created AS ({_CREATE} RETURNING 1)"
    " SELECT (SELECT count(*) FROM replaced), (SELECT count(*) FROM created)"
)
_FIND_ANY = f"SELECT 1 FROM {_EACH} {_ONE}) AS found LIMIT 1"


def read(database: Database, partition: str, *, after: str | None, limit: int) -> Sequence[Record]:
    """Read records in key order, without expired ones."""
    past = "key > %s" if after is not None else "key >= %s"  # the empty key comes first
    rows = database.fetch(
        f"SELECT key, version, value FROM @records WHERE partition = %s AND {past}"
        f" AND {_IS_LIVE} ORDER BY key LIMIT %s",
        (partition, after or "", limit),
    )
    return [Record(*row) for row in rows]


def page_of_all(database: Database, after: str | None, limit: int) -> RecordsPage:
    """Return a page of all records, in the order of partitions and keys, without expired ones."""
    past = "(partition, key) > (%s, %s) AND" if after is not None else ""
    rows = database.fetch(
        f"SELECT partition, key, version, value, expires_us FROM @records WHERE {past} {_IS_LIVE}"
        " ORDER BY partition, key LIMIT %s",
        (*(json.loads(after) if after is not None else ()), limit),
    )
    records = [
        (part, Put(key, version, value, None, until_us))
        for part, key, version, value, until_us in rows
    ]
    return RecordsPage(records, json.dumps(rows[-1][:2]) if len(rows) == limit else None)


_Columns = list[list[object]]
_Run = dict[tuple[str, str], Write]
"""Writes of one kind to different records, by their partitions and keys."""


def commit(database: Database, commits: Sequence[Commit]) -> bool:
    """Apply writes; return False if an expectation does not hold: roll back then.

    Records that are replaced and those that are created are written by one statement, if they are
    different; otherwise consecutive writes that expect no record are applied together.
    """
    expiring = sum(_expires(write) for _, writes in commits for write in writes)
    replaced, created, rest = _apart(commits)
    if replaced and created:
        commits = rest
        values = [*_columns(replaced, with_expect=True), *_columns(created)]
        counts = (len(replaced), len(created))
        if database.first(_REPLACE_AND_CREATE, values) != counts:
            return False
    plain: dict[tuple[str, str], Put] = {}
    run: _Run = {}
    for partition, writes in commits:
        for write in sorted(writes, key=lambda write: write.key):  # one order for all: no deadlock
            place = (partition, write.key)
            if isinstance(write, Put) and write.expect is None:
                plain[place] = write
                continue
            if run and (place in plain or place in run or not _is_alike(run, write)):
                if not _apply(database, run):
                    return False
                run = {}
            if place in plain:
                _put(database, plain)
                plain = {}
            run[place] = write
    if run and not _apply(database, run):
        return False
    _put(database, plain)
    _expire(database, expiring)
    return True


def in_one(commits: Sequence[Commit]) -> Query | None:
    """Return a query that applies writes, or fails if an expectation does not hold.

    None if it takes several statements. The query returns the number of its transaction.
    """
    replaced, created, rest = _apart(commits)
    plain = {(part, write.key): write for part, writes in rest for write in writes}
    writes = [*replaced.values(), *created.values(), *plain.values()]
    if not created or any(isinstance(write, Delete) or _expires(write) for write in writes):
        return None
    columns = _columns(replaced, with_expect=True), _columns(created), _columns(plain)
    statement = _write(replaces=bool(replaced), puts=bool(plain))
    return statement, [*chain(*columns), len(replaced) + len(created)]


@cache
def _write(*, replaces: bool, puts: bool) -> str:
    replaced = f"replaced AS ({_REPLACE_EACH} RETURNING 1), " if replaces else ""
    plain = f", plain AS ({_PUT})" if puts else ""
    held = "(SELECT count(*) FROM created)"
    held += " + (SELECT count(*) FROM replaced)" if replaces else ""
    return (
        f"WITH {replaced}created AS ({_CREATE} RETURNING 1){plain}"
        f" SELECT 1 / ({held} = %s::bigint)::int, pg_current_xact_id()::text"
    )


def _apart(commits: Sequence[Commit]) -> tuple[_Run, _Run, Sequence[Commit]]:
    """Take the writes that replace and create records apart, if each is of another record."""
    replaced: _Run = {}
    created: _Run = {}
    rest: list[Commit] = []
    count = 0
    for partition, writes in commits:
        others: list[Write] = []
        for write in writes:
            if isinstance(write, Delete) or write.expect is None:
                others.append(write)
            elif write.expect == NO_VERSION:
                created[partition, write.key] = write
            else:
                replaced[partition, write.key] = write
        count += len(writes) - len(others)
        rest.append(Commit(partition, others))
    places = replaced.keys() | created.keys()
    plain = ((partition, write.key) for partition, writes in rest for write in writes)
    if len(places) < count or any(place in places for place in plain):
        return {}, {}, commits
    return replaced, created, rest


def _is_alike(run: _Run, write: Write) -> bool:
    """Return whether one statement can apply a write and those of a run."""
    last = next(reversed(run.values()))
    return type(last) is type(write) and last.expect == write.expect == NO_VERSION


def _expires(write: Write) -> bool:
    return isinstance(write, Put) and write.expires_us is not None


def _expire(database: Database, writes: int) -> None:
    """Delete up to two expired records for each write of one that will expire."""
    if writes:
        database.execute_later(
            "DELETE FROM @records WHERE ctid = ANY(ARRAY(SELECT ctid FROM @records"
            f" WHERE expires_us <= {NOW_US} LIMIT %s FOR UPDATE SKIP LOCKED))",
            (2 * writes,),
        )


def _apply(database: Database, run: _Run) -> bool:
    places = sorted(run)
    write = run[places[0]]
    if isinstance(write, Put) and write.expect == NO_VERSION:
        return database.execute(_CREATE, _columns(run)) == len(run)
    if isinstance(write, Put):
        values_of = (write.version, write.value, write.expires_us, *places[0], write.expect)
        return database.execute(_REPLACE, values_of) == 1
    if write.expect == NO_VERSION:
        keys = columns_of(places)
        return not database.fetch_after((_DELETE_EXPIRED, keys), _FIND_ANY, keys)
    if write.expect is None:
        database.execute(_DELETE, places[0])
        return True
    values = (*places[0], write.expect)
    return database.execute(f"{_DELETE} AND version = %s AND {_IS_LIVE}", values) == 1


def _columns(writes: Mapping[tuple[str, str], Write], *, with_expect: bool = False) -> _Columns:
    """Return the columns of records, in the order of their keys: no deadlock."""
    each = ((place, writes[place]) for place in sorted(writes))
    return columns_of(
        (*place, put.version, put.value, put.expires_us, *((put.expect,) if with_expect else ()))
        for place, put in each
        if isinstance(put, Put)
    )


def _put(database: Database, puts: Mapping[tuple[str, str], Put]) -> None:
    if puts:
        database.execute_later(_PUT, _columns(puts))
