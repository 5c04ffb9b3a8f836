"""The memory store without transactions.

A model of a store like Cassandra: each step of add, sweep, move and settle is atomic by itself,
and the store runs the same algorithms (`LaneIndex`, `CursorCache`, moves by stub). Rows keep their
position while their values change. Tests and the simulation stop a client, or run others, before
each step.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Literal

from dueline.core.clock import Clock
from dueline.core.errors import StoreUnavailable, Unknown
from dueline.core.job import MOVED, Job, JobId
from dueline.core.lane import Lane, Marks, Pointer
from dueline.core.readback import WriteStatus, status_of_commit, status_of_write
from dueline.core.store import (
    NO_VERSION,
    SETTINGS_PARTITION,
    Claimed,
    Drop,
    Extend,
    Group,
    JobPage,
    LanePage,
    Lease,
    Move,
    Record,
    Row,
    RowPage,
    Verdict,
    Want,
    Write,
)
from dueline.core.store_capabilities import LanesWithRows, RecordsPage
from dueline.core.watermark import StreamShard, StreamWatermarks
from dueline.stores.cursor_cache import CursorCache, Key, LaneScan, RowVersion, key_of
from dueline.stores.lane_index import LaneIndex, Shard
from dueline.stores.memory.rows import jobs_page, lanes_page
from dueline.stores.row_updates import claimed, moved
from dueline.stores.walks import WalksByTime
from tests.harness.cluster import BEFORE_ALL_US, Cluster, Node, lives
from tests.harness.row_changes import (
    Change,
    Found,
    Stub,
    claim,
    extension,
    holds,
    one_by_one,
    version_of,
)

VAIN_ROUNDS_MAX = 100
"""Maximum number of attempts to claim from a lane whose rows other workers claim first."""

REPEATS_MAX = 8
"""Maximum number of times that a conditional write is sent while its answers are lost."""

LOOKS_MAX = 3
"""Maximum number of lookups of a job that moves to another lane meanwhile."""


def nothing(_step: str) -> None:
    """Do nothing before a step."""


class SteppedMemoryStore(WalksByTime):
    """One client of a cluster in memory, with its own caches, as in a process of its own.

    Args:
      clock: The machine's clock, for `clock_us` and the expiry of records only.
      cluster: The data, which other clients may share; empty by default.
      step: Called with the name of each primitive before it; an exception stops the client.
      remember: Whether claims use the cursor cache.
    """

    transactional: bool = False
    scope: Literal["process", "machine", "network"] = "process"

    def __init__(
        self,
        clock: Clock,
        *,
        cluster: Cluster | None = None,
        step: Callable[[str], None] = nothing,
        remember: bool = True,
    ) -> None:
        self._clock = clock
        self._node = Node(cluster or Cluster(), step)
        self._cursors = CursorCache(is_on=remember)
        self._lane_index = LaneIndex(self._node)
        self._watermarks = StreamWatermarks(self._node)

    # Jobs

    def add(self, jobs: Sequence[Job]) -> Sequence[bool]:
        """Insert jobs: list their lanes, insert the rows, then check that they are listed."""
        by_lane: dict[Lane, list[Job]] = {}
        for job in jobs:
            by_lane.setdefault(job.lane, []).append(job)
        failed, unlisted = self._lane_index.acknowledge(
            {lane: lane.bucket for lane in by_lane}, lambda: self._insert(by_lane)
        )
        return [job.lane not in failed and job.lane not in unlisted for job in jobs]

    def _insert(self, by_lane: Mapping[Lane, Sequence[Job]]) -> set[Lane]:
        """Insert rows lane by lane; return the lanes for which the result is unknown."""
        failed = set()
        for lane, jobs in by_lane.items():
            try:
                self._node.index(jobs)
                self._node.insert(lane, jobs)
            except StoreUnavailable:  # rows of other lanes are inserted
                failed.add(lane)
                continue
            new = [(key_of(job), RowVersion(job.at_us, job.token)) for job in jobs]
            self._cursors.learn_inserts(lane, new)
        return failed

    def claim(self, wants: Sequence[Want], *, limit: int, lease: Lease) -> Claimed:
        """Claim the first due rows, want by want, by one conditional batch for each lane."""
        assert limit > 0
        assert lease.duration_us > 0
        jobs: list[Job] = []
        died: dict[JobId, Job] = {}
        next_at_us: dict[Lane, int | None] = {}
        for want in wants:
            if len(jobs) == limit:
                break
            most = min(want.most, limit - len(jobs))
            scan = self._cursors.open(
                want.lane, now_us=lease.now_us, lease_us=lease.duration_us, most=most
            )
            try:
                rows = self._take(scan, lease)
            except BaseException:
                self._cursors.abandon(scan)
                raise
            self._cursors.close(scan)
            jobs += [claimed(row, lease) for row in rows]
            died.update((row.id, row) for row in rows if row.is_claimed())
            next_at_us[want.lane] = scan.next_at_us()
        return Claimed(jobs, died, next_at_us)

    def _take(self, scan: LaneScan, lease: Lease) -> Sequence[Job]:
        """Claim the first due rows of a lane; return them as they were before."""
        read: dict[Key, Found] = {}
        if scan.unconfirmed:  # rule R9
            rows = self._node.some(scan.lane, scan.unconfirmed)
            self._know(scan, scan.unconfirmed, read, {key_of(row.job): row for row in rows})
        for _ in range(VAIN_ROUNDS_MAX):
            self._read_on(scan, read)
            keys = scan.due(scan.most)
            unread = [
                key for key in keys if key not in read or version_of(read[key]) != scan.rows[key]
            ]
            stubs = [key for key in keys if key not in unread and read[key].stub]
            if unread:  # only cached: read the whole rows first
                rows = self._node.some(scan.lane, unread)
                self._know(scan, unread, read, {key_of(row.job): row for row in rows})
                continue
            for key in stubs:
                self._complete(read[key])
                scan.note(key, None)
            if stubs:
                continue
            jobs = [read[key].job for key in keys]
            if not jobs:
                return ()
            present = self._claim(scan.lane, jobs, lease)
            if present is not None:
                won = self._own(present, lease)
                self._know(scan, [key for key in keys if key not in won], read, present)
                jobs = [job for job in jobs if key_of(job) in won]
            for job in jobs:
                scan.note(key_of(job), RowVersion(lease.now_us + lease.duration_us, lease.token))
            if jobs:
                return jobs
        return ()

    def _claim(self, lane: Lane, jobs: Sequence[Job], lease: Lease) -> Mapping[Key, Found] | None:
        """Claim rows that were read, all or none; return as `Node.decide`.

        The same request is repeated while its answers are lost and its rows unchanged (rule U5).
        After a change of one row, no such request can be applied any more.
        """
        changes = [claim(job, lease) for job in jobs]
        lost: Unknown | None = None
        for _ in range(REPEATS_MAX):
            try:
                return self._node.decide(lane, changes)
            except Unknown as error:
                lost = lost or error
            except StoreUnavailable as error:
                if lost is None:
                    raise
                raise lost from error
            present = self._read_back(lost, lane, [change.key for change in changes])
            if not all(holds(present.get(change.key), change) for change in changes):
                return present
        assert lost is not None
        raise lost

    def _own(self, present: Mapping[Key, Found], lease: Lease) -> set[Key]:
        """Return the keys of rows that a request without an answer has claimed (rule U5)."""
        return {key for key, row in present.items() if row.job.token == lease.token}

    def _read_back(self, lost: Unknown, lane: Lane, keys: Sequence[Key]) -> dict[Key, Found]:
        """Read the rows of a write whose answer was lost; raise that error again (rule U2)."""
        try:
            return {key_of(row.job): row for row in self._node.some(lane, keys)}
        except StoreUnavailable as silence:
            raise lost from silence

    def _read_on(self, scan: LaneScan, read: dict[Key, Found]) -> None:
        """Read pages until the first rows are known."""
        while (page := scan.next_page()) is not None:
            rows = self._node.page(scan.lane, page)
            read.update((key_of(row.job), row) for row in rows)
            scan.take(page, [(key_of(row.job), version_of(row)) for row in rows])

    def _know(
        self,
        scan: LaneScan,
        keys: Sequence[Key],
        read: dict[Key, Found],
        present: Mapping[Key, Found],
    ) -> None:
        """Update the known rows from those that are present; others do not exist."""
        for key in keys:
            row = present.get(key)
            scan.note(key, None if row is None else version_of(row))
            if row is not None:
                read[key] = row

    # Verdicts

    def settle(self, verdicts: Sequence[Verdict]) -> Sequence[bool]:
        """Apply outcomes, each on its own, in their order."""
        return one_by_one(self._settle, verdicts)

    def _settle(self, verdict: Verdict) -> bool:
        job = verdict.job
        key = key_of(job)
        if isinstance(verdict, Drop) and job.outcome:
            self._node.erase(job.lane, key)
            self._cursors.learn(job.lane, key, None)
            return True
        if isinstance(verdict, Drop):
            return self._decide(job.lane, Change(key, job.token), None) is None
        while isinstance(verdict, Extend):
            change, seen = extension(verdict), RowVersion(verdict.at_us, job.token)
            refused = self._decide(job.lane, change, seen)
            if refused is None or key not in refused or refused[key].job.token != job.token:
                return refused is None
            verdict = verdict._replace(at_us=refused[key].job.at_us)  # it is longer already
        if verdict.to not in (None, job.lane):
            return self._carry(verdict)
        return self._move(verdict)

    def _decide(
        self, lane: Lane, change: Change, seen: RowVersion | None
    ) -> Mapping[Key, Found] | None:
        """Apply a change and update the cursor cache; return as `Node.decide`."""
        refused = self._send(lane, change)
        if refused is None:
            self._cursors.learn(lane, change.key, seen)
            if change.insert is not None:
                new = change.insert
                self._cursors.learn(lane, key_of(new), RowVersion(new.at_us, new.token))
        return refused

    def _send(self, lane: Lane, change: Change) -> Mapping[Key, Found] | None:
        """Send a change until its status is known (rules U2, U5); return as `Node.decide`."""
        lost: Unknown | None = None
        for _ in range(REPEATS_MAX):
            is_refused = False
            try:
                present = self._node.decide(lane, [change])
                if present is None:
                    return None
                is_refused = True
            except Unknown as error:
                lost = lost or error
                present = self._read_back(lost, lane, [change.key])
            except StoreUnavailable as error:
                if lost is None:
                    raise
                raise lost from error
            status = self._status(change, present.get(change.key), is_unsure=lost is not None)
            if status is WriteStatus.HELD:
                return None
            if lost is not None and status is WriteStatus.UNKNOWN:
                raise lost
            if is_refused or status is WriteStatus.REFUSED:
                return present
        assert lost is not None
        raise lost

    def _status(self, change: Change, row: Found | None, *, is_unsure: bool) -> WriteStatus:
        """Return the status of a change."""
        written = None
        if change.cells is not None:
            written = change.cells.get("token", change.token)
        return status_of_write(
            None if row is None else row.job.token,
            named=change.token,
            written=written,
            is_unsure=is_unsure,
        )

    def _move(self, move: Move) -> bool:
        """Move a row within its lane: in its position, or to that of its due time.

        If the row becomes due earlier than now (rule P6), which only the row itself shows, the
        lane is listed first and checked afterwards, as for an insert.
        """
        job, row = move.job, moved(move)
        lane, is_hop = job.lane, key_of(row) != key_of(job)
        if is_hop:
            self._node.index([row])
        change = Change(key_of(job), job.token, insert=row)
        if not is_hop:
            cells = {name: getattr(row, name) for name in MOVED}
            change = Change(key_of(job), job.token, cells=cells)
        seen = None if is_hop else RowVersion(row.at_us, row.token)
        if move.at_us >= job.at_us:
            refused = self._decide(lane, change._replace(at_us_max=move.at_us), seen)
            if refused is None:
                return True
            if all(row.job.token != job.token for row in refused.values()):
                return False
        refused, unknown = self._lane_index.acknowledge(
            {lane: move.listing}, lambda: self._decide(lane, change, seen)
        )
        if unknown and refused is None:
            raise Unknown("A job was moved, but its lane may not be listed.")
        return refused is None

    def _carry(self, move: Move) -> bool:
        """Move a row to another lane by a stub (rules K1, K2); any client completes a stub."""
        job, target = move.job, moved(move)
        stub = Stub(target, move.listing)
        change = Change(key_of(job), job.token, cells={"token": move.token}, stub=stub)
        if self._decide(job.lane, change, RowVersion(job.at_us, move.token)) is not None:
            return False
        self._complete(Found(job._replace(token=move.token), stub))
        return True

    def _complete(self, row: Found) -> None:
        """Complete a stub: insert and list its target, check the list, then delete the stub.

        Any client may repeat this (rules K3, K4): the target is inserted once.
        """
        assert row.stub is not None
        target, listing = row.stub
        failed, unlisted = self._lane_index.acknowledge(
            {target.lane: listing}, lambda: self._insert({target.lane: [target]})
        )
        if not (failed or unlisted):  # else the stub stays for the next reader
            self._decide(row.job.lane, Change(key_of(row.job), row.job.token), None)

    # Reads

    def find(self, ids: Sequence[JobId]) -> Sequence[Job | None]:
        """Return jobs by id, after completing the stubs among them."""
        return [self._find(job_id) for job_id in ids]

    def _find(self, job_id: JobId) -> Job | None:
        """Look a job up in all its places, latest first; again after completing stubs."""
        row: Job | None = None
        for _ in range(LOOKS_MAX):
            places = reversed(self._node.places(job_id))
            rows = [row for _, lane, key in places for row in self._node.some(lane, [key])]
            row = next((row.job for row in rows if not row.stub), None)
            for stub in [row for row in rows if row.stub]:
                self._complete(stub)
            if row is not None or not rows:
                break
        return row

    def scan(
        self,
        lane: Lane,
        *,
        after: tuple[int, JobId] | None,
        until_us: int | None,
        limit: int,
        skip: int = 0,
    ) -> JobPage:
        """Read a lane in (at, id) order, after completing its stubs.

        No worker would complete those in the lanes of dead-letter jobs.
        """
        rows = list(self._node.every(lane))
        for stub in [row for row in rows if row.stub]:  # K4
            self._complete(stub)
        return jobs_page([row.job for row in rows if not row.stub], after, until_us, limit, skip)

    def lanes(
        self, queue: str, shard: int, *, until_bucket: int, after: Pointer | None, limit: int
    ) -> LanePage:
        """Read the marks, then the lane list, in (listing, lane) order."""
        marks = self._node.marks(Shard(queue, shard))
        pointers = [
            pointer
            for pointer in self._node.pointers(
                Shard(queue, shard), above=marks.swept, until=max(until_bucket, marks.closed + 1)
            )
            if after is None or pointer > after
        ]
        page = pointers[:limit]
        more = page[-1] if len(page) < len(pointers) else None
        settings = self._node.read(SETTINGS_PARTITION, self.clock_us())
        versions = {record.key: record.version for record in settings}
        return LanePage(page, marks, more, versions.get(queue, NO_VERSION))

    def lanes_with_rows(self, *, after: str | None, limit: int) -> LanesWithRows:
        """Return a page of the lanes that hold rows, in their order."""
        return lanes_page(self._node.lanes_with_rows(), after, limit)

    def sweep(self, queue: str, shard: int, *, now_us: int, width_us: int) -> Marks:
        """Unlist empty lanes, list future ones later, then raise the marks: in that order."""
        return self._lane_index.sweep(Shard(queue, shard), now_us=now_us, width_us=width_us)

    # Records and streams

    def read(self, partition: str, *, after: str | None, limit: int) -> Sequence[Record]:
        """Read records in key order, without expired ones."""
        puts = self._node.read(partition, self.clock_us())
        page = [put for put in puts if after is None or put.key > after][:limit]
        return [Record(put.key, put.version, put.value) for put in page]

    def all_records(self, *, after: str | None, limit: int) -> RecordsPage:
        """Return the records of one partition."""
        del limit
        names = [name for name in self._node.partitions() if after is None or name > after]
        if not names:
            return RecordsPage((), None)
        puts = self._node.read(names[0], self.clock_us())
        return RecordsPage([(names[0], put) for put in puts], names[0])

    def commit(self, partition: str, writes: Sequence[Write]) -> bool:
        """Apply writes to one partition, all or nothing."""
        lost: Unknown | None = None
        for _ in range(REPEATS_MAX):
            try:
                if self._node.commit(partition, writes, self.clock_us()):
                    return True
                if lost is None:
                    return False
            except Unknown as error:
                lost = lost or error
            except StoreUnavailable as error:
                if lost is None:
                    raise
                raise lost from error
            status = self._commit_status(lost, partition, writes)
            if status is not WriteStatus.OPEN:
                break
        assert lost is not None
        if status is not WriteStatus.HELD:
            raise lost
        return True

    def _commit_status(self, lost: Unknown, partition: str, writes: Sequence[Write]) -> WriteStatus:
        """Return the status of a commit whose answer was lost."""
        try:
            puts = self._node.read(partition, BEFORE_ALL_US)
        except StoreUnavailable as silence:
            raise lost from silence
        stored = {put.key: put.version for put in puts}
        live = {put.key: put.version for put in puts if lives(put, self.clock_us())}
        return status_of_commit(writes, stored, live, is_unsure=True)

    def append(self, rows: Sequence[Row]) -> Sequence[int | None]:
        """Insert rows, then check that they are above their shards' watermarks."""
        return self._watermarks.append(rows)

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
        page = self._node.tail(StreamShard(stream, shard), after, limit, until_us, skip)
        return RowPage(page, (page[-1].at_us, page[-1].id) if page else after)

    def close_until(self, stream: str, shard: int, *, at_us: int) -> int:
        """Raise a shard's watermark."""
        return self._watermarks.close_until(StreamShard(stream, shard), at_us)

    def expire(self, stream: str, shard: int, *, before_us: int) -> None:
        """Delete rows below a timestamp that is closed."""
        place = StreamShard(stream, shard)
        self._node.expire(place, min(before_us, self._node.mark_of(place) + 1))

    # The store

    def clock_us(self) -> int:
        """Return the time of the clock that was passed in, in microseconds UTC."""
        return self._clock.wall_us()

    def together(self, groups: Sequence[Group]) -> Sequence[bool]:
        """Apply groups in order; each stops at its first failed condition."""
        return [self._apply(group) for group in groups]

    def _apply(self, group: Group) -> bool:
        held = all(self._settle(verdict) for verdict in group.verdicts) and all(
            self.commit(commit.partition, commit.writes) for commit in group.commits
        )
        if held and not (all(self.add(group.jobs)) and None not in self.append(group.rows)):
            raise Unknown("The jobs and rows of a group may or may not be stored.")
        return held

    def describe(self) -> Mapping[str, str]:
        """Return facts and guarantees of the store."""
        promise = "none: gone with the process"
        return {"store": "memory, without transactions", "durability": promise}

    def close(self) -> None:
        """Do nothing: the data lives as long as the cluster object."""
