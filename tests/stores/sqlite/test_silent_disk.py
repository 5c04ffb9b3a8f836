"""One thread waits for a disk that does not answer; others get an error."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dueline.core import disk_wait
from dueline.core.clock import SystemClock
from dueline.core.disk_wait import overdue
from dueline.core.errors import StoreUnavailable
from dueline.stores.sqlite.connection import Database, SqliteConnection

pytestmark = pytest.mark.sqlite

LIMIT_US = 200_000


@pytest.fixture
def connection(tmp_path: Path) -> Iterator[SqliteConnection]:
    connection = SqliteConnection(
        tmp_path / "jobs.db", synchronous="NORMAL", clock=SystemClock(), timeout_us=LIMIT_US
    )
    yield connection
    connection.close()


def test_other_threads_raise_while_a_call_hangs(connection: SqliteConnection) -> None:
    answers, is_hanging = threading.Event(), threading.Event()

    def hang(_: Database) -> None:
        is_hanging.set()
        answers.wait()

    thread = threading.Thread(target=connection.read, args=(hang,))
    thread.start()
    is_hanging.wait()
    calls: list[Callable[[], object]] = [lambda: connection.read(lambda _: 1), connection.close]
    for call in calls:
        with pytest.raises(StoreUnavailable, match="has not answered for 200ms"):
            call()
    assert overdue() is connection.disk
    answers.set()
    thread.join()
    assert connection.read(lambda _: 1) == 1
    assert overdue() is None


def test_a_long_transaction_block_is_no_silent_disk(connection: SqliteConnection) -> None:
    with connection.transaction():
        errors: list[Exception] = []

        def read() -> None:
            try:
                connection.read(lambda _: None)
            except StoreUnavailable as error:
                errors.append(error)

        thread = threading.Thread(target=read)
        thread.start()
        thread.join()
        assert overdue() is None
    assert "Other writers kept" in str(errors[0])


def test_a_long_statement_that_goes_on_is_no_silent_disk(connection: SqliteConnection) -> None:
    def run(database: Database) -> tuple[int, int]:
        before_us = connection.disk.since_us
        database.execute(
            "WITH RECURSIVE numbers(number) AS"
            " (SELECT 1 UNION ALL SELECT number + 1 FROM numbers WHERE number < 500000)"
            " SELECT max(number) FROM numbers"
        ).fetchall()
        return before_us, connection.disk.since_us

    before_us, after_us = connection.read(run)
    assert after_us > before_us


def test_reads_in_turn_are_made_by_one_thread_which_ends_when_it_is_idle(
    connection: SqliteConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = {connection.disk.answer(threading.current_thread) for _ in range(20)}
    assert len(made) == 1
    with pytest.raises(ValueError, match="own"):
        connection.disk.answer(lambda: int("own"))
    (reader,) = made
    monkeypatch.setattr(disk_wait, "IDLE_S", 0.01)
    connection.disk.answer(lambda: None)
    reader.join(30)
    assert not reader.is_alive()
    assert connection.disk.answer(threading.current_thread) is not reader


def test_a_thread_that_waits_for_the_disk_holds_up_no_other_read(
    connection: SqliteConnection,
) -> None:
    answers = threading.Event()
    with connection.disk, pytest.raises(StoreUnavailable):
        connection.disk.answer(lambda: answers.wait(60))
    assert connection.disk.answer(lambda: 1) == 1
    answers.set()
