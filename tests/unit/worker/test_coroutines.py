"""Coroutines of a runner that is closed."""

import asyncio
import sys
import threading
import time
from collections.abc import Callable

import pytest

from dueline.core.attempt import Cancelled, Done, Ended, Failed, GivenBack
from dueline.core.clock import SystemClock
from dueline.core.errors import JobTimeout
from dueline.core.retry import Retry
from dueline.tasks.handler import Handler
from dueline.worker.assignment import Assignment
from dueline.worker.async_runner import CoroutineRunner, _Run
from dueline.worker.execution import Execution
from dueline.worker.runner import LostSlot
from dueline.worker.thread_runner import ThreadRunner
from tests.harness.calls import row_of

WAIT_S = 60.0
NAME = "tests.task"


class Handlers:
    """A handler that awaits for ever, and what a runner reports of it."""

    def __init__(self) -> None:
        self.began = threading.Event()
        self.cleaned_up = threading.Event()
        self.ended: list[Ended] = []

    async def leave_an_exit(self, _number: int) -> None:
        """Return after a callback has raised SystemExit."""
        asyncio.get_running_loop().call_soon(sys.exit)
        await asyncio.sleep(0.001)

    async def wait(self, _number: int) -> None:
        """Wait until it is cancelled."""
        self.began.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.cleaned_up.set()

    def runner(
        self,
        loop: asyncio.AbstractEventLoop | None = None,
        handle: Callable[[int], object] | None = None,
    ) -> CoroutineRunner:
        """Return a runner of a handler."""
        handler = Handler(handle or self.wait, name=NAME, retry=Retry(), timeout_us=None)
        execution = Execution({NAME: handler})
        return CoroutineRunner(execution, clock=SystemClock(), ended=self.ended.append, loop=loop)


def loops() -> int:
    return sum(thread.name == "dueline-loop" for thread in threading.enumerate())


def test_a_runner_that_closes_cancels_its_coroutines_and_ends_its_loop() -> None:
    handlers = Handlers()
    runner = handlers.runner()
    before = loops()
    runner.start()
    runner.begin(Assignment(row_of(1), keep=True))
    assert handlers.began.wait(WAIT_S)
    assert len(runner) == 1
    runner.close()
    assert handlers.cleaned_up.wait(WAIT_S)
    assert loops() == before
    # The worker has given their jobs up: what they return counts no more.
    assert (handlers.ended, len(runner), runner.running()) == ([], 0, [])


def test_an_exit_beside_a_handler_is_logged_and_ends_no_handler(
    caplog: pytest.LogCaptureFixture,
) -> None:
    handlers = Handlers()
    runner = handlers.runner(handle=handlers.leave_an_exit)
    runner.start()
    for number in (1, 2):
        runner.begin(Assignment(row_of(number), keep=True))
    ends_s = time.monotonic() + WAIT_S
    while len(handlers.ended) < 2 and time.monotonic() < ends_s:
        time.sleep(0.001)
    runner.close()
    assert [type(end.ending) for end in handlers.ended] == [Done, Done]
    assert caplog.text.count("a task or callback beside a handler ended") == 2


def test_a_runner_on_the_loop_of_an_application_leaves_it_open() -> None:
    handlers = Handlers()

    async def application() -> None:
        runner = handlers.runner(asyncio.get_running_loop())
        runner.start()
        runner.begin(Assignment(row_of(1), keep=True))
        await asyncio.to_thread(handlers.began.wait, WAIT_S)
        runner.close()
        await asyncio.to_thread(handlers.cleaned_up.wait, WAIT_S)
        assert handlers.cleaned_up.is_set()

    asyncio.run(application())
    assert handlers.ended == []


@pytest.mark.parametrize("by_force", [False, True])
def test_a_runner_that_stops_reports_how_its_coroutines_ended(*, by_force: bool) -> None:
    handlers, clock, wakeup = Handlers(), SystemClock(), threading.Event()
    handler = Handler(handlers.wait, name=NAME, retry=Retry(), timeout_us=None)
    runner = ThreadRunner(
        Execution({NAME: handler}), threads=1, clock=clock, now_us=clock.wall_us, wakeup=wakeup
    )
    runner.start()
    runner.submit([Assignment(row_of(1), keep=True)])
    assert handlers.began.wait(WAIT_S)
    if by_force:
        runner.stop_by_force([row_of(1).claim()])
    else:
        runner.stop_running()
        assert handlers.cleaned_up.wait(WAIT_S)
    all_ended, ends_s = runner.collect(), time.monotonic() + WAIT_S
    while not all_ended and time.monotonic() < ends_s:
        time.sleep(0.001)
        all_ended = runner.collect()
    endings = [(ended.job, type(ended.ending)) for ended in all_ended]
    assert endings == [(row_of(1), Cancelled if by_force else GivenBack)]
    runner.close()


@pytest.mark.usefixtures("untraced")
def test_a_coroutine_that_blocks_the_loop_beyond_its_limit_is_interrupted() -> None:
    handlers = Handlers()

    async def block(_number: int) -> None:
        while True:
            time.sleep(0.001)  # noqa: ASYNC251  (that is the point)

    handler = Handler(block, name=NAME, retry=Retry(), timeout_us=50_000)
    execution = Execution({NAME: handler})
    runner = CoroutineRunner(execution, clock=SystemClock(), ended=handlers.ended.append)
    runner.start()
    runner.begin(Assignment(row_of(1), keep=True))
    ends_s = time.monotonic() + WAIT_S
    while not handlers.ended and time.monotonic() < ends_s:
        time.sleep(0.01)
        runner.cancel_overdue()
    (ended,) = handlers.ended
    assert isinstance(ended.ending, Failed)
    assert ended.ending.error_type == JobTimeout.__name__
    runner.close()


def test_a_slot_is_lost_since_the_limit_by_the_clock_of_the_store() -> None:
    handler = Handler(Handlers().wait, name=NAME, retry=Retry(), timeout_us=7)
    execution = Execution({NAME: handler})
    runner = CoroutineRunner(execution, clock=SystemClock(), ended=lambda _: None)
    run = _Run(Assignment(row_of(1), keep=True))
    runner._runs[1], runner.offset_us = run, 100
    run.started_us = 5
    assert runner.lost() == []
    run.is_lost = True
    assert runner.lost() == [LostSlot(row_of(1), 5 + 7 + 100)]


def test_a_coroutine_that_had_not_begun_does_not_begin_after_the_end() -> None:
    handlers = Handlers()

    async def application() -> None:
        runner = handlers.runner(asyncio.get_running_loop())
        runner.begin(Assignment(row_of(1), keep=True))
        runner.begin(Assignment(row_of(2), keep=True))
        runner.close()
        for _ in range(9):
            await asyncio.sleep(0)
        assert runner.jobs() == []

    asyncio.run(application())
    assert not handlers.began.is_set()
    assert handlers.ended == []


def test_a_coroutine_that_is_about_to_begin_keeps_no_other_from_being_cancelled() -> None:
    handlers = Handlers()

    async def application() -> None:
        runner = handlers.runner(asyncio.get_running_loop())
        late = _Run(Assignment(row_of(1), keep=True))
        runner._runs[id(late)] = late  # another thread is about to call the loop
        runner.begin(Assignment(row_of(2), keep=True))
        await asyncio.to_thread(handlers.began.wait, WAIT_S)
        runner.close()
        for _ in range(9):
            await asyncio.sleep(0)
        assert handlers.cleaned_up.is_set()

    asyncio.run(application())
