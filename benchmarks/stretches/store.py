"""The SQLite store, with claims as stretches."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import Any, Final, TypeVar

from benchmarks.stretches import table
from benchmarks.stretches.table import START, Stretch
from dueline.core.clock import Clock
from dueline.core.job import UNCLAIMED_TOKEN, Job, JobId, State
from dueline.core.lane import Lane, Marks, Pointer
from dueline.core.store import (
    Claimed,
    Commit,
    Drop,
    Group,
    JobPage,
    LanePage,
    Lease,
    Move,
    TransactionView,
    Verdict,
    Want,
)
from dueline.core.store_capabilities import PrefetchResult
from dueline.core.tuples import field
from dueline.stores.joint_groups import Tables
from dueline.stores.sqlite import batches, claims, job_rows, streams
from dueline.stores.sqlite import jobs as sqlite_jobs
from dueline.stores.sqlite.connection import Database, Executor, fetch, integers, savepoint
from dueline.stores.sqlite.file import OWNER_ONLY
from dueline.stores.sqlite.jobs import number_of
from dueline.stores.sqlite.store import SqliteStore

T = TypeVar("T")

ROWS_MIN: Final = 8
"""Minimum number of rows of a stretch by default; fewer are claimed by row (rule G8)."""

_DUE = (
    f"{job_rows.SELECT_CLAIM}{table.SELECT_NEW} FROM jobs WHERE lane = ? AND (at_us, id) > (?, ?)"
    " AND at_us <= ? ORDER BY at_us, id LIMIT ?"
)
_token_of = attrgetter("job.token")
_job_of = field(Drop, "job")
_lane_of = field(Job, "lane")


class _Prepared:
    """A connection whose first call creates the table of stretches."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self._is_ready = False

    def _prepared(self) -> Executor:
        if not self._is_ready:
            self._executor.read(lambda database: database.execute(table.SCHEMA))
            self._is_ready = True
        return self._executor

    def read(self, work: Callable[[Database], T]) -> T:
        return self._prepared().read(work)

    def write(self, work: Callable[[Database], T]) -> T:
        return self._prepared().write(work)

    def write_unflushed(self, work: Callable[[Database], T]) -> T:
        return self._prepared().write_unflushed(work)


class StretchStore(SqliteStore):
    """A queue file in which a claim of many new rows is one record.

    Every call that may meet a stretch is overridden; the others are those of the store.

    Args:
      path, clock, synchronous, may_be_shared, mode: As for the store.
      rows_min: Minimum number of rows of a stretch.
    """

    def __init__(
        self,
        path: Path,
        *,
        clock: Clock,
        synchronous: str = "FULL",
        may_be_shared: bool = False,
        mode: int = OWNER_ONLY,
        rows_min: int = ROWS_MIN,
    ) -> None:
        super().__init__(
            path, clock=clock, synchronous=synchronous, may_be_shared=may_be_shared, mode=mode
        )
        self._rows_min = rows_min
        self._connection = _Prepared(self._file)

    @contextmanager
    def transaction(self) -> Iterator[TransactionView]:
        """Hold the file's write lock until the end of the block."""
        self._connection.read(table.all_of)  # creates the table
        with super().transaction() as view:
            yield view

    def add(self, jobs: Sequence[Job]) -> Sequence[bool]:
        """Insert jobs; stretches that they fall into are written out first."""
        if jobs:
            self._connection.write(lambda database: _add(database, jobs))
        return [True] * len(jobs)

    def claim(self, wants: Sequence[Want], *, limit: int, lease: Lease) -> Claimed:
        """Claim the first due rows: new ones by a record, others by row."""
        return self._connection.write_unflushed(
            lambda database: _claim(database, wants, limit, lease, self._rows_min)
        )

    def prefetch(
        self, wants: Sequence[Want], *, limit: int, until_us: int, lease: Lease
    ) -> PrefetchResult:
        """Claim the first rows that become due soon, by row.

        The clock of another claimer may have been ahead: a stretch that ends after `now_us` is
        written out first (rule G6).
        """

        def work(database: Database) -> PrefetchResult:
            live = table.all_of(database)
            table.write_out(database, [one for one in live if one.last_us > lease.now_us])
            return claims.prefetch(database, wants, limit=limit, until_us=until_us, lease=lease)

        result = self._connection.write_unflushed(work)
        return result._replace(next_at_us=self._heads(result.next_at_us))

    def settle(self, verdicts: Sequence[Verdict]) -> Sequence[bool]:
        """Apply outcomes, each on its own."""
        if not verdicts:
            return []
        return self._connection.write(lambda database: _settle(database, verdicts))

    def together(self, groups: Sequence[Group]) -> Sequence[bool]:
        """Apply groups, each all or nothing, in one transaction."""
        if not groups:
            return []
        now_us = self.clock_us()

        def commit_all(database: Database, commits: Sequence[Commit]) -> bool:
            return all(batches._commit(database, one, now_us) for one in commits)  # noqa: SLF001

        tables = Tables(_settle, commit_all, _add, streams.append, savepoint)
        return tables.together(self._connection, groups)

    def find(self, ids: Sequence[JobId]) -> Sequence[Job | None]:
        """Return jobs by id, as readers see them."""
        live = self._connection.read(table.all_of)
        found = super().find(ids)
        if not live:
            return found
        numbers = self._numbers({job.lane for job in found if job})
        return [job and table.seen(job, numbers.get(job.lane, -1), live) for job in found]

    def scan(
        self,
        lane: Lane,
        *,
        after: tuple[int, JobId] | None,
        until_us: int | None,
        limit: int,
        skip: int = 0,
    ) -> JobPage:
        """Read a lane; its stretches are written out, since they change the order of its rows."""

        def make_way(database: Database) -> None:
            number = number_of(database, lane)
            table.write_out(database, [one for one in table.all_of(database) if one.lane == number])

        if self._connection.read(table.all_of):
            self._connection.write(make_way)
        return super().scan(lane, after=after, until_us=until_us, limit=limit, skip=skip)

    def lanes(
        self, queue: str, shard: int, *, until_bucket: int, after: Pointer | None, limit: int
    ) -> LanePage:
        """Read the lane list."""
        page = super().lanes(queue, shard, until_bucket=until_bucket, after=after, limit=limit)
        return page._replace(heads=self._heads(page.heads))

    def sweep(self, queue: str, shard: int, *, now_us: int, width_us: int) -> Marks:
        """Unlist and list lanes by what readers see: stretches of past lanes are written out."""

        def work(database: Database) -> Marks:
            live = table.all_of(database)
            if live:
                closed = sqlite_jobs.marks_of(database, queue, shard).closed
                statement = "SELECT id FROM lanes WHERE queue = ? AND shard = ? AND listing <= ?"
                past = {number for (number,) in fetch(database, statement, (queue, shard, closed))}
                table.write_out(database, [one for one in live if one.lane in past])
            return sqlite_jobs.sweep(database, queue, shard, now_us, width_us)

        return self._connection.write(work)

    def _heads(self, heads: "dict[Lane, int | None] | Any") -> dict[Lane, int | None]:  # noqa: ANN401
        """Replace the heads of lanes with stretches."""

        def work(database: Database) -> dict[Lane, int | None]:
            live = table.all_of(database)
            if not live:
                return {}
            numbers = claims._numbers_of(database, list(heads))  # noqa: SLF001
            with_some = {one.lane for one in live}
            return {
                lane: table.head_of(database, number, live)
                for lane, number in numbers.items()
                if number in with_some
            }

        return {**heads, **self._connection.read(work)}

    def _numbers(self, lanes: set[Lane]) -> dict[Lane, int]:
        return self._connection.read(
            lambda database: claims._numbers_of(database, sorted(lanes))  # noqa: SLF001
        )


def _add(database: Database, jobs: Sequence[Job]) -> None:
    table.make_way(database, ((job.lane, (job.at_us, job.id)) for job in jobs))
    sqlite_jobs.add(database, jobs)


def _claim(
    database: Database, wants: Sequence[Want], limit: int, lease: Lease, rows_min: int
) -> Claimed:
    """Claim want by want; each lane's rows by one record or by row."""
    live = table.all_of(database)
    past = [one for one in live if one.until_us <= lease.now_us or one.token == lease.token]
    if past:
        table.write_out(database, past)
        live = [one for one in live if one not in past]
    if not live and all(want.most < rows_min for want in wants):
        return claims.claim(database, wants, limit=limit, lease=lease)
    numbers = claims._numbers_of(database, [want.lane for want in wants])  # noqa: SLF001
    found: list[Job] = []
    died: dict[JobId, Job] = {}
    heads: dict[Lane, int | None] = {}
    for lane, most in wants:
        if len(found) >= limit:
            break
        number = numbers.get(lane)
        if number is None:
            heads[lane] = None
            continue
        due = _due(database, number, live, min(most, limit - len(found)), lease)
        jobs = job_rows.claimed(
            due, {lane: number}, token=lease.token, worker=lease.worker, now_us=lease.now_us
        )
        if len(due) >= rows_min and all(map(table.is_new, due)):
            stretch = _stretch_of(number, jobs, lease)
            table.insert(database, stretch)
            live.append(stretch)
        elif due:
            _claim_by_row(database, due, jobs, died, lease)
        found += jobs
        heads[lane] = table.head_of(database, number, live)
    return Claimed(found, died, heads)


def _due(
    database: Database, number: int, live: Sequence[Stretch], most: int, lease: Lease
) -> list[tuple[Any, ...]]:
    """Return the first due rows behind the stretches of a lane."""
    after = max((one.last for one in live if one.lane == number), default=START)
    until_us = lease.now_us + lease.duration_us
    due = fetch(database, _DUE, (until_us, number, *after, lease.now_us, most))
    if None in map(job_rows.read_body_of, due):
        return claims._with_bodies(database, due)  # noqa: SLF001
    return due


def _stretch_of(number: int, jobs: Sequence[Job], lease: Lease) -> Stretch:
    start, end = jobs[0], jobs[-1]
    until_us = lease.now_us + lease.duration_us
    return Stretch(
        number, lease.token, start.pos_us, start.id, end.pos_us, end.id,
        lease.worker, lease.now_us, until_us,
    )  # fmt: skip


def _claim_by_row(
    database: Database,
    due: Sequence[tuple[Any, ...]],
    jobs: list[Job],
    died: dict[JobId, Job],
    lease: Lease,
) -> None:
    """Write the claim into each row, as the store does."""
    if any(map(job_rows.is_special, due)):
        claims._complete(database, due, jobs, died)  # noqa: SLF001
    database.execute(
        "UPDATE jobs SET at_us = ?, fence = fence + 1, token = ?, worker = ?, claimed_us = ?,"
        " crashes = crashes + (state = 2), alone = max(alone, state = 2), state = ?"
        " WHERE rowid IN (SELECT value FROM carray(?))",
        (
            lease.now_us + lease.duration_us, lease.token, lease.worker, lease.now_us,
            State.CLAIMED,
            integers(list(map(job_rows.rowid_of, due))),
        ),
    )  # fmt: skip


def _settle(database: Database, verdicts: Sequence[Verdict]) -> list[bool]:
    """Apply outcomes in order; only drops leave a stretch as it is (rules G3 and G4)."""
    live = table.all_of(database)
    if live and not all(isinstance(one, Drop) for one in verdicts):
        table.write_out(database, _changed(database, verdicts, live))
        live = table.all_of(database)
    if not live:
        return sqlite_jobs.settle(database, verdicts)
    held: list[bool] = []
    tokens = {one.token for one in live}
    for token, run in groupby(verdicts, _token_of):
        some = list(run)
        if token in tokens:  # all are drops: others have written it out
            held += _drop(database, list(map(_job_of, some)), live)
        else:
            _make_way_for_unclaimed(database, some)
            held += sqlite_jobs.settle(database, some)
    return held


def _drop(database: Database, jobs: Sequence[Job], live: Sequence[Stretch]) -> list[bool]:
    """Delete jobs that are claimed by stretches, or by row in other lanes of the same claim."""
    held: list[bool] = []
    for lane, run in groupby(jobs, _lane_of):
        some = list(run)
        place = number_of(database, lane), some[0].token
        stretch = next((one for one in live if one[:2] == place), None)
        if stretch:
            held += table.drop(database, stretch, some)
        else:
            held += sqlite_jobs.settle(database, [Drop(job) for job in some])
    return held


def _changed(
    database: Database, verdicts: Sequence[Verdict], live: Sequence[Stretch]
) -> Iterator[Stretch]:
    """Yield the stretches whose jobs change, or that rows are moved into (rules G4 and G7)."""
    tokens = {one.job.token for one in verdicts if not isinstance(one, Drop)}
    moves = [one for one in verdicts if isinstance(one, Move)]
    least: dict[int | None, tuple[int, bytes]] = {}
    for lane in {move.to or move.job.lane for move in moves}:
        some = [(one.at_us, one.job.id) for one in moves if (one.to or one.job.lane) == lane]
        least[number_of(database, lane)] = min(some)
    unclaimed = _lanes_of_unclaimed(database, verdicts)
    for one in live:
        is_hit = one.lane in least and one.last >= least[one.lane]
        if one.token in tokens or is_hit or one.lane in unclaimed:
            yield one


def _make_way_for_unclaimed(database: Database, verdicts: Sequence[Verdict]) -> None:
    """Write out stretches of lanes in which a verdict names a row that it read as waiting."""
    numbers = _lanes_of_unclaimed(database, verdicts)
    if numbers:
        some = [one for one in table.all_of(database) if one.lane in numbers]
        table.write_out(database, some)


def _lanes_of_unclaimed(database: Database, verdicts: Sequence[Verdict]) -> set[int | None]:
    lanes = {one.job.lane for one in verdicts if one.job.token == UNCLAIMED_TOKEN}
    return {number_of(database, lane) for lane in lanes}
