"""What a worker finds and claims."""

import threading
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import pytest

from dueline.core.clock import DAY_US, SECOND_US
from dueline.core.errors import Unknown
from dueline.core.job import State
from dueline.core.lane import GUARD_US, Pointer, with_task
from dueline.core.queue_settings import QueueSettings
from dueline.core.store import Drop, Extend, LanePage, Move
from dueline.jobs.pauses import pause, resume
from dueline.jobs.queue import Queues
from dueline.limits.permits import RETRY_US, Granted, HeldPermits
from dueline.stores.memory.store import MemoryStore
from dueline.worker.claimer import Claimer
from tests.harness.calls import LEASE_US, call, claim_all, number_of, numbers, put, row_in
from tests.harness.clocks import NOW_US, HandClock
from tests.harness.failing_store import FailingStore, Fault
from tests.harness.queues import queues_on
from tests.harness.swaps import swap


def claimer_of(queues: Queues, *serving: str) -> Claimer:
    """Make a claimer that has read the lane lists."""
    claimer = Claimer(queues.engine, serving or ("default",), "here:1:abcd")
    claimer.refresh()
    return claimer


def claimed(claimer: Claimer, limit: int = 100, room: Mapping[str, int] | None = None) -> list[int]:
    """Claim once, and name the jobs by their numbers."""
    return [number_of(taken.job) for taken in claimer.claim(limit, room or {})]


def pointers(queues: Queues, queue: str = "default") -> list[Pointer]:
    """Read a queue's lane list."""
    page = queues.engine.store.lanes(queue, 0, until_bucket=2**60, after=None, limit=1000)
    return list(page.pointers)


def test_nothing_is_claimed_where_nothing_is(queues: Queues) -> None:
    claimer = claimer_of(queues)
    assert claimer.claim(10, {}) == []
    assert not claimer.has_due()
    assert claimer.next_us() is None


def test_a_job_that_may_be_due_by_an_uncertain_clock_keeps_a_burst(
    clock: HandClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read_slowly() -> int:
        clock.advance(us=10_000)
        return clock.wall_us()

    store = MemoryStore(clock)
    monkeypatch.setattr(store, "clock_us", read_slowly)
    queues = queues_on(store, clock)
    (job,) = queues.enqueue(call(1))
    queues.reschedule(job.id, queues.engine.time.latest_us())
    claimer = claimer_of(queues)
    assert claimed(claimer) == []  # it is not sure that its time has come
    assert claimer.has_due()
    clock.advance(us=10_000)
    assert claimed(claimer) == [1]


def test_jobs_come_by_priority_then_in_the_order_of_enqueueing(queues: Queues) -> None:
    # T2, C3
    put(
        queues, *(call(n, priority=p) for n, p in enumerate((0, 2**31 - 1, -(2**31), 0, 2**31 - 1)))
    )
    claimer = claimer_of(queues)
    assert claimed(claimer, 3) == [1, 4, 0]
    assert claimed(claimer, 3) == [3, 2]
    assert claimed(claimer, 3) == []


@pytest.mark.parametrize("limit", [1, 3])
@pytest.mark.parametrize("weights", [(), (("", 2),)])
def test_functions_that_have_begun_and_new_jobs_take_turns(
    queues: Queues, clock: HandClock, limit: int, weights: tuple[tuple[str, int], ...]
) -> None:
    # rule D16: neither holds the other back
    queues.engine.catalog.configure("default", weights=weights)
    put(queues, *(call(n) for n in range(30)))
    claimer = claimer_of(queues)
    begun = [taken.job for taken in claimer.claim(15, {})]
    at_us, now_us = clock.wall_us() + SECOND_US, clock.wall_us()
    moves = [
        Move(job, at_us, queues.engine.ids.token(), job.lane.bucket, 0, 0,
             to=with_task(job.lane, "t", 0))
        for job in begun
    ]  # fmt: skip
    assert all(queues.engine.store.settle(moves))
    clock.advance(us=at_us - now_us)
    claimer.refresh()
    rounds = [claimed(claimer, limit) for _ in range(30 // limit)]
    assert sorted(number for numbers in rounds for number in numbers) == list(range(30))
    ahead = [numbers[0] < 15 for numbers in rounds]
    assert ahead == [ahead[0], not ahead[0]] * (len(rounds) // 2)


def test_a_claim_names_the_worker_and_lasts_for_the_lease_of_its_queue(
    queues: Queues, clock: HandClock
) -> None:
    queues.engine.catalog.configure("short", lease_us=SECOND_US)
    put(queues, call(1, queue="short"), call(2))
    jobs = {
        number_of(taken.job): taken.job
        for taken in claimer_of(queues, "short", "default").claim(9, {})
    }
    assert {job.worker for job in jobs.values()} == {"here:1:abcd"}
    assert {job.claimed_us for job in jobs.values()} == {clock.wall_us()}
    assert jobs[1].at_us == NOW_US + SECOND_US
    assert jobs[2].at_us == NOW_US + LEASE_US
    assert row_in(queues.engine.store, jobs[1].id) == jobs[1]


def test_only_the_queues_that_are_served_are_touched(queues: Queues) -> None:
    put(queues, call(1, queue="mine"), call(2, queue="other"))
    assert claimed(claimer_of(queues, "mine")) == [1]


def test_a_job_is_not_claimed_a_microsecond_before_its_time(
    queues: Queues, clock: HandClock
) -> None:
    # T1
    put(queues, call(1, due_us=NOW_US + 500))
    claimer = claimer_of(queues)
    clock.advance(us=499)
    assert claimed(claimer) == []
    assert not claimer.has_due()
    assert claimer.next_us() == NOW_US + 500
    clock.advance(us=1)
    assert claimer.has_due()
    assert claimed(claimer) == [1]


def test_the_limit_holds_over_all_queues_and_leases(queues: Queues) -> None:
    queues.engine.catalog.configure("short", lease_us=SECOND_US)
    put(queues, *(call(n, queue=("short", "default")[n % 2]) for n in range(20)))
    claimer = claimer_of(queues, "short", "default")
    counts = [len(claimed(claimer, 7)) for _ in range(4)]
    assert counts == [7, 7, 6, 0]


def test_room_holds_over_all_lanes_of_a_queue(queues: Queues) -> None:
    put(queues, *(call(n, queue="mail", priority=n) for n in range(5)))
    put(queues, *(call(10 + n) for n in range(5)))
    claimer = claimer_of(queues, "mail", "default")
    assert claimed(claimer, 100, {"mail": 2}) == [4, 3, 10, 11, 12, 13, 14]
    assert claimed(claimer, 100, {"mail": 0}) == []
    assert claimed(claimer, 100, {"mail": 1}) == [2]


def test_slots_are_not_spent_on_lanes_that_turn_out_to_be_empty(queues: Queues) -> None:
    # T2: with one slot, a lane of more urgent jobs that others run hides no other
    put(queues, call(1, priority=9), call(2, priority=9), call(3))
    urgent = next(pointer.lane for pointer in pointers(queues) if pointer.lane.priority)
    assert numbers(claim_all(queues, urgent)) == [1, 2]
    assert claimed(claimer_of(queues), 10, {"default": 1}) == [3]


def test_jobs_of_today_are_found_behind_those_that_run_since_yesterday(
    queues: Queues, clock: HandClock
) -> None:
    # T4: in one claim, since an idle worker forgets what its visits said
    put(queues, call(1))
    clock.advance(us=DAY_US)
    claim_all(queues)
    put(queues, call(2))
    assert claimed(claimer_of(queues)) == [2]


def test_an_urgent_job_of_a_later_bucket_comes_before_less_urgent_ones(
    queues: Queues, clock: HandClock
) -> None:
    # T1: whatever the lane of the earlier bucket holds, which others may have emptied
    put(queues, call(1, priority=9), call(2, priority=5), call(3, priority=5))
    clock.advance(us=DAY_US)
    put(queues, call(4, priority=9))
    claimer = claimer_of(queues)
    assert claimed(claimer, 2) + claimed(claimer, 3) == [1, 4, 2, 3]


def test_a_limit_that_is_refused_is_asked_for_once_for_all_buckets(
    queues: Queues, clock: HandClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(20):
        put(queues, call(number, priority=9)._replace(limits=[("key",)]))
        clock.advance(us=DAY_US)
    put(queues, call(20))
    asked: list[Sequence[str]] = []

    def refuse(limits: Sequence[str], *_: object, **__: object) -> Granted:
        asked.append(limits)
        now_us = clock.wall_us()
        return Granted(0, now_us, dict.fromkeys(limits, now_us + RETRY_US))

    permits = HeldPermits(queues.engine, "w")
    monkeypatch.setattr(permits, "take", refuse)
    claimer = Claimer(queues.engine, ["default"], "w", permits=permits)
    claimer.refresh()
    assert claimed(claimer) == [20]
    assert asked == [("key",)]


def test_no_more_keys_of_a_limit_are_asked_for_than_there_are_slots(
    queues: Queues, monkeypatch: pytest.MonkeyPatch
) -> None:
    # there may be ten thousand keys with a job each
    for number in range(100):
        put(queues, call(number)._replace(limits=[(f"host:{number}",)]))
    asked: list[Sequence[str]] = []
    permits = HeldPermits(queues.engine, "w")
    take = permits.take

    def note(limits: Sequence[str], *wanted: Any, **terms: Any) -> Granted:  # noqa: ANN401
        asked.append(limits)
        return take(limits, *wanted, **terms)

    monkeypatch.setattr(permits, "take", note)
    claimer = Claimer(queues.engine, ["default"], "w", permits=permits)
    claimer.refresh()
    done: list[int] = []
    for _ in range(20):
        claimer.unblock(permits.begin(list, 4))
        done += claimed(claimer, 50)
        assert claimed(claimer, 50) == []  # no slot is left
    assert len({*done}) == len(done) == 80
    assert len(asked) <= 2 * 80
    put(queues, call(100))
    claimer.refresh()
    permits.begin(list, 0)
    assert claimed(claimer, 50) == [100]  # the lanes that wait for a slot hide no other


def test_a_claim_that_has_visited_all_lanes_leaves_nothing_to_look_at(queues: Queues) -> None:
    jobs = put(queues, call(1, priority=9), call(2))
    claimer = claimer_of(queues)
    queues.engine.store.settle([Drop(job) for job in jobs])
    assert claimer.has_due()
    assert claimed(claimer, 10, {"default": 1}) == []
    assert not claimer.has_due()


def test_what_was_claimed_is_told_though_the_store_fails_at_the_next_queue(
    clock: HandClock,
) -> None:
    store = MemoryStore(clock)
    queues = queues_on(store, clock)
    queues.engine.catalog.configure("short", lease_us=SECOND_US)
    put(queues, call(1, queue="short"), call(2))
    failing = FailingStore(store, {2: Fault.BEFORE})
    claimer = claimer_of(queues, "short", "default")
    swap(queues, store=failing)
    assert claimed(claimer) == [2]
    assert claimed(claimer) == [1]


def test_a_store_that_fails_at_once_is_told(queues: Queues) -> None:
    put(queues, call(1))
    claimer = claimer_of(queues)
    good = queues.engine.store
    swap(queues, store=FailingStore(good, {1: Fault.BEFORE}))
    with pytest.raises(Unknown):
        claimer.claim(10, {})
    swap(queues, store=good)
    assert claimed(claimer) == [1]


def test_a_claim_that_died_comes_with_the_row_as_it_was(queues: Queues, clock: HandClock) -> None:
    # R1, R4
    put(queues, call(1), call(2))
    first, second = claim_all(queues, worker="dead:1:0")
    queues.engine.store.settle([Extend(first, first.at_us, started=True)])
    clock.advance(us=LEASE_US + 1)
    taken = {
        number_of(claimed_job.job): claimed_job for claimed_job in claimer_of(queues).claim(10, {})
    }
    assert taken[1].before == first._replace(state=State.STARTED)
    assert taken[2].before == second
    assert (taken[1].job.crashes, taken[1].job.alone) == (1, True)
    assert (taken[2].job.crashes, taken[2].job.alone) == (0, False)
    assert [taken[number].job.fence for number in (1, 2)] == [2, 2]


def test_a_job_that_was_never_claimed_comes_without(queues: Queues) -> None:
    put(queues, call(1))
    (taken,) = claimer_of(queues).claim(10, {})
    assert taken.before is None


# --- the lane lists --------------------------------------------------------------------------


def test_a_new_lane_is_seen_at_the_next_refresh(queues: Queues) -> None:
    put(queues, call(1))
    claimer = claimer_of(queues)
    put(queues, call(2, priority=5))
    assert claimed(claimer) == [1]
    claimer.refresh()
    assert claimed(claimer) == [2]


def test_what_a_visit_said_counts_until_the_next_refresh(queues: Queues) -> None:
    put(queues, call(1))
    claimer = claimer_of(queues)
    assert claimed(claimer) == [1]
    put(queues, call(2))
    claimer.refresh()
    assert claimer.has_due()
    assert claimed(claimer) == [2]


@pytest.mark.slow
def test_lane_lists_of_any_length_are_read(queues: Queues) -> None:
    # H9: more lanes than fit a page
    put(queues, *(call(n, priority=n) for n in range(1100)))
    assert claimed(claimer_of(queues), 2000) == list(range(1099, -1, -1))


def test_every_shard_is_read_also_those_of_an_earlier_setting(queues: Queues) -> None:
    queues.engine.catalog.configure("default", shards=4)
    put(queues, *(call(n) for n in range(200)))  # so many that some come to each
    queues.engine.catalog.configure("default", shards=1)
    put(queues, *(call(n) for n in range(200, 210)))
    assert len({job.lane.shard for job in queues.engine.jobs_of("default")}) == 4
    claimer = claimer_of(queues)
    numbers: list[int] = []
    while taken := claimed(claimer):
        numbers += taken
    assert sorted(numbers) == list(range(210))


def test_changed_settings_are_read_at_the_next_refresh(queues: Queues, clock: HandClock) -> None:
    # O5: the version comes with the lane list, well before the cache is 4 s old
    put(queues, call(1))
    claimer = claimer_of(queues)
    other = queues_on(queues.engine.store, clock)
    other.engine.catalog.configure("default", lease_us=SECOND_US)
    claimer.refresh()
    (taken,) = claimer.claim(10, {})
    assert taken.job.at_us == NOW_US + SECOND_US


def test_a_pause_holds_from_the_next_refresh_and_so_does_its_end(
    queues: Queues, clock: HandClock
) -> None:
    put(queues, call(1))
    put(queues, call(2, queue="mail"))
    claimer = claimer_of(queues, "default", "mail")
    other = queues_on(queues.engine.store, clock)
    other.engine.catalog.configure("default", is_paused=True)
    claimer.refresh()
    assert claimed(claimer) == [2]
    claimer.refresh()
    assert claimed(claimer) == []
    assert not claimer.has_due()
    other.engine.catalog.configure("default", is_paused=False)
    claimer.refresh()
    assert claimed(claimer) == [1]


def test_a_paused_tenants_lanes_are_not_looked_at(queues: Queues, clock: HandClock) -> None:
    # F10
    put(queues, call(1, tenant="a"), call(2, tenant="b"), call(3, tenant="a", priority=9))
    put(queues, call(4, queue="mail", tenant="a"))
    claimer = claimer_of(queues, "default", "mail")
    other = queues_on(queues.engine.store, clock)
    pause(other.engine, "default", tenants=["a"])
    claimer.refresh()
    assert sorted([*claimed(claimer), *claimed(claimer)]) == [2, 4]
    claimer.refresh()
    assert claimed(claimer) == []
    assert not claimer.has_due()
    resume(other.engine, "default", tenants=["a"])
    claimer.refresh()
    assert claimed(claimer) == [3, 1]


def test_an_empty_lane_that_is_past_is_retired_by_the_worker_that_finds_it(
    queues: Queues, clock: HandClock
) -> None:
    put(queues, call(1))
    claimer = claimer_of(queues)
    (taken,) = claimer.claim(10, {})
    queues.engine.store.settle([Drop(taken.job)])
    clock.advance(us=DAY_US + GUARD_US)
    for _ in range(3):  # find it empty and close the past, find it empty again, and unlist it
        claimer.refresh()
        claimer.claim(10, {})
    claimer.refresh()
    assert pointers(queues) == []


def test_an_empty_lane_of_today_stays_listed(queues: Queues) -> None:
    put(queues, call(1))
    claimer = claimer_of(queues)
    (taken,) = claimer.claim(10, {})
    queues.engine.store.settle([Drop(taken.job)])
    for _ in range(4):
        claimer.refresh()
        claimer.claim(10, {})
    assert [pointer.lane for pointer in pointers(queues)] == [taken.job.lane]


def test_a_lane_that_is_past_and_holds_jobs_is_not_retired(
    queues: Queues, clock: HandClock
) -> None:
    # H4
    put(queues, call(1))
    claimer = claimer_of(queues)
    (taken,) = claimer.claim(10, {})
    clock.advance(us=DAY_US)
    queues.engine.store.settle([Extend(taken.job, clock.wall_us() + LEASE_US)])
    for _ in range(4):
        claimer.refresh()
        claimer.claim(10, {})
    clock.advance(us=LEASE_US)
    claimer.refresh()
    assert claimed(claimer) == [1]


def test_a_backlog_of_a_month_is_claimed_oldest_first(queues: Queues, clock: HandClock) -> None:
    # H4
    for day in range(30):
        put(queues, call(day))
        clock.advance(us=DAY_US)
    claimer = claimer_of(queues)
    numbers: list[int] = []
    while taken := claimed(claimer):
        numbers += taken
    assert numbers == list(range(30))


def test_a_worker_whose_clock_is_ahead_of_the_store_claims_nothing_early(
    clock: HandClock,
) -> None:
    # T11: the store's clock decides
    store = MemoryStore(clock)
    ahead = HandClock(NOW_US + 600 * SECOND_US, monotonic_us=77)
    queues = queues_on(store, ahead)
    put(queues, call(1, due_us=NOW_US + SECOND_US))
    claimer = claimer_of(queues)
    assert claimed(claimer) == []
    clock.advance(1)
    ahead.advance(1)
    assert claimed(claimer) == [1]


class DistantStore(MemoryStore):
    """A memory store that lets a lane list be read only when those of four shards are."""

    scope: Literal["process", "machine", "network"] = "network"

    def __init__(self, clock: HandClock) -> None:
        """Start empty."""
        super().__init__(clock)
        self.arrivals = threading.Barrier(4)

    def lanes(
        self, queue: str, shard: int, *, until_bucket: int, after: Pointer | None, limit: int
    ) -> LanePage:
        """Wait for the others, then read."""
        self.arrivals.wait(timeout=60)
        return super().lanes(queue, shard, until_bucket=until_bucket, after=after, limit=limit)


def test_the_lane_lists_of_a_distant_store_are_read_at_once(clock: HandClock) -> None:
    shards = QueueSettings(shards=4, shards_read=4)
    queues = queues_on(DistantStore(clock), clock, shards)
    put(queues, *map(call, range(9)))
    claimer = claimer_of(queues)
    assert sorted(claimed(claimer)) == list(range(9))
