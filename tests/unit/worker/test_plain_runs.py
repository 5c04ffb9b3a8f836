"""Tiny handlers, run one after the other with next to nothing between them."""

import threading
from collections import deque
from collections.abc import Callable
from typing import Any

import pytest

from dueline.core.attempt import Cancelled, Done, Ending, Failed
from dueline.core.clock import SECOND_US, SystemClock
from dueline.core.job import Job
from dueline.core.retry import Retry
from dueline.tasks.handler import Handler
from dueline.tasks.hooks import Hooks
from dueline.worker.assignment import Assignment
from dueline.worker.child_process import _ReportingExecution
from dueline.worker.execution import Execution
from dueline.worker.thread_runner import ThreadRunner
from tests.harness.calls import row_of
from tests.harness.clocks import HandClock
from tests.harness.crew import WAIT_S, Crew

pytestmark = pytest.mark.usefixtures("untraced")

NAME = "tests.task"


def crew_of(
    function: Callable[..., object],
    *,
    threads: int = 1,
    tell: Callable[[Job], None] | None = None,
) -> Crew:
    wakeup, clock = threading.Event(), SystemClock()
    handlers = {NAME: Handler(function, name=NAME, retry=Retry(), timeout_us=None)}
    execution = (
        Execution(handlers) if tell is None else _ReportingExecution(handlers, Hooks(), tell)
    )
    made = Crew(
        ThreadRunner(
            execution,
            threads=threads,
            clock=clock,
            now_us=lambda: clock.monotonic_us() + 5000 * SECOND_US,
            wakeup=wakeup,
        ),
        wakeup,
    )
    made.runner.start()
    return made


def plain(*numbers: int) -> list[Assignment]:
    return [Assignment(row_of(number), keep=False) for number in numbers]


class Slow:
    """A handler that waits for some numbers, and for no others."""

    def __init__(self, *numbers: int) -> None:
        self.numbers = numbers
        self.ran: list[int] = []
        self.inside = threading.Semaphore(0)
        self.open = threading.Event()

    def handler(self, number: int) -> None:
        self.ran.append(number)
        if number in self.numbers:
            self.inside.release()
            assert self.open.wait(WAIT_S)


def test_a_slow_handler_holds_up_nothing_but_itself() -> None:
    # T3: what a thread has not begun stays where others can take it
    slow = Slow(1)
    crew = crew_of(slow.handler, threads=2)
    try:
        crew.runner.run_us = 1.0  # as after many short jobs: one thread is woken for all of them
        crew.runner.submit(plain(*range(50)))
        crew.take(49)
        assert [job.id for job in crew.runner.running()] == [row_of(1).id]
        slow.open.set()
        crew.take(1)
    finally:
        slow.open.set()
        crew.close()


def test_a_job_that_arrives_after_an_end_does_not_start_at_that_end(clock: HandClock) -> None:
    # a thread may be paused between two jobs, and the second one may depend on another thread's
    ended: list[tuple[Job, Ending, int, int]] = []

    class Ended(deque[Any]):
        """Endings; the second job arrives 5 ms after the first one."""

        def append(self, end: Any, /) -> None:  # noqa: ANN401
            ended.append(end)
            if len(ended) == 1:
                clock.advance(0.005)
                later = plain(1)[0]._replace(since_us=clock.monotonic_us())
                runner.submit([later])

    wakeup = threading.Event()
    handlers = {NAME: Handler(lambda _: None, name=NAME, retry=Retry(), timeout_us=None)}
    runner = ThreadRunner(
        Execution(handlers), threads=1, clock=clock, now_us=clock.monotonic_us,
        wakeup=wakeup, ended=Ended(),
    )  # fmt: skip
    runner.start()
    runner.submit(plain(0))
    while len(ended) < 2:
        assert wakeup.wait(WAIT_S)
        wakeup.clear()
    runner.close()
    (_, _, _, first_ended_us), (_, _, second_started_us, _) = ended
    assert second_started_us == first_ended_us + 5000


def test_ends_are_told_while_the_next_handler_runs() -> None:
    slow = Slow(2)
    crew = crew_of(slow.handler)
    try:
        crew.runner.submit(plain(0, 1, 2, 3))
        first = crew.take(2)
        assert [type(end.ending) for end in first] == [Done, Done]
        assert first[0].started_us <= first[0].ended_us <= first[1].ended_us
        slow.open.set()
        crew.take(2)
    finally:
        slow.open.set()
        crew.close()


def test_what_waits_behind_a_running_handler_can_be_cancelled_and_taken_back() -> None:
    slow = Slow(0)
    crew = crew_of(slow.handler)
    try:
        assignments = plain(0, 1, 2)
        crew.runner.submit(assignments)
        assert slow.inside.acquire(timeout=WAIT_S)
        crew.runner.cancel([assignments[1].job.claim()])
        (ended,) = crew.take(1)
        assert isinstance(ended.ending, Cancelled)
        assert crew.runner.take_back() == [assignments[2].job]
        slow.open.set()
        crew.take(1)
        assert slow.ran == [0]
    finally:
        slow.open.set()
        crew.close()


@pytest.mark.parametrize(
    ("value", "keep", "ending"),
    [
        (None, True, Done(b"null")),
        ({"a": [None]}, True, Done(b'{"a":[null]}')),
        (7, False, Done(b"")),
    ],
)
def test_a_result_is_kept_the_short_way(value: object, keep: bool, ending: Done) -> None:  # noqa: FBT001
    execution = Execution(
        {NAME: Handler(lambda _: value, name=NAME, retry=Retry(), timeout_us=None)}
    )
    assert execution.run_plainly(Assignment(row_of(1), keep=keep), 0) == ending


def test_a_result_that_is_no_json_fails_the_short_way() -> None:
    task = Handler(lambda _: float("nan"), name=NAME, retry=Retry(), timeout_us=None)
    ending = Execution({NAME: task}).run_plainly(Assignment(row_of(1), keep=True), 0)
    assert isinstance(ending, Failed)
    assert (ending.error_type, ending.retry) == ("BadInput", False)


def test_a_child_tells_of_the_start_of_a_handler_of_which_no_result_is_wanted() -> None:
    # Otherwise a job that kills its process is never counted as one that does.
    told: list[Job] = []
    crew = crew_of(lambda number: number, tell=told.append)
    try:
        crew.runner.submit(plain(7))
        crew.take(1)
        job: Job = row_of(7)
        assert [row.claim() for row in told] == [job.claim()]
    finally:
        crew.close()
