"""Whose turn it is while there is more work than can be done."""

from dueline.core.clock import SECOND_US
from dueline.jobs.queue import Queues
from tests.harness.calls import call, put
from tests.harness.clocks import NOW_US, HandClock
from tests.harness.worker_bench import Bench

AGING_US = 2 * SECOND_US


LOW = 999


def endless(queues: Queues, clock: HandClock, *, per_second: int, until_us: int) -> list[int]:
    """Keep one thread busy with urgent jobs of a second each, beside one of the least priority.

    Returns: the numbers of the jobs, as they began; urgent ones count from 0 as they were due.
    """
    put(queues, call(LOW))
    put(queues, *(call(n, priority=9) for n in range(5)))
    bench = Bench(queues, clock, threads=1, burst=False)
    count = 5

    def a_second_passes() -> None:
        nonlocal count
        bench.runner.begin()
        clock.advance(1)
        put(queues, *(call(count + n, priority=9) for n in range(per_second)))
        count += per_second
        bench.runner.end()
        bench.wakeup.set()
        if LOW in bench.runner.began or clock.wall_us() > until_us:
            bench.worker.stop(hurry=True)

    bench.wakeup.meanwhile = a_second_passes
    return bench.run()


def wait_bound(lower: int, higher: int, aging_us: int) -> int:
    """Return how much later jobs of a higher priority may become due and still go first.

    A job of priority `higher` that becomes due this long or more after a job of priority `lower` is
    claimed after it. So an endless load of more urgent jobs that a worker keeps up with delays a
    job by no more than this, besides the jobs that the worker holds already and the 250 ms that a
    lane list may be old. A load that it cannot keep up with delays the job until what became due
    before is done.

    Args:
        lower: Priority of the job that waits.
        higher: Priority of the more urgent jobs.
        aging_us: How long a job waits to gain one step, > 0.
    """
    assert aging_us > 0, "without aging there is no bound"
    return (higher - lower + 1) * aging_us


def under_endless_urgent_load_the_lowest_job_starts_within_its_bound(
    queues: Queues, clock: HandClock, per_second: int
) -> None:
    # T5: a load that the worker keeps up with, and one that it does not
    queues.engine.catalog.configure("default", aging_us=AGING_US)
    bound_s = wait_bound(0, 9, AGING_US) // SECOND_US
    began = endless(queues, clock, per_second=per_second, until_us=NOW_US + 500 * SECOND_US)
    assert began[-1] == LOW
    due_before = 5 + per_second * bound_s
    assert len(began) - 1 <= due_before + 1  # and what the worker held
