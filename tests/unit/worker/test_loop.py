"""Coroutine handlers beside each other (A4)."""

import asyncio
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar

import pytest

from dueline.core.attempt import Cancelled, Done, Ended, Ending, Failed, GivenBack
from dueline.core.clock import Clock, SystemClock
from dueline.core.job import Job
from dueline.core.retry import Retry
from dueline.tasks.handler import Context, Handler
from dueline.worker import execution as execution_module
from dueline.worker.assignment import Assignment
from dueline.worker.execution import Execution
from dueline.worker.thread_runner import ThreadRunner
from tests.harness.calls import number_of, row_of
from tests.harness.clocks import HandClock
from tests.harness.crew import WAIT_S
from tests.harness.crew import Crew as RunnerCrew

pytestmark = pytest.mark.usefixtures("untraced")


class Crew(RunnerCrew):
    """A runner of handlers by name."""

    def __init__(
        self,
        handlers: dict[str, Handler],
        slots: int,
        loop: asyncio.AbstractEventLoop | None = None,
        clock: Clock | None = None,
    ) -> None:
        wakeup = threading.Event()
        clock = clock or SystemClock()
        runner = ThreadRunner(
            Execution(handlers),
            threads=slots,
            clock=clock,
            now_us=clock.monotonic_us,
            wakeup=wakeup,
            loop=loop,
        )
        super().__init__(runner, wakeup)

    def submit(self, task: str, *numbers: int, priority: int = 0) -> list[Job]:
        """Give it numbered jobs of a task."""
        return self.give([row_of(number, task=task) for number in numbers], priority)

    def ends(self, count: int) -> dict[int, Ended]:
        """Wait for so many ends, and take them by the jobs' numbers."""
        return {number_of(end.job): end for end in self.take(count)}


@contextmanager
def crew(
    *functions: Callable[..., object],
    slots: int = 10,
    limits_us: Mapping[str, int] | None = None,
    loop: asyncio.AbstractEventLoop | None = None,
    clock: Clock | None = None,
) -> Iterator[Crew]:
    """Start a runner, and let all of it end. limits_us: how long handlers may take, by name."""
    names = [function.__name__ for function in functions]
    handlers = {
        name: Handler(function, name=name, retry=Retry(), timeout_us=(limits_us or {}).get(name))
        for name, function in zip(names, functions, strict=True)
    }
    made = Crew(handlers, slots, loop, clock)
    made.runner.start()
    try:
        yield made
    finally:
        assert made.runner._coroutines is not None
        made.close()


class Gate:
    """Where handlers of both kinds wait until they are let through."""

    def __init__(self) -> None:
        self.entered: list[int] = []
        self.open = threading.Event()

    async def waits(self, number: int) -> int:
        self.entered.append(number)
        while not self.open.is_set():  # noqa: ASYNC110  (other threads open it)
            await asyncio.sleep(0.005)
        return number

    def blocks(self, number: int) -> int:
        self.entered.append(number)
        assert self.open.wait(WAIT_S)
        return number


async def quick(number: int) -> int:
    """Await something short."""
    await asyncio.sleep(0)
    return number


def test_a_thousand_wait_at_once_and_take_no_thread() -> None:
    # A2
    inside, most = 0, 0
    doors: list[asyncio.Event] = []

    async def meets(number: int) -> int:
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        if not doors:
            doors.append(asyncio.Event())
        if inside == 1000:
            doors[0].set()  # the last of them lets all go: no fewer would ever end
        await doors[0].wait()
        inside -= 1
        return number

    threads = threading.active_count()
    with crew(meets, slots=1000) as made:
        made.submit("meets", *range(1000))
        ended = made.ends(1000)
        assert threading.active_count() <= threads + 1
    assert most == 1000
    assert [ended[number].ending for number in range(1000)] == [
        Done(b"%d" % number) for number in range(1000)
    ]


def test_a_blocking_handler_beside_them_stalls_no_loop() -> None:
    # A2
    gate = Gate()
    with crew(gate.blocks, quick, slots=2) as made:
        made.submit("blocks", 1)
        made.wait(lambda: gate.entered == [1])
        made.submit("quick", *range(2, 50))
        assert set(made.ends(48)) == set(range(2, 50))
        gate.open.set()
        assert made.ends(1)[1].ending == Done(b"1")


def test_both_kinds_share_the_slots() -> None:
    gate = Gate()
    with crew(gate.blocks, gate.waits, slots=3) as made:
        made.submit("waits", 1, 2)
        made.submit("blocks", 3, 4, 5)
        made.submit("waits", 6)
        made.wait(lambda: len(gate.entered) >= 3)
        assert sorted(gate.entered) == [1, 2, 3]
        assert sorted(map(number_of, made.runner.running())) == [1, 2, 3]
        assert (made.runner.waiting(), made.runner.load()) == (3, 6)
        gate.open.set()
        assert set(made.ends(6)) == {1, 2, 3, 4, 5, 6}
        made.wait(lambda: made.runner.load() == 0)


def test_a_coroutine_waits_for_the_slot_of_a_thread() -> None:
    gate = Gate()
    with crew(gate.blocks, quick, slots=1) as made:
        made.submit("blocks", 1)
        made.wait(lambda: gate.entered == [1])
        made.submit("quick", 2)
        made.runner.spread()
        assert made.runner.waiting() == 1
        gate.open.set()
        assert list(made.ends(2)) == [1, 2]


def test_what_takes_too_long_is_cancelled_where_it_waits() -> None:
    # R9
    cleaned = []

    async def sleeps(number: int) -> None:
        try:
            await asyncio.sleep(3600)
        finally:
            cleaned.append(number)

    # The loop has a time of its own; by that of the runner it is never late.
    with crew(sleeps, limits_us={"sleeps": 50_000}, clock=HandClock()) as made:
        made.submit("sleeps", 1)
        ending = made.ends(1)[1].ending
    assert isinstance(ending, Failed)
    assert (ending.error_type, ending.retry) == ("JobTimeout", True)
    assert cleaned == [1]


def test_what_never_awaits_is_interrupted_and_its_neighbours_go_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # R9
    monkeypatch.setattr(execution_module, "ASYNC_GRACE_US", 50_000)

    clock, entered = HandClock(), threading.Event()

    async def hogs(number: int) -> None:
        entered.set()
        until_s = time.monotonic() + WAIT_S
        while time.monotonic() < until_s:
            pass

    with crew(hogs, quick, limits_us={"hogs": 50_000}, clock=clock) as made:
        made.submit("hogs", 1)
        assert entered.wait(WAIT_S)
        made.submit("quick", 2)
        clock.advance(us=100_000)
        ended = made.ends(2)
    ending = ended[1].ending
    assert isinstance(ending, Failed)
    assert ending.error_type == "JobTimeout"
    assert ended[2].ending == Done(b"2")


def test_context_variables_are_each_jobs_own() -> None:
    # A2
    variable: ContextVar[int] = ContextVar("variable")

    async def sets(number: int) -> list[int | None]:
        before = variable.get(None)
        variable.set(number)
        await asyncio.sleep(0.01)
        return [before, variable.get()]

    def sets_in_thread(number: int) -> int | None:
        before = variable.get(None)
        variable.set(number)
        return before

    with crew(sets, sets_in_thread, slots=5) as made:
        made.submit("sets", 1, 2, 3)
        ended = made.ends(3)
        assert [ended[number].ending for number in (1, 2, 3)] == [
            Done(b"[null,%d]" % number) for number in (1, 2, 3)
        ]
        made.submit("sets_in_thread", *range(10, 30))
        assert {end.ending for end in made.ends(20).values()} == {Done(b"null")}


def test_what_has_not_begun_can_be_taken_back_and_the_rest_cancelled() -> None:
    # R11, C19
    gate = Gate()
    with crew(gate.waits, slots=2) as made:
        jobs = made.submit("waits", 1, 2, 3, 4)
        made.wait(lambda: gate.entered == [1, 2])
        made.runner.forget([jobs[3].claim()])
        assert made.runner.take_back() == [jobs[2]]
        made.runner.cancel([jobs[0].claim()])
        assert isinstance(made.ends(1)[1].ending, Cancelled)
        gate.open.set()
        assert made.ends(1)[2].ending == Done(b"2")
    assert gate.entered == [1, 2]


def test_a_coroutine_that_asks_learns_that_its_claim_was_lost() -> None:
    # C7
    gate = Gate()

    async def asks(ctx: Context, number: int) -> None:
        await gate.waits(number)
        ctx.check_cancelled()

    with crew(asks) as made:
        jobs = made.submit("asks", 1)
        made.wait(lambda: gate.entered == [1])
        made.runner.forget([jobs[0].claim()])
        gate.open.set()
        ending = made.ends(1)[1].ending
    assert isinstance(ending, Cancelled)
    assert "was lost" in ending.reason


def test_closing_cancels_what_still_runs() -> None:
    gate, cleaned = Gate(), []

    async def lingers(number: int) -> None:
        try:
            await gate.waits(number)
        finally:
            cleaned.append(number)

    with crew(lingers) as made:
        made.submit("lingers", 1)
        made.wait(lambda: gate.entered == [1])
    assert cleaned == [1]


def test_they_run_on_a_loop_that_was_given() -> None:
    async def main() -> None:
        here = threading.get_ident()

        async def where() -> bool:
            await asyncio.sleep(0)
            return threading.get_ident() == here

        with crew(where, loop=asyncio.get_running_loop()) as made:
            made.runner.submit(
                [Assignment(row_of(1, task="where")._replace(body=b"[]"), keep=True)]
            )
            while not (ended := made.runner.collect()):  # noqa: ASYNC110  (a list's end)
                await asyncio.sleep(0.01)
        assert [end.ending for end in ended] == [Done(b"true")]

    asyncio.run(main())


def test_jobs_whose_loop_was_closed_are_given_back() -> None:
    loop = asyncio.new_event_loop()
    with crew(quick, loop=loop) as made:
        loop.close()
        made.submit("quick", 1)
        assert isinstance(made.ends(1)[1].ending, GivenBack)


def test_plain_jobs_beside_coroutines_take_the_short_path(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    long_way: list[str] = []
    run = Execution.run

    def noted(self: Execution, assignment: Assignment, started_us: int) -> Ending:
        long_way.append(assignment.job.task)
        return run(self, assignment, started_us)

    monkeypatch.setattr(Execution, "run", noted)

    def plain(number: int) -> int:
        return number

    with crew(plain, quick, slots=3) as made:
        for number in range(0, 100, 2):
            made.submit("plain", number)
            made.submit("quick", number + 1)
        assert sorted(made.ends(100)) == [*range(100)]
        made.wait(lambda: made.runner._free() == 3)
    assert long_way == []


def test_both_kinds_together_take_no_more_than_the_slots() -> None:
    inside, most, guard = 0, 0, threading.Lock()

    def count(change: int) -> None:
        nonlocal inside, most
        with guard:
            inside += change
            most = max(most, inside)

    def plain(number: int) -> int:
        count(1)
        if number % 7 == 0:
            time.sleep(0.001)
        count(-1)
        return number

    async def waits(number: int) -> int:
        count(1)
        await asyncio.sleep(0.001 * (number % 3))
        count(-1)
        return number

    with crew(plain, waits, slots=3) as made:
        for start in range(0, 600, 20):  # runs of one kind, of different lengths
            kind = "plain" if start % 40 else "waits"
            made.submit(kind, *range(start, start + 13))
            made.submit("waits" if kind == "plain" else "plain", *range(start + 13, start + 20))
        assert sorted(made.ends(600)) == [*range(600)]
        made.wait(lambda: made.runner._free() == 3)
    assert most <= 3


async def catches_all(number: int) -> None:
    """Go on whatever is raised."""
    while number:
        with suppress(BaseException):  # as some do
            await asyncio.sleep(0.001)


async def catches_all_of_another(number: int) -> None:
    """Call a coroutine again and again that catches whatever is raised in it."""
    while number:
        with suppress(Exception):
            await catches_all(number)


@pytest.mark.slow
@pytest.mark.parametrize("function", [catches_all, catches_all_of_another])
def test_a_coroutine_that_catches_everything_ends_after_its_limit(
    function: Callable[..., object],
) -> None:
    with crew(function, quick, limits_us={function.__name__: 20_000}) as made:
        made.submit(function.__name__, 1, 2, 3)
        made.submit("quick", 4)
        ends = made.ends(4)
    for number in (1, 2, 3):
        ending = ends[number].ending
        assert isinstance(ending, Failed)
        assert ending.error_type == "JobTimeout"
    assert isinstance(ends[4].ending, Done)
