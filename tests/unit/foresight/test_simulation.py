"""The simulation of workers: order, turns, limits, retries, slots, and what a start costs (P9)."""

from itertools import pairwise

import pytest

from dueline.foresight.calibration import learned
from dueline.foresight.record import UNKNOWN, Record
from dueline.foresight.scenario import (
    Changes,
    Overheads,
    Rules,
    Scenario,
    SimulatedWorker,
    scenario_of,
)
from dueline.foresight.simulation import simulate
from dueline.limits.rate import Rate
from tests.harness.records import BEGUN_US, MS, Ran, record_of

NONE = Overheads((0,), (0,), (0,), (0,), (0,), (0,))
LONG_US = 10**12


def workers(*slots: int) -> list[SimulatedWorker]:
    """Return workers that are there all the time."""
    return [SimulatedWorker(one, BEGUN_US, BEGUN_US + LONG_US) for one in slots]


def starts(record: Record, scenario: Scenario) -> list[float]:
    """Return when each attempt starts, in milliseconds."""
    found = simulate(record, scenario).started_us
    return [UNKNOWN if at == UNKNOWN else (at - BEGUN_US) / MS for at in found]


def test_jobs_wait_for_slots_in_their_order() -> None:
    record = record_of([Ran(0, run=400), Ran(1, run=400), Ran(2, run=400)])
    assert starts(record, Scenario(Rules(), workers(1), NONE)) == [0, 400, 800]
    assert starts(record, Scenario(Rules(), workers(2), NONE)) == [0, 1, 400]
    assert starts(record, Scenario(Rules(), workers(1, 2), NONE)) == [0, 1, 2]


def test_urgent_jobs_start_first_and_waiting_jobs_age() -> None:
    record = record_of([Ran(0, run=400), Ran(1, run=400), Ran(2, run=400, priority=1)])
    assert starts(record, Scenario(Rules(), workers(1), NONE)) == [0, 800, 400]
    aging = Rules(aging_us={"mail": MS})
    assert starts(record, Scenario(aging, workers(1), NONE)) == [0, 400, 800]
    changed = Scenario(Rules(), workers(1), NONE, priorities={"mail.task": 5})
    assert starts(record, changed) == [0, 400, 800]


def test_tenants_take_turns_by_their_weights() -> None:
    tenants = [Ran(n / 100, run=100, tenant="ab"[n % 2]) for n in range(400)]
    for weights, share in (({}, 1), ({"a": 3}, 3)):
        record = record_of(tenants)
        found = starts(record, Scenario(Rules(weights=weights), workers(1), NONE))
        first = sorted(range(400), key=found.__getitem__)[10:110]
        names = [record.kinds[record.kind[place]].tenant for place in first]
        assert names.count("a") / names.count("b") == pytest.approx(share, rel=0.1)


def test_a_semaphore_bounds_what_runs_at_once() -> None:
    jobs = [Ran(n, run=300, limits=("api",)) for n in range(9)]
    for capacity, end in ((1, 2400), (3, 600)):
        rules = Rules(capacities={"api": capacity})
        found = starts(record_of(jobs), Scenario(rules, workers(4, 4), NONE))
        busy = [sum(one <= at < one + 300 for one in found) for at in found]
        assert max(busy) == capacity
        assert end <= max(found) <= end * 1.3 + 50


def test_jobs_without_the_limit_do_not_wait_for_it() -> None:
    jobs = [*(Ran(n, run=300, limits=("api",)) for n in range(9)), Ran(20, run=10)]
    assert starts(record_of(jobs), Scenario(Rules(), workers(4), NONE))[-1] == 20


def test_a_rate_bounds_the_starts_of_a_period() -> None:
    jobs = [Ran(n, run=1, limits=("api",)) for n in range(40)]
    rules = Rules(rates={"api": Rate(10, 1_000_000)})
    found = sorted(starts(record_of(jobs), Scenario(rules, workers(4, 4), NONE)))
    assert all(later - early >= 989 for early, later in zip(found, found[10:], strict=False))
    assert found[-1] < 3300


def test_retries_are_ready_as_long_after_the_failure_as_they_really_were() -> None:
    record = record_of([Ran(0, run=100, waits=(50, 70), late=40)])
    assert starts(record, Scenario(Rules(), workers(1), NONE)) == [0, 150, 320]
    old = record._replace(ready_us=[record.ready_us[0], UNKNOWN, UNKNOWN])
    assert starts(old, Scenario(Rules(), workers(1), NONE)) == [0, 190, 400]  # with their waits


def test_claimed_jobs_that_wait_too_long_are_released() -> None:
    quick = [Ran(n, run=1) for n in range(40)]  # from which the worker learns to claim ahead
    slow = [Ran(100, run=2000), Ran(101, run=2000)]
    found = starts(
        record_of([*quick, *slow, Ran(102, run=1)]), Scenario(Rules(), workers(1, 1), NONE)
    )
    assert found[-3:-1] == [100, 101]
    fleet = [*workers(1), SimulatedWorker(1, BEGUN_US + 200 * MS, BEGUN_US + LONG_US)]
    found = starts(
        record_of([*quick, Ran(100, run=2000), Ran(100, run=1)]), Scenario(Rules(), fleet, NONE)
    )
    assert found[-1] - 100 <= 251


@pytest.mark.slow
def test_all_jobs_start_and_none_twice_with_any_setting() -> None:
    jobs = [
        Ran(n, run=1 + n % 37, tenant=f"t{n % 5}", priority=n % 3, shard=n % 2,
            limits=("api",) if n % 4 == 0 else (), waits=(5,) if n % 6 == 0 else ())
        for n in range(600)
    ]  # fmt: skip
    record = record_of(jobs)
    for rules in (Rules(), Rules(weights={"t1": 4}), Rules(aging_us={"mail": 10 * MS})):
        for shards in (None, 3):
            scenario = Scenario(rules, workers(2, 3), Overheads(), {}, shards)
            found = simulate(record, scenario)
            assert UNKNOWN not in found.started_us
            assert all(start >= ready for ready, start in zip(*found, strict=True))
            runs = zip(record.started_us, record.ended_us, found.started_us, strict=True)
            steps = sorted(
                step for a, b, start in runs for step in ((start, 1), (start + b - a, -1))
            )
            running = 0
            for _, step in sorted(steps, key=lambda one: (one[0], one[1])):
                running += step
                assert running <= 5


def test_workers_and_delays_are_learned() -> None:
    slow = [Ran(n * 100, run=5, late=3) for n in range(20)]
    both = [Ran(5000, run=50, late=2), Ran(5001, run=50, late=3, worker="two"), Ran(5002, run=9)]
    fleet, overheads = learned(record_of([*slow, *both]))
    assert [one.slots for one in fleet] == [2, 1]
    assert fleet[0].since_us == BEGUN_US + 3 * MS
    assert set(overheads.idle_us) == {1 * MS, 2 * MS, 3 * MS}


def test_a_turn_is_the_delay_behind_a_job_that_ended() -> None:
    jobs = [Ran(n, run=100, late=103 * n - n + 2) for n in range(5)]
    _, overheads = learned(record_of(jobs))
    assert set(overheads.turn_us) == {3 * MS}
    assert all(a >= b for a, b in pairwise([*overheads.next_us, 0]))


def test_a_retry_that_was_claimed_early_waits_for_its_time_and_not_for_a_slot() -> None:
    retried = record_of([Ran(0, run=100, waits=(250,))])
    claimed_us = [*retried.claimed_us]
    claimed_us[1] = retried.ended_us[0] - 1 * MS  # before its slot was free, and before it was due
    _, overheads = learned(retried._replace(claimed_us=claimed_us))
    assert overheads.next_us == Overheads().next_us  # none was seen
    assert max(overheads.early_us) == 1 * MS


def test_a_full_worker_with_room_in_its_buffer_may_claim_before_a_free_one() -> None:
    quick = [Ran(n, run=1) for n in range(40)]  # from which the worker learns to claim ahead
    jobs = [*quick, Ran(100, run=30), Ran(101, run=1), Ran(102, run=1)]
    found = starts(record_of(jobs), Scenario(Rules(), workers(1, 1), NONE))
    assert found[-3:] == [100, 101, 130]


def test_a_setting_changes_what_it_names() -> None:
    rules = Rules({"api": 2}, {"web": Rate(1, 1_000_000)}, {"a": 2})
    fleet = workers(3, 1)
    kept = scenario_of(Changes(), rules, fleet, NONE)
    assert (kept.rules, kept.workers) == (rules, fleet)
    changed = Changes("more", 5, None, {}, {"web": 7}, {}, {"b": 4}, 8)
    made = scenario_of(changed, rules, fleet, NONE)
    assert made.rules.capacities == {"api": 2, "web": 7}
    assert not made.rules.rates
    assert made.rules.weights == {"a": 2, "b": 4}
    assert [one.slots for one in made.workers] == [3] * 5
    assert made.shards == 8
