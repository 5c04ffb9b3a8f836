"""What a worker does not run: what expired, and what may have run already."""

import threading
from collections.abc import Callable

import pytest

from dueline.core.attempt import Crashed, Done, Ended, Ending, Expired, Failed, GivenBack, Snoozed
from dueline.core.call_options import CallOptions
from dueline.core.clock import SECOND_US, SystemClock
from dueline.core.job import Job, State
from dueline.core.queue_settings import QueueSettings
from dueline.core.retry import Retry, decide
from dueline.core.store import Extend
from dueline.jobs.history import attempts
from dueline.jobs.queue import EnqueueRequest, Queues
from dueline.tasks.handler import Handler
from dueline.tasks.raised import Snooze
from dueline.worker.assignment import Assignment
from dueline.worker.child_protocol import Finished, dump, load
from dueline.worker.execution import Execution
from dueline.worker.thread_runner import ThreadRunner
from tests.harness.calls import LEASE_US, call, claim_all, put, row_of
from tests.harness.clocks import NOW_US, HandClock
from tests.harness.lives import ChildDied, Killed, Stage, put_one
from tests.harness.worker_bench import Bench, words


def mark(queues: Queues, job: Job) -> None:
    """Mark a job as started, as a worker does before it calls the handler."""
    assert queues.engine.store.settle([Extend(job, job.at_us, started=True)])[0]


FAILED = Failed("ValueError", "no", "", retry=True)
ONCE = QueueSettings(deliver="at_most_once")


def expiring(number: int, us: int) -> EnqueueRequest:
    """Make a call that expires so long from now."""
    return call(number)._replace(opts=CallOptions(expires_us=NOW_US + us).to_bytes())


# --- expiry ----------------------------------------------------------------------------------


def test_an_expired_job_is_ended_by_whoever_claims_it(queues: Queues, clock: HandClock) -> None:
    # C15
    expired, _ = put(queues, expiring(1, SECOND_US), expiring(2, 60 * SECOND_US))
    clock.advance(1)
    assert Bench(queues, clock).run() == [2]
    assert sorted(words(queues)) == ["done", "expired"]
    view = queues.find(expired.id)
    assert (view.status, view.row) == ("expired", None)


def test_an_expired_job_whose_worker_died_is_told_of_twice(
    queues: Queues, clock: HandClock
) -> None:
    # C15: how its attempt ended, and how it did
    put(queues, expiring(1, SECOND_US))
    claim_all(queues)
    clock.advance(us=LEASE_US + 1)
    assert Bench(queues, clock).run() == []
    assert words(queues) == ["given_back", "expired"]


def test_options_that_cannot_be_read_end_a_job(queues: Queues, clock: HandClock) -> None:
    job = row_of(1)._replace(opts=b"[")
    queues.engine.store.add([job])
    assert Bench(queues, clock).run() == []
    view = queues.find(job.id)
    assert view.status == "dead"
    assert view.row is not None
    assert "CallOptions" in view.row.error


def test_a_job_that_expires_in_the_buffer_is_not_started(clock: HandClock) -> None:
    # C15
    ran: list[int] = []
    wakeup, is_later = threading.Event(), threading.Event()

    def handle(number: int) -> None:
        ran.append(number)
        assert is_later.wait(60)

    handler = Handler(handle, name="tests.task", retry=Retry(), timeout_us=None)
    runner = ThreadRunner(
        Execution({"tests.task": handler}),
        threads=1,
        clock=clock,
        now_us=clock.wall_us,
        wakeup=wakeup,
    )
    opts = CallOptions(expires_us=NOW_US + SECOND_US).to_bytes()
    jobs = [row_of(1), row_of(2)._replace(opts=opts), row_of(3)]
    runner.start()
    runner.submit([Assignment(job, keep=False) for job in jobs])
    while not ran:
        SystemClock().sleep(0.001)
    clock.advance(1)
    is_later.set()
    ended: list[Ended] = []
    while len(ended) < 3:
        SystemClock().sleep(0.001)
        ended += runner.collect()
    runner.close()
    assert ran == [1, 3]
    assert isinstance(ended[1].ending, Expired)


@pytest.mark.parametrize("is_async", [False, True])
def test_no_kind_of_handler_is_called_after_its_expiry(*, is_async: bool) -> None:
    # C15
    ran: list[int] = []

    async def await_it(number: int) -> None:
        ran.append(number)

    handler = Handler(await_it, name="tests.task", retry=Retry(), timeout_us=None)
    execution = Execution({"tests.task": handler if is_async else _taking_one(ran)})
    opts = CallOptions(expires_us=NOW_US).to_bytes()
    assignment = Assignment(row_of(1)._replace(opts=opts), keep=False)
    assert execution.run(assignment, NOW_US) == Expired()
    assert ran == []
    assert execution.run(assignment, NOW_US - 1) == Done(b"")
    assert ran == [1]


def _taking_one(ran: list[int]) -> Handler:
    def handle(number: int) -> None:
        ran.append(number)

    return Handler(handle, name="tests.task", retry=Retry(), timeout_us=None)


def test_a_child_can_say_that_a_job_expired() -> None:
    message = Finished(row_of(1).claim(), Expired(), 1, 2)
    assert load(dump(message)) == message


def test_the_history_of_an_expired_job_has_no_start(queues: Queues, clock: HandClock) -> None:
    bench = Bench(queues, clock)
    put(queues, call(1))

    def begin_and_end() -> None:
        bench.runner.begin()
        bench.runner.end(Expired())

    bench.wakeup.meanwhile = begin_and_end
    bench.run()
    (attempt,) = attempts(queues.engine.store, "default", 1)
    assert (attempt.outcome, attempt.started_us) == ("expired", 0)


# --- at most once: what an ending becomes ----------------------------------------------------


@pytest.mark.parametrize(
    ("ending", "state"),
    [(FAILED, "dead"), (Snoozed(5), "dead"), (Crashed("signal 9"), "lost"), (Expired(), "expired")],
)
def test_no_ending_calls_a_handler_twice(ending: Ending, state: str) -> None:
    # C8
    outcome = decide(Ended(row_of(1), ending, 1, 2), Retry(), 0.5, is_once=True)
    assert getattr(outcome, "state", None) == state


def test_a_job_that_was_not_started_is_given_back() -> None:
    decision = decide(Ended(row_of(1), GivenBack(), 0, 2), Retry(), 0.5, is_once=True)
    assert getattr(decision, "word", None) == "given_back"


# --- at most once: the worker ----------------------------------------------------------------


@pytest.fixture
def once(queues: Queues) -> Queues:
    """Make the engine, of a queue that delivers at most once."""
    queues.engine.catalog.configure("default", deliver="at_most_once")
    return queues


@pytest.mark.parametrize("isolates", [False, True])
def test_every_job_is_marked_before_its_handler_is_called(
    once: Queues, clock: HandClock, *, isolates: bool
) -> None:
    # C8
    put(once, *[call(number) for number in range(5)])
    bench = Bench(once, clock, threads=2, isolates=isolates)
    assert bench.run() == [0, 1, 2, 3, 4]
    assert set(bench.runner.states.values()) == {State.STARTED}
    assert max(bench.wakeup.waits_s[:3]) <= 0.05


def test_a_job_whose_worker_died_after_its_start_is_lost(once: Queues, clock: HandClock) -> None:
    # C8
    started, _ = put(once, call(1), call(2))
    claimed = claim_all(once)
    mark(once, claimed[0])
    clock.advance(us=LEASE_US + 1)
    assert Bench(once, clock).run() == [2]
    assert sorted(words(once)) == ["done", "given_back", "lost"]
    outcome = once.find(started.id).outcome
    assert outcome is not None
    assert outcome.state == "lost"
    assert "may have run" in outcome.error


def test_a_handler_that_is_not_waited_for_leaves_a_lost_job(once: Queues, clock: HandClock) -> None:
    # C8: at the end of the drain, one runs, and one was not started
    jobs = put(once, call(1), call(2))
    bench = Bench(once, clock, threads=1, burst=False, drain_us=SECOND_US)

    def begin_then_stop() -> None:
        bench.runner.begin()
        if bench.runner.began and not bench.worker._is_stopping:
            bench.worker.stop()

    bench.wakeup.meanwhile = begin_then_stop
    assert bench.run() == [1]
    assert once.find(jobs[0].id).status == "lost"
    assert once.find(jobs[1].id).status == "ready"


def fail(call: int) -> object:
    raise ValueError(str(call))


def snooze(_call: int) -> object:
    raise Snooze(5)


def kill(_call: int) -> object:
    raise Killed


def kill_child(_call: int) -> object:
    raise ChildDied


@pytest.mark.slow
@pytest.mark.parametrize(
    ("act", "state"),
    [
        (lambda call: call, "done"),
        (fail, "dead"),
        (snooze, "dead"),
        (kill, "lost"),
        (kill_child, "lost"),
    ],
)
def test_a_handler_is_called_once_wherever_its_worker_is_stopped(
    act: Callable[[int], object], state: str
) -> None:
    # C8: each life is led once for every step of it; others go on when the leases are over
    for stop_at in range(1, 200):
        stage = Stage(act, settings=ONCE)
        job = put_one(stage)
        stage.stop_at = frozenset({stop_at})
        stage.work_to_the_end()
        stage.watch()
        assert stage.calls <= 1
        ended = stage.ends[job.id].state
        assert ended in (state, "lost")
        if ended != "lost":
            assert stage.calls == 1
        if stage.steps < stop_at:
            assert ended == state
            return
    raise AssertionError("the life never comes to an end")
