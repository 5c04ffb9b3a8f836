"""Laws of time: the caller passes it in."""

from dueline.core.clock import SECOND_US
from dueline.core.job import Job
from dueline.core.lane import Pointer
from dueline.core.store import Drop, Extend, Group, Store, Verdict
from dueline.store_tests.calls import (
    LEASE_US,
    NOW_US,
    QUEUE,
    WIDTH_US,
    claim,
    ids_of,
    lane_of,
    move,
    new_jobs,
    pointers_in,
    put_in,
    row_of,
    rows_in,
    stream_of,
)
from dueline.store_tests.factory import StoreFactory

YEAR_US = 365 * 86_400 * SECOND_US
SHIFTS_US = (0, -50 * YEAR_US, -9 * YEAR_US, 10 * YEAR_US, 70 * YEAR_US)
# Whole buckets, so that a shifted scenario falls into shifted buckets.
assert all(shift_us % WIDTH_US == 0 for shift_us in SHIFTS_US)


class WatchedClock:
    """A clock that stands still, and counts the reads of its wall clock."""

    def __init__(self, wall_us: int) -> None:
        self.looks = 0
        self._wall_us = wall_us
        self._monotonic_us = 0

    def wall_us(self) -> int:
        """Return the time."""
        self.looks += 1
        return self._wall_us

    def monotonic_us(self) -> int:
        """Return the time spent in `sleep`: a store may limit its waiting."""
        return self._monotonic_us

    def sleep(self, seconds: float) -> None:
        """Advance the monotonic time without waiting."""
        self._monotonic_us += round(seconds * SECOND_US)


def shifted(job: Job, shift_us: int) -> Job:
    """Move a row's times back by a shift, to compare it with an unshifted row."""
    lane = job.lane._replace(bucket=job.lane.bucket - shift_us // WIDTH_US)
    claimed_us = job.claimed_us - shift_us if job.claimed_us else 0
    return job._replace(
        lane=lane,
        pos_us=job.pos_us - shift_us,
        due_us=job.due_us - shift_us,
        enqueued_us=0,
        at_us=job.at_us - shift_us,
        claimed_us=claimed_us,
    )


def run_scenario(store: Store, shift_us: int) -> list[object]:
    """Run a scenario at a shifted time; return what was read, shifted back."""
    now_us = NOW_US + shift_us
    lane = lane_of(now_us)
    later = lane_of(now_us + 30 * WIDTH_US)
    seen: list[object] = []

    def note(jobs: list[Job]) -> None:
        seen.extend(shifted(job, shift_us) for job in jobs)
        back = shift_us // WIDTH_US
        seen.append(
            [
                Pointer(at.listing - back, at.lane._replace(bucket=at.lane.bucket - back))
                for at in pointers_in(store)
            ]
        )

    put_in(store, *new_jobs(4, at_us=now_us, lane=lane))
    put_in(store, *new_jobs(2, first=9, at_us=now_us + 30 * WIDTH_US, lane=later))
    claimed = claim(store, lane, later, limit=3, now_us=now_us)
    first, second, third = claimed.jobs
    note(list(claimed.jobs))
    store.settle([Extend(first, now_us + 2 * LEASE_US, started=True), move(second, now_us + 5)])
    store.together([Group(verdicts=[Drop(third)], rows=[row_of(1, at_us=now_us)])])
    note(rows_in(store, lane))
    for ahead in (1, 3, 9):
        ahead_us = now_us + ahead * WIDTH_US
        store.sweep(QUEUE, 0, now_us=ahead_us, width_us=WIDTH_US)
        claimed = claim(store, lane, later, now_us=ahead_us, token=10 + ahead)
        seen.append(sorted(ids_of(claimed.died.values())))
        note(list(claimed.jobs))
    note(rows_in(store, later))
    seen.append([row.at_us - shift_us for row in stream_of(store)])
    return seen


class ClockLaws:
    """No call about jobs depends on the clock."""

    def test_a_scenario_is_the_same_in_any_year(self, factory: StoreFactory) -> None:
        runs = []
        for shift_us in SHIFTS_US:
            store = factory.open(factory.fresh())
            runs.append(run_scenario(store, shift_us))
            store.close()
        for run in runs[1:]:
            assert run == runs[0]

    def test_calls_about_jobs_and_streams_do_not_look_at_the_clock(
        self, factory: StoreFactory
    ) -> None:
        clock = WatchedClock(NOW_US + YEAR_US)
        url = factory.fresh()
        store = factory.open(url, clock=clock)
        store.find([])
        put_in(store, *new_jobs(6))
        before = clock.looks
        first, second, third = claim(store, lane_of(), limit=3).jobs
        verdicts: list[Verdict] = [Drop(first), Extend(second, NOW_US + 1), move(third, NOW_US)]
        assert list(store.settle(verdicts)) == [True] * 3
        put_in(store, *new_jobs(3, first=20))
        rows_in(store, lane_of())
        store.find(ids_of(new_jobs(9)))
        store.sweep(QUEUE, 0, now_us=NOW_US, width_us=WIDTH_US)
        store.append([row_of(1)])
        stream_of(store)
        assert clock.looks == before
        store.close()

    def test_the_store_tells_its_time(self, store: Store) -> None:
        assert store.clock_us() > 1_600_000_000 * SECOND_US

    def test_the_store_says_what_it_is(self, store: Store) -> None:
        facts = store.describe()
        assert facts
        assert all(isinstance(text, str) for text in (*facts, *facts.values()))
