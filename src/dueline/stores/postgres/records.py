"""Records in PostgreSQL's tables."""

import json
from collections.abc import Sequence

from dueline.core.store import NO_VERSION, Commit, Delete, Put, Record, Write
from dueline.core.store_capabilities import RecordsPage
from dueline.stores.postgres.arrays import columns_of
from dueline.stores.postgres.database import NOW_US, Database

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
_FIND = "SELECT 1 FROM @records WHERE partition = %s AND key = %s"


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
    found = [
        (part, Put(key, version, value, None, until_us))
        for part, key, version, value, until_us in rows
    ]
    return RecordsPage(found, json.dumps(rows[-1][:2]) if len(rows) == limit else None)


def commit(database: Database, commits: Sequence[Commit]) -> bool:
    """Apply writes; return False if an expectation does not hold: roll back then."""
    plain: dict[tuple[str, str], Put] = {}
    for partition, writes in commits:
        for write in sorted(writes, key=lambda write: write.key):  # one order for all: no deadlock
            place = (partition, write.key)
            if isinstance(write, Put) and write.expect is None:
                plain[place] = write
                continue
            if place in plain:
                _put(database, plain)
                plain = {}
            if not _apply(database, partition, write):
                return False
    _put(database, plain)
    _expire(database, sum(_expires(write) for _, writes in commits for write in writes))
    return True


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


def _apply(database: Database, partition: str, write: Write) -> bool:
    place = (partition, write.key)
    if isinstance(write, Put) and write.expect == NO_VERSION:
        values = ([partition], [write.key], [write.version], [write.value], [write.expires_us])
        return database.execute(_CREATE, values) == 1
    if isinstance(write, Put):
        values_of = (write.version, write.value, write.expires_us, *place, write.expect)
        return database.execute(_REPLACE, values_of) == 1
    assert isinstance(write, Delete)
    if write.expect is None:
        database.execute(_DELETE, place)
        return True
    if write.expect == NO_VERSION:
        database.execute(f"{_DELETE} AND NOT {_IS_LIVE}", place)
        return database.first(_FIND, place) is None
    return (
        database.execute(f"{_DELETE} AND version = %s AND {_IS_LIVE}", (*place, write.expect)) == 1
    )


def _put(database: Database, puts: dict[tuple[str, str], Put]) -> None:
    if not puts:
        return
    rows = [
        (partition, key, put.version, put.value, put.expires_us)
        for (partition, key), put in sorted(puts.items(), key=lambda item: item[0])
    ]
    database.execute_later(_PUT, columns_of(rows))
