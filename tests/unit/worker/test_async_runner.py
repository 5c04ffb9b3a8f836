"""Which coroutines a runner starts, interrupts and gives up, and when; by a clock that stands."""

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from typing import Any, cast

import pytest

from dueline.core.attempt import Cancelled, Done, Ended, Failed, GivenBack
from dueline.core.clock import SECOND_US
from dueline.core.errors import JobTimeout
from dueline.core.job import Job, JobId
from dueline.worker import async_runner
from dueline.worker.assignment import NOTHING, Assignment
from dueline.worker.async_runner import BLOCKED_US, LEFT_WAIT_US, CoroutineRunner, _Run
from dueline.worker.context_controls import LEFT_RUNNING
from dueline.worker.execution import LOST_AFTER_US, Execution
from dueline.worker.interrupt import Interrupt
from dueline.worker.runner import LostSlot
from tests.harness.calls import row_of
from tests.harness.clocks import HandClock

LIMIT_US = 5 * SECOND_US
OFFSET_US = 1000
TURNS = 9


class Calls(Execution):
    """Runs a coroutine for each job; `limits` has when each is interrupted."""

    def __init__(self) -> None:
        super().__init__({})
        self.limits: dict[JobId, int] = {}
        self.expired: list[JobId] = []
        self.began: list[tuple[JobId, int]] = []
        self.handle: Callable[[Job], Awaitable[object]] = self.wait_for_ever
        self.controls = cast("Any", self)

    def expire(self, assignment: Assignment) -> None:
        """Note a job whose limit has passed."""
        self.expired.append(assignment.job.id)

    def timeout_us(self, job: Job) -> int | None:
        """Return after what time the job is interrupted."""
        return self.limits.get(job.id)

    def limit_us(self, job: Job) -> int | None:
        """Return a lower limit than that."""
        return self.limits[job.id] - 1 if job.id in self.limits else None

    def package_of(self, job: Job) -> str:
        """Return another package for each task."""
        return f"package of {job.task}"

    async def arun(self, assignment: Assignment, started_us: int) -> Any:  # noqa: ANN401
        """Run the coroutine."""
        self.began.append((assignment.job.id, started_us))
        await self.handle(assignment.job)
        return NOTHING

    def failed_outside(self, error: BaseException, job: Job) -> Failed:
        """Return how such an attempt ended."""
        return Failed(type(error).__name__, job.task, "", retry=False)

    async def wait_for_ever(self, _job: Job) -> None:
        """Never return."""
        await asyncio.Event().wait()

    async def return_soon(self, _job: Job) -> None:
        """Return after a turn of the loop."""
        await asyncio.sleep(0)


class Noted(Interrupt):
    """Notes what is to be raised, and raises nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.sent: list[tuple[object, ...]] = []
        self.expected: list[tuple[object, ...]] = []

    def send(self, *bound: object) -> None:
        """Note an exception in what runs."""
        self.sent.append(bound)

    def expect(self, *bound: object) -> None:
        """Note an exception in what runs next."""
        self.expected.append(bound)


class Bench:
    """A runner on a loop that turns when the test says so."""

    def __init__(self) -> None:
        self.clock = HandClock()
        self.calls = Calls()
        self.ended: list[Ended] = []
        self.loop = asyncio.new_event_loop()
        self.runner = CoroutineRunner(
            self.calls, clock=self.clock, ended=self.ended.append, loop=self.loop
        )
        self.runner.offset_us = OFFSET_US
        self.interrupt = self.runner._interrupt = Noted()

    def turn(self) -> None:
        """Let the loop turn some times."""
        for _ in range(TURNS):
            self.loop.run_until_complete(asyncio.sleep(0))

    def begin(self, number: int, *, limit_us: int | None = None, task: str = "task") -> Job:
        """Begin a job."""
        job = row_of(number, task=task)
        if limit_us is not None:
            self.calls.limits[job.id] = limit_us
        self.runner.begin(Assignment(job, keep=True))
        return job

    def run_of(self, job: Job) -> _Run:
        """Return the run of a job."""
        (run,) = [run for run in self.runner._runs.values() if run.assignment.job == job]
        return run


@pytest.fixture
def bench() -> Iterator[Bench]:
    bench = Bench()
    yield bench
    if not bench.loop.is_closed():
        bench.runner.close()
        bench.turn()
        bench.loop.close()


def test_jobs_that_begin_together_wake_the_loop_once(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    wakes: list[object] = []
    monkeypatch.setattr(bench.loop, "call_soon_threadsafe", wakes.append)
    jobs = [bench.begin(number) for number in (1, 2, 3)]
    assert len(wakes) == 1
    assert (len(bench.runner), bench.runner.jobs(), bench.runner.running()) == (3, jobs, [])
    monkeypatch.undo()
    bench.loop.call_soon(cast("Any", wakes[0]))
    bench.turn()
    now_us = bench.clock.monotonic_us()
    assert bench.calls.began == [(job.id, now_us + OFFSET_US) for job in jobs]
    assert bench.runner.running() == jobs
    later = bench.begin(4)
    bench.turn()
    assert bench.runner.running() == [*jobs, later]


def test_an_end_has_the_times_of_its_job(bench: Bench) -> None:
    bench.calls.handle = bench.calls.return_soon
    jobs = [bench.begin(number) for number in (1, 2)]
    began_us = bench.clock.monotonic_us()
    bench.loop.call_soon(partial(bench.clock.advance, 3))
    bench.turn()
    ended_us = bench.clock.monotonic_us()
    assert ended_us == began_us + 3 * SECOND_US
    assert bench.ended == [Ended(job, Done(b""), began_us, ended_us) for job in jobs]
    assert (len(bench.runner), bench.runner.jobs()) == (0, [])


@pytest.mark.parametrize("error", [ValueError, JobTimeout, SystemExit])
def test_what_is_raised_outside_the_handler_is_a_failure(
    bench: Bench, error: type[BaseException]
) -> None:
    async def fail(_job: Job) -> None:
        raise error

    bench.calls.handle = fail
    job = bench.begin(1)
    bench.turn()
    (ended,) = bench.ended
    assert ended.ending == Failed(error.__name__, job.task, "", retry=False)


@pytest.mark.parametrize(
    ("after_us", "expired", "is_lost"),
    [
        (LIMIT_US - 1, 0, False),
        (LIMIT_US, 1, False),
        (LIMIT_US + LOST_AFTER_US - 1, 1, False),
        (LIMIT_US + LOST_AFTER_US, 1, True),
    ],
)
def test_a_handler_beyond_its_limit_is_cancelled_and_then_its_slot_is_lost(
    bench: Bench, caplog: pytest.LogCaptureFixture, after_us: int, expired: int, *, is_lost: bool
) -> None:
    free = bench.begin(1)
    bench.turn()
    job = bench.begin(2, limit_us=LIMIT_US)
    waiting = bench.begin(3, limit_us=10 * LIMIT_US)
    bench.turn()
    late = bench.begin(4, limit_us=0)  # has not begun
    bench.clock.advance(us=after_us)
    started_us = bench.run_of(job).started_us
    bench.runner.cancel_overdue()
    bench.runner.cancel_overdue()  # it is cancelled once a second, and logged once
    assert bench.calls.expired == [job.id] * expired * 2
    lost = [LostSlot(job, started_us + LIMIT_US - 1 + OFFSET_US)]
    assert bench.runner.lost() == lost * is_lost
    assert caplog.text.count("its slot is lost until it ends") == is_lost
    assert bench.interrupt.sent == []
    bench.turn()
    assert {end.job for end in bench.ended} == ({job} if expired else set())
    assert set(bench.runner.running()) >= {free, waiting, late} | ({job} if not expired else set())


def test_a_handler_that_catches_its_cancellation_is_cancelled_each_second(bench: Bench) -> None:
    caught: list[int] = []

    async def stay(_job: Job) -> None:
        while True:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                caught.append(bench.clock.monotonic_us())
                await asyncio.sleep(0)

    bench.calls.handle = stay
    job = bench.begin(1, limit_us=LIMIT_US, task="stays")
    bench.turn()
    run = bench.run_of(job)
    bench.clock.advance(us=LIMIT_US)
    began_us = bench.clock.monotonic_us()
    for _ in range(9):
        bench.runner.cancel_overdue()
        bench.turn()
        bench.clock.advance(us=SECOND_US // 4)
    assert caught == [began_us, began_us + SECOND_US, began_us + 2 * SECOND_US]
    # The next loop that it gets to raises JobTimeout.
    assert bench.interrupt.expected == [(JobTimeout, "package of stays", run.attempt)] * 3
    assert run.attempt is not None
    bench.runner._runs.clear()
    cast("Any", run.task)._coro.close()
    cast("Any", run.task)._log_destroy_pending = False


@pytest.mark.parametrize("is_gone", [False, True])
@pytest.mark.parametrize("cleans_up", [False, True])
@pytest.mark.parametrize("has_task", [False, True])
def test_only_what_runs_and_does_not_clean_up_is_cancelled_again(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, *, is_gone: bool, cleans_up: bool, has_task: bool
) -> None:
    job = bench.begin(1)
    if has_task:
        bench.turn()
    run = bench.run_of(job)
    asked: list[object] = []

    def is_cleaning_up(attempt: object) -> bool:
        asked.append(attempt)
        return cleans_up

    monkeypatch.setattr(async_runner, "is_cleaning_up", is_cleaning_up)
    if is_gone:
        bench.runner._runs.clear()
    bench.runner._cancel_again(run)
    is_cancelled = has_task and not is_gone and not cleans_up
    assert run.is_cancelled_again == is_cancelled
    assert asked == [run.attempt] * (has_task and not is_gone)
    bench.turn()
    assert bool(bench.ended) == is_cancelled
    if run.task is not None:
        run.task.cancel()
        bench.turn()


def test_a_handler_that_keeps_the_loop_is_interrupted_there(bench: Bench) -> None:
    job = bench.begin(1, limit_us=LIMIT_US, task="blocks")
    other = bench.begin(2, limit_us=LIMIT_US)
    bench.turn()
    run = bench.run_of(job)
    bench.clock.advance(us=LIMIT_US)
    bench.runner.enter(run)
    bench.runner.cancel_overdue()
    assert bench.interrupt.sent == [(run, JobTimeout, "package of blocks")]
    bench.runner.leave(run, bench.clock.monotonic_us())
    assert bench.interrupt.inside is None
    bench.turn()
    assert [end.job for end in bench.ended] == [other]


@pytest.mark.parametrize(
    ("took_us", "logged"), [(0, 0), (BLOCKED_US, 0), (BLOCKED_US + 1, 1), (9 * BLOCKED_US, 1)]
)
def test_a_task_that_blocks_the_loop_is_logged_once(
    bench: Bench, caplog: pytest.LogCaptureFixture, took_us: int, logged: int
) -> None:
    caplog.set_level(logging.WARNING, "dueline")
    for number, task in enumerate(("one", "one", "other", "one"), 1):
        run = _Run(Assignment(row_of(number, task=task), keep=True))
        entered_us = bench.runner.enter(run)
        assert bench.interrupt.inside is run
        bench.clock.advance(us=took_us)
        bench.runner.leave(run, entered_us)
        assert bench.interrupt.inside is None
    for task in ("one", "other"):
        assert caplog.text.count(f"task={task} blocked the event loop") == logged


def test_a_loop_is_inside_a_handler_only_while_that_runs(bench: Bench) -> None:
    inside: list[object] = []

    async def note(_job: Job) -> None:
        for _ in range(2):
            inside.append(bench.interrupt.inside)
            try:
                await asyncio.sleep(0)
            finally:
                inside.append(bench.interrupt.inside)

    bench.calls.handle = note
    run = bench.run_of(bench.begin(1))
    for _ in range(2):
        bench.loop.run_until_complete(asyncio.sleep(0))
    assert bench.interrupt.inside is None
    assert run.task is not None
    run.task.cancel()  # thrown into the handler
    bench.turn()
    assert inside == [run, run, run, run][: len(inside)]
    assert len(inside) >= 2
    assert bench.interrupt.inside is None


def test_what_a_closed_loop_left_is_given_back(bench: Bench) -> None:
    jobs = [bench.begin(number, limit_us=LIMIT_US) for number in (1, 2)]
    bench.turn()
    tasks = [bench.run_of(job).task for job in jobs]
    bench.runner.cancel_overdue()  # the loop is open
    assert bench.ended == []
    bench.loop.close()
    bench.clock.advance(1)
    bench.begin(3)
    bench.runner.cancel_overdue()
    now_us = bench.clock.monotonic_us()
    assert bench.ended == [
        Ended(job, GivenBack(LEFT_WAIT_US), 0, now_us) for job in [*jobs, row_of(3, task="task")]
    ]
    assert (len(bench.runner), bench.calls.expired) == (0, [])
    for task in tasks:
        cast("Any", task)._coro.close()
        cast("Any", task)._log_destroy_pending = False


def test_the_jobs_of_a_batch_are_counted_and_ended_each(bench: Bench) -> None:
    parts = [Assignment(row_of(number), keep=True) for number in (2, 3, 4)]
    single = Assignment(row_of(1), keep=True)
    bench.runner.begin(single)
    bench.runner.begin(parts[0]._replace(chunk=parts))
    bench.turn()
    assert bench.runner.jobs() == [row_of(number) for number in (1, 2, 3, 4)]
    assert bench.runner.running() == [row_of(1), row_of(2)]
    started_us = bench.clock.monotonic_us()
    bench.clock.advance(2)
    bench.runner.stop_by_force([row_of(1).claim(), row_of(3).claim()])
    ended_us = bench.clock.monotonic_us()
    assert bench.ended == [
        Ended(row_of(number), Cancelled(LEFT_RUNNING), started_us, ended_us) for number in (1, 3)
    ]


def test_a_runner_starts_a_loop_of_its_own_only_without_one(bench: Bench) -> None:
    bench.runner.start()
    assert bench.runner._thread is None
    calls, ended = Calls(), threading.Event()
    own = CoroutineRunner(calls, clock=bench.clock, ended=lambda _: ended.set())
    own.cancel_overdue()  # before it is started
    left: list[asyncio.Task[Any]] = []

    async def leave_a_task(_job: Job) -> None:
        left.append(asyncio.get_running_loop().create_task(calls.wait_for_ever(row_of(9))))

    calls.handle = leave_a_task
    own.start()
    assert own._loop is not None
    assert own._loop.is_running() or not own._loop.is_closed()
    own.begin(Assignment(row_of(1), keep=True))
    assert ended.wait(60)
    thread = own._thread
    assert thread is not None
    assert thread.daemon
    own.close()
    thread.join(60)
    assert not thread.is_alive()
    assert own._loop.is_closed()
    assert left[0].cancelled()


def test_a_runner_without_a_limit_loses_no_slot(bench: Bench) -> None:
    job = bench.begin(1)
    bench.turn()
    run = bench.run_of(job)
    run.is_lost = True
    assert bench.runner.lost() == [LostSlot(job, run.started_us + OFFSET_US)]


def test_a_coroutine_that_is_closed_closes_its_attempt() -> None:
    attempt = Calls().return_soon(row_of(1))
    attempt.send(None)
    steps = async_runner._Steps(cast("Any", attempt), cast("Any", None), cast("Any", None))
    steps.close()
    with pytest.raises(RuntimeError):
        attempt.send(None)
