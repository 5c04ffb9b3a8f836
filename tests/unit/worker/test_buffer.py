"""How long a claimed job waits behind others in one worker (T3, H11)."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, cast

import pytest

from dueline.core.claim_buffer import WAIT_US_MAX
from dueline.core.clock import SECOND_US
from dueline.core.errors import StoreUnavailable
from dueline.core.job import Job, State
from dueline.core.wakeup import LocalWakeups, Signal
from dueline.jobs.queue import Queues
from dueline.worker.buffer import (
    CHECK_EVERY_US,
    LINGER_US,
    WORK_US,
    WORK_US_MAX,
    Buffer,
    RoundTrips,
)
from dueline.worker.worker import WATCH_US
from tests.harness.calls import call, put, row_in
from tests.harness.clocks import HandClock
from tests.harness.programs import WAIT_S, Program, wait_for
from tests.harness.swaps import swap
from tests.harness.worker_bench import Bench, words
from tests.harness.world import EVERY_KIND, World, store_on

QUICK_US = 1_000
JOBS = 40


class Slow:
    """A worker that takes jobs to be quick, and whose first jobs are slow.

    held: how many jobs it held each time that it waited. released_us: when it held no more than
    it ran. then: called then.
    """

    def __init__(
        self, queues: Queues, clock: HandClock, *, lasts_us: int, threads: int = 1
    ) -> None:
        self.bench = Bench(queues, clock, threads=threads)
        self.bench.runner.run_us = QUICK_US
        self.bench.wakeup.meanwhile = self._go_on
        self.held: list[int] = []
        self.released_us: int | None = None
        self.then: Callable[[], object] = lambda: None
        self._clock = clock
        self._end_us = clock.monotonic_us() + lasts_us

    def _go_on(self) -> None:
        self.bench.runner.begin()
        self.held.append(len(self.bench.worker._held))
        if self.released_us is None and self.held[-1] <= self.bench.runner.threads:
            self.released_us = self._clock.monotonic_us()
            self.then()
        if self._clock.monotonic_us() >= self._end_us:
            self.bench.runner.end()
            self.bench.wakeup.set()


@pytest.fixture(params=EVERY_KIND)
def queues(request: pytest.FixtureRequest, tmp_path: Path, clock: HandClock) -> Iterator[Queues]:
    world = World(store_on(request.param, tmp_path, clock), clock)
    swap(world.queues, wakeups=LocalWakeups())
    yield world.queues
    world.store.close()


@pytest.mark.slow
def test_what_waits_behind_a_slow_job_is_released_in_time(queues: Queues, clock: HandClock) -> None:
    # rule H1
    jobs = put(queues, *(call(number) for number in range(JOBS)))
    slow = Slow(queues, clock, lasts_us=8_000_000)
    began_us = clock.monotonic_us()
    rows: list[Job] = []
    slow.then = lambda: rows.extend(row_in(queues.engine.store, job.id) for job in jobs[1:])
    assert slow.bench.run() == list(range(JOBS))
    assert slow.held[0] == JOBS
    assert slow.released_us is not None
    assert slow.released_us - began_us <= WAIT_US_MAX + CHECK_EVERY_US + WATCH_US
    assert {(row.state, row.errors, row.crashes, row.alone) for row in rows} == {
        (State.WAITING, 0, 0, False)
    }
    assert [row.at_us for row in rows] == [row.pos_us for row in rows]  # each in its own place
    # Until the slow one had ended nothing was claimed again, and each was released once.
    first = slow.held.index(1)
    assert set(slow.held[first : first + 100]) == {1}
    assert (words(queues).count("given_back"), words(queues).count("done")) == (JOBS - 1, JOBS)


def test_jobs_are_claimed_ahead_again_once_a_handler_has_ended(
    queues: Queues, clock: HandClock
) -> None:
    put(queues, call(1))
    bench = Bench(queues, clock, threads=1)
    bench.runner.run_us = 100.0
    buffer = bench.worker._buffer
    buffer._is_full = True
    assert buffer.most() == 1
    bench.run()
    assert buffer.most() > 1


def test_an_idle_worker_is_woken_for_what_is_released(queues: Queues, clock: HandClock) -> None:
    # rule H1
    put(queues, *(call(number) for number in range(JOBS)))
    slow = Slow(queues, clock, lasts_us=2_000_000)
    idle = Bench(queues, clock, threads=JOBS)
    listener = queues.engine.wakeups.listen(["default"], Signal())
    counts: list[int] = []

    def look() -> None:
        assert listener.take()
        idle.worker._claimer.refresh()
        counts.append(len(idle.worker._claimer.claim(JOBS, {})))

    idle.worker._claimer.refresh()
    slow.then = look
    slow.bench.run()
    assert counts == [JOBS - 1]


@pytest.mark.long
def test_jobs_that_go_on_being_quick_are_not_released(queues: Queues, clock: HandClock) -> None:
    put(queues, *(call(number) for number in range(200)))
    bench = Bench(queues, clock, threads=1)
    bench.runner.run_us = QUICK_US

    def meanwhile() -> None:
        bench.run_all()
        clock.advance(us=QUICK_US)
        bench.wakeup.set()

    bench.wakeup.meanwhile = meanwhile
    assert bench.run() == list(range(200))
    assert "given_back" not in words(queues)


@pytest.mark.slow
@pytest.mark.parametrize("prefetch", [True, False])
def test_a_worker_without_prefetch_holds_only_jobs_that_run(
    queues: Queues, clock: HandClock, *, prefetch: bool
) -> None:
    put(queues, *(call(number) for number in range(50)))
    bench = Bench(queues, clock, threads=2, prefetch=prefetch)
    bench.runner.run_us = QUICK_US
    held: list[int] = []

    def meanwhile() -> None:
        held.append(len(bench.worker._held))
        bench.run_all()
        clock.advance(us=QUICK_US)
        bench.wakeup.set()

    bench.wakeup.meanwhile = meanwhile
    assert bench.run() == list(range(50))
    assert (max(held) > 2) is prefetch


@pytest.mark.slow
def test_what_runs_at_most_once_is_released_before_it_is_marked(
    queues: Queues, clock: HandClock
) -> None:
    # rule H1
    queues.engine.catalog.configure("default", deliver="at_most_once")
    put(queues, *(call(number) for number in range(JOBS)))
    slow = Slow(queues, clock, lasts_us=2_000_000)
    assert slow.bench.run() == list(range(JOBS))
    assert slow.held[0] == JOBS
    assert slow.released_us is not None
    assert words(queues).count("done") == JOBS
    assert "lost" not in words(queues)


def test_a_release_that_fails_is_repeated(tmp_path: Path, clock: HandClock) -> None:
    # rule H1
    world = World(store_on("memory", tmp_path, clock), clock)
    put(world.queues, *(call(number) for number in range(JOBS)))
    slow = Slow(world.queues, clock, lasts_us=2_000_000)
    settler = slow.bench.worker._settler
    settle, faults = settler.settle, [StoreUnavailable("away"), StoreUnavailable("away")]

    def settle_later(*what: Any) -> list[Job]:  # noqa: ANN401  (as it is called)
        if what[0] and faults:
            raise faults.pop()
        return settle(*what)

    settler.settle = settle_later  # type: ignore[method-assign,assignment]
    assert slow.bench.run() == list(range(JOBS))
    assert slow.released_us is not None
    assert words(world.queues).count("given_back") == JOBS - 1


PROGRAM = """
import asyncio, time
from dueline import Dueline

app = Dueline(URL)
app.queue("q", shards=1)

@app.task(name="nap", queue="q")
{define} nap(seconds: float) -> float:
    {sleep}(seconds)
    return time.time()
"""


@pytest.mark.long
@pytest.mark.sqlite
@pytest.mark.parametrize(
    ("define", "sleep", "processes"),
    [
        pytest.param("def", "time.sleep", "0", id="threads"),
        pytest.param("def", "time.sleep", "1", id="processes"),
        pytest.param("async def", "await asyncio.sleep", "0", id="coroutines"),
    ],
)
def test_quick_jobs_do_not_wait_for_a_long_one_beside_an_idle_worker(
    tmp_path: Path, define: str, sleep: str, processes: str
) -> None:
    # rule H1: the quick ones wait a moment for the other worker, and not for the long one
    program = Program(tmp_path, PROGRAM.format(define=define, sleep=sleep))
    app, nap = program.module.app, program.module.nap
    try:
        first = nap.enqueue_many([(0.001,)] * 300)  # workers learn that jobs are quick
        for _ in range(2):
            program.work("-q", "q", "-c", "1", "--processes", processes)
        wait_for(lambda: first[150].status == "done", "half of the first jobs")
        with app.transaction() as tx:
            long = nap.using(priority=1, tx=tx).enqueue(30.0)
            quick = nap.using(priority=1, tx=tx).enqueue_many([(0.001,)] * 40)
        stored_s = time.time()
        ended_s = [job.result(timeout=WAIT_S) for job in quick]
        assert max(ended_s) - stored_s < 10
        assert long.status == "running"
    finally:
        program.close()


class _Store(NamedTuple):
    scope: str
    transactional: bool


def trips_to(
    scope: str, *, transactional: bool = False, lease_us: int = 60 * SECOND_US
) -> RoundTrips:
    return RoundTrips(cast("Any", _Store(scope, transactional)), lambda: lease_us)


def test_the_buffer_lasts_until_the_next_claim_from_a_store_far_away() -> None:
    far, near = trips_to("network"), trips_to("machine")
    for _ in range(50):
        for buffer in (far, near):
            buffer.claimed(30_000)
            buffer.settled(40_000)
    assert far.work_us() == pytest.approx(LINGER_US + 140_000, rel=0.01)
    assert near.work_us() == WORK_US
    far.claimed(20_000_000)  # the store stood still once
    assert far.work_us() < LINGER_US + 280_000
    for _ in range(50):
        far.settled(20_000_000)
    assert far.work_us() == WORK_US_MAX
    for _ in range(100):
        far.claimed(3_000)
        far.settled(5_000)
    assert far.work_us() == pytest.approx(LINGER_US + 16_000, rel=0.01)


def test_nothing_is_claimed_ahead_whose_lease_would_end_before_it_starts() -> None:
    # rule H1: else a slow store is kept busy by leases of jobs that wait
    trips = trips_to("network", lease_us=SECOND_US)
    work_us = []
    for took_us in (30_000, 50_000, 400_000):
        for _ in range(100):
            trips.claimed(took_us)
            trips.settled(took_us)
        work_us.append(trips.work_us())
    third_us = SECOND_US // 3
    assert work_us == pytest.approx([third_us - 120_000, third_us - 200_000, 0], rel=0.01)


def test_where_one_request_stores_any_number_jobs_wait_for_two_settles() -> None:
    trips = trips_to("network", transactional=True)
    assert trips.linger_us() == 0
    for _ in range(100):
        trips.claimed(20_000)
        trips.settled(10_000)
    assert trips.linger_us() == pytest.approx(20_000, rel=0.01)
    assert trips.work_us() == pytest.approx(80_000, rel=0.01)
    for _ in range(100):
        trips.settled(200_000)
    assert trips.linger_us() == LINGER_US


class Waits:
    """A runner of which only the number of waiting jobs is asked."""

    count = 1

    def waiting(self) -> int:
        return self.count


def test_ended_jobs_wait_a_moment_for_others_where_a_request_is_a_round_trip() -> None:
    runner, nothing = Waits(), cast("Any", None)
    far = Buffer(cast("Any", runner), nothing, trips_to("network"))
    near = Buffer(cast("Any", runner), nothing, trips_to("machine"))
    assert far.lingers(1_000_000)
    assert far.lingers(1_000_000 + LINGER_US - 1)
    assert not far.lingers(1_000_000 + LINGER_US)
    assert far.lingers(2_000_000), "the next ones wait from now on"
    runner.count = 0
    assert not far.lingers(2_000_000), "nothing else will end soon"
    runner.count = 1
    assert far.lingers(3_000_000)
    assert not near.lingers(1_000_000)
