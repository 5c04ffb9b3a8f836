"""How many more urgent ready jobs the starts of a worker pass, as it counts them (T18, V5)."""

import pytest

from dueline.core.attempt import Done, Ended
from dueline.core.call_options import CallOptions, OrderPlace
from dueline.core.job import Job
from dueline.core.lane import lane_tenant, tenant_with_needs
from dueline.core.wakeup import NoWakeups
from dueline.jobs.queue import Queues
from dueline.worker.inversions import APART_US, KEPT, PRIORITIES_MAX, StartOrder
from dueline.worker.tally import Tally
from tests.harness.calls import call, put, row_of
from tests.harness.clocks import HandClock
from tests.harness.swaps import swap
from tests.harness.worker_bench import Bench

RUN_US = 10_000
THREADS = 3
BEGUN = 20
SECOND_US = 1_000_000


def attempt(
    priority: int,
    start_s: float,
    *,
    ready_s: float | None = None,
    claimed_s: float = 0,
    fence: int = 1,
    tenant: str = "",
    opts: bytes = b"",
) -> tuple[Ended, str]:
    row = row_of(1)
    row = row._replace(
        lane=row.lane._replace(priority=priority, tenant=tenant),
        pos_us=round((start_s if ready_s is None else ready_s) * SECOND_US),
        claimed_us=round(claimed_s * SECOND_US),
        fence=fence,
        opts=opts,
    )
    start_us = round(start_s * SECOND_US)
    return Ended(row, Done(b"1"), start_us, start_us + RUN_US), "done"


def counted(*attempts: tuple[Ended, str]) -> int:
    """Count one by one, and in reverse: the order in which jobs end does not matter."""
    totals = []
    for order in (attempts, attempts[::-1]):
        tally = Tally()
        tally.ended([attempt(0, 90), attempt(1, 91)])  # now it is mixed
        for pair in order:
            tally.ended([pair])
        totals.append(tally.totals().inversions["default"])
    assert totals[0] == totals[1]
    return totals[0]


def test_an_urgent_job_that_waits_is_passed_by_each_less_urgent_start() -> None:
    lows = [attempt(0, start_s) for start_s in (1, 2, 3, 4)]
    assert counted(*lows, attempt(5, 3.5, ready_s=1.5)) == 2
    assert counted(*lows, attempt(5, 3.5, ready_s=1.5), attempt(4, 3.6, ready_s=1.5)) == 4
    assert counted(*lows, attempt(0, 3.5, ready_s=1.5)) == 0
    assert counted(*lows, attempt(-1, 3.5, ready_s=1.5)) == 0
    assert counted(*lows, attempt(5, 0.5, ready_s=0)) == 0


def test_starts_that_threads_may_have_exchanged_do_not_count() -> None:
    close_s = APART_US / 2 / SECOND_US
    low = attempt(0, 1)
    assert counted(low, attempt(5, 1 + close_s, ready_s=0)) == 0
    assert counted(low, attempt(5, 1 + close_s, ready_s=0, claimed_s=1 + close_s)) == 1
    assert counted(low, attempt(5, 1 + 3 * close_s, ready_s=0)) == 1


@pytest.mark.parametrize(
    "blocked",
    [
        attempt(5, 2, ready_s=0, fence=2),
        attempt(5, 2, ready_s=0, tenant=lane_tenant("", ("gpu",))),
        attempt(5, 2, ready_s=0, tenant=tenant_with_needs("", "gpu=1")),
        attempt(5, 2, ready_s=0, opts=CallOptions(order=OrderPlace("a")).to_bytes()),
    ],
)
def test_a_job_that_waits_for_something_else_is_not_passed(blocked: tuple[Ended, str]) -> None:
    assert counted(attempt(0, 1), blocked) == 0
    assert counted(attempt(9, 3, ready_s=0), blocked) == 1  # its start passes others


def test_the_first_urgent_job_of_a_queue_counts_too() -> None:
    tally = Tally()
    tally.ended(attempt(0, start_s) for start_s in (3, 1, 2))
    assert not tally.totals().inversions
    tally.ended([attempt(1, 4, ready_s=1.5)])
    assert tally.totals().inversions == {"default": 2}


def test_little_is_kept() -> None:
    order, job = StartOrder(), attempt(0, 1)[0].job
    for _ in range(3):
        order.starts_of(0).extend(range(KEPT))
    assert len(order.starts_of(0)) == KEPT
    for priority in range(1, 3 * PRIORITIES_MAX):
        order.starts_of(priority)
        order.passed(with_priority(job, priority), priority)
    assert len(order._lines) == PRIORITIES_MAX


def with_priority(job: Job, priority: int) -> Job:
    return job._replace(lane=job.lane._replace(priority=priority))


def run_with_time(bench: Bench, *, step_us: int) -> None:
    """Let all that can start run for a while."""
    bench.runner.begin()
    bench.clock.advance(us=step_us)
    bench.runner.end()
    bench.wakeup.set()


def test_a_worker_counts_what_its_buffer_lets_pass(queues: Queues, clock: HandClock) -> None:
    swap(queues, wakeups=NoWakeups())
    put(queues, *(call(number) for number in range(100)))
    tally = Tally()
    bench = Bench(queues, clock, threads=THREADS, tally=tally)
    bench.runner.run_us = RUN_US
    before: list[int] = []

    def run_for_a_while() -> None:
        run_with_time(bench, step_us=RUN_US)
        if not before and len(bench.runner.began) >= BEGUN:
            before.extend(bench.runner.began)
            put(queues, call(100, priority=1))

    bench.wakeup.meanwhile = run_for_a_while
    began = bench.run()
    behind = began.index(100) - len(before)
    assert behind > 0
    assert tally.totals().inversions["default"] == behind


@pytest.mark.parametrize("shards", [1, 8])
def test_a_drain_by_priority_counts_none(queues: Queues, clock: HandClock, shards: int) -> None:
    queues.engine.catalog.configure("default", shards=shards)
    put(queues, *(call(number, priority=number % 7) for number in range(70)))
    tally = Tally()
    bench = Bench(queues, clock, threads=THREADS, tally=tally)
    bench.wakeup.meanwhile = lambda: run_with_time(bench, step_us=2 * APART_US)
    bench.run()
    assert tally.totals().inversions == {"default": 0}
