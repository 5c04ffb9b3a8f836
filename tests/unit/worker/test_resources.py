"""What a worker has for jobs with needs: it is never used twice, and large jobs get their turn."""

from collections.abc import Mapping, Sequence

from dueline.core.clock import SECOND_US
from dueline.core.lane import (
    Lane,
    lane_tenant,
    limits_of,
    limits_text,
    needs_text,
    tenant_with_needs,
)
from dueline.jobs.queue import Queues
from dueline.limits import semaphore
from tests.harness.calls import call, number_of, put
from tests.harness.clocks import NOW_US, HandClock
from tests.harness.worker_bench import Bench

LARGE = 999
UNTIL_US = NOW_US + 60 * SECOND_US


def test_the_lane_of_a_job_names_needs_beside_limits_and_task() -> None:
    tenant = lane_tenant(tenant_with_needs("acme", "gpu=1,region=eu"), ["b", "a"], "task")
    lane = Lane("default", 0, 0, 0, tenant)
    assert (needs_text(lane), limits_of(lane)) == ("gpu=1,region=eu", ("a", "b"))
    assert limits_text(lane) == limits_text(lane._replace(tenant=lane_tenant("acme", ["a", "b"])))
    assert not limits_of(lane._replace(tenant=tenant_with_needs("acme", "gpu=1")))
    assert not needs_text(lane._replace(tenant=lane_tenant("acme", ["a"])))


def endless(
    queues: Queues,
    clock: HandClock,
    large: Mapping[str, int | str],
    *,
    priority: int = 0,
    limits: Sequence[Sequence[str]] = (),
) -> list[int]:
    """Keep two units of a worker busy with jobs of one unit each, beside a large job.

    priority: of the small jobs. limits: of the large one.

    Returns: the numbers of the jobs, as they began, up to the large one.
    """
    bench = Bench(queues, clock, threads=4, burst=False, has={"gpu": 2})
    put(queues, *(call(n, needs={"gpu": 1}, priority=priority) for n in range(4)))
    count = 4
    put(queues, call(LARGE, needs=large)._replace(limits=limits))

    def half_a_second_passes() -> None:
        nonlocal count
        bench.runner.begin()
        assert sum(2 if number_of(job) == LARGE else 1 for job in bench.runner.running()) <= 2
        clock.advance(us=SECOND_US // 2)
        put(queues, call(count, needs={"gpu": 1}, priority=priority))
        put(queues, call(count + 1, needs={"gpu": 1}, priority=priority))
        count += 2
        for job in bench.runner.running()[:1]:  # so that never both units are free at once
            bench.runner.end(only=number_of(job))
        bench.wakeup.set()
        if LARGE in bench.runner.began or clock.wall_us() > UNTIL_US:
            bench.worker.stop(hurry=True)

    bench.wakeup.meanwhile = half_a_second_passes
    return bench.run()


def test_small_jobs_pass_a_large_one_for_thirty_seconds(queues: Queues, clock: HandClock) -> None:
    began = endless(queues, clock, {"gpu": 2})
    assert began[-1] == LARGE
    waited_us = clock.wall_us() - NOW_US
    assert 30 * SECOND_US <= waited_us <= 40 * SECOND_US
    assert len(began) >= 50  # they were not held back before


def test_more_urgent_jobs_pass_a_large_one_for_good(queues: Queues, clock: HandClock) -> None:
    assert LARGE not in endless(queues, clock, {"gpu": 2}, priority=1)


def test_what_the_worker_does_not_have_at_all_reserves_nothing(
    queues: Queues, clock: HandClock
) -> None:
    assert LARGE not in endless(queues, clock, {"gpu": 3})


def test_a_large_job_that_waits_for_a_limit_holds_nobody_back(
    queues: Queues, clock: HandClock
) -> None:
    semaphore.define(queues.engine.store, "closed", 0, ids=queues.engine.ids)
    began = endless(queues, clock, {"gpu": 2}, limits=[["closed"]])
    assert LARGE not in began
    assert len(began) > 90  # of 120 without the large one, and 60 if nothing started after 30 s
