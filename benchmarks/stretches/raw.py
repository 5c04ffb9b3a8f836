"""Claims by row and by stretch, in SQL alone: the statements of the store and of the prototype."""

import os
import time
from array import array
from collections.abc import Callable, Mapping
from importlib import resources
from pathlib import Path
from typing import Any, Final

import apsw

from benchmarks.stretches import table
from dueline.core.ids import Ids
from dueline.core.process_identity import worker_name
from dueline.stores.sqlite import job_rows

LEASE_US: Final = 30_000_000
AGE_US: Final = 60_000_000
BODY: Final = b'["' + b"x" * 100 + b'"]'

_LIST = (
    "INSERT INTO lanes (queue, shard, bucket, priority, tenant, listing) VALUES ('q',0,1,0,'',1)"
)
_DUE = f"{job_rows.SELECT_CLAIM} FROM jobs WHERE lane = 1 AND at_us <= ? ORDER BY at_us, id LIMIT ?"
_CLAIM = (
    "UPDATE jobs SET at_us = ?, fence = fence + 1, token = ?, worker = ?, claimed_us = ?,"
    " crashes = crashes + (state = 2), alone = max(alone, state = 2), state = 1"
    " WHERE rowid IN (SELECT value FROM carray(?))"
)
_IDS = "SELECT CAST(group_concat(id, '') AS BLOB) FROM (SELECT id FROM jobs WHERE lane = 1"
_HEAD = "SELECT at_us FROM jobs WHERE lane = 1 ORDER BY at_us LIMIT 1"

_DUE_BEHIND = (
    f"{job_rows.SELECT_CLAIM}{table.SELECT_NEW} FROM jobs WHERE lane = 1 AND (at_us, id) > (?, ?)"
    " AND at_us <= ? ORDER BY at_us, id LIMIT ?"
)
_RANGE = " AND (at_us, id) >= (?, ?) AND (at_us, id) <= (?, ?)"
_DROP_RANGE = f"DELETE FROM jobs WHERE lane = 1{_RANGE}"  # noqa: S608  (constants)
_STRETCH = "INSERT INTO stretches VALUES (1, ?, ?, ?, ?, ?, ?, ?, ?)"
_HEAD_BEHIND = f"{_HEAD.replace('ORDER', 'AND (at_us, id) > (?, ?) ORDER')}"


def open_file(path: Path, jobs: int, synchronous: str) -> apsw.Connection:
    """Create a queue file with due jobs, a microsecond apart; its log is empty and never copied."""
    database = apsw.Connection(str(path))
    database.execute("PRAGMA journal_mode = WAL")
    for pragma in (f"synchronous = {synchronous}", "cache_size = -16000", "wal_autocheckpoint = 0"):
        database.execute(f"PRAGMA {pragma}")
    script = resources.files("dueline.stores.sqlite").joinpath("schema.sql").read_text("utf-8")
    for _ in database.execute(script):
        pass
    database.execute(table.SCHEMA)
    start_us = time.time_ns() // 1000 - AGE_US
    rows = [
        (1, at_us, job_id, 0, at_us, at_us, "bench.noop", 0, BODY, b"", at_us)
        for at_us, job_id in enumerate(Ids().many(jobs, start_us), start_us)
    ]
    with database:
        database.execute(_LIST)
        database.executemany(job_rows.INSERT_NEW + job_rows.NEW_PARAMETERS, rows)
    database.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    return database


def drain_by_row(database: apsw.Connection, batch: int) -> int:
    """Claim by an update of each row, and delete what a claim left at one place."""
    worker, drained = worker_name(), 0
    for now_us in range(time.time_ns() // 1000, 2**62):
        token, until_us = os.urandom(16), now_us + LEASE_US
        database.execute("BEGIN IMMEDIATE")
        found: list[Any] = database.execute(_DUE, (until_us, now_us, batch)).fetchall()
        if found:
            rowids = apsw.carray(array("q", map(job_rows.rowid_of, found)))
            database.execute(_CLAIM, (until_us, token, worker, now_us, rowids))
        any(map(job_rows.is_special, found))
        database.execute(_HEAD).fetchall()
        database.execute("COMMIT")
        if not found:
            break
        ids = b"".join(sorted(map(job_rows.read_id_of, found)))
        database.execute("BEGIN IMMEDIATE")
        there = database.execute(f"{_IDS} AND at_us = ? ORDER BY id)", (until_us,)).get
        assert there == ids
        drop = "DELETE FROM jobs WHERE lane = 1 AND at_us = ? AND token = ?"
        database.execute(drop, (until_us, token))
        assert database.changes() == len(found)
        database.execute("COMMIT")
        drained += len(found)
    return drained


def drain_by_stretch(database: apsw.Connection, batch: int) -> int:
    """Claim by a record, and delete the range of the record."""
    worker, drained = worker_name(), 0
    for now_us in range(time.time_ns() // 1000, 2**62):
        token, until_us = os.urandom(16), now_us + LEASE_US
        database.execute("BEGIN IMMEDIATE")
        live = table.all_of(database)
        after = max((one.last for one in live), default=table.START)
        bound = (until_us, *after, now_us, batch)
        found: list[Any] = database.execute(_DUE_BEHIND, bound).fetchall()
        if found:
            assert all(map(table.is_new, found))
            start, *_ = found
            place = start[0], start[1], found[-1][0], found[-1][1]
            database.execute(_STRETCH, (token, *place, worker, now_us, until_us))
            after = place[2:]
        database.execute(_HEAD_BEHIND, after).fetchall()
        database.execute("COMMIT")
        if not found:
            break
        ids = b"".join(map(job_rows.read_id_of, found))
        database.execute("BEGIN IMMEDIATE")
        assert [one.token for one in table.all_of(database)] == [token]
        there = database.execute(f"{_IDS}{_RANGE} ORDER BY at_us, id)", place).get
        assert there == ids
        database.execute(_DROP_RANGE, place)
        assert database.changes() == len(found)
        database.execute("DELETE FROM stretches WHERE lane = 1 AND token = ?", (token,))
        database.execute("COMMIT")
        drained += len(found)
    return drained


KINDS: Final[Mapping[str, Callable[[apsw.Connection, int], int]]] = {
    "rows": drain_by_row,
    "stretches": drain_by_stretch,
}
