"""The store in PostgreSQL.

Every write is one transaction: an insert with its lane list (rule E6), a claim, or a group of
outcomes and effects.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from copy import copy
from functools import partial
from operator import attrgetter
from typing import Final, Literal

from dueline.core.clock import Clock
from dueline.core.errors import BadInput
from dueline.core.job import Job, JobId
from dueline.core.job_columns import JobColumns, Sample
from dueline.core.lane import Lane, Marks, Pointer
from dueline.core.store import (
    Claimed,
    Commit,
    Group,
    JobPage,
    LanePage,
    Lease,
    Migration,
    Move,
    Place,
    Record,
    Row,
    RowPage,
    TransactionView,
    Verdict,
    Want,
    Write,
)
from dueline.core.store_capabilities import Joined, LanesWithRows, PrefetchResult, RecordsPage
from dueline.core.wakeup import Wakeup, place_of, wakeups_of
from dueline.stores.group_commit import ServerCommit, Written, may_share
from dueline.stores.idle_wakeups import Notified
from dueline.stores.joint_groups import Tables
from dueline.stores.postgres import (
    callers,
    claims,
    facts,
    job_columns,
    lanes,
    records,
    schema,
    streams,
)
from dueline.stores.postgres import jobs as postgres_jobs
from dueline.stores.postgres.address import Address
from dueline.stores.postgres.connection import Connections
from dueline.stores.postgres.cursors import Claims
from dueline.stores.postgres.database import NOW_US, RECOVERY, Database, Executor, savepoint
from dueline.stores.postgres.errors import IdExists, LockNotAvailable
from dueline.stores.postgres.transaction import OpenTransaction
from dueline.stores.postgres.wakeup import CommitWakeups, NotifyWakeups, notify_idle

_TABLES: Final = Tables(
    postgres_jobs.settle, records.commit, postgres_jobs.add, streams.append, savepoint
)
_TABLES_OF_NEW: Final = _TABLES._replace(add=partial(postgres_jobs.add, are_new=True))

NEW_MIN: Final = 100
"""Number of jobs from which on a group is first written as if no id existed, which costs less."""


class PostgresStore:
    """Jobs, records and streams in one schema of a database.

    Args:
      address: The database and the schema.
      clock: The machine's clock; the store's is the server's.
    """

    transactional = True
    scope: Literal["process", "machine", "network"] = "network"

    def __init__(self, address: Address, *, clock: Clock) -> None:
        self._address = address
        self._connections = Connections(address, clock)
        self._connection: Executor = self._connections
        self._claims = Claims(clock)
        self._notified = Notified()
        self._inserts = ServerCommit(self._insert)
        self._records = ServerCommit(self._write)
        self._own_id: str | None = None
        self._shards: frozenset[tuple[str, int]] = frozenset()  # shards with marks

    def migrate(self) -> Migration:
        """Create the schema and the tables that do not exist."""
        connection = self._connections.connect()
        connection.timeout_s = schema.MIGRATE_S
        try:
            return schema.create(connection, self._address)
        finally:
            connection.close()

    def clock_us(self) -> int:
        """Return the server's clock, in microseconds UTC."""
        row = self._connection.read(lambda database: database.first(f"SELECT {NOW_US}"))
        assert row is not None
        return int(row[0])

    def describe(self) -> Mapping[str, str]:
        """Return facts and guarantees of the store."""
        return self._connection.read(lambda database: facts.facts_of(database, self._address))

    def wakeups(self) -> NotifyWakeups:
        """Return the wake-ups of the store's workers."""
        return NotifyWakeups(self._connections, self._notified, self._claims.step_back)

    def follow_lease(self, lease_us: int) -> None:
        """Give up trips after a third of a lease, unless the URL has a time limit."""
        self._connections.follow_lease(lease_us)

    def close(self) -> None:
        """Close the connections."""
        self._connections.close()

    @contextmanager
    def transaction(self) -> Iterator[TransactionView]:
        """Hold a transaction open until the end of the block."""
        with self._connections.transaction() as connection:
            transaction = OpenTransaction(self._connections, connection)
            inside = copy(self)
            inside._connection = transaction  # noqa: SLF001  (its own kind)
            yield TransactionView(inside, transaction.execute)

    def join(self, tx: object, shards: Collection[tuple[str, int]] = ()) -> Joined:
        """Return the store inside the transaction that is open on a caller's connection."""
        connection = callers.connection_of(tx)
        self._make_marks(shards)
        if self._own_id is None:
            self._own_id = self._connections.read(_id_in)
        transaction = OpenTransaction(self._connections, *connection)
        if not transaction.has_table("about") or transaction.read(_id_in) != self._own_id:
            raise BadInput(
                f"`tx` is a connection to another database than {self._address}.",
                hint="Pass a connection to the store's database.",
            )
        inside = copy(self)
        inside._connection = transaction  # noqa: SLF001  (its own kind)
        return Joined(inside, CommitWakeups(transaction, self._address.schema))

    def _make_marks(self, shards: Collection[tuple[str, int]]) -> None:
        """Create the watermarks of shards that this process has not created before."""
        if not self._shards.issuperset(shards):
            self._connections.apart(lambda database: lanes.make_marks(database, shards))
            self._shards = self._shards.union(shards)

    def transaction_id(self) -> str:
        """Return what identifies it: its number, the process that has it, the last recovery."""
        row = self._connection.read(
            lambda database: database.first(
                f"SELECT pg_current_xact_id()::text, pg_backend_pid(), {RECOVERY}"
            )
        )
        assert row is not None
        return "/".join(map(str, row))

    def is_committed(self, transaction: str) -> bool:
        """Return whether a caller's transaction was committed; one that is open is ended first."""
        number, process, recovery = transaction.split("/")
        return self._connections.ended(number, int(process), int(recovery))

    # Jobs

    def add(self, jobs: Sequence[Job]) -> Sequence[bool]:
        """Insert jobs and list their lanes."""
        if not jobs:
            return []
        if self._connection is not self._connections:  # the thread's own transaction
            self._notified.wakeups = ()
            return self._insert(jobs).held
        self._connections.refuse_beside()
        inserted = self._inserts.write(jobs)
        self._notified.wakeups = inserted.wakeups
        return inserted.held

    def _insert(self, jobs: Sequence[Job]) -> Written:
        wakeups = self._insert_held(jobs)
        if wakeups is None:
            try:
                self._connection.write(
                    lambda database: postgres_jobs.add(database, jobs, are_new=True)
                )
            except IdExists:  # rarely: a call is repeated
                self._connection.write(lambda database: postgres_jobs.add(database, jobs))
        self._claims.step_back((job.lane, job.pos_us) for job in jobs)
        return Written([True] * len(jobs), wakeups or ())

    def _insert_held(self, jobs: Sequence[Job]) -> Sequence[Wakeup] | None:
        """Insert new jobs of a listed lane, in one trip that also notifies idle workers.

        Returns:
          What was sent; None if nothing was inserted.
        """
        lane = jobs[0].lane
        if self._connection is not self._connections or any(
            job.hop or job.lane != lane for job in jobs
        ):
            return None
        insert = postgres_jobs.insert_held({lane: lane.bucket}, jobs, are_new=True)
        first = min(jobs, key=_at_of)
        wakeups = wakeups_of([(lane, first.at_us)], now_us=first.enqueued_us)
        notify = notify_idle(wakeups, self._address.schema) if wakeups else None
        row, is_sent = self._connections.write_then(insert, notify)
        if row is None or not row[0]:
            return None
        return wakeups if is_sent else ()

    def claim(self, wants: Sequence[Want], *, limit: int, lease: Lease) -> Claimed:
        """Claim the first due rows, want by want."""
        return self._claims.claim(self._connection, wants, limit=limit, lease=lease)

    def prefetch(
        self, wants: Sequence[Want], *, limit: int, until_us: int, lease: Lease
    ) -> PrefetchResult:
        """Claim the first rows that become due soon."""
        return self._connection.write(
            lambda database: claims.prefetch(
                database, wants, limit=limit, until_us=until_us, lease=lease
            )
        )

    def settle(self, verdicts: Sequence[Verdict]) -> Sequence[bool]:
        """Apply outcomes, each on its own."""
        if not verdicts:
            return []
        held = self._connection.write(lambda database: postgres_jobs.settle(database, verdicts))
        self._claims.step_back(_places_of(verdicts))
        return held

    def find(self, ids: Sequence[JobId]) -> Sequence[Job | None]:
        """Return jobs by id."""
        if not ids:
            return []
        return self._connection.read(lambda database: postgres_jobs.find(database, ids))

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
        return self._connection.read(
            lambda database: postgres_jobs.scan(
                database, lane, after=after, until_us=until_us, limit=limit, skip=skip
            )
        )

    def walk(
        self, lane: Lane, *, after: Place | None, until: Place | None, limit: int, skip: int = 0
    ) -> JobPage:
        """Read a lane in the order of positions."""
        return self._connection.read(
            lambda database: postgres_jobs.walk(
                database, lane, after=after, until=until, limit=limit, skip=skip
            )
        )

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
        """Read a lane by columns, in the order of positions."""
        return self._connection.read(
            lambda database: job_columns.walk(
                database, lane, names, after=after, until=until, limit=limit, different=different
            )
        )

    def sample(self, lanes: Sequence[Lane], *, most: int) -> Sample:
        """Return places of rows in a few blocks of the table."""
        return self._connection.read(
            lambda database: job_columns.sample(database, lanes, most=most)
        )

    def lanes(
        self, queue: str, shard: int, *, until_bucket: int, after: Pointer | None, limit: int
    ) -> LanePage:
        """Read the lane list."""
        without_head = self._claims.numbers()
        return self._connection.read(
            lambda database: lanes.page(
                database, queue, shard, until_bucket=until_bucket, after=after, limit=limit,
                without_head=without_head,
            )
        )  # fmt: skip

    def sweep(self, queue: str, shard: int, *, now_us: int, width_us: int) -> Marks:
        """Unlist the empty lanes of closed buckets, then close the buckets that are past.

        Does nothing while another transaction has inserted jobs and stays open.
        """
        try:
            return self._connection.write(
                lambda database: lanes.sweep(database, queue, shard, now_us, width_us)
            )
        except LockNotAvailable:
            return self._connection.read(lambda database: lanes.marks_of(database, queue, shard))

    # Records

    def read(self, partition: str, *, after: str | None, limit: int) -> Sequence[Record]:
        """Read records in key order."""
        return self._connection.read(
            lambda database: records.read(database, partition, after=after, limit=limit)
        )

    def all_records(self, *, after: str | None, limit: int) -> RecordsPage:
        """Return a page of all records, in the order of partitions and keys."""
        return self._connection.read(lambda database: records.page_of_all(database, after, limit))

    def open_transactions(self) -> frozenset[str]:
        """Return the transactions of other sessions that hold a lock on the table of records."""
        rows = self._connection.read(
            lambda database: database.fetch(
                "SELECT DISTINCT virtualtransaction FROM pg_locks WHERE pid <> pg_backend_pid()"
                " AND relation = to_regclass(%s)"
                " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())",
                (f"{self._address.schema}.records",),
            )
        )
        return frozenset(row[0] for row in rows)

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
        """Raise a shard's watermark, up to the first append that is not committed yet.

        A transaction that is open raises none: other processes would not know of it.
        """
        mark, until_us = self._connection.read(
            lambda database: streams.marks_of(database, stream, shard)
        )
        if mark >= min(at_us, until_us) or self._connection is not self._connections:
            return mark
        _, rows = self._connections.write_then_fetch(
            lambda database: streams.close_until(database, stream, shard, at_us)
        )
        return rows[0][0] if rows else mark

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
        if self._connection is not self._connections:
            return self._apply(groups).held
        if may_share(groups):
            self._connections.refuse_beside()
            return self._records.write(groups).held
        return self._write(groups).held

    def _write(self, groups: Sequence[Group]) -> Written:
        """Apply groups; those of records that hold by one statement, in one trip."""
        commits = [commit for group in groups for commit in group.commits]
        has_others = any(group.verdicts or group.jobs or group.rows for group in groups)
        if not has_others and (query := records.in_one(commits)):
            row, _ = self._connections.write_then(query, None)
            if row is not None:
                return Written([True] * len(groups))
        return self._apply(groups)

    def _apply(self, groups: Sequence[Group]) -> Written:
        held: Sequence[bool] = ()
        added = sum(len(group.jobs) for group in groups)
        if added >= NEW_MIN and self._connection is self._connections:
            with suppress(IdExists):  # nothing was written
                held = _TABLES_OF_NEW.together(self._connection, groups)
        held = held or _TABLES.together(self._connection, groups)
        for group in groups:
            self._claims.step_back((job.lane, job.pos_us) for job in group.jobs)
            self._claims.step_back(_places_of(group.verdicts))
        return Written(held)

    def lanes_with_rows(self, *, after: str | None, limit: int) -> LanesWithRows:
        """Return a page of the lanes that have rows, in the order of their numbers."""
        rows = self._connection.read(
            lambda database: database.fetch(
                "SELECT id, queue, shard, bucket, priority, tenant FROM @lanes AS l"
                " WHERE id > %s AND EXISTS (SELECT 1 FROM @jobs WHERE lane = l.id)"
                " ORDER BY id LIMIT %s",
                (int(after or 0), limit),
            )
        )
        lanes = [Lane(*row[1:]) for row in rows]
        return LanesWithRows(lanes, str(rows[-1][0]) if len(rows) == limit else None)


_at_of = attrgetter("at_us")


def _id_in(database: Database) -> str | None:
    """Return the random id of the store."""
    row = database.first("SELECT value FROM @about WHERE name = 'id'")
    return row[0] if row else None


def _places_of(verdicts: Sequence[Verdict]) -> Iterator[tuple[Lane, int]]:
    """Yield where moves put their rows."""
    if Move in set(map(type, verdicts)):
        yield from (place_of(verdict) for verdict in verdicts if isinstance(verdict, Move))
