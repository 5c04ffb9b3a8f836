"""The raw loop: what SQLite itself can do.

The same tables, and the same changes to their rows, as the store makes; everything that can be
left out is: no codec, no checks, ids made beforehand, constants bound, the rows of a claim never
turned into anything. The fastest of the shapes that were tried (50,000 jobs, 500 a transaction,
jobs/s at NORMAL and FULL, November 2026): inserts of 50 rows a statement 336k and 249k against
245k and 203k with executemany; a claim that selects, then updates by rowid 161k and 169k against
144k and 127k with UPDATE ... RETURNING. A drop of all that a claim left at one place took 1.0 us
of a processor a row, by rowid 1.6, by id 2.1. History rows, 50 a statement, took 4.0 us of a
processor each against 5.1 with executemany and 4.8 with 500 a statement; a table with a rowid as
much.
"""

import os
import time
from array import array
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import resources
from pathlib import Path
from typing import Any, Final, NamedTuple

import apsw

from dueline.core.clock import DAY_US
from dueline.core.ids import Ids
from dueline.core.process_identity import worker_name

BATCH: Final = 500
_ROWS: Final = 50  # of one insert statement; divides BATCH
_LEASE_US: Final = 30_000_000

_LIST = (
    "INSERT INTO lanes (queue, shard, bucket, priority, tenant, listing) VALUES (?, ?, ?, ?, ?, ?)"
    " ON CONFLICT DO UPDATE SET listing = min(coalesce(listing, excluded.listing),"
    " excluded.listing) RETURNING id"
)
_INSERT_ROWS = (
    "INSERT OR IGNORE INTO jobs (lane, pos_us, id, hop, due_us, enqueued_us, task, codec, body,"
    " opts, at_us) VALUES "
)
_VALUES = "(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
_INSERT = _INSERT_ROWS + ", ".join([_VALUES] * _ROWS)
_INSERT_ONE = _INSERT_ROWS + _VALUES
_DUE = (
    "SELECT rowid, id, task, body, fence FROM jobs WHERE lane = ? AND at_us <= ?"
    " ORDER BY at_us, id LIMIT ?"
)
_CLAIM = (
    "UPDATE jobs SET at_us = ?, fence = fence + 1, token = ?, worker = ?, claimed_us = ?,"
    " crashes = crashes + (state = 2), alone = max(alone, state = 2), state = 1"
    " WHERE rowid IN (SELECT value FROM carray(?))"
)
_DROP = "DELETE FROM jobs WHERE lane = ? AND at_us = ? AND token = ?"  # all of a claim
_TELL = "INSERT OR IGNORE INTO rows (stream, shard, at_us, id, body) VALUES " + ", ".join(  # noqa: S608
    ["(?, ?, ?, ?, ?)"] * _ROWS
)

Row = tuple[object, ...]


def open_raw(path: Path, synchronous: str) -> apsw.Connection:
    """Make a queue file by the project's own script, with the store's settings."""
    database = apsw.Connection(str(path))
    for pragma in (f"synchronous = {synchronous}", "temp_store = MEMORY", "cache_size = -16000"):
        database.execute("PRAGMA journal_mode = WAL")
        database.execute(f"PRAGMA {pragma}")
    script = resources.files("dueline.stores").joinpath("sqlite.sql").read_text("utf-8")
    with _transaction(database):
        for _ in database.execute(script):
            pass
    return database


@contextmanager
def _transaction(database: apsw.Connection) -> Iterator[None]:
    database.execute("BEGIN IMMEDIATE")
    yield
    database.execute("COMMIT")


def rows(count: int, body: bytes) -> list[Row]:
    """Make what `insert` binds; not part of what is timed."""
    now_us = time.time_ns() // 1000
    return [
        (1, now_us, job_id, 0, now_us, now_us, "bench.noop", 0, body, b"", now_us)
        for job_id in Ids().many(count, now_us)
    ]


def insert(database: apsw.Connection, births: Sequence[Row]) -> None:
    """Insert rows, BATCH a transaction; each transaction lists the lane."""
    bucket = time.time_ns() // 1000 // DAY_US
    for start in range(0, len(births), BATCH):
        with _transaction(database):
            database.execute(_LIST, ("bench", 0, bucket, 0, "", bucket)).fetchall()
            for place in range(start, start + BATCH, _ROWS):
                bound = [cell for row in births[place : place + _ROWS] for cell in row]
                database.execute(_INSERT, bound)


def insert_singly(database: apsw.Connection, births: Sequence[Row]) -> None:
    """Insert rows, each in a transaction of its own."""
    bucket = time.time_ns() // 1000 // DAY_US
    for birth in births:
        with _transaction(database):
            database.execute(_LIST, ("bench", 0, bucket, 0, "", bucket)).fetchall()
            database.execute(_INSERT_ONE, birth)


def insert_at_once(database: apsw.Connection, births: Sequence[Row]) -> None:
    """Insert rows by one executemany, in one transaction."""
    bucket = time.time_ns() // 1000 // DAY_US
    with _transaction(database):
        database.execute(_LIST, ("bench", 0, bucket, 0, "", bucket)).fetchall()
        database.executemany(_INSERT_ONE, births)


class Told(NamedTuple):
    """History rows that need only be appended: an id each, one body for all."""

    ids: Sequence[bytes]
    body: bytes


def told(count: int, body: bytes) -> Told:
    """Make history rows for `drain`; not part of what is timed."""
    return Told([os.urandom(16) for _ in range(count)], body)


def drain(database: apsw.Connection, history: Told | None = None) -> int:
    """Claim and drop every row, BATCH at once: a batch goes with the next one's claim.

    Args: history: rows to append, one for each that is dropped; None for none.

    Returns: how many rows there were.
    """
    worker, token = worker_name(), os.urandom(16)
    drained = until_us = 0
    claimed = array("q")
    while True:
        now_us = time.time_ns() // 1000
        with _transaction(database):
            if claimed:
                database.execute(_DROP, (1, until_us, token))
                dropped = database.changes()
                if history is not None:
                    _tell(database, history, drained, now_us)
                drained += dropped
            found: list[tuple[Any, ...]] = database.execute(_DUE, (1, now_us, BATCH)).fetchall()
            claimed = array("q", [row[0] for row in found])
            if claimed:
                until_us = now_us + _LEASE_US
                bound = (until_us, token, worker, now_us, apsw.carray(claimed))
                database.execute(_CLAIM, bound)
        if not claimed:
            return drained


def _tell(database: apsw.Connection, history: Told, first: int, now_us: int) -> None:
    for start in range(first, first + BATCH, _ROWS):
        bound: list[object] = []
        for place in range(start, start + _ROWS):
            bound += ("bench!history", 0, now_us + place, history.ids[place], history.body)
        database.execute(_TELL, bound)
