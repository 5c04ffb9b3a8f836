"""What reads on Cassandra meet of rows that are done or expired, as the server traces it (H3).

Many jobs go through one queue while some run all the time. The environment variable
DUELINE_TRACED_JOBS says how many, and with `-s` the figures are printed.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from benchmarks.traces_cassandra import kind_of, reads_streams, tombstones
from dueline.core.clock import BEHIND_US, SECOND_US
from dueline.core.job import Job
from dueline.core.queue_settings import QueueSettings
from dueline.core.store import Drop, Extend, Row
from dueline.jobs.queue import Queues
from dueline.stores.cursor_cache import LATE_US
from dueline.worker.claimer import Claimer
from tests.harness.calls import calls
from tests.harness.cassandra_node import expect_node, session_on_a_node
from tests.harness.clocks import HandClock
from tests.harness.queues import queues_on

if TYPE_CHECKING:  # the driver may be absent
    from dueline.stores.cassandra.session import CassandraSession

expect_node()
pytestmark = pytest.mark.cassandra

JOBS = int(os.environ.get("DUELINE_TRACED_JOBS", "4000"))
RUNNING = 30
BATCH = 100
ROUNDS = 30
BORN_A_ROUND = 20
SETTINGS = QueueSettings(history="off", width_us=10 * SECOND_US)
LEASE_US = SETTINGS.lease_us


@pytest.fixture(scope="module")
def session() -> Iterator[CassandraSession]:
    with session_on_a_node("traces") as session:
        yield session


def process_on(session: CassandraSession, clock: HandClock) -> Queues:
    """Begin a process: a client with a memory of its own, in a time that is moved by hand."""
    from tests.harness.cassandra_stage import HandTimedStore  # noqa: PLC0415  (needs the driver)
    from tests.harness.stepped_store import nothing  # noqa: PLC0415

    store = HandTimedStore(session, clock, nothing, "calls", nothing)
    return queues_on(store, clock, SETTINGS)


class Sent:
    """What was sent to the server: how many statements, and which reads of jobs, by their kind."""

    def __init__(self) -> None:
        self.count = 0
        self.again: list[Any] = []
        self.onward: list[Any] = []
        self.streams: list[Any] = []

    def tombstones(self) -> int:
        """Count the deleted rows that reads onward met, by the server's own account."""
        return sum(map(tombstones, self.onward))

    def tombstones_again(self) -> int:
        """Count those that reads from a lane's start met."""
        return sum(map(tombstones, self.again))


@contextmanager
def watched(session: CassandraSession, *, is_traced: bool) -> Iterator[Sent]:
    """Watch what is sent."""
    sent = Sent()
    driver = session._connected()
    execute_async = driver.execute_async

    def watch(statement: Any, *args: object, **kwargs: object) -> object:  # noqa: ANN401
        sent.count += 1
        kind = (
            ("streams" if reads_streams(statement) else kind_of(statement)) if is_traced else None
        )
        if kind is None:
            return execute_async(statement, *args, **kwargs)
        future = execute_async(statement, *args, **kwargs, trace=True)
        getattr(sent, kind).append(future)
        return future

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(driver, "execute_async", watch)
        yield sent


def _tell(figures: str) -> None:
    sys.stdout.write(f"\n{figures}\n")


class Line:
    """A queue through which jobs go, and a worker that ends them as they come."""

    def __init__(self, session: CassandraSession) -> None:
        self.session = session
        self.clock = HandClock()
        self.queues = process_on(session, self.clock)
        self.claimer = Claimer(self.queues.engine, ["default"], "first")
        self.running: list[Job] = []
        self.done = 0
        self.done_lately: list[Job] = []
        self.claimed_us = 0

    def enqueue(self, count: int) -> None:
        """Enqueue jobs that are due now."""
        self.queues.enqueue(calls(0, count))

    def claim(self, claimer: Claimer | None = None, limit: int = BATCH) -> list[Job]:
        """Read the lane lists and claim."""
        claimer = claimer or self.claimer
        self.claimed_us = self.clock.wall_us()
        claimer.refresh()
        return [taken.job for taken in claimer.claim(limit, {})]

    def end(self, jobs: Sequence[Job]) -> None:
        """End jobs."""
        assert all(self.queues.engine.store.settle([Drop(job) for job in jobs]))
        self.done += len(jobs)
        self.done_lately += jobs

    def beat(self) -> None:
        """Let what runs run on."""
        at_us = self.clock.wall_us() + LEASE_US
        assert all(self.queues.engine.store.settle([Extend(job, at_us) for job in self.running]))

    def done_lately_count(self, before_us: int = SECOND_US) -> int:
        """Count what is done of a time before the last claim, and of what was enqueued since."""
        since_us = self.claimed_us - before_us
        return sum(job.pos_us >= since_us for job in self.done_lately)


@pytest.fixture(scope="module")
def backlog(session: CassandraSession) -> Line:
    """Set up a backlog of many seconds; the first of its jobs run on until the end."""
    line = Line(session)
    for _ in range(JOBS // BATCH):
        line.enqueue(BATCH)
        line.clock.advance(0.25)
    line.clock.advance(2)
    line.running = line.claim(limit=RUNNING)
    assert len(line.running) == RUNNING
    return line


@pytest.fixture(scope="module")
def traced(backlog: Line) -> list[Sent]:
    """End the backlog; give what every tenth claim sent."""
    traced: list[Sent] = []
    turn = 0
    while True:
        turn += 1
        with watched(backlog.session, is_traced=turn % 10 == 0) as sent:
            jobs = backlog.claim()
        traced += [sent] if turn % 10 == 0 else []
        if not jobs:
            return traced
        backlog.end(jobs)
        backlog.clock.advance(0.03)
        if turn % 50 == 0:
            backlog.beat()


@pytest.fixture
def line(backlog: Line, traced: list[Sent]) -> Line:
    """Give the queue when its backlog is done, and what runs runs on."""
    del traced
    backlog.beat()
    return backlog


@pytest.mark.long
def test_a_claim_from_the_backlog_reads_no_tombstones(line: Line, traced: list[Sent]) -> None:
    met = [sent.tombstones() for sent in traced]
    _tell(f"backlog: {line.done} done, {len(met)} claims traced, tombstones {met}")
    assert line.done == JOBS - RUNNING
    assert sum(len(sent.again) + len(sent.onward) for sent in traced) >= len(met) > 0
    assert set(met) == {0}


def test_a_claim_at_the_head_reads_at_most_those_of_the_last_seconds(line: Line) -> None:
    """Those of the last second, and once a second those of the last six (rule R8)."""
    met: list[tuple[int, int, int]] = []
    for turn in range(ROUNDS):
        line.clock.advance(0.2)
        line.enqueue(BORN_A_ROUND)
        lately, before = line.done_lately_count(), line.done_lately_count(LATE_US + BEHIND_US)
        with watched(line.session, is_traced=turn % 3 == 2) as sent:
            jobs = line.claim()
        if sent.onward:
            met.append((sent.tombstones(), lately, before))
        assert len(jobs) == BORN_A_ROUND
        line.end(jobs)
    _tell(f"head: (tombstones, done in the last second, in the last six) {met}")
    assert all(dead <= before for dead, _, before in met)
    reread = [turn for turn, (dead, lately, _) in enumerate(met) if dead > lately]
    assert len(reread) <= len(met) // 2  # every third round of 0.2 s is traced
    assert any(dead for dead, *_ in met), "the traces tell nothing"


def test_a_worker_that_comes_later_meets_what_is_done_and_goes_on_from_there(line: Line) -> None:
    queues = process_on(line.session, line.clock)
    second = Claimer(queues.engine, ["default"], "second")
    met: list[tuple[int, int]] = []
    again: list[int] = []
    for _ in range(5):
        line.clock.advance(0.2)
        line.enqueue(BORN_A_ROUND)
        lately = line.done_lately_count()
        with watched(line.session, is_traced=True) as sent:
            jobs = line.claim(second)
        met.append((sent.tombstones(), lately))
        again.append(sent.tombstones_again())
        assert len(jobs) == BORN_A_ROUND
        line.end(jobs)
    store: Any = queues.engine.store
    cursors = [
        (line.clock.wall_us() - memory.cursor[0]) / SECOND_US
        for memory in store._claims._cursors._caches.values()
    ]
    _tell(f"second worker: (tombstones, done lately) {met}, again {again}; cursors {cursors} s ago")
    assert again[0] > 0
    assert 0 in again[1:]
    assert any(dead for dead, _ in met), "the traces tell nothing"
    assert all(dead <= lately for dead, lately in met)


def test_an_idle_poll_of_an_empty_queue_is_two_reads(line: Line) -> None:
    line.end(line.running)
    line.running = []
    for _ in range(4):  # what is past and empty is retired
        line.clock.advance(60)
        assert line.claim() == []
        line.claimer._lanes._sweeps.finish(only_done=False)
    polls = 10
    with watched(line.session, is_traced=False) as sent:
        for _ in range(polls):
            line.claimer.refresh()
            assert line.claimer.claim(BATCH, {}) == []
    _tell(f"idle: {sent.count} statements in {polls} polls")
    assert sent.count <= 2 * polls


def test_a_read_of_a_stream_crosses_none_of_its_expired_buckets(session: CassandraSession) -> None:
    from dueline.stores.cassandra.streams import BUCKET_US  # noqa: PLC0415  (needs the driver)

    store = process_on(session, HandClock()).engine.store
    buckets, rows_each = 250, 4
    rows = [
        Row("expired", 0, bucket * BUCKET_US + number, bytes([number]) * 16, b"{}")
        for bucket in range(buckets)
        for number in range(rows_each)
    ]
    store.append(rows)
    met: list[int] = []
    sent_by_expiry: list[int] = []
    for kept in (100, 2):  # buckets of several days, and of the next day
        store.close_until("expired", 0, at_us=(buckets - kept) * BUCKET_US)
        with watched(session, is_traced=False) as sent:
            store.expire("expired", 0, before_us=(buckets - kept) * BUCKET_US)
        sent_by_expiry.append(sent.count)
        with watched(session, is_traced=True) as read:
            page = store.tail("expired", 0, after=None, limit=rows_each)
        assert page.rows == rows[-kept * rows_each :][:rows_each]
        assert len(read.streams) == 2  # the list of buckets, and the first that is left
        met.append(sum(map(tombstones, read.streams)))
    _tell(f"streams: tombstones {met}, statements of expiry {sent_by_expiry}")
    assert max(met) <= 2  # one range, however many buckets it covers
