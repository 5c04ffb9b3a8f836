"""The store in an SQLite file.

Every write is one immediate transaction: an insert with its lane list (rule E6), a claim, or a
group of outcomes and effects. Several processes may share the file.
Hot path: the benchmark `tenants`.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from itertools import repeat
from pathlib import Path
from typing import Literal

from dueline.core.clock import Clock
from dueline.core.job import Job, JobId
from dueline.core.job_columns import JobColumns, Sample
from dueline.core.lane import Lane, Marks, Pointer
from dueline.core.store import (
    NO_VERSION,
    SETTINGS_PARTITION,
    Claimed,
    Commit,
    Group,
    JobPage,
    LanePage,
    Lease,
    Place,
    Put,
    Record,
    Row,
    RowPage,
    TransactionView,
    Verdict,
    Want,
    Write,
)
from dueline.core.store_capabilities import LanesWithRows, PrefetchResult, RecordsPage
from dueline.core.tuples import made
from dueline.stores.group_commit import may_share
from dueline.stores.sqlite import batches, claims, damage, job_columns, job_rows, streams
from dueline.stores.sqlite import jobs as sqlite_jobs
from dueline.stores.sqlite.connection import (
    Database,
    Executor,
    SqliteConnection,
    blobs,
    fetch,
    first,
)
from dueline.stores.sqlite.file import OWNER_ONLY
from dueline.stores.sqlite.group_commit import InsertCommit, RecordCommit
from dueline.stores.sqlite.jobs import GREATEST, LEAST
from dueline.stores.sqlite.reserve import MIB, Reserve
from dueline.stores.sqlite.transaction import Guard, SqliteTransaction
from dueline.stores.walks import WalksByTime


class SqliteStore(WalksByTime):
    """Jobs, records and streams in one file on a local disk, created at the first call.

    Args:
      path: The queue file; its folder must exist.
      clock: The machine's clock, which is also the store's.
      synchronous: FULL (commits survive loss of power) or NORMAL (the last ones may not).
      may_be_shared: Whether the folder may be writable for every user.
      mode: Permissions of the file: OWNER_ONLY or GROUP_TOO.
      timeout_us: Maximum time that a call waits for other writers or the disk, in microseconds;
        None for 60 s and 10 s.
      reserve_mib: Space of the disk that new jobs leave to claims and outcomes, in MiB; None for
        the default.
    """

    transactional = True
    scope: Literal["process", "machine", "network"] = "machine"

    def __init__(
        self,
        path: Path,
        *,
        clock: Clock,
        synchronous: str = "FULL",
        may_be_shared: bool = False,
        mode: int = OWNER_ONLY,
        timeout_us: int | None = None,
        reserve_mib: int | None = None,
    ) -> None:
        self._path = path.absolute()
        self._clock = clock
        self._synchronous = synchronous
        self._file = SqliteConnection(
            self._path,
            synchronous=synchronous,
            clock=clock,
            may_be_shared=may_be_shared,
            mode=mode,
            timeout_us=timeout_us,
        )
        self._connection: Executor = self._file
        self.disk = self._file.disk
        self._inserts = InsertCommit(self._file)
        self._records = RecordCommit(self._file, self.clock_us)
        self._guard = Guard()
        self._reserve = Reserve(self._path, reserve_mib)

    def clock_us(self) -> int:
        """Return the machine's wall clock, in microseconds UTC."""
        return self._clock.wall_us()

    def describe(self) -> Mapping[str, str]:
        """Return facts and guarantees of the store."""
        power = "nothing is lost, if the disk honours flushes"
        if self._synchronous != "FULL":
            power = "the last commits may be lost (synchronous=NORMAL was asked for)"
        damaged = self._connection.read(damage.damaged_rows)
        room = self._reserve.room()
        space = "unknown" if room is None else f"{room[0] // MIB} MiB, {room[1] // MIB} reserved"
        return {
            **({"damaged rows": damaged} if damaged else {}),
            "store": "sqlite",
            "file": str(self._path),
            "library": self._connection.read(
                lambda database: str(first(database, "SELECT sqlite_version()"))
            ),
            "schema": self._connection.read(lambda database: str(database.pragma("user_version"))),
            "integrity": self._file.examine(
                lambda database: str(first(database, "PRAGMA quick_check(1)"))
            ),
            "free space": space,
            "survives a process crash": "nothing is lost",
            "survives loss of power": power,
            "survives loss of the machine": "no: one file on one machine",
        }

    def compare_indexes(self, *, timeout_us: int) -> list[str] | None:
        """Compare all indexes with their tables."""
        until_us = self._clock.monotonic_us() + timeout_us
        return self._file.examine(
            lambda database: damage.compare_indexes(
                database, lambda: self._clock.monotonic_us() >= until_us
            )
        )

    def close(self) -> None:
        """Close the connection."""
        self._file.close()

    @contextmanager
    def transaction(self) -> Iterator[TransactionView]:
        """Hold the file's write lock until the end of the block."""
        with self._file.transaction() as database:
            transaction = SqliteTransaction(self._file, database, self._guard)
            inside = copy(self)
            inside._connection = transaction  # noqa: SLF001  (its own kind)
            yield TransactionView(inside, transaction.execute)

    # Jobs

    def add(self, jobs: Sequence[Job]) -> Sequence[bool]:
        """Insert jobs and list their lanes."""
        if not jobs:
            return []
        self._reserve.expect_room(jobs)
        if self._connection is self._file:
            return self._inserts.write(jobs).held
        self._connection.write(lambda database: sqlite_jobs.add(database, jobs))
        return [True] * len(jobs)

    def claim(self, wants: Sequence[Want], *, limit: int, lease: Lease) -> Claimed:
        """Claim the first due rows, want by want."""
        return self._connection.write_unflushed(
            lambda database: claims.claim(database, wants, limit=limit, lease=lease)
        )

    def prefetch(
        self, wants: Sequence[Want], *, limit: int, until_us: int, lease: Lease
    ) -> PrefetchResult:
        """Claim the first rows that become due soon."""
        return self._connection.write_unflushed(
            lambda database: claims.prefetch(
                database, wants, limit=limit, until_us=until_us, lease=lease
            )
        )

    def flush(self) -> None:
        """Make earlier claims survive a loss of power (rule P8)."""
        self._file.flush()

    def settle(self, verdicts: Sequence[Verdict]) -> Sequence[bool]:
        """Apply outcomes, each on its own."""
        if not verdicts:
            return []
        return self._connection.write(lambda database: sqlite_jobs.settle(database, verdicts))

    def find(self, ids: Sequence[JobId]) -> Sequence[Job | None]:
        """Return jobs by id."""
        if not ids:
            return []

        def work(database: Database) -> dict[bytes, Job]:
            rows = fetch(
                database,
                f"SELECT queue, shard, bucket, priority, tenant, {job_rows.SELECT}"  # noqa: S608
                " FROM jobs JOIN lanes ON lanes.id = jobs.lane"
                " WHERE jobs.id IN (SELECT value FROM carray(?))",
                (blobs(ids),),
            )
            jobs = [
                job_rows.to_job(Lane(queue, shard, bucket, priority, tenant), row)
                for queue, shard, bucket, priority, tenant, *row in rows
            ]
            return {job.id: job for job in jobs}

        by_id = self._connection.read(work)
        return [by_id.get(job_id) for job_id in ids] if by_id else [None] * len(ids)

    def scan(
        self,
        lane: Lane,
        *,
        after: tuple[int, JobId] | None,
        until_us: int | None,
        limit: int,
        skip: int = 0,
    ) -> JobPage:
        """Read a lane in (at, id) order."""

        def work(database: Database) -> Sequence[Job]:
            number = sqlite_jobs.number_of(database, lane)
            if number is None:
                return ()
            rows = fetch(
                database,
                f"SELECT {job_rows.SELECT} FROM jobs WHERE lane = ? AND (at_us, id) > (?, ?)"  # noqa: S608
                " AND at_us <= ? ORDER BY at_us, id LIMIT ? OFFSET ?",
                (
                    number,
                    *(after or (LEAST, b"")),
                    GREATEST if until_us is None else until_us,
                    limit,
                    skip,
                ),
            )
            return job_rows.to_jobs(lane, rows)

        jobs = self._connection.read(work)
        more = len(jobs) == limit
        return JobPage(jobs, (jobs[-1].at_us, jobs[-1].id) if more else None)

    def walk_columns(
        self,
        lane: Lane,
        names: frozenset[str],
        *,
        after: Place | None,
        until: Place | None,
        limit: int,
        different: frozenset[str] = frozenset(),
    ) -> JobColumns:
        """Read a lane by columns, in (at, id) order."""
        return self._connection.read(
            lambda database: job_columns.walk(
                database, lane, names, after=after, until=until, limit=limit, different=different
            )
        )

    def sample(self, lanes: Sequence[Lane], *, most: int) -> Sample:
        """Return places in lanes, whose rows it counts by the index."""
        return self._connection.read(
            lambda database: job_columns.sample(database, lanes, most=most)
        )

    def lanes(
        self, queue: str, shard: int, *, until_bucket: int, after: Pointer | None, limit: int
    ) -> LanePage:
        """Read the lane list."""

        def work(database: Database) -> LanePage:
            marks = sqlite_jobs.marks_of(database, queue, shard)
            version = first(
                database,
                "SELECT version FROM records WHERE partition = ? AND key = ?",
                (SETTINGS_PARTITION, queue),
            )
            past = (after.listing, *after.lane[2:]) if after else (LEAST, LEAST, LEAST, "")
            rows = fetch(
                database,
                "SELECT listing, bucket, priority, tenant,"
                " (SELECT at_us FROM jobs WHERE lane = lanes.id ORDER BY at_us LIMIT 1) FROM lanes"
                " WHERE queue = ? AND shard = ? AND listing <= ?"
                " AND (listing, bucket, priority, tenant) > (?, ?, ?, ?)"
                " ORDER BY listing, bucket, priority, tenant LIMIT ?",
                (queue, shard, max(until_bucket, marks.closed + 1), *past, limit),
            )
            if not rows:
                return LanePage((), marks, None, version or NO_VERSION)
            listings, buckets, priorities, tenants, firsts = zip(*rows, strict=True)
            lanes = made(
                Lane, zip(repeat(queue), repeat(shard), buckets, priorities, tenants, strict=False)
            )
            pointers = made(Pointer, zip(listings, lanes, strict=True))
            heads = dict(zip(lanes, firsts, strict=True))
            more = pointers[-1] if len(pointers) == limit else None
            return LanePage(pointers, marks, more, version or NO_VERSION, heads)

        return self._connection.read(work)

    def sweep(self, queue: str, shard: int, *, now_us: int, width_us: int) -> Marks:
        """Unlist the empty lanes of closed buckets, then close the buckets that are past."""
        return self._connection.write(
            lambda database: sqlite_jobs.sweep(database, queue, shard, now_us, width_us)
        )

    # Records

    def read(self, partition: str, *, after: str | None, limit: int) -> Sequence[Record]:
        """Read records in key order."""
        past = "key > ?" if after is not None else "key >= ?"  # the empty key comes first
        rows = self._connection.read(
            lambda database: fetch(
                database,
                f"SELECT key, version, value FROM records WHERE partition = ? AND {past}"  # noqa: S608
                " AND (expires_us IS NULL OR expires_us > ?) ORDER BY key LIMIT ?",
                (partition, after or "", self.clock_us(), limit),
            )
        )
        return [Record(*row) for row in rows]

    def all_records(self, *, after: str | None, limit: int) -> RecordsPage:
        """Return a page of all records, in the order of partitions and keys."""
        past = "(partition, key) > (?, ?) AND" if after is not None else ""
        rows = self._connection.read(
            lambda database: fetch(
                database,
                f"SELECT partition, key, version, value, expires_us FROM records WHERE {past}"  # noqa: S608
                " (expires_us IS NULL OR expires_us > ?) ORDER BY partition, key LIMIT ?",
                (*(json.loads(after) if after is not None else ()), self.clock_us(), limit),
            )
        )
        records = [
            (part, Put(key, version, value, None, until_us))
            for part, key, version, value, until_us in rows
        ]
        return RecordsPage(records, json.dumps(rows[-1][:2]) if len(rows) == limit else None)

    def commit(self, partition: str, writes: Sequence[Write]) -> bool:
        """Apply writes to one partition, all or nothing."""
        return self.together([Group(commits=(Commit(partition, writes),))])[0]

    # Streams

    def append(self, rows: Sequence[Row]) -> Sequence[int | None]:
        """Append rows above the present watermarks."""
        if not rows:
            return []
        return self._connection.write(lambda database: streams.append(database, rows))

    def tail(
        self,
        stream: str,
        shard: int,
        *,
        after: tuple[int, bytes] | None,
        limit: int,
        until_us: int | None = None,
        skip: int = 0,
    ) -> RowPage:
        """Read a shard's rows in order."""
        return self._connection.read(
            lambda database: streams.tail(
                database, stream, shard, after=after, limit=limit, until_us=until_us, skip=skip
            )
        )

    def close_until(self, stream: str, shard: int, *, at_us: int) -> int:
        """Raise a shard's watermark; write nothing if it is high enough."""
        mark = self._connection.read(lambda database: streams.mark_of(database, stream, shard))
        if mark >= at_us:
            return mark
        return self._connection.write(
            lambda database: streams.close_until(database, stream, shard, at_us)
        )

    def expire(self, stream: str, shard: int, *, before_us: int) -> None:
        """Delete rows below a timestamp that is closed."""
        while self._connection.write(
            lambda database: streams.expire(database, stream, shard, before_us)
        ):
            pass

    def together(self, groups: Sequence[Group]) -> Sequence[bool]:
        """Apply groups, each all or nothing, in one transaction."""
        if not groups:
            return []
        self._reserve.expect_room_for(groups)
        if self._connection is self._file and may_share(groups):
            return self._records.write(groups).held
        return batches.together(self._connection, groups, self.clock_us())

    def lanes_with_rows(self, *, after: str | None, limit: int) -> LanesWithRows:
        """Return a page of the lanes that have rows, in the order of their numbers."""
        rows = self._connection.read(
            lambda database: fetch(
                database,
                "SELECT id, queue, shard, bucket, priority, tenant FROM lanes"
                " WHERE id > ? AND EXISTS (SELECT 1 FROM jobs WHERE lane = lanes.id)"
                " ORDER BY id LIMIT ?",
                (int(after or 0), limit),
            )
        )
        lanes = [Lane(*row[1:]) for row in rows]
        return LanesWithRows(lanes, str(rows[-1][0]) if len(rows) == limit else None)
