"""The threads of a member: what they call and when, with a consumer that only counts."""

import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast

import pytest

from dueline.core.clock import SECOND_US
from dueline.core.errors import StoreUnavailable
from dueline.core.wakeup import LocalWakeups
from dueline.streams.batch import Batch
from dueline.streams.consumer import Consumer
from dueline.streams.consumer_threads import ConsumerThreads

WAIT_S = 60.0
QUICK_US = SECOND_US // 100
"""A time to live that has a heartbeat every few milliseconds."""

HANDLER_S = 20.0


class Counting:
    """A consumer whose shards have what a test puts there; it counts heartbeats."""

    def __init__(self, shards: Sequence[int] = (0,)) -> None:
        self.held = list(shards)
        self.waiting = dict.fromkeys(shards, 0)
        self.balanced = threading.Semaphore(0)
        self.heartbeats = 0
        self.committed = self.left = 0
        self.has_committed = threading.Event()
        self.asked = 0
        self.was_asked = threading.Semaphore(0)
        self.fails = False

    def balance(self) -> None:
        self.heartbeats += 1
        self.balanced.release()
        if self.fails:
            raise StoreUnavailable("it is away")

    def await_heartbeats(self, count: int) -> None:
        for _ in range(count):
            assert self.balanced.acquire(timeout=WAIT_S)

    def begin(self, _shard: int) -> bool:
        return True

    def end(self, _shard: int) -> None:
        pass

    def poll(self, shard: int) -> object:
        if not self.waiting[shard]:
            return None
        self.waiting[shard] -= 1
        return shard

    def commit(self, _batch: object) -> None:
        self.committed += 1
        self.has_committed.set()

    def is_unsettled(self) -> bool:
        self.asked += 1
        self.was_asked.release()
        return self.asked == 1

    def leave(self) -> None:
        self.left += 1


Start = Callable[..., ConsumerThreads]


@pytest.fixture
def start() -> Iterator[Start]:
    """Return a function that starts threads, which are stopped at the end."""
    started: list[ConsumerThreads] = []

    def begin(
        consumer: Counting, handle: Callable[[Batch], object], *, ttl_us: int, threads: int = 1
    ) -> ConsumerThreads:
        loop = ConsumerThreads(
            cast("Consumer", consumer), handle, ttl_us=ttl_us, threads=threads,
            wakeups=LocalWakeups(), channel="c", tidy=lambda: None,
        )  # fmt: skip
        started.append(loop)
        loop.start()
        return loop

    yield begin
    for loop in started:
        loop.stop()
        assert loop.join(WAIT_S)


def nothing(_batch: Any) -> None:  # noqa: ANN401
    """Handle a batch."""


@pytest.mark.parametrize("fails", [False, True])
def test_heartbeats_go_on_also_while_the_store_is_away(start: Start, *, fails: bool) -> None:
    consumer = Counting()
    consumer.fails = fails
    start(consumer, nothing, ttl_us=QUICK_US)
    consumer.await_heartbeats(5)


def test_between_two_heartbeats_it_waits(start: Start) -> None:
    """A member that is not settled yet sends the next one at once."""
    consumer = Counting()
    loop = start(consumer, nothing, ttl_us=1000 * SECOND_US)
    consumer.await_heartbeats(2)
    consumer.waiting[0] = 1
    assert consumer.has_committed.wait(WAIT_S)
    for _ in range(6):
        assert consumer.was_asked.acquire(timeout=WAIT_S)
    loop.stop()
    assert loop.join(WAIT_S)
    assert consumer.heartbeats <= 4
    assert consumer.left == 1


def test_a_member_that_stops_keeps_its_shards_until_its_last_handler_ends(start: Start) -> None:
    """Else another member would handle the same events at the same time."""
    consumer, release = Counting((0, 1)), threading.Event()
    consumer.waiting = {0: 1, 1: 0}
    running = threading.Event()

    def handle(_batch: Batch) -> None:
        running.set()
        assert release.wait(WAIT_S)

    loop = start(consumer, handle, ttl_us=QUICK_US, threads=2)
    assert running.wait(WAIT_S)
    loop.stop()
    before = consumer.heartbeats
    consumer.await_heartbeats(before + 5)
    assert (consumer.left, consumer.committed) == (0, 0)
    release.set()
    assert loop.join(WAIT_S)
    assert (consumer.left, consumer.committed) == (1, 1)


def test_while_a_handler_goes_on_after_the_stop_heartbeats_keep_their_pace(start: Start) -> None:
    consumer, release = Counting(), threading.Event()
    consumer.waiting[0] = 1
    running = threading.Event()

    def handle(_batch: Batch) -> None:
        running.set()
        assert release.wait(WAIT_S)

    loop = start(consumer, handle, ttl_us=1000 * SECOND_US)
    assert running.wait(WAIT_S)
    loop.stop()
    assert not release.wait(0.2)
    release.set()
    assert loop.join(WAIT_S)
    assert consumer.heartbeats <= 5


def test_who_waits_for_the_end_gives_up_in_time_while_a_handler_runs(start: Start) -> None:
    consumer, release = Counting(), threading.Event()
    consumer.waiting[0] = 1
    running, ended = threading.Event(), threading.Event()

    def handle(_batch: Batch) -> None:
        running.set()
        try:
            assert release.wait(HANDLER_S)
        finally:
            ended.set()

    loop = start(consumer, handle, ttl_us=QUICK_US)
    assert running.wait(WAIT_S)
    loop.stop()
    for timeout_s in (0, 0.01):
        assert not loop.join(timeout_s)
        assert not ended.is_set()
    before = consumer.heartbeats
    consumer.await_heartbeats(before + 2)  # its shards stay its own
    assert consumer.left == 0
    release.set()
    assert loop.join(WAIT_S)
    assert (consumer.left, consumer.committed) == (1, 1)
