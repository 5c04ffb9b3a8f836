"""Optional capabilities of stores, in addition to the store protocol."""

from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar, runtime_checkable

from dueline.core.disk_wait import DiskWait
from dueline.core.errors import StoreUnavailable
from dueline.core.job import Job, JobId
from dueline.core.job_columns import JobColumns, Sample, columns_in
from dueline.core.lane import Lane, Pointer
from dueline.core.store import JobPage, LanePage, Lease, Place, Put, Row, Store, Want
from dueline.core.wakeup import Wakeups

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop  # slow to load

T = TypeVar("T")

PREFETCH_US_MAX = 500_000
"""Maximum time before its due time at which a job is prefetched, in microseconds."""

PREFETCH_LEAD_US = 250_000
"""Time before its due time at which a worker prefetches the next job: longer than a slow flush."""


class Prefetched(NamedTuple):
    """A job that was claimed before it is due. start_us: its due time; it does not run earlier."""

    job: Job
    start_us: int


class PrefetchResult(NamedTuple):
    """The result of `prefetch`: jobs in the order of the wants, then of their due times.

    next_at_us: as in `Claimed`.
    """

    jobs: Sequence[Prefetched]
    next_at_us: Mapping[Lane, int | None]


@runtime_checkable
class SupportsPrefetch(Protocol):
    """A store in which workers can claim jobs shortly before they are due.

    An idle worker claims the next job early and starts it on time, so that the flush of the claim
    does not delay the start.
    """

    def prefetch(
        self, wants: Sequence[Want], *, limit: int, until_us: int, lease: Lease
    ) -> PrefetchResult:
        """Claim the first waiting rows that become due after `now_us`, up to `until_us`.

        Works want by want, atomic in each lane. Rows that are claimed or have an outcome are left
        to their workers, and due rows to `claim`. A row is claimed as by `claim`, but its lease
        starts at its due time: `at_us` grows by `duration_us`.
        """
        ...


class LanesWithRows(NamedTuple):
    """A page of lanes that have rows, in any order; pass `after` to read on, None at the end."""

    lanes: Sequence[Lane]
    after: str | None


@runtime_checkable
class ListsLanes(Protocol):
    """A store that can list all lanes that have rows.

    The monitor uses this to find jobs in lanes that the lane list misses, after a bug or a foreign
    write to the tables.
    """

    def lanes_with_rows(self, *, after: str | None, limit: int) -> LanesWithRows:
        """Return a page of lanes that have rows, after `after`; a lane may be returned twice."""
        ...


class RecordsPage(NamedTuple):
    """A page of all records; pass `after` to read on, None at the end.

    records: each with its partition, as a write that stores it again.
    """

    records: Sequence[tuple[str, Put]]
    after: str | None


@runtime_checkable
class ListsRecords(Protocol):
    """A store that can list the records of all partitions, to move them to another store."""

    def all_records(self, *, after: str | None, limit: int) -> RecordsPage:
        """Return a page of the records that have not expired, after `after`.

        A partition is in key order. limit: about how many records.
        """
        ...


@runtime_checkable
class ShowsTransactions(Protocol):
    """A store in which a caller's transaction may read now and commit minutes later."""

    def open_transactions(self) -> frozenset[str]:
        """Return names of the transactions of other sessions that used the store's tables."""
        ...


@runtime_checkable
class ReadsShardsAtOnce(Protocol):
    """A store that reads the lane lists of many shards as cheaply as one."""

    def lanes_of(
        self, queue: str, after: Mapping[int, Pointer | None], *, until_bucket: int, limit: int
    ) -> Mapping[int, LanePage]:
        """Return for each shard the page that `lanes` returns after its pointer."""
        ...


@runtime_checkable
class ScansLanesAtOnce(Protocol):
    """A store that reads many lanes with fewer requests than one by one."""

    def scan_each(
        self,
        places: Sequence[tuple[Lane, tuple[int, JobId] | None]],
        *,
        until_us: int | None,
        limit: int,
    ) -> Sequence[JobPage]:
        """Return for each lane the page that `scan` returns after a place, or a shorter one."""
        ...


@runtime_checkable
class ReadsColumns(Protocol):
    """A store that reads whole lanes by columns, without an object for each job."""

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
        """Return the fields of the jobs that `walk` returns, or of fewer.

        Args:
          lane, after, until, limit: As in `walk`.
          names: Fields of `Job` to read: neither `lane` nor `alone`.
          different: Fields in which the jobs of the page before differ, which may save a query.
        """
        ...

    def sample(self, lanes: Sequence[Lane], *, most: int) -> Sample:
        """Return about `most` places in lanes for `walk_columns`, at the cost of a few pages."""
        ...


def walk_columns(
    store: Store,
    lane: Lane,
    names: frozenset[str],
    *,
    after: Place | None,
    until: Place | None,
    limit: int,
    different: frozenset[str] = frozenset(),
) -> JobColumns:
    """Return the fields of a page of jobs by column, from any store; see `ReadsColumns`."""
    if isinstance(store, ReadsColumns):
        return store.walk_columns(
            lane, names, after=after, until=until, limit=limit, different=different
        )
    return columns_in(store.walk(lane, after=after, until=until, limit=limit), names)


def sample_of(store: Store, lanes: Sequence[Lane], *, most: int) -> Sample | None:
    """Return about `most` places in lanes; None if the store has no cheap way to find them."""
    return store.sample(lanes, most=most) if isinstance(store, ReadsColumns) else None


@runtime_checkable
class FlushesLater(Protocol):
    """A store in which a loss of power may undo claims, and nothing else (rule P8).

    A job whose claim was undone waits again. A claim is safe once a later write has returned, or
    `flush`. Other processes of the machine see it at once.
    """

    def flush(self) -> None:
        """Make earlier claims survive a loss of power."""
        ...


def flush_claims(store: Store) -> None:
    """Make claims durable before their effects become visible outside the store."""
    if isinstance(store, FlushesLater):
        store.flush()


@runtime_checkable
class WaitsForDisk(Protocol):
    """A store whose calls wait for a disk. disk: the present call."""

    disk: DiskWait


def answer_of(store: Store, read: Callable[[], T]) -> T:
    """Return what `read` returns, which calls the store.

    Raises:
      StoreUnavailable: The store's disk does not answer.
    """
    disk: DiskWait | None = getattr(store, "disk", None)  # quicker than a check of the protocol
    return read() if disk is None else disk.answer(read)


def silence_of(store: Store) -> StoreUnavailable | None:
    """Return the error of a store whose disk does not answer a call of this process, or None."""
    if isinstance(store, WaitsForDisk) and not store.disk.left_us():
        return store.disk.error()
    return None


@runtime_checkable
class ComparesIndexes(Protocol):
    """A store that can compare its indexes with its tables: a damaged index hides rows."""

    def compare_indexes(self, *, timeout_us: int) -> list[str] | None:
        """Compare all indexes with their tables, without blocking writers.

        Args:
          timeout_us: Maximum duration, in microseconds.

        Returns:
          The first differences, as strings; None if the time was too short.
        """
        ...


@runtime_checkable
class FollowsLease(Protocol):
    """A store on a server whose calls can be given up early enough for a lease to be extended."""

    def follow_lease(self, lease_us: int) -> None:
        """Give up what takes longer than a third of a lease, unless the URL has a time limit."""
        ...


def follow_lease(store: Store, lease_us: int) -> None:
    """Have a store give up calls in time for leases of this duration."""
    if isinstance(store, FollowsLease):
        store.follow_lease(lease_us)


@runtime_checkable
class SendsWakeups(Protocol):
    """A store whose database can notify workers on other machines."""

    def wakeups(self) -> Wakeups:
        """Return the wake-ups of this store's workers."""
        ...


class Joined(NamedTuple):
    """A caller's open transaction: the store as it sees it, and wake-ups sent at its commit."""

    store: Store
    wakeups: Wakeups


class AwaitedConnection(NamedTuple):
    """A caller's asynchronous connection, whose coroutines another thread waits for.

    Attributes:
      connection: The connection, or the session of an ORM.
      loop: The event loop that it belongs to.
    """

    connection: Any
    loop: "AbstractEventLoop"

    def wait(self, call: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the loop, and return its result."""
        from asyncio import run_coroutine_threadsafe  # noqa: PLC0415  (slow to load)

        return run_coroutine_threadsafe(call, self.loop).result()


@runtime_checkable
class JoinsTransactions(Protocol):
    """A store whose calls can be part of a transaction on a caller's own connection."""

    def join(self, tx: object, shards: Collection[tuple[str, int]] = ()) -> Joined:
        """Return the store inside a transaction that the caller has open and will end.

        Args:
          tx: A connection or cursor of the store's driver, or an object of an ORM that has one;
            an AwaitedConnection for those that are asynchronous.
          shards: Shards of queues that it will write to. What they need is created apart: the
            transaction may see only what was there when it began.

        Raises:
          BadInput: It is not such a connection, has no transaction open, or is to another
            database.
        """
        ...

    def transaction_id(self) -> str:
        """Return the id of the transaction; only a store that `join` returned has one."""
        ...

    def is_committed(self, transaction: str) -> bool:
        """Return whether a caller's transaction was committed; one that is open is ended first.

        Args:
          transaction: Its id, from `transaction_id`.
        """
        ...


@runtime_checkable
class RecordsEvents(Protocol):
    """The recording store of an engine: it makes rows of the history, for others to write."""

    def rows_of_event(self, job: Job, what: str, at_us: int, text: str) -> Sequence[Row]:
        """Return the row of what happened to a job; none if its queue does not record it."""
        ...


def rows_of_event(store: Store, job: Job, what: str, at_us: int, text: str) -> Sequence[Row]:
    """Return the row of the history of what happened to a job; none if it is not recorded."""
    return store.rows_of_event(job, what, at_us, text) if isinstance(store, RecordsEvents) else ()


@runtime_checkable
class CountsStrayAnswers(Protocol):
    """A store that counts the answers of its server that belonged to no request."""

    def stray_answers(self) -> int:
        """Return the number of answers that this process dropped."""
        ...


def stray_answers_of(store: Store) -> int:
    """Return the number of answers that this process dropped; 0 where a store counts none."""
    return store.stray_answers() if isinstance(store, CountsStrayAnswers) else 0
