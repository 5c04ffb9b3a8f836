"""How a worker comes to its end: a burst, a stop, a drain."""

from threading import Event

import pytest

from dueline import Dueline
from dueline.core.attempt import Failed
from dueline.core.clock import DAY_US, SECOND_US
from dueline.core.job import Job, State
from dueline.core.store import Drop, Store
from dueline.jobs.queue import Queues
from dueline.worker.assignment import Assignment
from tests.harness.calls import LEASE_US, call, calls, claim_all, numbers, put
from tests.harness.clocks import NOW_US, HandClock
from tests.harness.failing_store import FailingStore, Fault
from tests.harness.queues import queues_on
from tests.harness.worker_bench import Bench, words

FAILED = Failed("ValueError", "no", "", retry=True)


# --- a burst ---------------------------------------------------------------------------------


def test_a_burst_runs_all_that_is_due_in_order_and_ends(queues: Queues, clock: HandClock) -> None:
    put(queues, calls(0, 20))
    put(queues, call(99, priority=1))
    assert Bench(queues, clock).run() == [99, *range(20)]
    assert words(queues) == ["done"] * 21
    assert list(queues.engine.jobs_of("default")) == []


def test_a_burst_over_nothing_ends_at_once(queues: Queues, clock: HandClock) -> None:
    bench = Bench(queues, clock)
    assert bench.run() == []
    assert bench.wakeup.waits_s == []


def test_a_burst_ends_as_soon_as_its_last_job_has(queues: Queues, clock: HandClock) -> None:
    put(queues, call(1))
    bench = Bench(queues, clock)
    assert bench.run() == [1]
    assert len(bench.wakeup.waits_s) == 1  # for the handler; not for the next look


def test_jobs_for_later_and_jobs_of_others_do_not_keep_a_burst(
    queues: Queues, clock: HandClock
) -> None:
    put(queues, call(1))
    claim_all(queues, worker="other")
    put(queues, call(2), call(3, due_us=NOW_US + SECOND_US))
    assert Bench(queues, clock).run() == [2]
    assert len(list(queues.engine.jobs_of("default"))) == 2
    assert clock.wall_us() < NOW_US + SECOND_US


def test_a_retry_for_later_does_not_keep_a_burst(queues: Queues, clock: HandClock) -> None:
    put(queues, call(1))
    bench = Bench(queues, clock)

    def fail() -> None:
        bench.runner.begin()
        bench.runner.end(FAILED._replace(retry_after_us=DAY_US))

    bench.wakeup.meanwhile = fail
    assert bench.run() == [1]
    assert words(queues) == ["retried"]


def test_what_becomes_due_while_a_burst_works_is_done_too(queues: Queues, clock: HandClock) -> None:
    put(queues, call(1))
    bench = Bench(queues, clock)

    def enqueue_more() -> None:
        if not bench.runner.began:
            put(queues, call(2, priority=-9), call(3, queue="default", priority=9))
        bench.run_all()

    bench.wakeup.meanwhile = enqueue_more
    assert sorted(bench.run()) == [1, 2, 3]


def test_a_burst_with_slots_ends_though_its_lanes_are_empty(
    queues: Queues, clock: HandClock
) -> None:
    jobs = put(queues, call(1, priority=9), call(2, priority=8), call(3))
    queues.engine.store.settle([Drop(job) for job in jobs])
    assert Bench(queues, clock, serving={"default": 1}).run() == []


@pytest.mark.slow
@pytest.mark.parametrize("fault", Fault)
@pytest.mark.parametrize("call_number", range(1, 25))
def test_a_store_that_fails_once_neither_ends_a_burst_nor_loses_a_job(
    store: Store, clock: HandClock, fault: Fault, call_number: int
) -> None:
    # R13: whichever call it is; what it held is there again after its lease
    failing = FailingStore(store, {})
    queues = queues_on(failing, clock)
    queues.engine.time.sample()
    put(queues, calls(0, 3))
    bench = Bench(queues, clock)
    failing._plan = {failing.calls + call_number: fault}
    bench.run()
    failing._plan = {}
    left = list(queues.engine.jobs_of("default"))
    assert set(bench.runner.began) | set(numbers(left)) == {0, 1, 2}
    assert [row for row in left if row.at_us <= clock.wall_us()] == []
    clock.advance(us=LEASE_US)
    again = Bench(queues, clock)
    again.run()
    assert list(queues.engine.jobs_of("default")) == []
    assert sorted(words(queues)).count("done") == 3


# --- stop and drain --------------------------------------------------------------------------


def test_a_worker_that_is_stopped_claims_no_more_and_lets_handlers_end(
    queues: Queues, clock: HandClock
) -> None:
    # R11
    put(queues, calls(0, 4))
    bench = Bench(queues, clock, burst=False)

    def stop_then_end() -> None:
        bench.runner.begin()
        if len(bench.wakeup.waits_s) == 1:
            bench.worker.stop()
        elif len(bench.wakeup.waits_s) == 5:
            bench.runner.end()

    bench.wakeup.meanwhile = stop_then_end
    assert bench.run() == [0, 1]
    assert words(queues) == ["done", "done"]
    assert [(row.fence, row.state) for row in queues.engine.jobs_of("default")] == [(0, 0), (0, 0)]


def test_what_was_not_started_is_given_back_at_once_to_its_place(
    queues: Queues, clock: HandClock
) -> None:
    # R11: the attempt is not spent, and nobody overtakes
    put(queues, calls(0, 6))
    bench = Bench(queues, clock, threads=6, burst=False)

    def stop() -> None:
        bench.runner.threads = 2
        bench.runner.begin()
        bench.worker.stop(hurry=False)
        if len(bench.wakeup.waits_s) == 3:
            given_back = [
                row for row in queues.engine.jobs_of("default") if row.state == State.WAITING
            ]
            assert numbers(given_back) == [2, 3, 4, 5]
            assert {(row.at_us, row.errors) for row in given_back} == {(NOW_US, 0)}
            bench.runner.end()

    bench.wakeup.meanwhile = stop
    assert bench.run() == [0, 1]
    put(queues, call(9))
    assert Bench(queues, clock).run() == [2, 3, 4, 5, 9]


def test_what_child_processes_return_late_is_given_back_while_others_run(
    queues: Queues, clock: HandClock
) -> None:
    """A child that is asked for its jobs returns them later, at a next call."""
    put(queues, calls(0, 4))
    bench = Bench(queues, clock, threads=4, burst=False)
    runner = bench.runner
    with_child: list[Assignment] = []
    waiting: list[list[int]] = []

    def take_back() -> list[Job]:
        """Return what the child has sent, and ask it for its jobs."""
        sent, runner.ready[:] = runner.ready[:], with_child
        with_child.clear()
        return [assignment.job for assignment in sent]

    def stop() -> None:
        if not bench.wakeup.waits_s[1:]:
            runner.threads = 1
            runner.begin()
            with_child[:], runner.ready[:] = runner.ready, []
            bench.worker.stop()
        rows = queues.engine.jobs_of("default")
        waiting.append(numbers([row for row in rows if row.state == State.WAITING]))
        if len(waiting) == 5:
            runner.end()

    runner.take_back = take_back  # type: ignore[method-assign]
    bench.wakeup.meanwhile = stop
    assert bench.run() == [0]
    assert waiting[-1] == [1, 2, 3]


def test_a_drain_gives_up_when_its_time_is_over(queues: Queues, clock: HandClock) -> None:
    # R11
    put(queues, calls(0, 2))
    bench = Bench(queues, clock, burst=False, drain_us=3 * SECOND_US)

    def never_end() -> None:
        bench.runner.begin()
        bench.worker.stop()
        bench.wakeup.clear()

    bench.wakeup.meanwhile = never_end
    bench.run()
    assert 3 * SECOND_US <= clock.wall_us() - NOW_US < 4 * SECOND_US
    assert words(queues) == ["given_back"] * 2
    assert {(row.state, row.at_us) for row in queues.engine.jobs_of("default")} == {(0, NOW_US)}


def test_a_second_signal_gives_everything_back_at_once(queues: Queues, clock: HandClock) -> None:
    put(queues, calls(0, 2))
    bench = Bench(queues, clock, burst=False)

    def hurry() -> None:
        bench.runner.begin()
        bench.worker.stop(hurry=True)

    bench.wakeup.meanwhile = hurry
    bench.run()
    assert len(bench.wakeup.waits_s) == 1
    assert {row.state for row in queues.engine.jobs_of("default")} == {State.WAITING}


def test_what_was_lost_is_not_given_back(queues: Queues, clock: HandClock) -> None:
    # C7
    put(queues, call(0))
    bench = Bench(queues, clock, burst=False)

    def lose() -> None:
        clock.advance(us=LEASE_US)
        bench.runner.ready.clear()
        claim_all(queues, worker="other")
        bench.worker.stop(hurry=True)

    bench.wakeup.meanwhile = lose
    bench.run()
    (row,) = queues.engine.jobs_of("default")
    assert (row.worker, row.state) == ("other", State.CLAIMED)
    assert words(queues) == []


def test_a_job_that_outlasts_an_embedded_worker_ends_as_its_handler_does() -> None:
    app, began, go = Dueline("memory://"), Event(), Event()

    @app.task(name="outlast")
    def outlast() -> int:
        began.set()
        assert go.wait(60)
        return 7

    job = outlast.enqueue()
    with app.worker(drain=0):
        assert began.wait(60)
    assert job.status == "running"
    go.set()
    assert job.result(timeout=60) == 7
    app.close()
