"""Jobs in threads of this process."""

import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from dueline.core.attempt import Cancelled, Done, Ended, Failed
from dueline.core.clock import SECOND_US, SystemClock
from dueline.core.errors import JobTimeout
from dueline.tasks.handler import Context
from dueline.worker.context_controls import LEFT_RUNNING
from tests.harness.calls import number_of
from tests.harness.clocks import HandClock
from tests.harness.crew import WAIT_S
from tests.harness.thread_crew import crew

pytestmark = pytest.mark.usefixtures("untraced")

ROOT = Path(__file__).parents[3]


class Gate:
    """A handler that waits until it is let through."""

    def __init__(self) -> None:
        self.open = threading.Event()
        self.inside = threading.Semaphore(0)

    def handler(self, number: int) -> int:
        self.inside.release()
        assert self.open.wait(WAIT_S)
        return number

    def entered(self, count: int) -> None:
        """Wait until so many are inside."""
        for _ in range(count):
            assert self.inside.acquire(timeout=WAIT_S)


def numbers(ended: list[Ended]) -> list[int]:
    """Name ended jobs by their numbers."""
    return [number_of(end.job) for end in ended]


def test_jobs_run_in_the_order_in_which_they_came() -> None:
    with crew(lambda number: number) as made:
        made.submit(*range(1, 51))
        ended = made.take(50)
        assert numbers(ended) == list(range(1, 51))
        assert [end.ending for end in ended] == [Done(b"%d" % n) for n in range(1, 51)]


def test_more_urgent_jobs_overtake_those_that_wait() -> None:
    # T3
    gate = Gate()
    with crew(gate.handler) as made:
        made.submit(1)
        gate.entered(1)
        made.submit(2, 3)
        made.submit(4, 5, priority=9)
        gate.open.set()
        assert numbers(made.take(5)) == [1, 4, 5, 2, 3]


def test_as_many_run_at_once_as_there_are_threads() -> None:
    gate = Gate()
    with crew(gate.handler, threads=3) as made:
        jobs = made.submit(1, 2, 3, 4)
        gate.entered(3)
        assert sorted(made.runner.running()) == sorted(jobs[:3])
        assert (made.runner.waiting(), made.runner.load()) == (1, 4)
        gate.open.set()
        assert sorted(numbers(made.take(4))) == [1, 2, 3, 4]
        made.wait(lambda: made.runner.load() == 0)
        assert made.runner.running() == []


def test_an_attempt_says_when_it_started_and_ended_by_the_stores_time() -> None:
    clock = SystemClock()
    before_us = clock.monotonic_us() + 5000 * SECOND_US
    with crew(lambda number: number) as made:
        made.submit(1)
        (ended,) = made.take(1)
    after_us = clock.monotonic_us() + 5000 * SECOND_US
    assert before_us <= ended.started_us <= ended.ended_us <= after_us


def test_a_job_that_is_ended_by_force_was_cancelled_then_by_the_stores_time() -> None:
    # rule A3
    clock, gate = SystemClock(), Gate()
    with crew(gate.handler, threads=2) as made:
        before_us = clock.monotonic_us() + 5000 * SECOND_US
        jobs = made.submit(1, 2)
        gate.entered(2)
        between_us = clock.monotonic_us() + 5000 * SECOND_US
        made.runner.stop_by_force([jobs[1].claim()])
        (ended,) = made.take(1)
        after_us = clock.monotonic_us() + 5000 * SECOND_US
        assert (ended.job, ended.ending) == (jobs[1], Cancelled(LEFT_RUNNING))
        assert before_us <= ended.started_us <= between_us <= ended.ended_us <= after_us
        gate.open.set()


def test_what_has_not_started_can_be_taken_back() -> None:
    # R11
    gate = Gate()
    with crew(gate.handler) as made:
        jobs = made.submit(1, 2, 3)
        gate.entered(1)
        assert made.runner.take_back() == jobs[1:]
        assert made.runner.take_back() == []
        gate.open.set()
        assert numbers(made.take(1)) == [1]
        made.wait(lambda: made.runner.load() == 0)


def test_a_worker_that_gives_back_what_waits_too_long_does_not_stop() -> None:
    gate = Gate()
    with crew(gate.handler) as made:
        jobs = made.submit(1, 2)
        gate.entered(1)
        assert made.runner.take_waiting() == jobs[1:]
        assert not made.runner._execution.controls.is_draining  # durable functions run on
        assert made.runner.take_back() == []
        assert made.runner._execution.controls.is_draining
        gate.open.set()
        made.take(1)


def test_what_was_lost_is_not_started_and_what_runs_can_know() -> None:
    # C7
    gate, learned = Gate(), []

    def handler(ctx: Context, number: int) -> None:
        gate.handler(number)
        try:
            ctx.check_cancelled()
        except Exception as error:
            learned.append((number, type(error).__name__))
            raise

    with crew(handler) as made:
        jobs = made.submit(1, 2, 3)
        gate.entered(1)
        made.runner.forget([job.claim() for job in jobs[:2]])
        gate.open.set()
        assert numbers(made.take(2)) == [1, 3]
    assert learned == [(1, "LeaseLost")]


def test_a_handler_that_takes_too_long_is_interrupted_once() -> None:
    # R9
    clock, inside, stop = HandClock(), threading.Event(), threading.Event()

    def handler(number: int) -> int:
        inside.set()
        while number == 1 and not stop.is_set():
            time.sleep(0.001)
        return number

    with crew(handler, timeout_us=30_000, clock=clock) as made:
        made.submit(1, 2)
        assert inside.wait(WAIT_S)
        clock.advance(us=30_000)
        first, second = made.take(2)
        stop.set()
    assert isinstance(first.ending, Failed)
    assert (first.ending.error_type, first.ending.retry) == ("JobTimeout", True)
    assert "in handler" in first.ending.traceback
    assert second.ending == Done(b"2")
    assert first.ended_us - first.started_us == 30_000


def test_a_handler_may_clean_up_when_its_time_is_over() -> None:
    # R9: it is not interrupted again meanwhile, and has failed whatever it returns
    clock, inside, cleaned = HandClock(), threading.Event(), threading.Event()

    def handler(number: int) -> str:
        try:
            inside.set()
            while True:
                time.sleep(0.001)
        except JobTimeout:
            until_s = time.monotonic() + 1.2
            while time.monotonic() < until_s:
                time.sleep(0.001)
            cleaned.set()
            return "cleaned up"

    with crew(handler, timeout_us=10_000, clock=clock) as made:
        made.submit(1)
        assert inside.wait(WAIT_S)
        clock.advance(us=10_000)
        ending = made.take(1)[0].ending
    assert isinstance(ending, Failed)
    assert ending.error_type == "JobTimeout"
    assert cleaned.is_set()


TRACED = """
import threading, time
threading.settrace(lambda frame, event, argument: None)
from tests.harness.clocks import HandClock
from tests.unit.worker.test_threads import crew

clock, inside = HandClock(), threading.Event()

def handler(number):
    inside.set()
    while number == 1:
        time.sleep(0.001)
    return number

with crew(handler, timeout_us=10_000, clock=clock) as made:
    made.submit(1, 2)
    inside.wait()
    clock.advance(us=10_000)
    print([type(one.ending).__name__ for one in made.take(2)])
"""


@pytest.mark.slow
def test_an_interruption_leaves_the_interpreter_as_it_was() -> None:
    # CPython 3.11 hangs in traced threads once an exception on its way was taken back
    command = [sys.executable, "-c", TRACED]
    answer = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=300
    )
    assert answer.stdout == "['Failed', 'Done']\n"


def test_a_handler_within_its_time_is_left_alone() -> None:
    with crew(lambda number: number, timeout_us=WAIT_S * SECOND_US) as made:
        made.submit(1)
        assert made.take(1)[0].ending == Done(b"1")


def test_an_interruption_never_hits_the_next_job() -> None:
    # R9: handlers end just as their time is over
    def handler(number: int) -> int:
        until_s = time.monotonic() + 0.002
        while time.monotonic() < until_s:
            pass
        return number

    with crew(handler, threads=2, timeout_us=2_000) as made:
        made.submit(*range(1, 101))
        ended = made.take(100)
        quick = made.submit(101)
        assert sorted(numbers(ended)) == list(range(1, 101))
        assert {type(end.ending) for end in ended} <= {Done, Failed}
        assert numbers(made.take(1)) == [number_of(quick[0])]


def test_threads_survive_whatever_handlers_raise() -> None:
    def handler(number: int) -> int:
        if number % 2:
            raise SystemExit(number)
        return number

    with crew(handler, threads=2) as made:
        made.submit(*range(1, 21))
        kinds = {number_of(end.job): type(end.ending) for end in made.take(20)}
    assert kinds == {n: Failed if n % 2 else Done for n in range(1, 21)}


class Ticking(HandClock):
    """A clock by which all is quick, however slow the machine is: each look takes 1 us."""

    def monotonic_us(self) -> int:
        self.advance(us=1)
        return super().monotonic_us()


def test_short_jobs_are_left_to_few_threads() -> None:
    seen: set[str] = set()

    def handler(number: int) -> int:
        seen.add(threading.current_thread().name)
        return number

    with crew(handler, threads=8, clock=Ticking()) as made:
        made.submit(*range(1, 9))
        made.take(8)
        assert 0 < made.runner.run_us < 1000
        made.wait(lambda: made.runner._idle == 8)
        seen.clear()
        made.submit(*range(1, 9))
        made.wait(lambda: made.runner.load() == 0, spreads=False)
        made.take(8)
    assert len(seen) == 1


def test_idle_threads_end_when_the_runner_is_closed() -> None:
    with crew(lambda number: number, threads=4) as made:
        made.submit(1)
        made.take(1)
    # what comes after that is not started
    made.submit(2)
    assert made.runner.waiting() == 1
    assert not made.runner.isolates


@pytest.mark.parametrize("threads", [1, 16])
def test_ten_thousand_jobs_end_each_once(threads: int) -> None:
    with crew(lambda number: number, threads=threads) as made:
        made.submit(*range(1, 10_001))
        ended = made.take(10_000)
    assert sorted(numbers(ended)) == list(range(1, 10_001))


class Computing(Ticking):
    """A clock of a process that never waits for anything but its processor."""

    used_us = 0

    def processor_us(self) -> int:
        self.used_us += 1_000_000
        return self.used_us


@pytest.mark.parametrize("is_computing", [True, False])
def test_a_process_that_computes_all_the_time_wakes_no_more_threads(*, is_computing: bool) -> None:
    clock = Computing()
    processor_us = clock.processor_us if is_computing else lambda: 0
    inside, go = threading.Semaphore(0), threading.Event()

    def handler(number: int) -> int:
        inside.release()
        assert go.wait(WAIT_S)
        return number

    with crew(handler, threads=8, clock=clock, processor_us=processor_us) as made:
        made.runner.run_us = 10.0
        made.runner._share.read(clock.monotonic_us())
        clock.advance(us=10_000)
        made.submit(1)
        assert inside.acquire(timeout=WAIT_S)
        clock.advance(us=4_000)
        made.submit(2)
        made.runner.spread()
        assert len(made.runner._slots) == (1 if is_computing else 2)
        clock.advance(us=4_000)  # now the first one takes long, and holds up the second one
        made.runner.spread()
        assert inside.acquire(timeout=WAIT_S)
        go.set()
        made.take(2)
