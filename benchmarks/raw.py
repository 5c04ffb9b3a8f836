"""The raw loop: what SQLite itself can do.

The project's own tables, and the same changes to their rows as the store makes. Everything that
can be left out is: no codec, no checks, ids made beforehand, constants bound, the rows of a claim
never turned into anything. History and results are the very rows that a worker has left, so that
they follow what the store writes.
The fastest of the shapes that were tried (50,000 jobs, 500 a transaction, jobs/s at NORMAL and
FULL, November 2026): inserts of 50 rows a statement 336k and 249k against 245k and 203k with
executemany; a claim that selects, then updates by rowid 161k and 169k against 144k and 127k with
UPDATE ... RETURNING. A drop of all that a claim left at one place took 1.0 us of a processor a
row, by rowid 1.6, by id 2.1.
"""

import os
import time
from array import array
from collections.abc import Callable, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, Final

import apsw

from dueline.core.clock import DAY_US, SystemClock
from dueline.core.ids import Ids
from dueline.core.process_identity import worker_name
from dueline.stores.sqlite.store import SqliteStore

BATCH: Final = 1_000
_ROWS: Final = 50  # of one insert statement; divides BATCH
_LEASE_US: Final = 30_000_000
_BESIDE: Final = {"jobs", "lanes", "marks", "bodies", "sqlite_sequence"}
"""Tables that a claim and a drop change themselves."""

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

_LIST = (
    "INSERT INTO lanes (queue, shard, bucket, priority, tenant, listing)"
    " VALUES ('bench', 0, ?, 0, '', ?)"
)
_INSERT_ONE = (
    "INSERT OR IGNORE INTO jobs (lane, pos_us, id, hop, due_us, enqueued_us, task, codec, body,"
    " opts, at_us) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)

Row = Sequence[Any]


def open_raw(path: Path, synchronous: str) -> apsw.Connection:
    """Open a queue file with the store's settings."""
    database = apsw.Connection(str(path))
    database.set_busy_timeout(30_000)
    for pragma in (f"synchronous = {synchronous}", "temp_store = MEMORY", "cache_size = -16000"):
        database.execute(f"PRAGMA {pragma}")
    return database


def make_raw(path: Path, synchronous: str) -> apsw.Connection:
    """Make a queue file with the store's tables."""
    store = SqliteStore(path, clock=SystemClock())
    with store.transaction():  # the first write makes the file
        pass
    store.close()
    return open_raw(path, synchronous)


def insert_at_once(database: apsw.Connection, rows: Sequence[Row]) -> None:
    """List a lane and insert rows into it by one executemany, in one transaction."""
    bucket = time.time_ns() // 1000 // DAY_US
    database.execute("BEGIN IMMEDIATE")
    database.execute(_LIST, (bucket, bucket))
    database.executemany(_INSERT_ONE, rows)
    database.execute("COMMIT")


class Inserts:
    """Inserts of rows like one that the store has written, with ids of their own."""

    def __init__(self, database: apsw.Connection) -> None:
        """Read which columns the store binds, which are those without a default."""
        self._database = database
        found = database.execute(
            "SELECT name FROM pragma_table_info('jobs') WHERE dflt_value IS NULL"
        )
        self._columns = [str(name) for (name,) in found]
        names = ", ".join(self._columns)
        self._values = f"({', '.join('?' * len(self._columns))})"
        self._insert = f"INSERT OR IGNORE INTO jobs ({names}) VALUES "  # noqa: S608  (its columns)
        (self._like,) = database.execute(f"SELECT {names} FROM jobs LIMIT 1").fetchall()  # noqa: S608

    def rows(self, count: int) -> list[Row]:
        """Make what is bound; not part of what is timed."""
        now_us = time.time_ns() // 1000
        place = self._columns.index("id")
        return [
            (*self._like[:place], one, *self._like[place + 1 :])
            for one in Ids().many(count, now_us)
        ]

    def one(self, row: Row) -> None:
        """Insert a row in a transaction of its own."""
        self._database.execute("BEGIN IMMEDIATE")
        self._database.execute(self._insert + self._values, row)
        self._database.execute("COMMIT")

    def singly(self, rows: Sequence[Row]) -> None:
        """Insert rows, each in a transaction of its own."""
        for row in rows:
            self.one(row)

    def many(self, rows: Sequence[Row], batch: int) -> None:
        """Insert rows, as many a transaction as asked."""
        insert = self._insert + ", ".join([self._values] * _ROWS)
        for start in range(0, len(rows), batch):
            self._database.execute("BEGIN IMMEDIATE")
            some = rows[start : start + batch]
            whole = len(some) - len(some) % _ROWS
            for place in range(0, whole, _ROWS):
                self._database.execute(insert, tuple(chain(*some[place : place + _ROWS])))
            for row in some[whole:]:
                self._database.execute(self._insert + self._values, row)
            self._database.execute("COMMIT")


def left_behind(drained: Path, before: Path, jobs: int) -> list[tuple[str, list[Row]]]:
    """Read the rows that the drain of a file has added to it: history and results.

    Args: drained: the file afterwards. before: a copy made before. jobs: that were drained.

    Returns: insert statements of one row, and what each binds, for each table.
    """
    database = apsw.Connection(str(drained))
    database.execute("ATTACH ? AS before", (str(before),))
    found: list[tuple[str, list[Row]]] = []
    names = [name for (name,) in database.execute("SELECT name FROM main.sqlite_master"
             " WHERE type = 'table'")]  # fmt: skip
    for name in (name for name in names if name not in _BESIDE):
        added: list[Any] = database.execute(
            f"SELECT * FROM main.{name} EXCEPT SELECT * FROM before.{name}"  # noqa: S608
        ).fetchall()
        if len(added) > jobs // 2_000:
            bound = ", ".join("?" * len(added[0]))
            found.append((f"INSERT OR IGNORE INTO {name} VALUES ({bound})", added))  # noqa: S608
    database.close()
    return found


def drain(database: apsw.Connection, jobs: int, left: list[tuple[str, list[Row]]]) -> float:
    """Claim and drop every row, BATCH at once: a batch goes with the next one's claim.

    Args: left: what is inserted meanwhile, in equal parts.

    Returns: seconds.
    """
    most = "SELECT lane FROM jobs GROUP BY lane ORDER BY count(*) DESC LIMIT 1"
    ((lane,),) = database.execute(most).fetchall()
    worker, token = worker_name(), os.urandom(16)
    drained = until_us = 0
    claimed = array("q")
    parts = [_parts(database, statement, rows, -(-jobs // BATCH)) for statement, rows in left]
    began = time.perf_counter()
    while True:
        now_us = time.time_ns() // 1000
        database.execute("BEGIN IMMEDIATE")
        if claimed:
            database.execute(_DROP, (lane, until_us, token))
            for insert in parts:
                insert(drained // BATCH)
            drained += len(claimed)
        found: list[Any] = database.execute(_DUE, (lane, now_us, BATCH)).fetchall()
        claimed = array("q", [row[0] for row in found])
        if claimed:
            until_us = now_us + _LEASE_US
            bound = (until_us, token, worker, now_us, apsw.carray(claimed))
            database.execute(_CLAIM, bound)
        database.execute("COMMIT")
        if not claimed:
            break
    took_s = time.perf_counter() - began
    assert drained >= jobs
    return took_s


def _parts(
    database: apsw.Connection, statement: str, rows: list[Row], batches: int
) -> Callable[[int], None]:
    """Insert one of as many equal parts of some rows, _ROWS a statement."""
    values = statement.partition("VALUES ")[2]
    many = statement + f", {values}" * (_ROWS - 1)

    def insert(number: int) -> None:
        some = rows[len(rows) * number // batches : len(rows) * (number + 1) // batches]
        whole = len(some) - len(some) % _ROWS
        for place in range(0, whole, _ROWS):
            database.execute(many, tuple(chain(*some[place : place + _ROWS])))
        for row in some[whole:]:
            database.execute(statement, row)

    return insert
