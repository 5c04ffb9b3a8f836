"""Jobs that are claimed before their time (H11)."""

import threading
import time
from collections.abc import Callable, Sequence

import pytest

from dueline.core.attempt import Done, Failed
from dueline.core.call_options import CallOptions
from dueline.core.clock import SECOND_US, StoreTime, SystemClock
from dueline.core.errors import Conflict, StoreUnavailable
from dueline.core.job import Job, State
from dueline.core.queue_settings import QueueSettings
from dueline.core.store import Move
from dueline.core.store_capabilities import PREFETCH_LEAD_US, PREFETCH_US_MAX, Prefetched
from dueline.core.wakeup import LocalWakeups
from dueline.jobs.queue import Queues
from dueline.worker.assignment import Assignment
from dueline.worker.prefetch import PrefetchedJobs, placed
from dueline.worker.settler import Settler
from dueline.worker.triage import EndedBeforeRun
from tests.harness.calls import LEASE_US, call, claim_all, number_of, put, row_of
from tests.harness.clocks import HandClock
from tests.harness.failing_store import FailingStore
from tests.harness.swaps import swap
from tests.harness.worker_bench import Bench, words

DUE_US = 2 * SECOND_US


@pytest.fixture
def queues(queues: Queues) -> Queues:
    swap(queues, wakeups=LocalWakeups())
    return queues


class Watched:
    """A worker that runs on; what it did is looked at before each of its waits.

    began_us: when each handler was called, by the job's number.
    """

    def __init__(
        self, queues: Queues, clock: HandClock, *, threads: int, prefetch: bool = True
    ) -> None:
        self.bench = Bench(queues, clock, burst=False, threads=threads, prefetch=prefetch)
        self.clock = clock
        self.queues = queues
        self.began_us: dict[int, int] = {}
        self.jobs: list[Job] = []
        self.claimed_us: dict[int, int] = {}

    def run(self, until_us: int, then: Callable[[], object] = lambda: None) -> None:
        """Let it work until an instant; `then` is called before each wait."""
        stopped: list[bool] = []

        def look() -> None:
            self._look()
            then()
            self._look()
            if self.clock.wall_us() >= until_us:
                if not stopped:
                    stopped.append(True)
                    self.bench.worker.stop()
                self.bench.runner.end()

        self.bench.wakeup.meanwhile = look
        self.bench.run()

    def _look(self) -> None:
        self.bench.runner.begin()
        for number in self.bench.runner.began:
            self.began_us.setdefault(number, self.clock.wall_us())
        for job in self.jobs:
            row = self.queues.engine.store.find([job.id])[0]
            if row is not None and row.is_claimed():
                self.claimed_us.setdefault(number_of(job), self.clock.wall_us())

    def put(self, number: int, due_us: int, *, priority: int = 0) -> Job:
        """Enqueue a job that is watched."""
        (job,) = put(self.queues, call(number, due_us=due_us, priority=priority))
        self.jobs.append(job)
        return job

    def end(self) -> None:
        """Let the handlers that run return."""
        self.bench.runner.end(Done(b""))
        self.bench.wakeup.set()


def test_a_job_is_claimed_before_its_time_and_started_at_it(
    queues: Queues, clock: HandClock
) -> None:
    # T1
    worker = Watched(queues, clock, threads=8)
    due_us = [clock.wall_us() + DUE_US + place * 20_000 for place in range(4)]
    for number, each_us in enumerate(due_us):
        worker.put(number, each_us)
    worker.run(due_us[-1] + SECOND_US)
    assert worker.began_us == dict(enumerate(due_us))
    ahead_us = [each_us - worker.claimed_us[number] for number, each_us in enumerate(due_us)]
    assert min(ahead_us) >= PREFETCH_LEAD_US
    assert max(ahead_us) <= PREFETCH_US_MAX


def test_a_worker_without_prefetch_claims_no_job_before_its_time(
    queues: Queues, clock: HandClock
) -> None:
    worker = Watched(queues, clock, threads=8, prefetch=False)
    due_us = clock.wall_us() + DUE_US
    worker.put(1, due_us)
    worker.run(due_us + SECOND_US)
    assert worker.claimed_us[1] >= due_us
    assert worker.began_us == worker.claimed_us


def test_nothing_is_asked_of_the_store_when_the_time_has_come(
    queues: Queues, clock: HandClock
) -> None:
    # a flush there would stand between the time and the start
    counting = FailingStore(queues.engine.store, {})
    swap(queues, store=counting)
    worker = Watched(queues, clock, threads=4)
    due_us = clock.wall_us() + DUE_US
    put(queues, call(1, due_us=due_us))
    asked: list[int] = []
    submit = worker.bench.runner.submit

    def note(assignments: list[Assignment]) -> None:
        asked.append(counting.calls)
        submit(assignments)

    worker.bench.runner.submit = note  # type: ignore[assignment, method-assign]
    before: list[int] = []

    def count() -> None:
        if not asked:
            before.append(counting.calls)

    worker.run(due_us, count)
    assert worker.began_us == {1: due_us}
    assert asked == [before[-1]]


def test_a_more_urgent_job_takes_the_slot_that_is_kept_for_an_early_one(
    queues: Queues, clock: HandClock
) -> None:
    # T3; the early one is left to whoever has a slot, and keeps its time
    worker = Watched(queues, clock, threads=1)
    due_us = clock.wall_us() + DUE_US
    job = worker.put(1, due_us)
    urgent_us = due_us - PREFETCH_LEAD_US // 2
    rows: list[Job | None] = []

    def interfere() -> None:
        if 1 in worker.claimed_us and 2 not in worker.began_us and clock.wall_us() < due_us:
            if len(worker.jobs) == 1 and clock.wall_us() >= due_us - PREFETCH_LEAD_US:
                worker.put(2, clock.wall_us(), priority=7)
                worker.bench.wakeup.set()
        elif clock.wall_us() >= due_us + SECOND_US and worker.bench.runner.active:
            worker.end()
        elif due_us < clock.wall_us() < due_us + SECOND_US:
            rows.extend(queues.engine.store.find([job.id]))

    worker.run(due_us + 2 * SECOND_US, interfere)
    assert worker.began_us[2] < urgent_us
    assert due_us + SECOND_US <= worker.began_us[1] <= due_us + SECOND_US + 100_000
    row = rows[-1]
    assert row is not None
    assert (row.at_us, row.state) == (due_us, State.WAITING)
    assert words(queues)[:1] == ["given_back"]


def test_jobs_that_are_claimed_early_are_no_more_than_the_slots(
    queues: Queues, clock: HandClock
) -> None:
    worker = Watched(queues, clock, threads=3)
    due_us = clock.wall_us() + DUE_US
    for number in range(10):
        worker.put(number, due_us + number)
    held: list[int] = []
    worker.run(due_us - 1, lambda: held.append(len(worker.claimed_us)))
    assert max(held) == 3


def test_a_worker_that_stops_gives_early_jobs_back_to_their_time(
    queues: Queues, clock: HandClock
) -> None:
    # R11
    worker = Watched(queues, clock, threads=2)
    job = worker.put(1, clock.wall_us() + DUE_US)
    worker.run(clock.wall_us() + DUE_US - PREFETCH_LEAD_US)
    row = queues.engine.store.find([job.id])[0]
    assert row is not None
    assert 1 in worker.claimed_us
    assert (row.at_us, row.state, row.errors) == (job.at_us, State.WAITING, 0)


def test_a_burst_does_not_wait_for_what_is_not_due(queues: Queues, clock: HandClock) -> None:
    _, later = put(queues, call(1), call(2, due_us=clock.wall_us() + 2 * PREFETCH_LEAD_US - 1))
    assert Bench(queues, clock).run() == [1]
    assert queues.find(later.id).status == "scheduled"


def test_the_end_of_a_job_that_is_claimed_early_can_be_asked_for(
    queues: Queues, clock: HandClock
) -> None:
    # C19
    worker = Watched(queues, clock, threads=2)
    job = worker.put(1, clock.wall_us() + DUE_US)
    asked: list[bool] = []

    def ask() -> None:
        if 1 in worker.claimed_us and not asked:
            asked.append(queues.cancel(job.id))
            clock.advance(us=1000)
            worker.bench.worker._cancellations._read_us -= SECOND_US
            worker.bench.worker._attend()

    worker.run(clock.wall_us() + 2 * DUE_US, ask)
    assert asked == [False]
    assert worker.began_us == {}
    assert queues.find(job.id).status == "cancelled"


@pytest.mark.parametrize("change", ["due", "priority"])
def test_a_job_that_is_claimed_early_is_not_changed_any_more(
    queues: Queues, clock: HandClock, change: str
) -> None:
    # C20
    worker = Watched(queues, clock, threads=2)
    due_us = clock.wall_us() + DUE_US
    job = worker.put(1, due_us)
    changes: dict[str, Callable[[], object]] = {
        "due": lambda: queues.reschedule(job.id, due_us + DUE_US),
        "priority": lambda: queues.change(job.id, priority=5),
    }
    refused: list[str] = []

    def alter() -> None:
        if 1 in worker.claimed_us and not refused:
            with pytest.raises(Conflict) as raised:
                changes[change]()
            refused.append(str(raised.value))

    worker.run(due_us + 1, alter)
    assert "running" in refused[0]
    assert worker.began_us == {1: due_us}


def test_what_another_worker_holds_is_waited_for_without_spinning(
    queues: Queues, clock: HandClock
) -> None:
    put(queues, call(1))
    (held,) = claim_all(queues, worker="other:1:0")
    worker = Watched(queues, clock, threads=2)
    clock.advance(us=held.at_us - clock.wall_us() - DUE_US)
    worker.run(held.at_us)
    assert worker.began_us == {1: held.at_us}
    assert len(worker.bench.wakeup.waits_s) < 30


def test_a_job_of_an_at_most_once_queue_is_marked_before_it_starts_at_its_time(
    queues: Queues, clock: HandClock
) -> None:
    # C8
    queues.engine.catalog.configure("default", deliver="at_most_once")
    worker = Watched(queues, clock, threads=2)
    due_us = clock.wall_us() + DUE_US
    worker.put(1, due_us)
    worker.run(due_us)
    assert worker.began_us == {1: due_us}
    assert worker.bench.runner.states[1] == State.STARTED


def test_a_job_that_was_cancelled_while_it_ran_before_is_not_started(
    queues: Queues, clock: HandClock
) -> None:
    # a wish outlives the attempt: it is looked for at every claim, early ones too
    worker = Watched(queues, clock, threads=2)
    job = worker.put(1, clock.wall_us())

    def fail() -> None:
        if worker.bench.runner.active:
            assert not queues.cancel(job.id)
            worker.bench.runner.end(Failed("E", "", "", retry=True, retry_after_us=DUE_US))
            worker.bench.wakeup.set()

    worker.run(clock.wall_us() + 3 * DUE_US, fail)
    assert worker.bench.runner.began == [1]
    assert queues.find(job.id).status == "cancelled"


def test_a_claim_that_is_lost_before_its_time_is_not_started(
    queues: Queues, clock: HandClock
) -> None:
    # R1: the worker stalled, and another one has the job
    worker = Watched(queues, clock, threads=2)
    due_us = clock.wall_us() + DUE_US
    worker.put(1, due_us)
    taken: list[Job] = []

    def stall() -> None:
        if 1 in worker.claimed_us and not taken:
            clock.advance(us=due_us + LEASE_US - clock.wall_us())
            taken.extend(claim_all(queues, worker="other:1:0"))
            worker.bench.beat()
            assert len(worker.bench.worker._prefetched) == 0

    worker.run(due_us + 2 * LEASE_US // 2 + SECOND_US, stall)
    assert len(taken) == 1
    assert worker.began_us == {}


# The timer


def assignment(number: int, *, queue: str = "default", priority: int = 0) -> Assignment:
    job = row_of(number)
    lane = job.lane._replace(queue=queue, priority=priority)
    return Assignment(job._replace(lane=lane), keep=False)


def test_the_timer_starts_jobs_in_real_time_and_none_early() -> None:
    clock = SystemClock()
    store_time = StoreTime(clock.wall_us, clock)
    started: dict[int, int] = {}
    all_started = threading.Event()

    def start(assignments: Sequence[Assignment]) -> Sequence[Assignment]:
        started.update(
            (number_of(assigned.job), store_time.earliest_us()) for assigned in assignments
        )
        if len(started) == 5:
            all_started.set()
        return []

    early = PrefetchedJobs(start, store_time, wakeup=threading.Event())
    early.run_timer()
    due_us = {number: clock.wall_us() + 3000 * (6 - number) for number in range(5)}
    for number, at_us in due_us.items():
        assigned = assignment(number)
        early.add([Prefetched(assigned.job, at_us)])
        time.sleep(0)
        early.prepare([assigned])
    assert all_started.wait(60), started
    early.close()
    assert len(early) == 0
    assert all(started[number] >= at_us for number, at_us in due_us.items())


def test_no_job_is_started_a_microsecond_before_its_time(clock: HandClock) -> None:
    # T1
    started: list[Assignment] = []

    def start(assignments: Sequence[Assignment]) -> Sequence[Assignment]:
        started.extend(assignments)
        return []

    early = PrefetchedJobs(start, StoreTime(clock.wall_us, clock), wakeup=threading.Event())
    assigned = assignment(1)
    early.add([Prefetched(assigned.job, clock.wall_us() + 500)])
    early.prepare([assigned])
    clock.advance(us=499)
    early.start_due()
    assert early.wait_us(1000) == 1
    assert early.take_overdue() == ([], [])
    assert started == []
    clock.advance(us=1)
    early.start_due()
    assert started == [assigned]


def test_jobs_without_a_slot_are_left_the_less_urgent_first() -> None:
    waiting = [assignment(1, queue="a"), assignment(2, queue="b"), assignment(3, queue="a")]
    assert placed(waiting, 3, {}) == (waiting, [])
    assert placed(waiting, 2, {}) == (waiting[:2], waiting[2:])
    assert placed(waiting, -1, {}) == ([], waiting)
    assert placed(waiting, 3, {"a": 0, "b": 0}) == (waiting, [])
    assert placed(waiting, 3, {"a": -1}) == (waiting[:2], waiting[2:])
    assert placed(waiting, 3, {"a": -2, "b": 0}) == ([waiting[1]], [waiting[0], waiting[2]])


def test_what_has_expired_at_its_time_is_held_no_more_where_the_store_fails_then(
    queues: Queues, clock: HandClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = Watched(queues, clock, threads=4)
    put(queues, call(1))
    (job,) = claim_all(queues)
    due_us, options = clock.wall_us() + DUE_US, CallOptions(clock.wall_us() + SECOND_US).to_bytes()
    bucket = job.lane.bucket
    queues.engine.store.settle(
        [Move(job, due_us, queues.engine.ids.token(), bucket, 1, 0, opts=options)]
    )
    refused: list[int] = []

    def refuse(_: Settler, over: Sequence[EndedBeforeRun]) -> None:
        if over:
            refused.append(clock.wall_us())
            raise StoreUnavailable("refused")

    monkeypatch.setattr(Settler, "end", refuse)
    held: list[int] = []
    worker.run(due_us + SECOND_US, lambda: held.append(len(worker.bench.worker._held)))
    assert len(refused) == 1
    assert max(held) == 1
    assert held[-1] == 0  # so that nobody extends its lease


def test_a_job_whose_time_comes_in_an_outage_is_run_after_it(
    queues: Queues, clock: HandClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = Watched(queues, clock, threads=4)
    due_us = clock.wall_us() + DUE_US
    worker.put(1, due_us)
    settings = queues.engine.catalog.settings
    refused: list[int] = []

    def refuse(queue: str, **more: int) -> QueueSettings:
        if clock.wall_us() >= due_us and len(refused) < 3:
            refused.append(clock.wall_us())
            raise StoreUnavailable("refused")
        return settings(queue, **more)

    monkeypatch.setattr(queues.engine.catalog, "settings", refuse)
    monkeypatch.setattr(
        PrefetchedJobs, "prepare", lambda _prefetched, _assignments: None
    )  # the timer is late
    worker.run(due_us + 5 * SECOND_US, lambda: worker.bench.runner.end(Done(b"")))
    assert len(refused) == 3
    assert worker.began_us[1] < due_us + 5 * SECOND_US
