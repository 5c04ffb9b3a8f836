"""Events that callers append in transactions that stay open (T12)."""

import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from dueline import Batch, Dueline
from dueline.api.connect import open_store
from dueline.core.queue_settings import shard_of
from dueline.core.store import Transactional
from dueline.store_tests.calls import NOW_US
from tests.harness.postgres import expect_server

expect_server()

import psycopg  # noqa: E402

pytestmark = pytest.mark.postgres

LEVELS = list(psycopg.IsolationLevel)


class Callers:
    """A stream of one shard, and programs with transactions of their own."""

    def __init__(self, url: str, opened: ExitStack) -> None:
        """Take a store; what is opened here is closed there."""
        self.url = url
        self.app = Dueline(url)
        opened.callback(self.app.close)
        self.clicks = self.app.stream("clicks", shards=1)
        self._opened = opened

    def connect(self) -> Any:  # noqa: ANN401
        """Open a connection of another program."""
        return self._opened.enter_context(psycopg.connect(self.url.partition("?")[0]))

    def append(self, value: int) -> Any:  # noqa: ANN401
        """Append an event in a transaction; return its connection."""
        connection = self.connect()
        self.clicks.append(value, tx=connection)
        return connection

    def read(self) -> list[int]:
        """Read the stream from its start."""
        return [event.value for event in self.clicks.read()]

    def consume(self) -> list[int]:
        """Register a group; return the list of what it reads."""
        seen: list[int] = []

        @self.clicks.consumer("all")
        def consume(batch: Batch) -> None:
            seen.extend(event.value for event in batch.events)

        return seen

    def await_group(self) -> None:
        """Wait until the group has read everything."""
        while any(lag.rows for lag in self.clicks.lag("all")):
            time.sleep(0.01)


@pytest.fixture
def callers(url: str) -> Iterator[Callers]:
    with ExitStack() as opened:
        yield Callers(url, opened)


def test_events_before_an_open_transaction_are_read(callers: Callers) -> None:
    callers.clicks.append(1)
    first = callers.append(2)
    callers.clicks.append(3)
    assert callers.read() == [1]
    first.commit()
    assert callers.read() == [1, 2, 3]


def test_transactions_that_always_overlap_delay_no_event_before_them(callers: Callers) -> None:
    before = callers.append(0)
    for number in range(1, 12):
        following = callers.append(number)
        before.commit()
        assert callers.read() == list(range(number))
        before = following


def test_a_read_that_continues_misses_no_event_of_an_open_transaction(callers: Callers) -> None:
    orders = callers.app.stream("orders", shards=2)
    orders.append(1, key="a")
    connection = callers.connect()
    orders.append(2, key="d", tx=connection)
    orders.append(3, key="a")
    (first,) = orders.read()
    assert (first.value, first.shard) == (1, shard_of(b"a", 2))
    connection.commit()
    assert [event.value for event in orders.read(first.position)] == [2, 3]


def test_an_event_that_is_rolled_back_delays_nothing_more(callers: Callers) -> None:
    first = callers.append(1)
    callers.clicks.append(2)
    assert callers.read() == []
    first.rollback()
    assert callers.read() == [2]


def test_a_savepoint_that_is_rolled_back_leaves_a_later_event_in_order(callers: Callers) -> None:
    connection = callers.connect()
    connection.execute("SELECT 1")
    with connection.transaction():
        callers.clicks.append(1, tx=connection)
        raise psycopg.Rollback
    callers.clicks.append(2)
    assert callers.read() == [2]
    callers.clicks.append(3, tx=connection)
    callers.clicks.append(4)
    assert callers.read() == [2]
    connection.commit()
    assert callers.read() == [2, 3, 4]


def test_a_transaction_with_many_events_has_one_lock_for_a_shard(callers: Callers) -> None:
    connection = callers.append(0)
    for number in range(1, 50):
        callers.clicks.append(number, tx=connection)
    held = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()"
    assert connection.execute(held).fetchone() == (1,)
    connection.commit()
    assert connection.execute(held).fetchone() == (0,)
    assert callers.read() == list(range(50))


@pytest.mark.parametrize("level", LEVELS)
def test_a_snapshot_that_is_older_than_the_watermark_takes_events(
    callers: Callers,
    level: Any,  # noqa: ANN401
) -> None:
    connection = callers.connect()
    connection.isolation_level = level
    connection.execute("SELECT 1")
    callers.clicks.append(1)
    assert callers.read() == [1]  # raises the watermark
    callers.clicks.append(2, tx=connection)
    callers.clicks.append(3)
    assert callers.read() == [1]
    connection.commit()
    assert callers.read() == [1, 2, 3]


def test_a_group_reads_the_event_of_an_open_transaction_in_a_replaced_shard(
    callers: Callers,
) -> None:
    seen = callers.consume()
    first = callers.append(1)
    callers.clicks.reshard(2)
    for number in range(2, 6):
        callers.clicks.append(number)
    callers.clicks.append(6, tx=first)
    with callers.app.consuming():
        first.commit()
        callers.await_group()
    assert seen[0] == 1
    assert sorted(seen) == [1, 2, 3, 4, 5, 6]


def test_a_group_reads_every_event_once_and_in_order(callers: Callers) -> None:
    seen = callers.consume()
    before = callers.append(0)
    with callers.app.consuming():
        for number in range(1, 30):
            following = callers.append(number)
            before.commit()
            before = following
        before.commit()
        callers.await_group()
    assert seen == list(range(30))


def test_an_open_transaction_raises_no_watermark(url: str) -> None:
    """Other processes would not know of it, and it may be rolled back."""
    store = open_store(url)
    assert store.close_until("log", 0, at_us=NOW_US) == NOW_US
    assert isinstance(store, Transactional)
    with store.transaction() as inside:
        assert inside.store.close_until("log", 0, at_us=NOW_US + 9) == NOW_US
        assert inside.store.close_until("log", 0, at_us=NOW_US - 9) == NOW_US
    assert store.close_until("log", 0, at_us=-1) == NOW_US
    store.close()
