"""The loop that claims, runs and settles (O4)."""

import pytest

from dueline.coordination.worker_registry import present
from dueline.core.attempt import Outcome
from dueline.core.clock import SECOND_US
from dueline.core.errors import NotFound
from dueline.core.job import Job, State
from dueline.core.store import Extend, Store
from dueline.jobs.completion import Finished, finish, finish_of
from dueline.jobs.queue import Queues
from tests.harness.calls import LEASE_US, call, calls, claim_all, number_of, put, row_in
from tests.harness.clocks import NOW_US, HandClock
from tests.harness.failing_store import FailingStore, Fault
from tests.harness.queues import queues_on
from tests.harness.swaps import swap
from tests.harness.worker_bench import Bench, words


def died(queues: Queues, clock: HandClock, *jobs: Job, started: bool = True) -> None:
    """Let a worker die that has claimed all that is due; it had started some."""
    claimed = claim_all(queues, worker="dead:1:0")
    if started:
        begun = [job for job in claimed if job.id in {row.id for row in jobs}]
        queues.engine.store.settle([Extend(job, job.at_us, started=True) for job in begun])
    clock.advance(us=LEASE_US)


class FailsFirst(FailingStore):
    """Fails the first group of verdicts."""

    def __init__(self, store: Store, fault: Fault) -> None:
        super().__init__(store, {})
        self.fault: Fault | None = fault

    def together(self, groups):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201
        self._plan, self.fault = ({self.calls + 1: self.fault}, None) if self.fault else ({}, None)
        return super().together(groups)


class GoesAway(FailingStore):
    """Takes five seconds for its first claim, and fails the call that follows."""

    def __init__(self, store: Store, clock: HandClock) -> None:
        super().__init__(store, {})
        self.clock: HandClock | None = clock

    def claim(self, *wants, **terms):  # type: ignore[no-untyped-def]  # noqa: ANN002, ANN003, ANN201
        claimed = super().claim(*wants, **terms)
        if self.clock is not None:
            self.clock.advance(5)
            self.clock = None
            self._plan = {self.calls + 1: Fault.BEFORE}
        return claimed


# --- slots and waiting -----------------------------------------------------------------------


def test_a_queue_with_slots_never_has_more_running(queues: Queues, clock: HandClock) -> None:
    put(queues, *(call(n, queue="mail", priority=n % 3) for n in range(9)))
    put(queues, *(call(100 + n) for n in range(9)))
    bench = Bench(queues, clock, threads=5, serving={"mail": 2, "default": None})
    most = 0

    def run_one() -> None:
        nonlocal most
        bench.runner.begin()
        most = max(most, sum(job.lane.queue == "mail" for job in bench.runner.active))
        for job in bench.runner.active[:1]:
            bench.runner.end(only=number_of(job))

    bench.wakeup.meanwhile = run_one
    assert len(bench.run()) == 18
    assert most == 2


def test_an_idle_worker_waits_for_the_next_job_that_it_knows(
    queues: Queues, clock: HandClock
) -> None:
    # T1, O3
    put(queues, call(1, due_us=NOW_US + 120_000))
    bench = Bench(queues, clock, burst=False)
    began_us: list[int] = []

    def run_and_stop() -> None:
        bench.run_all()
        if bench.runner.began:
            began_us.append(clock.wall_us())
            bench.worker.stop()

    bench.wakeup.meanwhile = run_and_stop
    assert bench.run() == [1]
    assert began_us[0] == NOW_US + 120_000
    assert bench.wakeup.waits_s[:2] == [0.05, 0.07]


def test_an_idle_worker_sees_a_new_lane_at_its_next_look(queues: Queues, clock: HandClock) -> None:
    bench = Bench(queues, clock, burst=False)
    began_us: list[int] = []

    def put_then_run() -> None:
        if len(bench.wakeup.waits_s) == 3:
            put(queues, call(1, priority=7))
        bench.run_all()
        if bench.runner.began:
            began_us.append(clock.wall_us())
            bench.worker.stop()

    bench.wakeup.meanwhile = put_then_run
    assert bench.run() == [1]
    assert began_us[0] == NOW_US + 50_000 + 100_000 + 200_000


@pytest.mark.slow
def test_more_urgent_jobs_are_seen_within_a_listing_age(queues: Queues, clock: HandClock) -> None:
    # T3: workers + buffer + what is claimed within 250 ms
    put(queues, *(call(n) for n in range(200)))
    bench = Bench(queues, clock, threads=1)
    bench.runner.run_us = 10_000.0

    def ten_milliseconds() -> None:
        bench.run_all()
        clock.advance(us=10_000)
        bench.wakeup.set()
        if len(bench.runner.began) == 27:  # just after a reading of the lanes
            put(queues, call(999, priority=1))

    bench.wakeup.meanwhile = ten_milliseconds
    began = bench.run()
    assert sorted(began) == [*range(200), 999]
    assert 27 <= began.index(999) <= 27 + 1 + 5 + 25 + 1


# --- what others left ------------------------------------------------------------------------


def test_a_suspect_runs_with_nothing_beside_it(queues: Queues, clock: HandClock) -> None:
    # R4
    jobs = put(queues, calls(0, 3))
    died(queues, clock, jobs[1])
    put(queues, calls(10, 14))
    bench = Bench(queues, clock, threads=4)

    def slowly() -> None:
        bench.runner.begin()
        if len(bench.wakeup.waits_s) % 4 == 0:
            bench.runner.end()

    bench.wakeup.meanwhile = slowly
    assert sorted(bench.run()) == [0, 1, 2, 10, 11, 12, 13]
    assert bench.runner.beside[1] == []
    assert [
        assignment.alone for assignment in bench.runner.submitted if number_of(assignment.job) == 1
    ] == [True]


def test_two_suspects_run_one_after_the_other(queues: Queues, clock: HandClock) -> None:
    jobs = put(queues, calls(0, 2))
    died(queues, clock, *jobs)
    bench = Bench(queues, clock, threads=4)
    bench.run()
    assert (bench.runner.beside[0], bench.runner.beside[1]) == ([], [])


def test_where_children_isolate_a_suspect_keeps_nothing_waiting(
    queues: Queues, clock: HandClock
) -> None:
    jobs = put(queues, calls(0, 1))
    died(queues, clock, *jobs)
    put(queues, calls(10, 13))
    bench = Bench(queues, clock, threads=4, isolates=True)

    def suspect_last() -> None:
        bench.runner.begin()
        for number in (10, 11, 12, 0):
            bench.runner.end(only=number)

    bench.wakeup.meanwhile = suspect_last
    assert sorted(bench.run()) == [0, 10, 11, 12]
    assert len(bench.runner.beside[0]) == 3


def test_jobs_whose_last_claim_died_are_marked_before_they_start(
    queues: Queues, clock: HandClock
) -> None:
    # R4: a job that kills its process at once is counted the next time
    jobs = put(queues, calls(0, 3))
    died(queues, clock, jobs[0], started=False)
    put(queues, call(9))
    bench = Bench(queues, clock, threads=9)
    assert sorted(bench.run()) == [0, 1, 2, 9]
    assert [bench.runner.states[n] for n in (0, 1, 2)] == [State.STARTED] * 3
    assert bench.runner.states[9] == State.CLAIMED
    assert sorted(words(queues)) == ["done"] * 4 + ["given_back"] * 3


@pytest.mark.parametrize("fault", Fault)
@pytest.mark.parametrize("started", [True, False])
def test_a_mark_that_fails_is_made_again_and_no_job_is_forgotten(
    queues: Queues, clock: HandClock, fault: Fault, *, started: bool
) -> None:
    # invariant 1: never stalled
    jobs = put(queues, calls(0, 3))
    died(queues, clock, *jobs, started=started)
    bench = Bench(queues, clock, threads=4)

    swap(queues, store=FailsFirst(queues.engine.store, fault))
    assert sorted(bench.run()) == [0, 1, 2]
    ended = "crashed" if started else "given_back"
    assert sorted(words(queues)) == sorted([ended] * 3 + ["done"] * 3)


def test_what_another_decided_is_seen_through_and_never_run(
    queues: Queues, clock: HandClock
) -> None:
    # rule P5: a claimer that finds an outcome repeats its effects
    put(queues, call(1))
    (job,) = claim_all(queues, worker="dead:1:0")
    outcome = Outcome("done", clock.wall_us(), value="7")
    end = Finished(job, finish_of(job, outcome, None, queues.engine.catalog.settings("default")))
    stepwise = FailingStore(queues.engine.store, {2: Fault.BEFORE})
    stepwise.transactional = False
    assert finish(stepwise, [end]) == [True]
    assert row_in(queues.engine.store, job.id).outcome
    clock.advance(us=LEASE_US)
    assert Bench(queues, clock).run() == []
    assert queues.find(job.id).outcome == outcome
    assert list(queues.engine.jobs_of("default")) == []


def test_poison_is_never_started(queues: Queues, clock: HandClock) -> None:
    # R4
    (job,) = put(queues, call(1))
    for _ in range(3):
        died(queues, clock, job)
    put(queues, call(2))
    assert Bench(queues, clock).run() == [2]
    assert queues.find(job.id).status == "dead"
    assert sorted(words(queues)) == ["dead", "done"]


# --- the store, the beat ---------------------------------------------------------------------


def test_a_worker_outlasts_a_store_that_is_away(store: Store, clock: HandClock) -> None:
    # R8
    plan: dict[int, Fault] = {}
    failing = FailingStore(store, plan)
    queues = queues_on(failing, clock)
    put(queues, calls(0, 5))
    bench = Bench(queues, clock, burst=False)
    plan |= dict.fromkeys(range(failing.calls + 1, failing.calls + 13), Fault.BEFORE)

    def until_done() -> None:
        bench.run_all()
        if len(bench.runner.began) == 5 and not list(queues.engine.jobs_of("default")):
            bench.worker.stop()

    bench.wakeup.meanwhile = until_done
    assert bench.run() == [0, 1, 2, 3, 4]
    assert clock.slept[:8] == [0.1, 0.2, 0.4, 0.8, 1.6, 2.0, 2.0, 2.0]


def test_no_job_is_held_forever_when_the_store_fails_after_a_claim(
    store: Store, clock: HandClock
) -> None:
    # invariant 1: never stalled
    queues = queues_on(GoesAway(store, clock), clock)
    put(queues, calls(0, 3))
    bench = Bench(queues, clock, burst=False, threads=4)

    def until_done() -> None:
        bench.run_all()
        bench.beat()
        if len(bench.runner.began) == 3 and not list(queues.engine.jobs_of("default")):
            bench.worker.stop()

    bench.wakeup.meanwhile = until_done
    assert sorted(bench.run()) == [0, 1, 2]


def test_a_beat_keeps_what_is_held_and_says_who_lives(queues: Queues, clock: HandClock) -> None:
    # C6, R7
    queues.engine.catalog.configure("fast", lease_us=6 * SECOND_US)
    jobs = put(queues, calls(0, 3))
    serving = {"default": None, "fast": 3}
    bench = Bench(queues, clock, serving=serving, burst=False, tasks=["tests.task"])
    lease_us: list[int] = []

    def beat_and_stop() -> None:
        bench.worker.stop()
        if lease_us:
            return
        bench.runner.begin()
        clock.advance(10)
        lease_us.append(bench.beat())
        (said,) = present(queues.engine.store)
        assert (said.worker, said.queues, said.tasks) == (
            "bench:1:0",
            ("default", "fast"),
            ("tests.task",),
        )
        assert (said.slots, said.held, said.beat_us) == (2, 2, clock.wall_us())
        rows = [row_in(queues.engine.store, job.id) for job in jobs]
        assert [row.at_us for row in rows[:2]] == [clock.wall_us() + LEASE_US] * 2
        assert [row.state for row in rows] == [State.STARTED, State.STARTED, State.WAITING]
        bench.runner.end()

    bench.wakeup.meanwhile = beat_and_stop
    bench.run()
    assert lease_us == [6 * SECOND_US]
    assert list(present(queues.engine.store)) == []


def test_what_a_beat_finds_lost_is_not_started(queues: Queues, clock: HandClock) -> None:
    # C7
    put(queues, calls(0, 2))
    bench = Bench(queues, clock)

    def lose() -> None:
        if len(bench.wakeup.waits_s) == 1:
            clock.advance(us=LEASE_US)
            (taken, *_) = claim_all(queues, worker="other", limit=1)
            bench.beat()
            assert bench.runner.forgotten == [taken._replace(fence=1).claim()]
        bench.run_all()

    bench.wakeup.meanwhile = lose
    assert bench.run() == [1]


def test_handlers_that_run_for_a_while_are_marked_as_started(
    queues: Queues, clock: HandClock
) -> None:
    # R4: so that a crash is blamed on what ran
    (job,) = put(queues, call(0))
    bench = Bench(queues, clock)

    def look() -> None:
        bench.runner.begin()
        if len(bench.wakeup.waits_s) == 4:
            assert row_in(queues.engine.store, job.id).state == State.STARTED
            bench.runner.end()

    bench.wakeup.meanwhile = look
    bench.run()
    assert words(queues) == ["done"]


def test_results_are_written_only_where_they_are_kept(queues: Queues, clock: HandClock) -> None:
    queues.engine.catalog.configure("default", keep_us=0)
    (job,) = put(queues, call(0))
    bench = Bench(queues, clock)
    bench.run()
    assert [assignment.keep for assignment in bench.runner.submitted] == [False]
    with pytest.raises(NotFound):
        queues.find(job.id)
