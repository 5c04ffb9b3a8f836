"""The store protocol: what dueline needs from a database.

Code above this protocol knows policy and no database; stores know a database and no policy.
Calls are synchronous and take batches; the caller passes the time in. `dueline.store_tests` checks
every promise made here.

Any call may raise `Unknown` (the write may or may not have happened) or `StoreUnavailable` (it
did not happen). Otherwise a call happens as a whole, or raises and changes nothing. A process may
die in the middle of a call: on a store that is not transactional, between any two of its steps.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, Protocol, runtime_checkable

from dueline.core.job import Job, JobId, State, Token
from dueline.core.lane import Lane, Marks, Pointer

SETTINGS_PARTITION = "queues"
"""Partition of records that holds the settings of queues; the key is the queue's name."""

BESIDE_A_TRANSACTION = "This thread has a transaction open, and this call is not part of it."
"""Message of the error for a write outside the thread's open transaction."""

NO_VERSION = b""
"""Version of a record that does not exist; as `expect`: the record must not exist."""


class Want(NamedTuple):
    """A lane to claim from, and the maximum number of jobs."""

    lane: Lane
    most: int


class Lease(NamedTuple):
    """The lease of a claim: what it writes into its rows.

    Attributes:
      now_us: The current time.
      duration_us: Duration of the lease, > 0.
      worker: Name of the worker that claims.
      token: New token of the claimed rows.
    """

    now_us: int
    duration_us: int
    worker: str
    token: Token


class Claimed(NamedTuple):
    """The result of a claim.

    Attributes:
      jobs: The rows after the claim, in the order of the wants; within a lane in (at, id) order
        as before the claim.
      died: The row before the claim, for each job whose last claim ended without an outcome.
      next_at_us: The lowest `at_us` in each lane that was read after the claim, claimed rows
        included; None for an empty lane. A store of the network may return an earlier one, but
        none that is due, if rows that it has read before are gone.
    """

    jobs: Sequence[Job]
    died: Mapping[JobId, Job]
    next_at_us: Mapping[Lane, int | None]


class Drop(NamedTuple):
    """Delete the row, if it still has `job.token` (rule P2).

    A row with an outcome only goes: a store without transactions may delete it in any case, and
    report it as deleted (rule P5).
    """

    job: Job


class Extend(NamedTuple):
    """Extend the lease of a claim to at least `at_us`; the token stays.

    An extension that arrives after a later one does not shorten the lease.

    Attributes:
      started: The handler has started; the row stays STARTED until the next `Move` or `Drop`.
    """

    job: Job
    at_us: int
    started: bool = False


class Move(NamedTuple):
    """End the claim and make the job due at `at_us`, if the row still has `job.token`.

    Attributes:
      job: The row as it was read.
      token: The new token of the row.
      listing: The bucket of `at_us`. If the row becomes due earlier than before, the lane is
        listed under this bucket, or under the first open one.
      errors, crashes, alone, state, outcome, error: New values of the columns. A row with an
        outcome stays in place: `to` is None and `at_us` is not before its position.
      to: The lane to move the row to; None for its own.
      opts: New options of the job, not together with an outcome; None keeps them.
      due_us: New due time of the job, not together with `to` or an outcome; None keeps it.
    """

    job: Job
    at_us: int
    token: Token
    listing: int
    errors: int
    crashes: int
    alone: bool = False
    state: int = State.WAITING
    outcome: bytes = b""
    error: str = ""
    to: Lane | None = None
    opts: bytes | None = None
    due_us: int | None = None


Verdict = Drop | Extend | Move


Place = tuple[int, JobId]
"""A place in a lane, between two rows: a time and an id."""


class JobPage(NamedTuple):
    """Jobs of a lane in order; pass `after` to read on, None after the last page."""

    jobs: Sequence[Job]
    after: Place | None


class LanePage(NamedTuple):
    """Pointers of a (queue, shard) in (listing, lane) order.

    Attributes:
      marks: The marks, read before the pointers.
      after: Pass it to read on; None after the last page.
      settings_version: Version of the queue's settings record, NO_VERSION without one.
      heads: The lowest `at_us` of lanes, None for empty ones. A store includes only lanes for
        which this costs little.
    """

    pointers: Sequence[Pointer]
    marks: Marks
    after: Pointer | None
    settings_version: bytes
    heads: Mapping[Lane, int | None] = MappingProxyType({})


class Record(NamedTuple):
    """A small versioned value."""

    key: str
    version: bytes
    value: bytes


class Put(NamedTuple):
    """Write a record.

    Attributes:
      version: The new version: random bytes, made by the caller.
      expect: The version that the record must have, NO_VERSION if it must not exist, None for
        any.
      expires_us: Time from which the record reads as absent.
      at_us: Time of the record's content, for records whose writes all have such a time and no
        condition. Such a write may reach a store without transactions late; then the latest
        `at_us` stays (rule U3).
    """

    key: str
    version: bytes
    value: bytes
    expect: bytes | None = None
    expires_us: int | None = None
    at_us: int | None = None


class Delete(NamedTuple):
    """Delete a record; `expect` as in Put."""

    key: str
    expect: bytes | None = None


Write = Put | Delete


class Commit(NamedTuple):
    """Writes to one partition of records, all or nothing."""

    partition: str
    writes: Sequence[Write]


class Row(NamedTuple):
    """One row of a stream; ordered by (at_us, id) within its shard."""

    stream: str
    shard: int
    at_us: int
    id: bytes
    body: bytes


class RowPage(NamedTuple):
    """Rows of a shard in (at_us, id) order; `after` is the position of the last row."""

    rows: Sequence[Row]
    after: tuple[int, bytes] | None


class Group(NamedTuple):
    """Calls that are applied together, all or nothing, conditions included.

    The order is settle, commit, add, append.
    """

    verdicts: Sequence[Verdict] = ()
    commits: Sequence[Commit] = ()
    jobs: Sequence[Job] = ()
    rows: Sequence[Row] = ()


class Jobs(Protocol):
    """The rows of jobs, in lanes."""

    def add(self, jobs: Sequence[Job]) -> Sequence[bool]:
        """Insert jobs and list their lanes.

        A repeated insert of the same key changes nothing while the first row exists.

        Args:
          jobs: New rows, each id at most once. A repeated insert has the same values. Columns
            that claims change have their defaults, unless `hop` says that the job was inserted
            before (a dead-letter job).

        Returns:
          For each job: True if it is durable and listed, False if that is unknown.
        """
        ...

    def claim(self, wants: Sequence[Want], *, limit: int, lease: Lease) -> Claimed:
        """Claim the first rows with `at_us <= now_us`, want by want; atomic in each lane.

        A claimed row gets `at_us = now_us + duration_us`, the next fence, `token`, `worker`,
        `claimed_us = now_us` and the state CLAIMED. If the last claim ended on a started job,
        `crashes` is one more and `alone` is set. A claim survives the death of any process; see
        `dueline.core.store_capabilities` for loss of power.

        Args:
          wants: Lanes in order of preference, each at most once.
          limit: Maximum number of jobs of all lanes, > 0.
          lease: The lease of the claimed rows.
        """
        ...

    def settle(self, verdicts: Sequence[Verdict]) -> Sequence[bool]:
        """Apply outcomes and extensions, each on its own.

        Returns:
          For each whether it was applied: the row existed with the token of its job.
        """
        ...

    def find(self, ids: Sequence[JobId]) -> Sequence[Job | None]:
        """Return jobs by id, in the order of the ids; None where there is no row.

        A store that is not transactional may miss a row while it moves; the next call finds it.
        """
        ...

    def scan(
        self,
        lane: Lane,
        *,
        after: tuple[int, JobId] | None,
        until_us: int | None,
        limit: int,
        skip: int = 0,
    ) -> JobPage:
        """Read a lane in (at, id) order, after `after`, up to and including `until_us`.

        The first `skip` rows are omitted, at less cost than to read them.
        """
        ...

    def walk(
        self, lane: Lane, *, after: Place | None, until: Place | None, limit: int, skip: int = 0
    ) -> JobPage:
        """Read a lane in the order in which the store keeps its rows: each page costs the same.

        Places are those of other walks, and that of a full page is the place of its last row. A row
        that is moved meanwhile may be read twice, or not at all.
        """
        ...

    def lanes(
        self, queue: str, shard: int, *, until_bucket: int, after: Pointer | None, limit: int
    ) -> LanePage:
        """Read the lane list up to bucket `max(until_bucket, closed + 1)`, after `after`."""
        ...

    def sweep(self, queue: str, shard: int, *, now_us: int, width_us: int) -> Marks:
        """Unlist the empty lanes of closed buckets, then close the buckets that are past.

        A lane with rows in the future only is listed under the bucket of its lowest `at_us`
        instead. Buckets are `width_us` wide. Pointers above `closed` stay.
        """
        ...


class Records(Protocol):
    """Small versioned values, in partitions."""

    def read(self, partition: str, *, after: str | None, limit: int) -> Sequence[Record]:
        """Read records in key order, after the key `after`, without expired ones."""
        ...

    def commit(self, partition: str, writes: Sequence[Write]) -> bool:
        """Apply writes to one partition, all or nothing; each key at most once.

        Returns:
          False if an expectation does not hold; then nothing was written.
        """
        ...


class Streams(Protocol):
    """Append-only logs; `at_us` is 0 or more.

    Each shard has a watermark that only grows. No row is ever added at or below it, and rows there
    stay until whole buckets expire. A row that was appended twice may be at two timestamps: readers
    compare ids.
    """

    def append(self, rows: Sequence[Row]) -> Sequence[int | None]:
        """Append rows; a row that exists is not added again.

        A row at or below its shard's watermark is stored just above it, with the same id.

        Returns:
          For each row the `at_us` under which it is stored; None if it may not be stored.
        """
        ...

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
        """Read a shard's rows in order, after `after`, up to `until_us`.

        Rows above the watermark may be incomplete. The first `skip` rows are omitted, at less cost
        than to read them.
        """
        ...

    def close_until(self, stream: str, shard: int, *, at_us: int) -> int:
        """Raise a shard's watermark to at least `at_us`.

        Returns:
          The watermark, -1 at first. From now on a read up to it is complete.
        """
        ...

    def expire(self, stream: str, shard: int, *, before_us: int) -> None:
        """Delete the buckets below both `before_us` and the watermark, each as a whole."""
        ...


class Store(Jobs, Records, Streams, Protocol):
    """One database, as the rest of dueline uses it.

    Attributes:
      transactional: Whether `together` is one transaction.
      scope: Where processes that share the store may run; decides which laws apply.
    """

    transactional: bool
    scope: Literal["process", "machine", "network"]

    def clock_us(self) -> int:
        """Return the store's clock, in microseconds UTC."""
        ...

    def together(self, groups: Sequence[Group]) -> Sequence[bool]:
        """Apply groups, each all or nothing; groups are independent of each other.

        On a store that is not transactional, only a group whose single condition is its first
        write is all or nothing. In any other group, writes before a failed condition stay, and a
        call that raises may have applied a part.

        Returns:
          For each group whether it was applied: every condition held.
        """
        ...

    def describe(self) -> Mapping[str, str]:
        """Return facts and guarantees of this store, for people and `dueline doctor`."""
        ...

    def close(self) -> None:
        """Close the connections; the store is not used afterwards."""
        ...


class Migration(NamedTuple):
    """The result of `migrate`: names of what it created, and the version of the schema now."""

    made: Sequence[str]
    version: str


@runtime_checkable
class Migratable(Protocol):
    """A store whose schema is created on request, not at the first use."""

    def migrate(self) -> Migration:
        """Create what is missing in the schema; change nothing that exists.

        Raises:
          SchemaMismatch: Another version of dueline created it; nothing was changed.
        """
        ...


Bindings = Sequence[object] | Mapping[str, object]
"""Parameters of a statement: values in order, or by name."""


class TransactionView(NamedTuple):
    """A store inside an open transaction, for the thread that opened it.

    Attributes:
      store: A store whose calls are part of the transaction and see its earlier writes.
      execute: Runs a statement on the caller's own tables and returns its rows. Raises BadInput
        for a statement that would end the transaction or write to the store's tables, and
        Conflict for a broken constraint; the transaction stays open.
    """

    store: Store
    execute: Callable[[str, Bindings], list[tuple[Any, ...]]]


@runtime_checkable
class Transactional(Protocol):
    """A store in which callers can open transactions; optional."""

    def transaction(self) -> AbstractContextManager[TransactionView]:
        """Open a transaction that commits at the end of the block, and rolls back if that raises.

        Other readers see nothing of it before the commit, and other writers wait. The same thread
        can neither write outside it nor open a second one.

        Raises:
          BadInput: This thread has a transaction open.
          StoreUnavailable: It was not opened, or nothing was committed at the end.
          Unknown: It may or may not be committed at the end.
        """
        ...
