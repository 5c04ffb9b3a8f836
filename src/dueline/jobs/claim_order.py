"""The order in which workers claim ready jobs."""

import heapq
from collections import Counter, defaultdict
from collections.abc import Collection, Container, Iterator, Mapping, Sequence
from itertools import chain, islice, zip_longest
from typing import Final, NamedTuple

from dueline.core.engine import Engine
from dueline.core.job import Job
from dueline.core.job_status import status_of
from dueline.core.lane import PRIORITY_MIN, Lane, bucket_of, limits_of, task_of, tenant_of
from dueline.core.queue_settings import QueueSettings
from dueline.jobs.lane_planner import aged
from dueline.limits.usage import BusyLimits

AHEAD_MAX: Final = 10_000
"""Maximum number of rows that are read to find which jobs come first."""

_PAGE: Final = 500


class Ahead(NamedTuple):
    """The ready jobs that a worker claims before one job.

    Attributes:
      by_queue: How many, for each queue that has some.
      is_capped: There may be more.
      has_turns: Tenants take turns, or functions that have begun with new jobs, so the numbers are
          upper bounds; estimates in queues with aging.
      first: The job that is claimed first; None if none comes before.
      more_urgent: How many have a higher priority, raised by aging.
    """

    by_queue: Mapping[str, int]
    is_capped: bool
    has_turns: bool
    first: Job | None = None
    more_urgent: int = 0

    @property
    def jobs(self) -> int:
        """Return the number of jobs in all queues."""
        return sum(self.by_queue.values())


class Before(NamedTuple):
    """The rows that a worker claims before one job; see `Ahead`."""

    rows: Sequence[Job]
    is_capped: bool
    has_turns: bool
    first: Job | None
    more_urgent: int


def jobs_before(
    engine: Engine,
    job: Job,
    names: Collection[str],
    now_us: int,
    tasks: Container[str] | None = None,
) -> Ahead:
    """Count the jobs that a worker of some queues claims before a ready one.

    Jobs that cannot be claimed now do not count: those of paused queues, tenants and tasks,
    those whose limits allow nothing, and expired ones.

    Args:
      names: the queues that the worker serves, the job's own among them.
      tasks: keys of the tasks that the worker knows; None for all.
    """
    before = rows_before(engine, job, names, now_us, tasks, most=AHEAD_MAX)
    by_queue = Counter(row.lane.queue for row in before.rows)
    return Ahead(by_queue, *before[1:])


def rows_before(
    engine: Engine,
    job: Job,
    names: Collection[str],
    at_us: int,
    tasks: Container[str] | None = None,
    *,
    most: int = AHEAD_MAX,
) -> Before:
    """Return the rows that a worker of some queues claims before a job that is ready at `at_us`.

    Args:
      at_us: now; or a later time, for rows that will be due then.
      most: maximum number of rows that are read.
    """
    ready = _Ready(engine, names, at_us, tasks, most=most)
    least, mine = ready.rank(job), _turn_of(job.lane)
    rows = list(ready.rows(job, least))
    place = next((row.place for row in rows if row.job.id == job.id), None)
    earlier: list[_Row] = []  # of larger priorities, and of its own tenant
    others: defaultdict[_Turn, list[_Row]] = defaultdict(list)
    own = 0
    for row in rows:
        turn = _turn_of(row.job.lane)
        if row.rank > least:
            earlier.append(row)
        elif turn != mine:
            others[turn].append(row)
        elif place is not None and row.place < place:
            earlier.append(row)
            own += 1
    for (tenant, _), behind in others.items():
        # The newest tenant has its turn last, so the other one is assumed to be first.
        turns = own * ready.weight(tenant) // ready.weight(mine[0]) + 1
        earlier += sorted(behind, key=_place_of)[:turns]
    first = min(earlier, key=lambda row: (-row.rank, row.place), default=None)
    return Before(
        [row.job for row in earlier],
        ready.is_capped,
        bool(others),
        None if first is None else first.job,
        sum(row.rank > least for row in earlier),
    )


def next_jobs(engine: Engine, name: str, now_us: int, *, limit: int) -> list[Job]:
    """Return the ready jobs of a queue in the order in which a worker with one slot claims them.

    Jobs that cannot be claimed now are left out, see `jobs_before`.
    """
    ready = _Ready(engine, [name], now_us)
    by_rank: defaultdict[int, defaultdict[str, list[_Row]]]
    by_rank = defaultdict(lambda: defaultdict(list))
    for row in ready.rows(None, PRIORITY_MIN):
        by_rank[row.rank][tenant_of(row.job.lane)].append(row)
    ranks = (by_rank[rank] for rank in sorted(by_rank, reverse=True))
    return list(islice(chain.from_iterable(_in_turns(rank, ready) for rank in ranks), limit))


def _in_turns(tenants: Mapping[str, list["_Row"]], ready: "_Ready") -> Iterator[Job]:
    """Yield the rows of each tenant in order, tenants in turn by their weights."""
    left = {tenant: _by_turns(rows) for tenant, rows in tenants.items()}
    heap = [(0.0, tenant) for tenant in sorted(left)]
    while heap:
        had, tenant = heap[0]
        row = next(left[tenant], None)
        if row is None:
            heapq.heappop(heap)
        else:
            yield row.job
            heapq.heapreplace(heap, (had + 1 / ready.weight(tenant), tenant))


def _by_turns(rows: Sequence["_Row"]) -> Iterator["_Row"]:
    """Yield the rows of a tenant: those in lanes of tasks, and the others, in turn."""
    by_turn: defaultdict[_Turn, list[_Row]] = defaultdict(list)
    for row in sorted(rows, key=_place_of):
        by_turn[_turn_of(row.job.lane)].append(row)
    turns = [by_turn[turn] for turn in sorted(by_turn, reverse=True)]  # those of tasks first
    return (row for round_ in zip_longest(*turns) for row in round_ if row is not None)


_Turn = tuple[str, bool]
"""A tenant, and whether its jobs are in the lane of a task: these take turns with its others."""


def _turn_of(lane: Lane) -> _Turn:
    return tenant_of(lane), bool(task_of(lane))


class _Row(NamedTuple):
    """A ready job.

    Attributes:
      rank: Its priority, raised by aging.
      place: Its place among those of its tenant.
    """

    rank: int
    place: tuple[int, Lane, int, bytes]
    job: Job


def _has_limits_of(lane: Lane, mine: Lane) -> bool:
    """Return whether a lane waits for nothing but limits that another one has, too."""
    limits = limits_of(lane)
    return bool(limits) and task_of(lane) == task_of(mine) and set(limits) <= set(limits_of(mine))


def _place_of(row: _Row) -> tuple[int, Lane, int, bytes]:
    return row.place


class _Ready:
    """The ready jobs of some queues, in the order of `lane_planner`.

    is_capped: not all rows were read.
    """

    def __init__(
        self,
        engine: Engine,
        names: Collection[str],
        now_us: int,
        tasks: Container[str] | None = None,
        *,
        most: int = AHEAD_MAX,
    ) -> None:
        self._engine = engine
        self._tasks = tasks
        self._now_us = now_us
        self._settings = {name: engine.catalog.settings(name) for name in sorted(names)}
        self._weights = dict(
            chain.from_iterable(setting.weights for setting in self._settings.values())
        )
        self._waiting = BusyLimits(engine)
        self._left = most

    @property
    def is_capped(self) -> bool:
        return self._left <= 0

    def weight(self, tenant: str) -> int:
        return self._weights.get(tenant, 1)

    def rank(self, row: Job) -> int:
        aging_us = self._settings[row.lane.queue].aging_us
        return aged(row.lane.priority, self._now_us - row.at_us, aging_us)

    def rows(self, job: Job | None, least: int) -> Iterator[_Row]:
        """Yield the rows with a rank of at least `least`.

        Of the lane of `job`, only this and what comes before it, whatever its limits.
        """
        mine = None if job is None else job.lane
        for lane, listing in self._lanes(mine, least):
            for row in self._scan(lane):
                rank = self.rank(row)
                if rank < least:
                    break  # and so are all behind it, which have waited less
                if self._is_claimable(row):
                    yield _Row(rank, (listing, lane, row.at_us, row.id), row)
                if lane == mine and job is not None and row.id == job.id:
                    break

    def _lanes(self, mine: Lane | None, least: int) -> Iterator[tuple[Lane, int]]:
        """Yield the lanes that may be claimed from, each with its earliest listing."""
        seen: set[Lane] = set()
        for name, settings in self._settings.items():
            if settings.is_paused:
                continue
            until = bucket_of(self._now_us, settings.width_us)
            for page in self._engine.pages_of(name, until):
                for listing, lane in page.pointers:
                    if lane not in seen and page.heads.get(lane, 0) is not None:
                        seen.add(lane)
                        if self._is_open(lane, settings, mine, least):
                            yield lane, listing

    def _is_open(self, lane: Lane, settings: QueueSettings, mine: Lane | None, least: int) -> bool:
        if tenant_of(lane) in settings.paused_tenants:
            return False
        if not settings.aging_us and lane.priority < least:
            return False
        if mine is not None and (lane == mine or _has_limits_of(lane, mine)):
            return True
        if self._tasks is not None and (task := task_of(lane)) and task not in self._tasks:
            return False
        return not (limits_of(lane) and self._waiting.has(lane))

    def _scan(self, lane: Lane) -> Iterator[Job]:
        after = None
        while self._left > 0:
            page = self._engine.store.scan(
                lane, after=after, until_us=self._now_us, limit=min(_PAGE, self._left)
            )
            self._left -= len(page.jobs)
            yield from page.jobs
            after = page.after
            if after is None:
                return

    def _is_claimable(self, row: Job) -> bool:
        is_paused = row.task in self._settings[row.lane.queue].paused_tasks
        return not (row.outcome or is_paused or status_of(row, self._now_us) == "expired")
