"""The store in Redis or Valkey.

Every write is one call of a function, which the server runs alone, and writes to its append-only
file as a whole. Hot path: the benchmark `default`.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from dueline.core.clock import SECOND_US, Clock
from dueline.core.errors import StoreUnavailable, Unknown
from dueline.core.job import Job, JobId
from dueline.core.lane import Lane, Marks, Pointer
from dueline.core.pagination import parts_of
from dueline.core.store import (
    NO_VERSION,
    SETTINGS_PARTITION,
    Claimed,
    Commit,
    Group,
    JobPage,
    LanePage,
    Lease,
    Put,
    Record,
    Row,
    RowPage,
    Verdict,
    Want,
    Write,
)
from dueline.core.store_capabilities import LanesWithRows, Prefetched, PrefetchResult, RecordsPage
from dueline.core.wakeup import wakeups_of
from dueline.stores.group_commit import ServerCommit, Written
from dueline.stores.idle_wakeups import Notified
from dueline.stores.redis import facts
from dueline.stores.redis import rows as packing
from dueline.stores.redis.address import Address
from dueline.stores.redis.connection import Connections
from dueline.stores.redis.links import Nodes
from dueline.stores.redis.operations import (
    PART,
    Operations,
    Outcome,
    each_verdict,
    outcome_of,
    parts_of_groups,
)
from dueline.stores.redis.wakeup import ChannelWakeups
from dueline.stores.row_updates import claimed
from dueline.stores.walks import WalksByTime

_SWEPT = b"500"


class RedisStore(WalksByTime):
    """Jobs, records and streams in keys with one prefix.

    Args:
      address: The server and the prefix.
      clock: The machine's clock; the store's is the server's.
    """

    transactional = True
    scope: Literal["process", "machine", "network"] = "network"

    def __init__(self, address: Address, *, clock: Clock) -> None:
        self._address = address
        self._connections = Connections(address, Nodes(address, clock), clock)
        self._notified = Notified()
        self._inserts = ServerCommit(self._insert)

    def clock_us(self) -> int:
        """Return the server's clock, in microseconds UTC."""
        seconds, micros = self._connections.command("TIME")
        return int(seconds) * SECOND_US + int(micros)

    def describe(self) -> Mapping[str, str]:
        """Return facts and guarantees of the store."""
        return facts.facts_of(self._connections)

    def wakeups(self) -> ChannelWakeups:
        """Return the wake-ups of the store's workers."""
        return ChannelWakeups(self._connections, self._notified)

    def follow_lease(self, lease_us: int) -> None:
        """Give up calls after a third of a lease, unless the URL has a time limit."""
        self._connections.follow_lease(lease_us)

    def close(self) -> None:
        """Close the connections."""
        self._connections.close()

    # Jobs

    def add(self, jobs: Sequence[Job]) -> Sequence[bool]:
        """Insert jobs and list their lanes; notify idle workers."""
        if not jobs:
            return []
        inserted = self._inserts.write(jobs)
        self._notified.wakeups = inserted.wakeups
        return inserted.held

    def _insert(self, jobs: Sequence[Job]) -> Written:
        """Insert jobs; notify idle workers with the last ones."""
        parts = parts_of_groups(Group(jobs=part) for part in parts_of(jobs, PART))
        wakeups = wakeups_of([(job.lane, job.at_us) for job in jobs], now_us=jobs[0].enqueued_us)
        parts[-1].add_wakeups(wakeups)
        self._apply("insert", parts)
        return Written([True] * len(jobs), wakeups)

    def claim(self, wants: Sequence[Want], *, limit: int, lease: Lease) -> Claimed:
        """Claim the first due rows, want by want."""
        if not wants:
            return Claimed([], {}, {})
        most = b"%d" % min(limit, PART)
        arguments = [packing.pack8(lease.now_us + 1), packing.claim_head(lease), most]
        jobs, skipped, heads = self._claim("claim", arguments, wants)
        died = {job.id: job for job in jobs if job.is_claimed()}
        return Claimed([_after(job, lease, skipped) for job in jobs], died, heads)

    def prefetch(
        self, wants: Sequence[Want], *, limit: int, until_us: int, lease: Lease
    ) -> PrefetchResult:
        """Claim the first rows that become due soon."""
        if not wants:
            return PrefetchResult([], {})
        times = (packing.pack8(lease.now_us + 1), packing.pack8(until_us + 1))
        most = b"%d" % min(limit, PART)
        arguments = [*times, packing.claim_head(lease), b"%d" % lease.duration_us, most]
        jobs, skipped, heads = self._claim("prefetch", arguments, wants)
        return PrefetchResult(
            [Prefetched(_after(job, lease, skipped), job.at_us) for job in jobs], heads
        )

    def _claim(
        self, function: str, arguments: list[bytes], wants: Sequence[Want]
    ) -> tuple[list[Job], dict[bytes, bytes], dict[Lane, int | None]]:
        """Claim rows; return them as before, fences that skip some, and the heads of the lanes."""
        for lane, most in wants:
            arguments += (packing.lane_key(lane), b"%d" % most)
        heads, ids, rows, bodies, skipped = self._connections.claim(function, *arguments)
        next_at_us = {want.lane: _head_of(head) for want, head in zip(wants, heads, strict=False)}
        jobs = packing.all_jobs_of(ids, rows, bodies)
        return jobs, packing.pairs_of(skipped), next_at_us

    def settle(self, verdicts: Sequence[Verdict]) -> Sequence[bool]:
        """Apply outcomes, each on its own."""
        return self._apply("apply", map(each_verdict, parts_of(verdicts, PART))).held

    def find(self, ids: Sequence[JobId]) -> Sequence[Job | None]:
        """Return jobs by id."""
        return [
            job
            for part in parts_of(ids, PART)
            for job in packing.jobs_of(self._connections.read("find", *part))
        ]

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
        jobs: list[Job] = []
        while True:
            most = min(limit - len(jobs), PART)
            place = (*_range(after, until_us), b"%d" % skip, b"%d" % (most + 1))
            page = packing.jobs_of(self._connections.read("scan", packing.lane_key(lane), *place))
            jobs += [job for job in page[:most] if job is not None]
            after, skip = (jobs[-1].at_us, jobs[-1].id) if jobs else after, 0
            if len(page) <= most:
                return JobPage(jobs, None)
            if len(jobs) == limit:
                return JobPage(jobs, after)

    def lanes(
        self, queue: str, shard: int, *, until_bucket: int, after: Pointer | None, limit: int
    ) -> LanePage:
        """Read the lane list."""
        limit = min(limit, PART)
        key = packing.shard_key(queue, shard)
        first = b"-" if after is None else b"(" + packing.pointer_bytes(after)
        marks, version, members, heads = self._connections.read(
            "lanes", key, first, packing.pack8(until_bucket), b"%d" % (limit + 1),
            SETTINGS_PARTITION.encode(), queue.encode(),
        )  # fmt: skip
        pointers = [packing.pointer_of(key, member) for member in members]
        page = pointers[:limit]
        return LanePage(
            page,
            Marks(packing.unpack8(marks), packing.unpack8(marks, 8)),
            page[-1] if len(pointers) > limit else None,
            version or NO_VERSION,
            {pointer.lane: _head_of(head) for pointer, head in zip(page, heads, strict=False)},
        )

    def sweep(self, queue: str, shard: int, *, now_us: int, width_us: int) -> Marks:
        """Unlist the empty lanes of closed buckets, then close the buckets that are past."""
        key, place = packing.shard_key(queue, shard), b"-"
        while True:
            last, *marks = self._connections.keep(
                "sweep", key, place, packing.pack8(now_us), b"%d" % width_us, _SWEPT
            )
            if marks:
                return Marks(packing.unpack8(marks[0]), packing.unpack8(marks[0], 8))
            place = b"(" + last

    def lanes_with_rows(self, *, after: str | None, limit: int) -> LanesWithRows:
        """Return a page of the lanes that have rows."""
        first = b"-" if after is None else b"(" + bytes.fromhex(after)
        keys = self._connections.read("lanes_with_rows", first, b"%d" % limit)
        lanes = [packing.lane_of(key) for key in keys]
        return LanesWithRows(lanes, keys[-1].hex() if len(keys) == limit else None)

    # Records

    def read(self, partition: str, *, after: str | None, limit: int) -> Sequence[Record]:
        """Read records in key order."""
        return [
            Record(put.key, put.version, put.value)
            for put in self._puts(partition, after=after, limit=limit)
        ]

    def _puts(self, partition: str, *, after: str | None, limit: int) -> list[Put]:
        place = b"-" if after is None else b"(" + after.encode()
        puts: list[Put] = []
        while place and len(puts) < limit:
            most = b"%d" % min(limit - len(puts), PART)
            flat, place = self._connections.read("read", partition.encode(), place, most)
            puts += [_put(key, record) for key, record in packing.pairs_of(flat).items()]
        return puts

    def all_records(self, *, after: str | None, limit: int) -> RecordsPage:
        """Return a page of all records, in the order of partitions and keys."""
        place: tuple[str | None, str | None] = (None, None)
        partition, key = json.loads(after) if after else place
        records: list[tuple[str, Put]] = []
        while len(records) < limit:
            if key is None:
                first = b"-" if partition is None else b"(" + partition.encode()
                names = self._connections.read("partitions", first, b"1")
                if not names:
                    return RecordsPage(records, None)
                partition = names[0].decode()
            assert partition is not None
            puts = self._puts(partition, after=key, limit=limit - len(records))
            records += [(partition, put) for put in puts]
            key = puts[-1].key if puts else None
        return RecordsPage(records, json.dumps((partition, key)))

    def commit(self, partition: str, writes: Sequence[Write]) -> bool:
        """Apply writes to one partition, all or nothing."""
        return self.together([Group(commits=(Commit(partition, writes),))])[0]

    # Streams

    def append(self, rows: Sequence[Row]) -> Sequence[int | None]:
        """Append rows above the present watermarks."""
        parts = parts_of_groups(Group(rows=part) for part in parts_of(rows, PART))
        return self._apply("insert", parts).times_us

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
        key, page = packing.shard_key(stream, shard), list[Row]()
        while True:
            most = min(limit - len(page), PART)
            place = (*_range(after, until_us), b"%d" % skip, b"%d" % most)
            places, bodies = self._connections.read("tail", key, *place)
            page += [
                Row(stream, shard, packing.unpack8(place), place[8:], body)
                for place, body in zip(places, bodies, strict=True)
            ]
            after, skip = (page[-1].at_us, page[-1].id) if page else after, 0
            if len(places) < most or len(page) == limit:
                return RowPage(page, after)

    def close_until(self, stream: str, shard: int, *, at_us: int) -> int:
        """Raise a shard's watermark."""
        key = packing.shard_key(stream, shard)
        return packing.unpack8(self._connections.keep("close_until", key, packing.pack8(at_us)))

    def expire(self, stream: str, shard: int, *, before_us: int) -> None:
        """Delete rows below a timestamp that is closed, a page at a time."""
        place = (packing.shard_key(stream, shard), packing.pack8(before_us), b"%d" % PART)
        while self._connections.keep("expire", *place) == PART:
            pass

    def together(self, groups: Sequence[Group]) -> Sequence[bool]:
        """Apply groups, each all or nothing; many in several calls."""
        inserts = all(not group.verdicts for group in groups) and any(
            group.jobs or group.rows for group in groups
        )
        return self._apply("insert" if inserts else "apply", parts_of_groups(groups)).held

    def _apply(self, function: str, parts: Iterable[Operations]) -> Outcome:
        """Apply the parts of a call, one after the other."""
        whole = Outcome([], [])
        for operations in parts:
            try:
                done = outcome_of(self._connections.write(function, operations.all()))
            except StoreUnavailable as error:
                if whole.held and not isinstance(error, Unknown):
                    raise Unknown(
                        f"{error.message} A part was written.", hint="Repeat it with the same ids."
                    ) from error
                raise
            whole.held.extend(done.held)
            whole.times_us.extend(done.times_us)
        return whole


def _after(job: Job, lease: Lease, skipped: Mapping[bytes, bytes]) -> Job:
    """Return a row after a claim; skipped: fences that skip some, see `claimed` in lua/row.lua."""
    row = claimed(job, lease)
    return row._replace(fence=int(skipped[job.id])) if job.id in skipped else row


def _head_of(head: bytes) -> int | None:
    return packing.unpack8(head) if head else None


def _range(after: tuple[int, bytes] | None, until_us: int | None) -> tuple[bytes, bytes]:
    """Return the range of places after a place, up to a time."""
    first = b"-" if after is None else b"(" + packing.place_of(*after)
    return first, b"+" if until_us is None else b"(" + packing.pack8(until_us + 1)


def _put(key: bytes, record: bytes) -> Put:
    start = 9 + record[8]
    expires_us = None if record[:8] == packing.NEVER else packing.unpack8(record)
    return Put(key.decode(), record[9:start], record[start:], expires_us=expires_us)
