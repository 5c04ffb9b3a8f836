"""The executable model, in memory."""

import heapq
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from typing import Literal, NoReturn, TypeVar

from dueline.core.clock import Clock
from dueline.core.errors import BadInput
from dueline.core.job import Job, JobId, State
from dueline.core.lane import Lane, Marks, Pointer, bucket_of
from dueline.core.store import (
    BESIDE_A_TRANSACTION,
    NO_VERSION,
    SETTINGS_PARTITION,
    Bindings,
    Claimed,
    Delete,
    Drop,
    Extend,
    Group,
    JobPage,
    LanePage,
    Lease,
    Move,
    Put,
    Record,
    Row,
    RowPage,
    TransactionView,
    Verdict,
    Want,
    Write,
)
from dueline.core.store_capabilities import LanesWithRows, Prefetched, PrefetchResult, RecordsPage
from dueline.stores.memory.rows import jobs_page, lanes_page, order, page_of, waits
from dueline.stores.row_updates import claimed, rewritten
from dueline.stores.walks import WalksByTime

_NOTHING_CLOSED = Marks(swept=-1, closed=-1)

K = TypeVar("K")
V = TypeVar("V")


class MemoryStore(WalksByTime):
    """A store in dictionaries, which end with the process; the reference for other stores.

    One lock makes each call atomic. Every change adds its inverse to an undo log, which rolls back
    a group, a call that raises, or a transaction.
    """

    transactional: bool = True
    scope: Literal["process", "machine", "network"] = "process"

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.RLock()
        self._inside: list[MemoryStore] = []  # the view of the open transaction
        self._undo: list[Callable[[], object]] = []
        self._rows: dict[Lane, dict[JobId, Job]] = {}
        self._lane_of: dict[JobId, Lane] = {}
        self._listed: dict[tuple[str, int], dict[Pointer, bool]] = {}
        self._marks: dict[tuple[str, int], Marks] = {}
        self._records: dict[str, dict[str, Put]] = {}
        self._streams: dict[tuple[str, int], dict[tuple[int, bytes], Row]] = {}
        self._closed: dict[tuple[str, int], int] = {}

    # Jobs.

    def add(self, jobs: Sequence[Job]) -> Sequence[bool]:
        """Insert jobs and list their lanes; a job that has a row is not inserted again."""
        with self._unit():
            for job in jobs:
                self._add(job)
            return [True] * len(jobs)

    def claim(self, wants: Sequence[Want], *, limit: int, lease: Lease) -> Claimed:
        """Claim the first due rows, want by want, until there are `limit`."""
        assert limit > 0
        assert lease.duration_us > 0
        now_us = lease.now_us
        rows, heads = self._first(wants, limit, lambda row: row.at_us <= now_us, lease)
        died = {row.id: row for row in rows if row.is_claimed()}
        return Claimed([claimed(row, lease) for row in rows], died, heads)

    def prefetch(
        self, wants: Sequence[Want], *, limit: int, until_us: int, lease: Lease
    ) -> PrefetchResult:
        """Claim the first rows that become due soon."""
        now_us = lease.now_us
        rows, heads = self._first(wants, limit, lambda row: waits(row, now_us, until_us), lease)
        return PrefetchResult([Prefetched(claimed(row, lease), row.at_us) for row in rows], heads)

    def _first(
        self, wants: Sequence[Want], limit: int, fits: Callable[[Job], bool], lease: Lease
    ) -> tuple[list[Job], dict[Lane, int | None]]:
        """Claim the first rows that fit; return them unclaimed, and each lane's lowest `at_us`."""
        jobs: list[Job] = []
        heads: dict[Lane, int | None] = {}
        with self._unit():
            for want in wants:
                if len(jobs) == limit:
                    break
                rows = self._rows.get(want.lane, {})
                most = min(want.most, limit - len(jobs))
                first = heapq.nsmallest(most, filter(fits, rows.values()), key=order)
                for row in first:
                    self._set(rows, row.id, claimed(row, lease))
                jobs += first
                heads[want.lane] = min((row.at_us for row in rows.values()), default=None)
        return jobs, heads

    def settle(self, verdicts: Sequence[Verdict]) -> Sequence[bool]:
        """Apply outcomes, each on its own, in their order."""
        with self._unit():
            return [self._settle(verdict) for verdict in verdicts]

    def find(self, ids: Sequence[JobId]) -> Sequence[Job | None]:
        """Return jobs by id."""
        with self._unit(reads=True):
            return [self._find(job_id) for job_id in ids]

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
        with self._unit(reads=True):
            return jobs_page(self._rows.get(lane, {}).values(), after, until_us, limit, skip)

    def lanes(
        self, queue: str, shard: int, *, until_bucket: int, after: Pointer | None, limit: int
    ) -> LanePage:
        """Read the lane list in (listing, lane) order."""
        with self._unit(reads=True):
            marks = self._marks.get((queue, shard), _NOTHING_CLOSED)
            until_bucket = max(until_bucket, marks.closed + 1)
            pointers = [
                pointer
                for pointer in self._listed.get((queue, shard), {})
                if pointer.listing <= until_bucket and (after is None or pointer > after)
            ]
            settings = self._live(SETTINGS_PARTITION, queue)
        page = heapq.nsmallest(limit, pointers)
        more = page[-1] if len(page) < len(pointers) else None
        return LanePage(page, marks, more, settings.version if settings else NO_VERSION)

    def lanes_with_rows(self, *, after: str | None, limit: int) -> LanesWithRows:
        """Return a page of the lanes that hold rows, in their order."""
        with self._unit(reads=True):
            return lanes_page((lane for lane, rows in self._rows.items() if rows), after, limit)

    def sweep(self, queue: str, shard: int, *, now_us: int, width_us: int) -> Marks:
        """Unlist empty lanes, list future ones later, then raise the marks: in that order."""
        with self._unit():
            swept, closed = self._marks.get((queue, shard), _NOTHING_CLOSED)
            listed = self._listed.setdefault((queue, shard), {})
            kept = closed + 1
            for pointer in sorted(pointer for pointer in listed if pointer.listing <= closed):
                ats_us = [row.at_us for row in self._rows.get(pointer.lane, {}).values()]
                if ats_us and min(ats_us) <= now_us:
                    kept = min(kept, pointer.listing)
                    continue
                if ats_us:
                    self._list(pointer.lane, bucket_of(min(ats_us), width_us))
                else:
                    self._unset(self._rows, pointer.lane)
                self._unset(listed, pointer)
            marks = Marks(max(swept, kept - 1), max(closed, bucket_of(now_us, width_us) - 1))
            self._set(self._marks, (queue, shard), marks)
            return marks

    # Records.

    def read(self, partition: str, *, after: str | None, limit: int) -> Sequence[Record]:
        """Read records in key order, without expired ones."""
        with self._unit(reads=True):
            keys = [
                key
                for key in self._records.get(partition, {})
                if (after is None or key > after) and self._live(partition, key)
            ]
            table = self._records.get(partition, {})
            return [
                Record(key, table[key].version, table[key].value)
                for key in heapq.nsmallest(limit, keys)
            ]

    def all_records(self, *, after: str | None, limit: int) -> RecordsPage:
        """Return the records of one partition."""
        del limit
        with self._unit(reads=True):
            names = sorted(name for name in self._records if after is None or name > after)
            if not names:
                return RecordsPage((), None)
            table = self._records[names[0]]
            records = [(names[0], table[key]) for key in sorted(table) if self._live(names[0], key)]
            return RecordsPage(records, names[0])

    def commit(self, partition: str, writes: Sequence[Write]) -> bool:
        """Apply writes to one partition, all or nothing."""
        with self._unit():
            return self._commit(partition, writes)

    # Streams.

    def append(self, rows: Sequence[Row]) -> Sequence[int | None]:
        """Append rows above their shards' watermarks; a row that exists is not added again."""
        with self._unit():
            return [self._append(row) for row in rows]

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
        """Read a shard's rows in (at, id) order."""
        with self._unit(reads=True):
            rows = page_of(self._streams.get((stream, shard), {}), after, limit, until_us, skip)
        return RowPage(rows, (rows[-1].at_us, rows[-1].id) if rows else after)

    def close_until(self, stream: str, shard: int, *, at_us: int) -> int:
        """Raise a shard's watermark."""
        with self._unit():
            mark = max(at_us, self._closed.get((stream, shard), -1))
            self._set(self._closed, (stream, shard), mark)
            return mark

    def expire(self, stream: str, shard: int, *, before_us: int) -> None:
        """Delete rows below a timestamp that is closed."""
        with self._unit():
            table = self._streams.get((stream, shard), {})
            until_us = min(before_us - 1, self._closed.get((stream, shard), -1))
            for place in [place for place in table if place[0] <= until_us]:
                self._unset(table, place)

    # The store.

    def clock_us(self) -> int:
        """Return the time of the clock that was passed in, in microseconds UTC."""
        return self._clock.wall_us()

    def together(self, groups: Sequence[Group]) -> Sequence[bool]:
        """Apply groups in order, each all or nothing."""
        with self._unit():
            return [self._apply(group) for group in groups]

    @contextmanager
    def transaction(self) -> Iterator[TransactionView]:
        """Hold the lock to the end of the block; roll back if it raises."""
        with self._unit():
            inside = copy(self)  # the same tables, the same lock
            self._inside.append(inside)
            try:
                yield TransactionView(inside, _no_tables)
            finally:
                self._inside.clear()

    def describe(self) -> Mapping[str, str]:
        """Return facts and guarantees of the store."""
        return {"store": "memory", "durability": "none: gone with the process"}

    def close(self) -> None:
        """Do nothing: the data lives as long as the store object."""

    # One row, one record, one group; the lock is held.

    def _add(self, job: Job) -> None:
        if job.id not in self._lane_of:
            self._list(job.lane, job.lane.bucket)
            self._put(job)

    def _settle(self, verdict: Verdict) -> bool:
        row = self._find(verdict.job.id)
        if row is None or row.lane != verdict.job.lane or row.token != verdict.job.token:
            return False
        if isinstance(verdict, Drop):
            self._take(row)
        elif isinstance(verdict, Extend):
            state = State.STARTED if verdict.started else row.state
            self._put(row._replace(at_us=max(row.at_us, verdict.at_us), state=state))
        else:
            self._move(row, verdict)
        return True

    def _move(self, row: Job, move: Move) -> None:
        if move.to is not None or move.at_us < row.at_us:
            self._list(move.to or row.lane, move.listing)
        moved = rewritten(row, move)
        if move.to is not None:
            self._take(row)
            moved = moved._replace(lane=move.to, pos_us=move.at_us, hop=row.hop + 1)
        self._put(moved)

    def _commit(self, partition: str, writes: Sequence[Write]) -> bool:
        for write in writes:
            present = self._live(partition, write.key)
            version = present.version if present else NO_VERSION
            if write.expect is not None and write.expect != version:
                return False
        table = self._records.setdefault(partition, {})
        for write in writes:
            if isinstance(write, Delete):
                self._unset(table, write.key)
            else:
                self._set(table, write.key, write)
        return True

    def _append(self, row: Row) -> int:
        table = self._streams.setdefault((row.stream, row.shard), {})
        if (row.at_us, row.id) not in table:
            closed = self._closed.get((row.stream, row.shard), -1)
            row = row if row.at_us > closed else row._replace(at_us=closed + 1)
            self._set(table, (row.at_us, row.id), table.get((row.at_us, row.id), row))
        return row.at_us

    def _apply(self, group: Group) -> bool:
        start = len(self._undo)
        held = all(self._settle(verdict) for verdict in group.verdicts) and all(
            self._commit(commit.partition, commit.writes) for commit in group.commits
        )
        if not held:
            self._take_back(start)
            return False
        for job in group.jobs:
            self._add(job)
        for row in group.rows:
            self._append(row)
        return True

    # Tables, and the undo log.

    def _find(self, job_id: JobId) -> Job | None:
        lane = self._lane_of.get(job_id)
        return None if lane is None else self._rows[lane][job_id]

    def _live(self, partition: str, key: str) -> Put | None:
        put = self._records.get(partition, {}).get(key)
        if put is None or put.expires_us is None or put.expires_us > self._clock.wall_us():
            return put
        return None

    def _list(self, lane: Lane, listing: int) -> None:
        shard = (lane.queue, lane.shard)
        closed = self._marks.get(shard, _NOTHING_CLOSED).closed
        pointer = Pointer(max(listing, closed + 1), lane)
        self._set(self._listed.setdefault(shard, {}), pointer, value=True)

    def _put(self, job: Job) -> None:
        self._set(self._rows.setdefault(job.lane, {}), job.id, job)
        self._set(self._lane_of, job.id, job.lane)

    def _take(self, job: Job) -> None:
        self._unset(self._rows[job.lane], job.id)
        self._unset(self._lane_of, job.id)

    def _set(self, table: dict[K, V], key: K, value: V) -> None:
        if key in table:
            present = table[key]
            self._undo.append(lambda: table.__setitem__(key, present))
        else:
            self._undo.append(lambda: table.pop(key))
        table[key] = value

    def _unset(self, table: dict[K, V], key: K) -> None:
        if key in table:
            present = table.pop(key)
            self._undo.append(lambda: table.__setitem__(key, present))

    def _take_back(self, start: int) -> None:
        while len(self._undo) > start:
            self._undo.pop()()

    @contextmanager
    def _unit(self, *, reads: bool = False) -> Iterator[None]:
        with self._lock:
            if self._inside and self._inside[0] is not self and not reads:
                raise BadInput(BESIDE_A_TRANSACTION, hint="Use tx=, or call after the block.")
            start = len(self._undo)
            try:
                yield
            except BaseException:
                self._take_back(start)
                raise
            finally:
                if not self._inside:
                    self._undo.clear()


def _no_tables(_statement: str, _bindings: Bindings) -> NoReturn:
    raise BadInput("The memory store runs no SQL statements.", hint="Use SQLite for this.")
