"""Inserts of several threads in one write, on stores of servers."""

import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest

from dueline.core.errors import BadInput, StoreUnavailable, Unknown
from dueline.core.job import Job
from dueline.core.wakeup import Wakeup
from dueline.stores import group_commit
from dueline.stores.group_commit import ServerCommit, Written
from dueline.stores.idle_wakeups import Notified
from tests.harness.addresses import world_of
from tests.harness.calls import number_of, row_of
from tests.harness.world import World

WAIT_S = 60
LANE = row_of().lane
SERVERS = [
    pytest.param("postgres", marks=pytest.mark.postgres),
    pytest.param("cassandra", marks=pytest.mark.cassandra),
    pytest.param("redis", marks=pytest.mark.redis),
]


@pytest.fixture(autouse=True)
def hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no write count as one that hangs, however slow the machine is."""
    monkeypatch.setattr(group_commit, "HANGS_S", WAIT_S)


class Server:
    """Takes inserts; the first ones wait until they may go on.

    writes: the numbers of the jobs of each insert. fail: what an insert raises, by its jobs.
    """

    def __init__(self, *, held_up: int = 1) -> None:
        self.writes: list[list[int]] = []
        self.gate = threading.Event()
        self.begun = threading.Semaphore(0)
        self.fail: Callable[[Sequence[int]], BaseException | None] = lambda _: None
        self.commit = ServerCommit(self._insert)
        self._held_up = held_up

    def _insert(self, jobs: Sequence[Job]) -> Written:
        numbers = list(map(number_of, jobs))
        self.writes.append(numbers)
        self.begun.release()
        if len(self.writes) <= self._held_up:
            assert self.gate.wait(WAIT_S)
        if error := self.fail(numbers):
            raise error
        return Written([number != 13 for number in numbers], [Wakeup("q")])


class Callers:
    """Threads that add jobs.

    answers: what each got, by the first number of its jobs.
    """

    def __init__(self, server: Server) -> None:
        self.answers: dict[int, Written | BaseException] = {}
        self._server = server
        self._threads: list[threading.Thread] = []

    def call(self, *numbers: int) -> None:
        """Begin a call."""
        thread = threading.Thread(target=self._add, args=(numbers,))
        self._threads.append(thread)
        thread.start()

    def _add(self, numbers: Sequence[int]) -> None:
        try:
            self.answers[numbers[0]] = self._server.commit.write([row_of(n) for n in numbers])
        except BaseException as error:  # noqa: BLE001  (it is looked at)
            self.answers[numbers[0]] = error

    def begin(self) -> None:
        """Begin a write, which does not end yet."""
        self.call(1)
        assert self._server.begun.acquire(timeout=WAIT_S)

    def queue(self, *calls: Sequence[int]) -> None:
        """Begin calls that wait behind these."""
        for numbers in calls:
            before = len(self._server.commit._waiting)
            self.call(*numbers)
            wait_until(lambda: len(self._server.commit._waiting) > before)  # noqa: B023

    def end(self) -> None:
        """Let all writes go on, and wait for all calls."""
        self._server.gate.set()
        for thread in self._threads:
            thread.join(WAIT_S)
            assert not thread.is_alive()


def wait_until(is_so: Callable[[], bool]) -> None:
    give_up_s = time.monotonic() + WAIT_S
    while not is_so():
        assert time.monotonic() < give_up_s
        time.sleep(0.001)


def test_a_call_that_is_alone_waits_for_nobody() -> None:
    server = Server(held_up=0)
    assert server.commit.write([row_of(1), row_of(13)]) == Written([True, False], [Wakeup("q")])
    assert server.writes == [[1, 13]]


def test_calls_that_wait_share_a_write_and_each_gets_its_own_answer() -> None:
    server = Server()
    callers = Callers(server)
    callers.begin()
    callers.queue([3], [4, 13], [5])
    callers.end()
    assert server.writes == [[1], [3, 4, 13, 5]]
    assert callers.answers[4] == Written([True, False], [Wakeup("q")])
    assert callers.answers[3] == callers.answers[5] == Written([True], [Wakeup("q")])


@pytest.mark.parametrize("kind", [StoreUnavailable, Unknown])
def test_a_write_that_fails_fails_for_each_of_its_calls(kind: type[StoreUnavailable]) -> None:
    server = Server()
    server.fail = lambda numbers: kind("The server is gone.") if 3 in numbers else None
    callers = Callers(server)
    callers.begin()
    callers.queue([3], [4])
    callers.end()
    errors = [callers.answers[number] for number in (3, 4)]
    assert {type(error) for error in errors} == {kind}
    assert len(set(map(id, errors))) == len(errors)


def test_what_is_wrong_with_one_call_is_its_own_error() -> None:
    server = Server()
    server.fail = lambda numbers: BadInput("It is wrong.") if 4 in numbers else None
    callers = Callers(server)
    callers.begin()
    callers.queue([3], [4], [5])
    callers.end()
    assert isinstance(callers.answers[4], BadInput)
    assert callers.answers[3] == callers.answers[5] == Written([True], [Wakeup("q")])


def test_where_the_writer_is_interrupted_the_others_are_told_that_it_is_unknown() -> None:
    server = Server()
    server.fail = lambda numbers: KeyboardInterrupt() if len(numbers) > 1 else None
    callers = Callers(server)
    callers.begin()
    callers.queue([3], [4])
    callers.end()
    kinds = sorted(type(callers.answers[number]).__name__ for number in (3, 4))
    assert kinds == ["KeyboardInterrupt", "Unknown"]


def test_a_write_that_hangs_holds_up_none_that_comes_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(group_commit, "HANGS_S", 0.001)
    server = Server()
    callers = Callers(server)
    callers.begin()
    for number in (2, 3, 4):
        assert server.commit.write([row_of(number)]).held == [True]
    assert 1 not in callers.answers
    callers.end()


def test_all_calls_that_come_after_a_hanging_write_go_on_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now_s = [100.0]
    monkeypatch.setattr(group_commit, "time", SimpleNamespace(monotonic=lambda: now_s[0]))
    server = Server()
    callers = Callers(server)
    callers.begin()
    now_s[0] += WAIT_S + 1
    for number in (2, 3, 4):  # the time stands still meanwhile
        callers.call(number)
        wait_until(lambda: number in callers.answers)  # noqa: B023
    callers.end()


def test_bodies_of_many_bytes_are_not_joined(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_commit, "BYTES_MAX", 1)
    server = Server()
    callers = Callers(server)
    callers.begin()
    callers.queue([3], [4], [5])
    callers.end()
    assert server.writes == [[1], [3, 4], [5]]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_child_of_a_fork_waits_for_no_thread_of_its_parent() -> None:
    server = Server()
    callers = Callers(server)
    callers.begin()
    callers.queue([3])
    child = os.fork()
    if child == 0:
        server._held_up = 0
        is_good = server.commit.write([row_of(4)]).held == [True] and server.writes[-1] == [4]
        os._exit(0 if is_good else 1)
    assert os.waitpid(child, 0)[1] == 0
    callers.end()


def test_what_was_sent_for_several_calls_covers_each() -> None:
    notified = Notified()
    notified.wakeups = [Wakeup("q", 5, LANE)]
    assert notified.cover([Wakeup("q", 7, LANE)])
    assert not notified.cover([Wakeup("q", 7, LANE)])  # it was sent for the insert only
    for other in (Wakeup("q", 4, LANE), Wakeup("p", 7, LANE), Wakeup("q", 7)):
        notified.wakeups = [Wakeup("q", 5, LANE)]
        assert not notified.cover([other])
    notified.wakeups = [Wakeup("q", 5)]
    assert notified.cover([Wakeup("q", 7, LANE), Wakeup("q", 5)])


@pytest.fixture(params=SERVERS)
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    with world_of(request.param, tmp_path) as made:
        yield made


def test_threads_that_enqueue_singly_store_each_job_once(world: World) -> None:
    threads, each = 8, 10
    barrier = threading.Barrier(threads)

    def add(first: int) -> None:
        barrier.wait(WAIT_S)
        for number in range(first, first + each):
            assert list(world.store.add([row_of(number)])) == [True]

    workers = [threading.Thread(target=add, args=(1 + n * each,)) for n in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(WAIT_S)
    rows = world.store.find([row_of(number).id for number in range(1, threads * each + 1)])
    assert [number_of(row) for row in rows if row] == list(range(1, threads * each + 1))
