"""A database without transactions, in memory.

It offers what Cassandra does: rows whose keys are inserted once, conditional batches in one lane,
pointers that are removed once, conditional writes of marks and records. Each primitive is one
atomic step; tests can stop a client between two of them.
"""

import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial, wraps
from typing import Concatenate, NamedTuple, ParamSpec, TypeVar

from dueline.core.errors import Unknown
from dueline.core.job import Job, JobId
from dueline.core.lane import Lane, Marks, Pointer
from dueline.core.store import NO_VERSION, Delete, Put, Row, Write
from dueline.core.watermark import NOTHING_CLOSED as NOTHING
from dueline.core.watermark import StreamShard
from dueline.stores.cursor_cache import START, Key, Page, key_of
from dueline.stores.lane_index import NOTHING_CLOSED, LaneHead, Shard
from dueline.stores.memory.rows import page_of
from tests.harness.row_changes import Change, Found, holds

ROWS_A_PAGE = 100
"""Number of rows of a page of a lane."""

BEFORE_ALL_US = -(2**63)
"""Timestamp before every expiry."""

P = ParamSpec("P")
R = TypeVar("R")


class Cluster:
    """The data that several stores share, and the lock that makes each primitive atomic.

    Attributes:
      inserted: Every row as it was inserted. A deleted key is never inserted again, as with a
        tombstone.
      removed: Every pointer that was ever removed.
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.rows: dict[Lane, dict[Key, Found]] = {}
        self.inserted: dict[Lane, dict[Key, Job]] = {}
        self.places: dict[JobId, set[tuple[int, Lane, Key]]] = {}
        self.pointers: dict[Shard, set[Pointer]] = {}
        self.removed: set[Pointer] = set()
        self.marks: dict[Shard, Marks] = {}
        self.records: dict[str, dict[str, Put]] = {}
        self.streams: dict[StreamShard, dict[tuple[int, bytes], Row]] = {}
        self.closed: dict[StreamShard, int] = {}


class GivenUp(Unknown):
    """Raised before a primitive by a test that loses its answer.

    The primitive is still applied, just before a later one of the same client (rule U5).
    """

    def __init__(self, *, skips: int = 0) -> None:
        super().__init__("the request timed out")
        self.skips = skips


class _Late(NamedTuple):
    """A primitive without an answer. before: The number of the primitive it is applied before."""

    before: int
    land: Callable[[], object]


def _primitive(method: Callable[Concatenate["Node", P], R]) -> Callable[Concatenate["Node", P], R]:
    """Make a method one step: announce it, then apply it now or later."""

    @wraps(method)
    def step(self: "Node", /, *args: P.args, **kwargs: P.kwargs) -> R:
        number = self._begin()
        try:
            self.step(method.__name__)
        except GivenUp as error:
            land = partial(method, self, *args, **kwargs)
            self.late.append(_Late(number + 1 + error.skips, land))
            raise
        with self.cluster.lock:
            return method(self, *args, **kwargs)

    return step


class Node:
    """The primitives of a cluster for one client, `LaneIndexStorage` and `StreamStorage` too."""

    def __init__(self, cluster: Cluster, step: Callable[[str], None]) -> None:
        self.cluster = cluster
        self.step = step
        self.late: list[_Late] = []
        self._begun = 0

    def _begin(self) -> int:
        """Count a primitive; apply the late ones that are due before it."""
        with self.cluster.lock:
            self._begun += 1
            due = [write for write in self.late if write.before <= self._begun]
            for write in due:
                self.late.remove(write)
                write.land()
            return self._begun

    # Rows

    @_primitive
    def index(self, jobs: Sequence[Job]) -> None:
        """Store the places of rows, for lookups by id."""
        for job in jobs:
            places = self.cluster.places.setdefault(job.id, set())
            places.add((job.hop, job.lane, key_of(job)))

    @_primitive
    def insert(self, lane: Lane, jobs: Sequence[Job]) -> None:
        """Insert rows of one lane; a key is inserted once, even if its row is deleted (rule B1)."""
        for job in jobs:
            self._insert_once(lane, job)

    @_primitive
    def page(self, lane: Lane, page: Page) -> list[Found]:
        """Read rows in the order of keys."""
        rows = self.cluster.rows.get(lane, {})
        keys = sorted(key for key in rows if key > page.after)
        return [rows[key] for key in keys[: page.limit]]

    @_primitive
    def some(self, lane: Lane, keys: Sequence[Key]) -> list[Found]:
        """Return the rows of some keys that exist."""
        rows = self.cluster.rows.get(lane, {})
        return [rows[key] for key in keys if key in rows]

    @_primitive
    def places(self, job_id: JobId) -> list[tuple[int, Lane, Key]]:
        """Return the places where a job's row may be: hop, lane, key."""
        return sorted(self.cluster.places.get(job_id, ()))

    @_primitive
    def decide(self, lane: Lane, changes: Sequence[Change]) -> Mapping[Key, Found] | None:
        """Apply a conditional batch, all or nothing.

        Returns:
          None if it was applied; otherwise the present rows of its keys.
        """
        rows = self.cluster.rows.setdefault(lane, {})
        if not all(holds(rows.get(change.key), change) for change in changes):
            return {change.key: rows[change.key] for change in changes if change.key in rows}
        for change in changes:
            row = rows.pop(change.key)
            if change.cells is not None:
                stub = change.stub or row.stub
                rows[change.key] = Found(row.job._replace(**change.cells), stub)
            if change.insert is not None:
                self._insert_once(lane, change.insert)
        return None

    @_primitive
    def erase(self, lane: Lane, key: Key) -> None:
        """Delete a decided row, without a condition; it may land at any time (rule P5)."""
        row = self.cluster.rows.get(lane, {}).pop(key, None)
        assert row is None or row.job.outcome, "a row without an outcome was erased"

    def _insert_once(self, lane: Lane, job: Job) -> None:
        """Insert a row; a repeat must have the same values (rules B3, U3)."""
        assert job.lane == lane
        inserted = self.cluster.inserted.setdefault(lane, {})
        if key_of(job) not in inserted:
            inserted[key_of(job)] = job
            self.cluster.rows.setdefault(lane, {})[key_of(job)] = Found(job)
        assert inserted[key_of(job)] == job, "an insert was repeated with other values"

    @_primitive
    def lanes_with_rows(self) -> Sequence[Lane]:
        """Return the lanes that have rows."""
        return [lane for lane, rows in self.cluster.rows.items() if rows]

    # Lane lists and marks

    def closed(self, shards: Sequence[Shard]) -> Sequence[int]:
        """Return the `closed` mark of each shard."""
        return [self.marks(shard).closed for shard in shards]

    @_primitive
    def marks(self, shard: Shard) -> Marks:
        """Return both marks."""
        return self.cluster.marks.get(shard, NOTHING_CLOSED)

    @_primitive
    def raise_marks(self, shard: Shard, *, old: Marks, new: Marks) -> bool:
        """Replace the marks if they still are `old`."""
        is_old = self.cluster.marks.get(shard, NOTHING_CLOSED) == old
        if is_old:
            self.cluster.marks[shard] = new
        return is_old

    def put(self, pointers: Collection[Pointer]) -> None:
        """Add pointers, one by one."""
        for pointer in pointers:
            self.put_pointer(pointer)

    @_primitive
    def put_pointer(self, pointer: Pointer) -> None:
        """Add a pointer that was never removed."""
        if pointer not in self.cluster.removed:
            shard = Shard(pointer.lane.queue, pointer.lane.shard)
            self.cluster.pointers.setdefault(shard, set()).add(pointer)

    def remove(self, pointers: Collection[Pointer]) -> None:
        """Remove pointers, one by one."""
        for pointer in pointers:
            self.remove_pointer(pointer)

    @_primitive
    def remove_pointer(self, pointer: Pointer) -> None:
        """Remove a pointer for ever."""
        shard = Shard(pointer.lane.queue, pointer.lane.shard)
        self.cluster.removed.add(pointer)
        self.cluster.pointers[shard].discard(pointer)

    @_primitive
    def pointers(self, shard: Shard, *, above: int, until: int) -> Sequence[Pointer]:
        """Return the pointers with `above < listing <= until`, in order."""
        listed = self.cluster.pointers.get(shard, ())
        return sorted(pointer for pointer in listed if above < pointer.listing <= until)

    def heads(self, lanes: Sequence[Lane]) -> Sequence[LaneHead | None]:
        """Return None for each: reading many lanes at once costs as much as one by one."""
        return [None] * len(lanes)

    def ats_us(self, lane: Lane) -> Iterator[int]:
        """Yield `at_us` of every row of a lane, page by page."""
        return (row.job.at_us for row in self.every(lane))

    def every(self, lane: Lane) -> Iterator[Found]:
        """Yield every row of a lane, page by page."""
        after = START
        while True:
            rows = self.page(lane, Page(after, ROWS_A_PAGE))
            yield from rows
            if len(rows) < ROWS_A_PAGE:
                return
            after = key_of(rows[-1].job)

    # Records

    @_primitive
    def partitions(self) -> Sequence[str]:
        """Return the partitions of records, in order."""
        return sorted(self.cluster.records)

    @_primitive
    def read(self, partition: str, now_us: int) -> Sequence[Put]:
        """Return the records of a partition that have not expired, in the order of keys."""
        table = self.cluster.records.get(partition, {})
        return [table[key] for key in sorted(table) if lives(table[key], now_us)]

    @_primitive
    def commit(self, partition: str, writes: Sequence[Write], now_us: int) -> bool:
        """Write to one partition of records, all or nothing."""
        table = self.cluster.records.setdefault(partition, {})
        for write in writes:
            present = table.get(write.key)
            is_there = present is not None and lives(present, now_us)
            version = present.version if present is not None and is_there else NO_VERSION
            if write.expect is not None and write.expect != version:
                return False
        for write in writes:
            if isinstance(write, Delete):
                table.pop(write.key, None)
            elif not _is_older(write, table.get(write.key)):
                table[write.key] = write
        return True

    # Streams

    def marks_of(self, shards: Sequence[StreamShard]) -> Sequence[int]:
        """Return the watermark of each shard."""
        return [self.mark_of(shard) for shard in shards]

    @_primitive
    def mark_of(self, shard: StreamShard) -> int:
        """Return the watermark of a shard."""
        return self.cluster.closed.get(shard, NOTHING)

    @_primitive
    def raise_mark(self, shard: StreamShard, *, old: int, new: int) -> bool:
        """Replace a watermark if it still is `old`."""
        is_old = self.cluster.closed.get(shard, NOTHING) == old
        if is_old:
            self.cluster.closed[shard] = new
        return is_old

    def put_rows(self, rows: Sequence[Row]) -> Sequence[bool]:
        """Append rows that do not exist, shard by shard."""
        by_shard: dict[StreamShard, list[Row]] = {}
        for row in rows:
            by_shard.setdefault(StreamShard(row.stream, row.shard), []).append(row)
        for shard, appended in by_shard.items():
            self.append(shard, appended)
        return [True] * len(rows)

    @_primitive
    def append(self, shard: StreamShard, rows: Sequence[Row]) -> None:
        """Append rows to one shard of a stream."""
        table = self.cluster.streams.setdefault(shard, {})
        for row in rows:
            table.setdefault((row.at_us, row.id), row)

    @_primitive
    def tail(
        self,
        shard: StreamShard,
        after: tuple[int, bytes] | None,
        limit: int,
        until_us: int | None,
        skip: int = 0,
    ) -> list[Row]:
        """Read a shard's rows in order."""
        return page_of(self.cluster.streams.get(shard, {}), after, limit, until_us, skip)

    @_primitive
    def expire(self, shard: StreamShard, before_us: int) -> None:
        """Delete the rows of a shard below a timestamp."""
        table = self.cluster.streams.get(shard, {})
        for place in [place for place in table if place[0] < before_us]:
            del table[place]


def _is_older(put: Put, present: Put | None) -> bool:
    """Return whether a put that landed late is older than what is there (rule U3)."""
    if put.at_us is None or present is None:
        return False
    assert present.at_us is not None, "a record was written with a condition, and plainly"
    return put.at_us < present.at_us


def lives(put: Put, now_us: int) -> bool:
    """Return whether a record has not expired."""
    return put.expires_us is None or put.expires_us > now_us
