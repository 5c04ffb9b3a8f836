"""A time limit ends a handler, and leaves nothing of the process held (R9)."""

import dis
import logging
import queue
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import pytest

from dueline.core.attempt import Failed
from dueline.core.clock import SECOND_US
from dueline.worker.safe_points import points_of
from tests.harness.clocks import HandClock
from tests.harness.crew import WAIT_S
from tests.harness.thread_crew import Crew, crew

pytestmark = pytest.mark.usefixtures("untraced")

THREADS = 4


class Shared:
    """What handlers of one process share."""

    def __init__(self) -> None:
        self.stop = threading.Event()
        self.began = threading.Semaphore(0)
        self.errors: list[BaseException] = []
        self.queue: queue.Queue[int] = queue.Queue(2)
        self.condition = threading.Condition()
        self.pool: queue.LifoQueue[object] = queue.LifoQueue()
        for _ in range(2):
            self.pool.put(object())
        self.log = logging.getLogger(f"tests.safe.{id(self)}")
        self.log.propagate = False
        self.handler = logging.StreamHandler(Sink())
        self.log.addHandler(self.handler)

    @contextmanager
    def connection(self) -> Iterator[object]:
        """Take a connection of the pool, and put it back."""
        connection = self.pool.get()
        try:
            yield connection
        finally:
            self.pool.put(connection)

    def logs(self) -> None:
        self.log.info("row")
        sum(range(200))

    def shares_a_queue(self) -> None:
        self.queue.put(1)
        self.queue.get()

    def notifies(self) -> None:
        with self.condition:
            self.condition.notify_all()
            self.condition.wait(0.001)

    def holds_connections(self) -> None:
        with self.connection():
            time.sleep(0.0001)

    def computes(self) -> None:
        sum(range(500))

    def sleeps(self) -> None:
        time.sleep(0.001)

    def is_free(self) -> bool:
        """Return whether nothing is held."""
        assert self.handler.lock is not None
        locks = (self.handler.lock, self.condition, self.queue.mutex)
        for lock in locks:
            assert lock.acquire(timeout=5)
            lock.release()
        return self.pool.qsize() == 2


class Sink:
    """A stream that takes a while, so that threads wait for the log."""

    def write(self, text: str) -> int:
        time.sleep(0.00005)
        return len(text)

    def flush(self) -> None: ...


WORK: list[Callable[[Shared], None]] = [
    Shared.logs,
    Shared.shares_a_queue,
    Shared.notifies,
    Shared.holds_connections,
    Shared.computes,
    Shared.sleeps,
]


def until_struck(shared: Shared, work: Callable[[Shared], None]) -> None:
    while not shared.stop.is_set():
        work(shared)


def swallowing(shared: Shared, work: Callable[[Shared], None]) -> None:
    while not shared.stop.is_set():
        for _ in range(100):
            try:  # noqa: SIM105
                work(shared)
            except:  # noqa: E722, S110  (as some do)
                pass


def suppressing(shared: Shared, work: Callable[[Shared], None]) -> None:
    while not shared.stop.is_set():
        with suppress(BaseException):
            work(shared)


def inner(shared: Shared, work: Callable[[Shared], None]) -> None:
    while not shared.stop.is_set():
        work(shared)


def swallowing_outside(shared: Shared, work: Callable[[Shared], None]) -> None:
    while not shared.stop.is_set():
        try:  # noqa: SIM105
            inner(shared, work)
        except Exception:  # noqa: BLE001, S110  (as many do)
            pass


def swallowing_beside(shared: Shared, work: Callable[[Shared], None]) -> None:
    while not shared.stop.is_set():
        try:
            while not shared.stop.is_set():
                work(shared)
        except Exception as error:
            shared.log.exception("the connection broke")
            shared.errors.append(error)


def swallowing_in_place(shared: Shared, work: Callable[[Shared], None]) -> None:
    while not shared.stop.is_set():
        try:
            while not shared.stop.is_set():
                work(shared)
        except Exception:  # noqa: BLE001, S112
            continue


def is_timeout(ending: object) -> bool:
    return isinstance(ending, Failed) and ending.error_type == "JobTimeout"


CASES = [
    *((until_struck, work) for work in WORK),
    (swallowing, Shared.logs),
    (swallowing, Shared.notifies),
    (suppressing, Shared.computes),
    (swallowing_outside, Shared.logs),
    (swallowing_outside, Shared.sleeps),
    (swallowing_in_place, Shared.computes),
    (swallowing_beside, Shared.shares_a_queue),
    (swallowing_beside, Shared.holds_connections),
]


@pytest.mark.slow
@pytest.mark.parametrize(("loop", "work"), CASES, ids=lambda function: function.__name__)
def test_limits_end_handlers_and_leave_nothing_held(
    loop: Callable[[Shared, Callable[[Shared], None]], None], work: Callable[[Shared], None]
) -> None:
    shared = Shared()

    def handler(number: int) -> None:
        del number
        loop(shared, work)

    with crew(handler, threads=THREADS, timeout_us=20_000) as made:
        made.submit(*range(1, 2 * THREADS + 1))
        ended = made.take(2 * THREADS)
        shared.stop.set()
    assert all(is_timeout(end.ending) for end in ended)
    assert shared.is_free()


def lost_then(made: Crew, clock: HandClock, began: threading.Semaphore) -> int:
    """Let a handler outlive its limit; return how many slots are lost."""
    made.submit(1)
    assert began.acquire(timeout=WAIT_S)
    clock.advance(us=3 * SECOND_US)
    made.wait(lambda: bool(made.runner.lost()))
    time.sleep(0.1)
    made.runner.interrupt_overdue()
    return len(made.runner.lost())


def waits_in_a_library(shared: Shared, go: threading.Event) -> None:
    del shared
    go.wait()


def cleans_up(shared: Shared, go: threading.Event) -> None:
    del shared
    try:
        int("")
    except ValueError:
        while not go.is_set():
            time.sleep(0.001)


def cleans_up_finally(shared: Shared, go: threading.Event) -> None:
    try:
        shared.logs()
    finally:
        while not go.is_set():
            time.sleep(0.001)


class Held:
    def __init__(self, go: threading.Event) -> None:
        self.go = go

    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None:
        while not self.go.is_set():
            time.sleep(0.001)


def leaves_a_block(shared: Shared, go: threading.Event) -> None:
    with Held(go):
        shared.logs()


@contextmanager
def entering(go: threading.Event) -> Iterator[None]:
    while not go.is_set():
        time.sleep(0.001)
    yield


def enters_a_block(shared: Shared, go: threading.Event) -> None:
    with entering(go):
        shared.logs()


@pytest.mark.parametrize(
    "work", [waits_in_a_library, cleans_up, cleans_up_finally, leaves_a_block, enters_a_block]
)
def test_a_handler_that_cannot_be_interrupted_outlives_its_limit(
    work: Callable[[Shared, threading.Event], None],
) -> None:
    shared, go, clock = Shared(), threading.Event(), HandClock()
    interrupted: list[BaseException] = []

    def handler(number: int) -> int:
        shared.began.release()
        try:
            work(shared, go)
        except BaseException as error:
            interrupted.append(error)
            raise
        return number

    with crew(handler, timeout_us=10_000, clock=clock) as made:
        try:
            assert lost_then(made, clock, shared.began) == 1
        finally:
            go.set()
        (ended,) = made.take(1)
        assert not made.runner.lost()
    assert not interrupted
    assert is_timeout(ended.ending)  # whatever it returned


def rows() -> None:
    for row in WORK:
        try:
            row(Shared())
        except ValueError:
            continue
    try:
        row(Shared())
    finally:
        for other in WORK:
            other(Shared())


def test_the_turns_of_loops_are_known_but_not_those_of_clean_up() -> None:
    first = rows.__code__.co_firstlineno
    points = points_of(rows.__code__)
    turns = [step for step in dis.get_instructions(rows.__code__) if step.offset in points.turns]
    lines = {step.positions.lineno for step in turns if step.positions}
    assert {line - first for line in lines if line} <= {2, 3, 4, 5}
    assert lines
    assert {line - first for line in points.clean_up_lines} >= {9, 10}


def branches(text: str) -> None:
    try:
        int(text)
    except ValueError:
        if text:
            time.sleep(0)
        else:
            time.sleep(0)
    except TypeError:
        time.sleep(0)
    time.sleep(0)


def test_every_branch_of_clean_up_is_known() -> None:
    first = branches.__code__.co_firstlineno
    lines = {line - first for line in points_of(branches.__code__).clean_up_lines}
    assert lines >= {4, 5, 7, 9}
    assert not lines & {2, 10}
