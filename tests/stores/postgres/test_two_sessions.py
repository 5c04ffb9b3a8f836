"""Two sessions that change the same rows at the same time, on PostgreSQL.

The first session runs an operation and stays before its commit. The second one runs another
operation meanwhile, then the first one commits or rolls back. The results are those of one order of
the two, as the store in memory shows them. A claim, among others, never waits for the first
session: a process that stops in a transaction would stop all workers.
"""

import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Any, NamedTuple, cast

import pytest

from dueline.api.connect import open_store
from dueline.core.clock import SECOND_US, SystemClock
from dueline.core.job import Job
from dueline.core.lane import Lane
from dueline.core.store import NO_VERSION, Delete, Drop, Extend, Lease, Put, Store, Want
from dueline.core.store_capabilities import SupportsPrefetch
from dueline.core.wakeup import Wakeup
from dueline.store_tests.calls import (
    LEASE_US,
    NOW_US,
    WIDTH_US,
    claim,
    ids_of,
    lane_of,
    move,
    new_job,
    pointers_in,
    records_in,
    row_of,
    stream_of,
    token_of,
)
from dueline.stores.memory.store import MemoryStore
from tests.harness.postgres import Schemas, expect_server, schemas, statement

expect_server()

import psycopg  # noqa: E402

from dueline.stores.postgres.address import address_of  # noqa: E402
from dueline.stores.postgres.schema import create  # noqa: E402
from dueline.stores.postgres.store import PostgresStore  # noqa: E402
from dueline.stores.postgres.wakeup import notify_idle  # noqa: E402

pytestmark = pytest.mark.postgres

LATER_US = NOW_US + 5 * WIDTH_US
PATIENCE_S = 60.0
WAITING_JOBS = 4


class Rows:
    """Rows of one case: a claimed job, waiting ones, later ones, records and events.

    Attributes:
      claimed: The row of the claimed job.
    """

    def __init__(self, number: int) -> None:
        self._first = number * 100
        self.name = f"case{number}"
        self.lane = lane_of(queue=self.name)
        self.waiting = [self.job(place) for place in range(2, 2 + WAITING_JOBS)]
        self.claimed = self.job(1)

    def job(self, number: int, *, at_us: int = NOW_US, lane: Lane | None = None) -> Job:
        """Return a new job of the case."""
        return new_job(self._first + number, at_us=at_us, lane=lane or self.lane)

    def put(self, store: Store, acts: "dict[str, Act]") -> None:
        """Write the rows that these operations change."""
        if acts is OF_JOBS:
            store.add([self.job(1)])
            (self.claimed,) = claim(store, self.lane).jobs
            store.add([*self.waiting, self.job(8, at_us=NOW_US + SECOND_US)])
        elif acts is OF_RECORDS:
            live = Put("live", token_of(1), b"a")
            # The first to be deleted of those that earlier cases have left.
            old = Put("old", token_of(1), b"b", expires_us=NOW_US - self._first)
            store.commit(self.name, [live, old])
        else:
            store.append([row_of(1, stream=self.name)])
            assert store.close_until(self.name, 0, at_us=NOW_US) == NOW_US

    def read(self, store: Store, acts: "dict[str, Act]") -> object:
        """Return what the case's rows have become."""
        if acts is not OF_JOBS:
            closed_us = store.close_until(self.name, 0, at_us=-1)
            return records_in(store, self.name), stream_of(store, self.name), closed_us
        pointers = pointers_in(store, self.name)
        marks = store.lanes(self.name, 0, until_bucket=0, after=None, limit=1).marks
        lost = [pointer for pointer in pointers if pointer.listing <= marks.swept]
        ids = ids_of(self.job(place) for place in range(1, 40))
        jobs = [_plain(job) for job in store.find(ids) if job is not None]
        unlisted = {job.lane for job in jobs} - {pointer.lane for pointer in pointers}
        return jobs, lost, unlisted


def _plain(job: Job) -> Job:
    """Return the row without the columns in which stores may differ."""
    return job._replace(hop=0, worker=job.worker if job.state else "")


Act = Callable[[Store, Rows, int], Any]
"""An operation of a session, which has the number 1 or 2."""


def prefetch(store: Store, rows: Rows, who: int) -> object:
    """Claim the job that is due later."""
    assert isinstance(store, SupportsPrefetch)
    prefetched = store.prefetch(
        [Want(rows.lane, 9)],
        limit=9,
        until_us=NOW_US + 2 * SECOND_US,
        lease=Lease(NOW_US, LEASE_US, f"w{who}", token_of(who + 10)),
    )
    return ids_of(claimed.job for claimed in prefetched.jobs)


def claims(limit: int) -> Act:
    """Return the claim of some jobs."""
    return lambda store, rows, who: ids_of(
        claim(store, rows.lane, limit=limit, worker=f"w{who}", token=who + 20).jobs
    )


def sweep(store: Store, rows: Rows, who: int) -> None:
    """Close the buckets of all jobs, then look which lanes are empty."""
    for number in (0, 1):
        now_us = LATER_US + (who + number) * WIDTH_US
        store.sweep(rows.name, 0, now_us=now_us, width_us=WIDTH_US)


def writes(write: Callable[[int], Put | Delete]) -> Act:
    """Return the write of a record."""
    return lambda store, rows, who: store.commit(rows.name, [write(who)])


OF_JOBS: dict[str, Act] = {
    "claim two": claims(2),
    "claim all": claims(99),
    "prefetch": prefetch,
    "drop a claimed job": lambda store, rows, _: store.settle([Drop(rows.claimed)]),
    "drop a waiting job": lambda store, rows, _: store.settle([Drop(rows.waiting[0])]),
    "drop both": lambda store, rows, _: store.settle([Drop(rows.claimed), Drop(rows.waiting[0])]),
    "extend": lambda store, rows, who: store.settle(
        [Extend(rows.claimed, NOW_US + (1 + who) * LEASE_US, started=True)]
    ),
    "release": lambda store, rows, who: store.settle([move(rows.claimed, NOW_US, token=who + 30)]),
    "change lanes": lambda store, rows, who: store.settle(
        [move(rows.waiting[0], NOW_US, token=who + 40, to=lane_of(queue=rows.name, priority=who))]
    ),
    "add": lambda store, rows, who: store.add([rows.job(10 + who)]),
    "add the same job": lambda store, rows, _: store.add([rows.job(9)]),
    "add to a new lane": lambda store, rows, _: store.add(
        [rows.job(20, lane=lane_of(NOW_US - WIDTH_US, queue=rows.name))]
    ),
    "sweep": sweep,
}
OF_RECORDS: dict[str, Act] = {
    "create": writes(lambda who: Put("new", token_of(who), b"1", NO_VERSION)),
    "create where one is expired": writes(lambda who: Put("old", token_of(who), b"2", NO_VERSION)),
    "put where one is expired": writes(lambda who: Put("old", token_of(who), b"3")),
    "replace": writes(lambda who: Put("live", token_of(who), b"4", token_of(1))),
    "put": writes(lambda who: Put("live", token_of(who), b"5")),
    "delete": writes(lambda _: Delete("live", token_of(1))),
    "expect none": writes(lambda _: Delete("old", NO_VERSION)),
    "put one that expires": writes(
        lambda who: Put(f"own {who}", token_of(who), b"6", expires_us=2**60)
    ),
}
OF_STREAMS: dict[str, Act] = {
    "append": lambda store, rows, who: store.append([row_of(1 + who, stream=rows.name)]),
    "expire": lambda store, rows, _: store.expire(rows.name, 0, before_us=NOW_US + 1),
    "close": lambda store, rows, who: store.close_until(rows.name, 0, at_us=NOW_US + 9 - who),
}
SKIPS = {"claim all", "prefetch", "sweep", "put one that expires", *OF_STREAMS}
"""What the first session holds, they do later."""

NEVER_WAITS = {"claim two", *SKIPS}
GIVES_UP = {"sweep", "close"}
"""They may wait, for a short time."""

MAY_DO_NOTHING = {"sweep", "close", "expire"}
"""Repeated later by each caller."""


class Ran(NamedTuple):
    """The results of both operations, and what they left."""

    first: object
    second: object
    rows: object


class Sessions:
    """Two open stores with the same tables, and a look at who waits.

    Args:
      made: Where the schema is made.
    """

    def __init__(self, made: Schemas) -> None:
        self.url = made.fresh()
        self.schema = self.url.partition("schema=")[2]
        self._first = cast("PostgresStore", open_store(self.url))
        self._second = open_store(self.url)
        self._watch = psycopg.connect(self.url.partition("?")[0], autocommit=True)
        self._pool = ThreadPoolExecutor(1)

    def close(self) -> None:
        """Close the stores."""
        self._pool.shutdown()
        self._first.close()
        self._second.close()
        self._watch.close()

    def has_waited(self, running: "Future[Any]") -> bool:
        """Wait until an operation has ended, or waits for a lock; return whether it waits."""
        deadline_s = time.monotonic() + PATIENCE_S
        while not running.done() and time.monotonic() < deadline_s:
            ((count,),) = self._watch.execute(
                "SELECT count(*) FROM pg_stat_activity WHERE application_name = %s"
                " AND wait_event_type = 'Lock'", (self.schema,)
            ).fetchall()  # fmt: skip
            if count and not running.done():
                return True
            time.sleep(0.001)
        assert running.done(), "it neither ended nor waits for a lock"
        return False

    def run(
        self, first: str, second: str, rows: Rows, acts: dict[str, Act], *, commits: bool
    ) -> Ran:
        """Run the second operation while the first one is not committed."""
        rows.put(self._first, acts)
        with suppress(ZeroDivisionError), self._first.transaction() as inside:
            # As in a transaction of its own, which opens no other connection.
            cast("Any", inside.store)._connection._database.apart = None
            done = acts[first](inside.store, rows, 1)
            running = self._pool.submit(acts[second], self._second, rows, 2)
            if second in GIVES_UP:
                running.result(PATIENCE_S)
            elif self.has_waited(running):
                assert second not in NEVER_WAITS, f"{second} waits for {first}"
                assert not second.startswith("add") or first in {second, "sweep"}, (
                    f"{second} waits for {first}"
                )
            mark_us = running.result(PATIENCE_S) if second == "close" else -1
            closed = self._second.tail(rows.name, 0, after=None, limit=9, until_us=mark_us).rows
            if not commits:
                raise ZeroDivisionError
        done_second = running.result(PATIENCE_S)
        if first == "append":
            page = self._second.tail(rows.name, 0, after=None, limit=9, until_us=mark_us)
            assert page.rows == closed, "an event came below the watermark"
        acts[second](self._second, rows, 2)
        return Ran(done, done_second, rows.read(self._second, acts))


def expected(
    acts: dict[str, Act], number: int, first: str, second: str, *, commits: bool
) -> Iterator[Ran]:
    """Yield what either order leaves, in memory; and what the second operation does alone."""
    orders = [(1, 2, 2), (2, 1, 2)] if commits else [(2, 2)]
    for order in orders:
        store, rows = MemoryStore(SystemClock()), Rows(number)
        rows.put(store, acts)
        done: dict[int, object] = {}
        for who in order:
            result = acts[first if who == 1 else second](store, rows, who)
            done.setdefault(who, result)
        yield Ran(done.get(1), done[2], rows.read(store, acts))


@pytest.fixture(scope="module")
def sessions() -> Iterator[Sessions]:
    with schemas() as made:
        opened = Sessions(made)
        yield opened
        opened.close()


NUMBERS = iter(range(1, 10_000))


def check(sessions: Sessions, acts: dict[str, Act], first: str, *, commits: bool) -> None:
    for second in acts if commits else sorted(acts.keys() & SKIPS):
        number = next(NUMBERS)
        ran = sessions.run(first, second, Rows(number), acts, commits=commits)
        orders = list(expected(acts, number, first, second, commits=commits))
        assert ran.rows in [order.rows for order in orders], f"{first}, then {second}"
        if commits and second not in MAY_DO_NOTHING:
            assert ran in orders, f"{first}, then {second}"


def firsts(*kinds: dict[str, Act]) -> list[Any]:
    """Return the operations, with those of their kind."""
    return [pytest.param(acts, name, id=name) for acts in kinds for name in acts]


@pytest.mark.parametrize("commits", [True, False], ids=["commit", "rollback"])
@pytest.mark.parametrize(
    ("acts", "first"),
    [case for case in firsts(OF_JOBS, OF_RECORDS, OF_STREAMS) if case.id != "close"],
)
def test_two_sessions_do_as_one_after_the_other(
    sessions: Sessions, acts: dict[str, Act], first: str, *, commits: bool
) -> None:
    check(sessions, acts, first, commits=commits)


def test_producers_that_wake_the_same_workers_do_not_wait_for_each_other(
    sessions: Sessions,
) -> None:
    channels = ["a", "b"]
    text, values = notify_idle([Wakeup(channel) for channel in channels], sessions.schema)
    notify = text.replace("@", f"{sessions.schema}.").encode()
    insert = f"INSERT INTO {sessions.schema}.idle SELECT unnest(%s::text[])"
    statement(sessions.url, insert, [channels])
    with psycopg.connect(sessions.url.partition("?")[0]) as first:
        assert len(first.execute(notify, values).fetchall()) == len(channels)
        url = f"{sessions.url.partition('?')[0]}?options=-c%20lock_timeout%3D5s"
        with psycopg.connect(url) as second:
            assert second.execute(notify, values).fetchall() == []


def test_a_lane_that_is_unlisted_while_an_insert_waits_is_listed_again(sessions: Sessions) -> None:
    """An insert that found the lane listed must not put a job where nobody looks."""
    rows, url = Rows(next(NUMBERS)), sessions.url.partition("?")[0]
    store, name = open_store(sessions.url), sessions.schema
    store.add([rows.job(1)])
    assert store.settle([Drop(rows.job(1))]) == [True]
    with psycopg.connect(url) as sweeper, ThreadPoolExecutor(1) as pool:
        marks = f"SELECT FROM {name}.marks WHERE queue = %s FOR UPDATE"
        sweeper.execute(marks.encode(), [rows.name])
        running = pool.submit(store.add, [rows.job(2)])
        assert sessions.has_waited(running)
        unlist = f"DELETE FROM {name}.lanes WHERE queue = %s"  # noqa: S608
        sweeper.execute(unlist.encode(), [rows.name])
        sweeper.commit()
        assert running.result(PATIENCE_S) == [True]
    (pointer,) = pointers_in(store, rows.name)
    assert ids_of(claim(store, pointer.lane).jobs) == [rows.job(2).id]
    store.close()


def test_processes_that_create_the_tables_at_once_all_succeed() -> None:
    with schemas() as made, ThreadPoolExecutor(1) as pool:
        sessions = Sessions(made)
        options = {"schema": sessions.schema, "application_name": sessions.schema}
        address = address_of(sessions.url, options)
        statement(sessions.url, f"DROP SCHEMA {sessions.schema} CASCADE")
        with (
            psycopg.connect(address.conninfo) as first,
            psycopg.connect(address.conninfo) as second,
        ):
            with first.transaction():
                assert create(first, address).made
                running = pool.submit(create, second, address)
                sessions.has_waited(running)
            assert not running.result(PATIENCE_S).made
        sessions.close()
