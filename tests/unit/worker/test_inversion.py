"""How many less urgent jobs go before a more urgent one."""

import pytest

from dueline.core.claim_buffer import buffer_size
from dueline.core.wakeup import LocalWakeups, NoWakeups
from dueline.jobs.queue import Queues
from tests.harness.calls import call, put
from tests.harness.clocks import HandClock
from tests.harness.swaps import swap
from tests.harness.worker_bench import Bench

pytestmark = pytest.mark.no_cover  # long, and what it runs is measured by others

LISTING_AGE_US = 250_000
URGED_AGE_US = 20_000
RUN_US = 10_000
THREADS = 4
JOBS = 900


@pytest.mark.long
@pytest.mark.parametrize("shards", [1, 8])
@pytest.mark.parametrize("begun", [60, 101, 142, 187, 224])
@pytest.mark.parametrize("age_us", [URGED_AGE_US, LISTING_AGE_US])
def test_an_urgent_job_waits_behind_no_more_than_the_bound(
    queues: Queues, clock: HandClock, shards: int, begun: int, age_us: int
) -> None:
    # T3, invariant 5: workers + buffers, and what is claimed until the worker looks
    swap(queues, wakeups=LocalWakeups() if age_us == URGED_AGE_US else NoWakeups())
    queues.engine.catalog.configure("default", shards=shards)
    put(queues, *(call(number) for number in range(JOBS)))
    bench = Bench(queues, clock, threads=THREADS)
    bench.runner.run_us = RUN_US
    ready_after: list[int] = []

    def run_for_a_while() -> None:
        bench.run_all()
        clock.advance(us=RUN_US)
        bench.wakeup.set()
        if not ready_after and len(bench.runner.began) >= begun:
            ready_after.append(len(bench.runner.began))
            put(queues, call(JOBS, priority=1))
        if JOBS in bench.runner.began:
            bench.worker.stop()

    bench.wakeup.meanwhile = run_for_a_while
    began = bench.run()
    assert len(set(began)) == len(began)
    buffer = buffer_size(RUN_US, THREADS)
    claimed = THREADS * age_us // RUN_US
    behind = began.index(JOBS) - ready_after[0]
    assert behind <= THREADS + buffer + claimed


@pytest.mark.slow
@pytest.mark.parametrize("shards", [1, 8])
def test_what_is_ready_at_a_look_starts_most_urgent_first(
    queues: Queues, clock: HandClock, shards: int
) -> None:
    # T3: heads are compared over all shards
    queues.engine.catalog.configure("default", shards=shards)
    put(queues, *(call(number, priority=number % 7) for number in range(210)))
    began = Bench(queues, clock, threads=3).run()
    priorities = [number % 7 for number in began]
    assert priorities == sorted(priorities, reverse=True)
