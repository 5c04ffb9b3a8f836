"""Handlers are not called under claims that have lapsed."""

import threading

from dueline.core.attempt import Ended, GivenBack
from dueline.core.job import Job, State
from dueline.core.retry import Retry
from dueline.tasks.handler import Context, Handler
from dueline.worker.assignment import Assignment
from dueline.worker.execution import Execution
from dueline.worker.thread_runner import ThreadRunner
from tests.harness.calls import row_of
from tests.harness.clocks import NOW_US, HandClock
from tests.harness.crew import Crew

LEASE_US = 1_000_000


calls: list[int] = []


def plain(number: int) -> None:
    """Take the short way."""
    calls.append(number)


def told(context: Context, number: int) -> None:
    """Take the longer way."""
    calls.append(number + context.fence * 0)


async def awaited(number: int) -> None:
    """Take the way of coroutines."""
    calls.append(number)


HANDLERS = {
    function.__name__: Handler(function, name=function.__name__, retry=Retry(), timeout_us=None)
    for function in (plain, told, awaited)
}


def claimed(number: int, task: str) -> Job:
    """Make a row that was claimed now."""
    row = row_of(number, task=task)
    return row._replace(at_us=NOW_US + LEASE_US, fence=1, state=State.CLAIMED)


def run(some: list[Assignment], clock: HandClock, execution: Execution) -> list[Ended]:
    """Give jobs to a runner."""
    wakeup = threading.Event()
    runner = ThreadRunner(execution, threads=1, clock=clock, now_us=clock.wall_us, wakeup=wakeup)
    crew = Crew(runner, wakeup)
    runner.start()
    runner.submit(some)
    try:
        return crew.take(len(some))
    finally:
        crew.close()


def no_handler_is_called_once_the_claim_has_lapsed(clock: HandClock, task: str, keep: int) -> None:
    # rule H2
    job = claimed(1, task)
    clock.advance(us=LEASE_US + 1)
    (ended,) = run([Assignment(job, bool(keep))], clock, Execution(HANDLERS))
    assert (ended.ending, ended.started_us, calls) == (GivenBack(), 0, [])
