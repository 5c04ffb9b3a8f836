"""Whose turn it is while there is more work than can be done."""

import random
from dataclasses import replace

import pytest

from dueline.core.clock import SECOND_US
from dueline.core.ids import Ids
from dueline.jobs.queue import Queues
from tests.harness.calls import call, put
from tests.harness.clocks import NOW_US, HandClock
from tests.harness.worker_bench import Bench, wait_bound

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


pytestmark = pytest.mark.no_cover  # long, and what it runs is measured by others


@pytest.mark.slow
@pytest.mark.parametrize("per_second", [1, 2])
def test_under_endless_urgent_load_the_lowest_job_starts_within_its_bound(
    queues: Queues, clock: HandClock, per_second: int
) -> None:
    # T5: a load that the worker keeps up with, and one that it does not
    queues.engine.catalog.configure("default", aging_us=AGING_US)
    bound_s = wait_bound(0, 9, AGING_US) // SECOND_US
    began = endless(queues, clock, per_second=per_second, until_us=NOW_US + 500 * SECOND_US)
    assert began[-1] == LOW
    due_before = 5 + per_second * bound_s
    assert len(began) - 1 <= due_before + 1  # and what the worker held


@pytest.mark.slow
def test_without_aging_it_starts_when_nothing_else_is_there(
    queues: Queues, clock: HandClock
) -> None:
    assert LOW not in endless(queues, clock, per_second=1, until_us=NOW_US + 100 * SECOND_US)


@pytest.mark.long
@pytest.mark.parametrize("run_us", [0.0, 25_000.0])
def test_a_tenants_flood_delays_another_by_no_more_than_a_turn(
    queues: Queues, clock: HandClock, run_us: float
) -> None:
    # T4, T3: at most (tenants + buffer) others start before it
    put(queues, *(call(n, tenant="flood") for n in range(300)))
    put(queues, *(call(1000 + n, tenant=f"other{n}") for n in range(3)))
    bench = Bench(queues, clock, threads=2)
    bench.runner.run_us = run_us
    began = bench.run()
    buffer = 2 + (4 if run_us else 0)
    assert len(began) == 303
    for n in range(3):
        assert began.index(1000 + n) <= 4 + buffer


@pytest.mark.slow
def test_who_was_last_waits_for_all_other_tenants_and_no_longer(
    queues: Queues, clock: HandClock
) -> None:
    # T4, with more tenants than a claim takes: between two turns, at most (tenants + buffer) others
    put(queues, *(call(n, tenant=f"{n % 50:02}") for n in range(150)))
    bench = Bench(queues, clock, threads=3)
    began = [number % 50 for number in bench.run()]
    for tenant in range(50):
        turns = [place for place, started in enumerate(began) if started == tenant]
        assert all(turn < 50 * n + 50 + 3 for n, turn in enumerate(turns))
        assert len(turns) == 3


def assert_share(began: list[int], firsts: range, mine: range, fair: int) -> None:
    """Check the share of a tenant in each 40 starts in a row: off by at most three jobs."""
    for first in firsts:
        starts = began[first : first + 40]
        assert abs(sum(number in mine for number in starts) - fair) <= 3


@pytest.mark.long
@pytest.mark.parametrize("threads", [1, 8])
def test_tenants_take_turns_by_starts_however_quick_jobs_are(
    queues: Queues, clock: HandClock, threads: int
) -> None:
    # T4: a claim brings hundreds of quick jobs, lane by lane
    queues.engine.catalog.configure("default", weights=(("acme", 3),))
    put(queues, *(call(n, tenant="acme") for n in range(900)))
    put(queues, *(call(1000 + n, tenant="other") for n in range(300)))
    bench = Bench(queues, clock, threads=threads)
    bench.runner.run_us = 100.0
    began = bench.run()
    assert len(began) == 1200
    assert_share(began, range(0, 1200, 40), range(1000), 30)
    for tenant in (0, 1000):
        mine = [number for number in began if tenant <= number < tenant + 1000]
        assert mine == sorted(mine)


@pytest.mark.long
@pytest.mark.parametrize("shards", [1, 8])
@pytest.mark.parametrize("weights", [(), (("small", 3),)])
def test_tenants_with_few_jobs_start_in_turn_within_a_large_claim(
    queues: Queues, clock: HandClock, weights: tuple[tuple[str, int], ...], shards: int
) -> None:
    # F8: one claim brings all jobs of the small tenants, and fills up with those of the large one
    queues.engine.catalog.configure("default", weights=weights, shards=shards)
    put(queues, *(call(n, tenant="large") for n in range(400)))
    put(queues, *(call(1000 + n, tenant="small") for n in range(100)))
    put(queues, call(2000, tenant="single"))
    bench = Bench(queues, clock, threads=1)
    bench.runner.run_us = 50.0
    began = bench.run()
    assert len(began) == 501
    assert began.index(2000) <= 5
    fair = 30 if weights else 20
    assert_share(began, range(5, 85, 40), range(1000, 2000), fair)


@pytest.mark.long
def test_weights_hold_in_small_claims_from_many_shards(queues: Queues, clock: HandClock) -> None:
    # F8: each shard of a tenant is a lane of its own, and a claim takes less than each holds.
    # The ids decide which jobs are in a shard: where one runs empty early, a claim later makes up
    # for it, five starts at most in other ids.
    queues = Queues(replace(queues.engine, ids=Ids(random.Random(0).randbytes)))
    queues.engine.catalog.configure("default", weights=(("acme", 3),), shards=8)
    put(queues, *(call(n, tenant="acme") for n in range(300)))
    put(queues, *(call(1000 + n, tenant="other") for n in range(100)))
    bench = Bench(queues, clock, threads=1)
    bench.runner.run_us = 1_000.0
    began = bench.run()
    assert len(began) == 400
    assert_share(began, range(0, 200, 40), range(1000), 30)
