"""The store in a Cassandra keyspace.

A lane is a partition, and a job is a row that keeps its key while conditional batches of that
partition change its values. Records are conditional writes. No write spans two partitions, so
`together` is not a transaction: callers that need one write the outcome first (rule P5).
"""

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Literal

from dueline.core.clock import SECOND_US, Clock, StoreTime
from dueline.core.errors import Unknown
from dueline.core.job import Job, JobId
from dueline.core.lane import Lane, Marks, Pointer
from dueline.core.store import (
    SETTINGS_PARTITION,
    Claimed,
    Commit,
    Group,
    JobPage,
    LanePage,
    Lease,
    Migration,
    Place,
    Record,
    Row,
    RowPage,
    Verdict,
    Want,
    Write,
)
from dueline.core.store_capabilities import LanesWithRows, RecordsPage
from dueline.stores.cassandra import diagnostics, lookup, schema, url
from dueline.stores.cassandra.claims import Claims
from dueline.stores.cassandra.guard import STRAY_ANSWERS
from dueline.stores.cassandra.lane_index import CassandraLaneLister, CassandraLaneStorage
from dueline.stores.cassandra.lane_reader import LanePages
from dueline.stores.cassandra.records import CassandraRecords, bytes_of, is_plain
from dueline.stores.cassandra.session import CassandraSession
from dueline.stores.cassandra.settlement import Verdicts
from dueline.stores.cassandra.statements import chunks
from dueline.stores.cassandra.streams import CassandraStreams
from dueline.stores.cursor_cache import CursorCache
from dueline.stores.group_commit import ServerCommit, Written
from dueline.stores.lane_index import LaneIndex, Shard

SETTINGS_AGE_US_MAX = SECOND_US
"""Maximum age of the settings' version that `lanes` returns, so that an idle poll is two reads."""


class CassandraStore:
    """Jobs, records and streams in one keyspace; connects at the first call.

    Args:
      place: The keyspace and its cluster.
      clock: The machine's clock; estimates the server's time between two readings.
    """

    transactional = False
    scope: Literal["process", "machine", "network"] = "network"

    def __init__(self, place: url.Place, *, clock: Clock) -> None:
        self._session = CassandraSession(place)
        self._clock = clock
        self._time = StoreTime(self.clock_us, clock)
        cursors = CursorCache(is_on=place.remember)
        self._pages = LanePages(self._session)
        self._lane_storage = CassandraLaneStorage(self._session, self._pages)
        self._lane_index = LaneIndex(self._lane_storage)
        self._verdicts = Verdicts(self._session, cursors, self._lane_index)
        self._inserts = ServerCommit[Job](lambda jobs: Written(self._verdicts.add(jobs)))
        self._claims = Claims(self._session, self._pages, cursors, self._verdicts.carry)
        self._records = CassandraRecords(self._session, self._time.earliest_us)
        self._streams = CassandraStreams(self._session)
        self._lane_lister = CassandraLaneLister(self._session)
        self._settings: dict[str, tuple[bytes, int]] = {}

    def clock_us(self) -> int:
        """Return the median of the nodes' clocks, in microseconds UTC.

        One wrong clock changes nothing, whichever node a process talks to.
        """
        answers = self._session.ask_near(
            diagnostics.NOW, self._clock, columns=diagnostics.NOW_COLUMNS
        )
        readings = [(diagnostics.instant_us(rows[0][0]), at_us) for rows, at_us in answers]
        return diagnostics.middle_us(readings, self._clock.monotonic_us())

    def migrate(self) -> Migration:
        """Create the keyspace and its tables if they do not exist."""
        return schema.create(self._session)

    def describe(self) -> Mapping[str, str]:
        """Return facts and guarantees of the store."""
        return {"store": "cassandra", **diagnostics.describe(self._session, self._clock)}

    def stray_answers(self) -> int:
        """Return the number of answers that belonged to no request of this process."""
        return STRAY_ANSWERS.dropped + STRAY_ANSWERS.closed

    def close(self) -> None:
        """Close the connections."""
        self._session.close()

    # Jobs

    def add(self, jobs: Sequence[Job]) -> Sequence[bool]:
        """Insert jobs: list their lanes, insert the rows, then check that they are listed."""
        return self._inserts.write(jobs).held if jobs else []

    def claim(self, wants: Sequence[Want], *, limit: int, lease: Lease) -> Claimed:
        """Claim the first due rows, want by want.

        Rows whose claim stays unknown are not returned; they are due again after the lease.
        """
        assert limit > 0
        assert lease.duration_us > 0
        return self._claims.claim(wants, limit=limit, lease=lease)

    def settle(self, verdicts: Sequence[Verdict]) -> Sequence[bool]:
        """Apply outcomes, each on its own; those on one lane in batches."""
        return self._verdicts.settle(verdicts)

    def find(self, ids: Sequence[JobId]) -> Sequence[Job | None]:
        """Return jobs by id, in the order of the ids."""
        return lookup.find(self._session, self._verdicts, ids) if ids else []

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
        if not skip:
            return self.scan_each([(lane, after)], until_us=until_us, limit=limit)[0]
        return lookup.scan(
            self._pages,
            self._verdicts,
            lane,
            after=after,
            until_us=until_us,
            limit=limit,
            skip=skip,
        )

    def walk(
        self, lane: Lane, *, after: Place | None, until: Place | None, limit: int, skip: int = 0
    ) -> JobPage:
        """Read a lane in the order of positions."""
        return lookup.walk(
            self._pages, self._verdicts, lane, after=after, until=until, limit=limit, skip=skip
        )

    def scan_each(
        self,
        places: Sequence[tuple[Lane, tuple[int, JobId] | None]],
        *,
        until_us: int | None,
        limit: int,
    ) -> Sequence[JobPage]:
        """Read a page of each of many lanes, together."""
        return lookup.scan_each(self._pages, self._verdicts, places, until_us=until_us, limit=limit)

    def lanes(
        self, queue: str, shard: int, *, until_bucket: int, after: Pointer | None, limit: int
    ) -> LanePage:
        """Read the lane list, with a settings version that is at most a second old."""
        version = self._settings_version(queue)
        marks, pointers = self._lane_storage.read(
            Shard(queue, shard), until=until_bucket, after=after, limit=limit
        )
        return LanePage(pointers, marks, pointers[-1] if len(pointers) == limit else None, version)

    def lanes_of(
        self, queue: str, after: Mapping[int, Pointer | None], *, until_bucket: int, limit: int
    ) -> Mapping[int, LanePage]:
        """Read the lane lists of several shards, in as many reads as that of one."""
        version = self._settings_version(queue)
        by_shard = self._lane_storage.read_many(queue, after, until=until_bucket, limit=limit)
        return {
            shard: LanePage(
                pointers, marks, pointers[-1] if len(pointers) == limit else None, version
            )
            for shard, (marks, pointers) in by_shard.items()
        }

    def sweep(self, queue: str, shard: int, *, now_us: int, width_us: int) -> Marks:
        """Unlist the empty lanes of closed buckets, then close the buckets that are past."""
        return self._lane_index.sweep(Shard(queue, shard), now_us=now_us, width_us=width_us)

    def lanes_with_rows(self, *, after: str | None, limit: int) -> LanesWithRows:
        """Return a page of the lanes that have rows, in the order of their hashes."""
        return self._lane_lister.lanes_with_rows(after, limit)

    # Records

    def read(self, partition: str, *, after: str | None, limit: int) -> Sequence[Record]:
        """Read records in key order."""
        return self._records.read(partition, after=after, limit=limit)

    def all_records(self, *, after: str | None, limit: int) -> RecordsPage:
        """Return the records of some partitions, in the order of their hashes."""
        return self._records.page_of_all(after, limit)

    def commit(self, partition: str, writes: Sequence[Write]) -> bool:
        """Apply writes to one partition, all or nothing."""
        if partition == SETTINGS_PARTITION:
            self._settings.clear()
        return self._records.commit(partition, writes)

    # Streams

    def append(self, rows: Sequence[Row]) -> Sequence[int | None]:
        """Append rows: insert, then check that they are above their shards' watermarks."""
        return self._streams.append(rows)

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
        return self._streams.tail(stream, shard, after, limit, until_us=until_us, skip=skip)

    def close_until(self, stream: str, shard: int, *, at_us: int) -> int:
        """Raise a shard's watermark."""
        return self._streams.close_until(stream, shard, at_us)

    def expire(self, stream: str, shard: int, *, before_us: int) -> None:
        """Delete closed buckets."""
        self._streams.expire(stream, shard, before_us)

    def together(self, groups: Sequence[Group]) -> Sequence[bool]:
        """Apply each group's outcomes, commits, jobs and rows, in that order.

        This is not a transaction: a group stops at its first outcome or commit that fails, and
        earlier writes stay. Callers give a group only one condition, its first write, and make the
        rest repeatable.

        Raises:
          Unknown: Some may have been applied.
        """
        return [has_held for run in _runs(groups) for has_held in self._together(run)]

    def _together(self, groups: Sequence[Group]) -> list[bool]:
        """Apply groups, all verdicts at once, then the commits, then what follows.

        Plain writes of records are under way meanwhile.
        """
        verdicts = [verdict for group in groups for verdict in group.verdicts]
        answers = iter(self.settle(verdicts))
        held = [all(list(islice(answers, len(group.verdicts)))) for group in groups]
        wait = self._records.begin_puts(
            [
                commit
                for group, has_held in zip(groups, held, strict=True)
                if has_held
                for commit in group.commits
                if is_plain(commit.writes)
            ]
        )
        for place in self._commit_all(groups, held):
            held[place] = False
        kept = [group for group, has_held in zip(groups, held, strict=True) if has_held]
        jobs = [job for group in kept for job in group.jobs]
        rows = [row for group in kept for row in group.rows]
        if not all(self.add(jobs)) or None in self.append(rows):
            raise Unknown("The jobs and rows of a group may or may not be stored.")
        wait()
        return held

    def _commit_all(self, groups: Sequence[Group], held: Sequence[bool]) -> list[int]:
        """Commit the writes of groups, except plain ones; return the refused groups.

        What goes to different partitions is sent at once. The commits of a group keep their order,
        and so do those to one partition.
        """
        refused: list[int] = []
        waiting = {
            place: deque(commit for commit in group.commits if not is_plain(commit.writes))
            for place, group in enumerate(groups)
            if held[place]
        }
        while waiting := {place: commits for place, commits in waiting.items() if commits}:
            free, conditional = _next_commits(waiting)
            self._flush(free)
            answers = self._records.commit_each(list(conditional.values()))
            for place, has_held in zip(conditional, answers, strict=True):
                if not has_held:
                    refused.append(place)
                    del waiting[place]
            if SETTINGS_PARTITION in (commit.partition for commit in conditional.values()):
                self._settings.clear()
        return refused

    def _flush(self, free: dict[str, dict[str, Write]]) -> None:
        self._records.put_all(
            [
                Commit(partition, chunk)
                for partition, writes in free.items()
                for chunk in chunks(list(writes.values()), bytes_of)
            ]
        )
        if SETTINGS_PARTITION in free:
            self._settings.clear()

    def _settings_version(self, queue: str) -> bytes:
        now_us = self._clock.monotonic_us()
        known = self._settings.get(queue)
        if known is None or now_us - known[1] > SETTINGS_AGE_US_MAX:
            known = (self._records.version(SETTINGS_PARTITION, queue), now_us)
            self._settings[queue] = known
        return known[0]


def _next_commits(
    waiting: Mapping[int, deque[Commit]],
) -> tuple[dict[str, dict[str, Write]], dict[int, Commit]]:
    """Take the commits that need not wait for others, from the front of each group's.

    Returns:
      Writes without conditions, by partition and key; and the commits on conditions, by the place
      of their groups: at most one of each group and partition, to be sent after those writes.
    """
    free: dict[str, dict[str, Write]] = {}
    conditional: dict[int, Commit] = {}
    busy: set[str] = set()
    for place, commits in waiting.items():
        while place not in conditional and commits and commits[0].partition not in busy:
            commit = commits.popleft()
            if all(write.expect is None for write in commit.writes):
                writes = {write.key: write for write in commit.writes}
                free.setdefault(commit.partition, {}).update(writes)
            else:
                conditional[place] = commit
                busy.add(commit.partition)
        busy.update(commit.partition for commit in commits)
    return free, conditional


def _runs(groups: Sequence[Group]) -> Iterator[list[Group]]:
    """Split groups before an outcome of a job that an earlier group adds."""
    run: list[Group] = []
    added: set[JobId] = set()
    for group in groups:
        if any(verdict.job.id in added for verdict in group.verdicts):
            yield run
            run, added = [], set()
        run.append(group)
        added.update(job.id for job in group.jobs)
    yield run
