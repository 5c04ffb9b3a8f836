"""THE WAIST, its contract in words.

Above it: engines that know policy and no database. Below it: stores that know a database and
no policy. Synchronous, batch-shaped, time passed in. `dueline.store_tests` holds the laws that
every store passes; what is promised here in words is checked there.

Any call may raise `Unknown` (it may or may not have happened) or `StoreUnavailable` (it did
not happen); apart from those a call either happens as a whole or raises and changes nothing.
A process may die in the middle of a call: on a store that is not transactional, between any two
of its steps.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, Protocol, runtime_checkable

from dueline.core.job import Job, JobId, State, Token
from dueline.core.lane import Lane, Marks, Pointer

SETTINGS_PARTITION = "queues"
"""The records' partition that holds each queue's settings, by the queue's name."""

BESIDE_A_TRANSACTION = "This thread has a transaction open, and this call is not part of it."
"""Why a store refuses a write, or a second transaction, of such a thread."""

NO_VERSION = b""
"""What `lanes` answers for a queue without settings; as an expectation: the key is absent."""


class Want(NamedTuple):
    """A lane to claim from, and how many jobs at most."""

    lane: Lane
    most: int


class Claimed(NamedTuple):
    """What a claim brought.

    jobs: the rows as they are now, with the claim's token; in the order of the wants, and of
      (at, id) as it was before the claim inside a lane.
    died: the same job's row as it was, for those whose last claim ended without a verdict.
    next_at_us: for each lane that was visited, the least `at_us` that is left in it, claimed
      or not; None where the lane is empty.
    """

    jobs: Sequence[Job]
    died: Mapping[JobId, Job]
    next_at_us: Mapping[Lane, int | None]


class Drop(NamedTuple):
    """A verdict: the row goes. Holds while the row carries `job.token` (rule P2)."""

    job: Job


class Extend(NamedTuple):
    """A verdict: the claim goes on at least until `at_us`; the token stays.

    It never ends sooner than before: an extension may come late, after a later one.

    started: the handler was started; a row once started stays so until its next verdict.
    """

    job: Job
    at_us: int
    started: bool = False


class Move(NamedTuple):
    """A verdict: the claim ends, and the job is next touched at `at_us`.

    job: the row as it was read; the verdict holds while the row carries its token.
    token: the row's fresh token.
    listing: the bucket of `at_us`; when the row comes to lie earlier than it did, the lane is
      listed under it, or the first that is not closed.
    errors, crashes, alone, state, outcome, error: what the row says from now on. One with an
      outcome stays in its place: `to` is None, `at_us` not before its position.
    to: the lane that the row is carried to. opts: the call's options from now on, not together
      with `to` or an outcome. None keeps either.
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


Verdict = Drop | Extend | Move


class JobPage(NamedTuple):
    """Jobs of a lane in (at, id) order; `after` continues the scan, None at the end."""

    jobs: Sequence[Job]
    after: tuple[int, JobId] | None


class LanePage(NamedTuple):
    """Pointers of a (queue, shard) in (listing, lane) order.

    marks: as they stood before the pointers were read. after: continues the reading, None at
    the end. settings_version: of the queue's settings record, NO_VERSION without one.
    heads: the least `at_us` of lanes, None of empty ones, as far as it was told at little cost.
    """

    pointers: Sequence[Pointer]
    marks: Marks
    after: Pointer | None
    settings_version: bytes
    heads: Mapping[Lane, int | None] = MappingProxyType({})


class Record(NamedTuple):
    """A small versioned value for coordination."""

    key: str
    version: bytes
    value: bytes


class Put(NamedTuple):
    """Write a record.

    version: random, made by the caller. expect: the version that must be there, NO_VERSION
    for none, None for whatever there is. expires_us: from then on it reads as absent.
    """

    key: str
    version: bytes
    value: bytes
    expect: bytes | None = None
    expires_us: int | None = None


class Delete(NamedTuple):
    """Delete a record; `expect` as in Put."""

    key: str
    expect: bytes | None = None


Write = Put | Delete


class Commit(NamedTuple):
    """Writes to one partition of records: all or nothing."""

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
    """Rows of a shard in (at_us, id) order; `after` is the position behind the last."""

    rows: Sequence[Row]
    after: tuple[int, bytes] | None


class Group(NamedTuple):
    """Calls that happen together: all or nothing, including their conditions.

    Applied in the order settle, commit, add, append.
    """

    verdicts: Sequence[Verdict] = ()
    commits: Sequence[Commit] = ()
    jobs: Sequence[Job] = ()
    rows: Sequence[Row] = ()


class Jobs(Protocol):
    """The rows of jobs, in lanes."""

    def add(self, jobs: Sequence[Job]) -> Sequence[bool]:
        """Store jobs and list their lanes.

        Repeating a job with the same key adds nothing while the first row is alive.

        Args: jobs: rows as they are born; each id at most once, and the very same cells at
          each repeat. The cells that claims change are as at a first birth, unless `hop` says
          that it is a later one (a dead job's).
        Returns: per job True = durable and listed, False = unknown.
        """
        ...

    def claim(
        self,
        wants: Sequence[Want],
        *,
        limit: int,
        now_us: int,
        lease_us: int,
        worker: str,
        token: Token,
    ) -> Claimed:
        """Claim the first rows with `at_us <= now_us`, want by want; atomic per lane.

        A claimed row has `at_us = now_us + lease_us`, its fence grown by one, `token`,
        `worker`, `claimed_us = now_us` and the state CLAIMED. Where its last claim died on a
        started job, `crashes` is one more and `alone` is set. It outlasts every process that dies;
        see `dueline.core.store_capabilities` for loss of power.

        Args: wants: lanes in order of preference, each at most once. limit: of all, > 0.
        """
        ...

    def settle(self, verdicts: Sequence[Verdict]) -> Sequence[bool]:
        """Apply verdicts, each on its own.

        Returns: per verdict whether it held: the row was there with the token it names.
        """
        ...

    def find(self, ids: Sequence[JobId]) -> Sequence[Job | None]:
        """Look jobs up by id, in the order of the ids; None where there is no row.

        On a store that is not transactional a row may be overlooked while it is on its way to
        another place; the next look finds it.
        """
        ...

    def scan(
        self, lane: Lane, *, after: tuple[int, JobId] | None, until_us: int | None, limit: int
    ) -> JobPage:
        """Read a lane in (at, id) order, past `after`, up to and including `until_us`."""
        ...

    def lanes(
        self, queue: str, shard: int, *, until_bucket: int, after: Pointer | None, limit: int
    ) -> LanePage:
        """Read the lane list up to `max(until_bucket, closed + 1)`, past `after`."""
        ...

    def sweep(self, queue: str, shard: int, *, now_us: int, width_us: int) -> Marks:
        """Unlist the empty lanes of closed buckets, then close what is past.

        A lane all of whose rows lie in the future is listed under the bucket of its smallest
        `at_us` instead. Buckets are `width_us` wide. Pointers above `closed` are not touched.
        """
        ...


class Records(Protocol):
    """Small versioned values, in partitions."""

    def read(self, partition: str, *, after: str | None, limit: int) -> Sequence[Record]:
        """Read records in key order, past the key `after`; expired ones are absent."""
        ...

    def commit(self, partition: str, writes: Sequence[Write]) -> bool:
        """Apply writes to one partition, each key at most once: all or nothing.

        Returns: False when an expectation does not hold; then nothing was written.
        """
        ...


class Streams(Protocol):
    """Append-only logs; `at_us` is 0 or more.

    Each shard has a mark, an instant that only grows: what lies at or below it stays, until whole
    buckets expire. A row that is repeated may lie at two instants: readers go by the id.
    """

    def append(self, rows: Sequence[Row]) -> Sequence[int | None]:
        """Append rows; one that is there already is not added again.

        A row at or below its shard's mark comes to lie just above it, with the same id.

        Returns: per row the `at_us` at which it lies; None: it may be there or not.
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
    ) -> RowPage:
        """Read a shard's rows in order, past `after`, up to `until_us`; beyond the mark not all."""
        ...

    def close_until(self, stream: str, shard: int, *, at_us: int) -> int:
        """Raise a shard's mark to `at_us`, unless it is there already.

        Returns: the mark, -1 at first. A read up to it from now on is complete.
        """
        ...

    def expire(self, stream: str, shard: int, *, before_us: int) -> None:
        """Let go of the buckets that lie below `before_us` and the mark, each as a whole."""
        ...


class Store(Jobs, Records, Streams, Protocol):
    """One database, seen through the waist.

    transactional: `together` is one transaction.
    scope: how far its processes may be apart; so which laws of the contract apply.
    """

    transactional: bool
    scope: Literal["process", "machine", "network"]

    def clock_us(self) -> int:
        """Read the store's clock: microseconds UTC."""
        ...

    def together(self, groups: Sequence[Group]) -> Sequence[bool]:
        """Apply groups, each all or nothing; groups are independent of each other.

        On a store that is not transactional only a group of one condition, its first write, is
        all or nothing. Of any other the conditions that held before one failed stay applied,
        and a call that raises may have applied a part.

        Returns: per group whether it was applied: every verdict and expectation held.
        """
        ...

    def describe(self) -> Mapping[str, str]:
        """Say what this store is and what it promises, for people and `dueline doctor`."""
        ...

    def close(self) -> None:
        """Let go of connections; the store is not used afterwards."""
        ...


class Migration(NamedTuple):
    """What `migrate` did. made: what was missing, by name. version: of the schema, as it is now."""

    made: Sequence[str]
    version: str


@runtime_checkable
class Migratable(Protocol):
    """A store that is set up on request: one that many share is not changed at a first use."""

    def migrate(self) -> Migration:
        """Make what is missing; what is there stays as it is.

        Raises: SchemaMismatch: another version made it; nothing was changed.
        """
        ...


Bindings = Sequence[object] | Mapping[str, object]
"""What a statement is bound to: values in order, or by name."""


class TransactionView(NamedTuple):
    """A store as it is seen from inside an open transaction, by the thread that opened it.

    store: its calls are part of the transaction, and see what was written there before.
    execute: runs a statement on the caller's own tables and answers its rows. It refuses, with
      BadInput, what would end the transaction or touch the store's tables, and answers a broken
      constraint with Conflict; the transaction goes on.
    """

    store: Store
    execute: Callable[[str, Bindings], list[tuple[Any, ...]]]


@runtime_checkable
class Transactional(Protocol):
    """Beside the waist, optional: transactions of the caller's, on a store where they can be."""

    def transaction(self) -> AbstractContextManager[TransactionView]:
        """Open a transaction that commits at the end of the block, and not if that raises.

        Nobody sees anything of it before, and other writers wait. A write by the same thread
        that goes past it is refused, as is a second transaction.

        Raises:
          BadInput: this thread has one open. StoreUnavailable: it was not opened, or at the
          end nothing was committed. Unknown: at the end; it may or may not be committed.
        """
        ...
