"""Births of several threads in one commit."""

import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import apsw
import pytest

from dueline.core.errors import BadInput, JobTimeout, StoreUnavailable, Unknown
from dueline.core.job import Job
from dueline.core.store import NO_VERSION, Put
from dueline.stores.group_commit import Call
from dueline.stores.sqlite.connection import Database, SqliteConnection
from dueline.stores.sqlite.store import SqliteStore
from tests.harness.calls import row_of
from tests.harness.clocks import HandClock

pytestmark = pytest.mark.sqlite

WAIT_S = 60
Commit = Callable[[SqliteConnection, Database], None]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    """Open an empty file."""
    store = SqliteStore(tmp_path / "jobs.db", clock=HandClock(), synchronous="NORMAL")
    store.find([row_of().id])
    yield store
    store.close()


class Callers:
    """Threads that add jobs, all of which wait for the file when the first of them gets it."""

    def __init__(self, store: SqliteStore, *batches: Sequence[Job]) -> None:
        self.errors: list[BaseException | None] = [None] * len(batches)
        self.returned: list[int] = []
        self._store = store
        self._threads = [
            threading.Thread(target=self._add, args=(n, jobs)) for n, jobs in enumerate(batches)
        ]

    def _add(self, number: int, jobs: Sequence[Job]) -> None:
        try:
            assert self._store.add(jobs) == [True] * len(jobs)
        except BaseException as error:  # noqa: BLE001  (whatever it is, it is looked at)
            self.errors[number] = error
        self.returned.append(number)

    def run(self) -> None:
        """Let them in at once, and wait for all."""
        let_in_at_once(self._store, self._threads)


def let_in_at_once(store: SqliteStore, threads: Sequence[threading.Thread]) -> None:
    """Start threads, which all wait for the file when the first of them gets it."""
    with store.transaction():
        for thread in threads:
            thread.start()
        give_up_s = time.monotonic() + WAIT_S
        while not all(map(is_waiting, threads)):
            assert time.monotonic() < give_up_s
    for thread in threads:
        thread.join(WAIT_S)
        assert not thread.is_alive()


def is_waiting(thread: threading.Thread) -> bool:
    """Tell whether a thread waits for the connection."""
    frame = sys._current_frames().get(thread.ident or 0)
    return frame is not None and frame.f_code.co_name == "_acquire"


def commits(monkeypatch: pytest.MonkeyPatch, instead: Commit | None = None) -> list[int]:
    """Count commits, or do something else in place of each but that of the test itself."""
    commit, main, count = SqliteConnection._commit, threading.current_thread(), [0]

    def counted(connection: SqliteConnection, database: Database) -> None:
        if threading.current_thread() is not main:
            count[0] += 1
            if instead is not None:
                return instead(connection, database)
        return commit(connection, database)

    monkeypatch.setattr(SqliteConnection, "_commit", counted)
    return count


def stored(store: SqliteStore, numbers: Sequence[int]) -> list[bool]:
    """Tell which jobs have a row."""
    return [row is not None for row in store.find([row_of(number).id for number in numbers])]


def test_threads_that_wait_share_one_commit(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = commits(monkeypatch)
    callers = Callers(store, *([row_of(n)] for n in range(1, 7)), [row_of(7), row_of(8)])
    callers.run()
    assert callers.errors == [None] * 7
    assert stored(store, range(1, 9)) == [True] * 8
    assert count == [1]


def test_threads_that_write_records_share_one_commit(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert store.commit("0", [Put("key", b"1" * 16, b"")])
    count = commits(monkeypatch)
    puts = [Put("key", b"2" * 16, b"", NO_VERSION) for _ in range(6)]
    held = [False] * 6

    def write(number: int) -> None:
        held[number] = store.commit(f"{number}", [puts[number]])

    threads = [threading.Thread(target=write, args=(number,)) for number in range(6)]
    let_in_at_once(store, threads)
    assert held == [False, True, True, True, True, True]
    assert count == [1]


def test_what_is_wrong_with_one_record_is_its_own_error(store: SqliteStore) -> None:
    errors: list[Exception | None] = [None, None]

    def write(number: int, expires_us: int) -> None:
        try:
            assert store.commit(f"{number}", [Put("key", b"1" * 16, b"", None, expires_us)])
        except Exception as error:  # noqa: BLE001  (it is looked at)
            errors[number] = error

    threads = [threading.Thread(target=write, args=each) for each in ((0, 2**70), (1, 2**60))]
    let_in_at_once(store, threads)
    assert [type(error) for error in errors] == [OverflowError, type(None)]
    assert [len(store.read(f"{number}", after=None, limit=9)) for number in range(2)] == [0, 1]


def test_nobody_returns_before_the_commit_that_holds_its_jobs(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    callers = Callers(store, *([row_of(n)] for n in range(1, 5)))
    before: list[int] = []

    def late(_: SqliteConnection, database: Database) -> None:
        before.extend(callers.returned)
        database.execute("COMMIT")

    commits(monkeypatch, late)
    callers.run()
    assert before == []
    assert callers.errors == [None] * 4
    assert stored(store, range(1, 5)) == [True] * 4


def full(_: SqliteConnection, database: Database) -> None:
    database.execute("ROLLBACK")
    raise apsw.FullError


def unsure(_: SqliteConnection, database: Database) -> None:
    database.execute("ROLLBACK")
    raise Unknown from apsw.IOError()


@pytest.mark.parametrize(("failure", "kind"), [(full, StoreUnavailable), (unsure, Unknown)])
def test_a_commit_that_fails_fails_for_each_whose_jobs_it_held(
    store: SqliteStore,
    monkeypatch: pytest.MonkeyPatch,
    failure: Commit,
    kind: type[Exception],
) -> None:
    with monkeypatch.context() as patched:
        count = commits(patched, failure)
        callers = Callers(store, *([row_of(n)] for n in range(1, 5)))
        callers.run()
    assert count == [1]
    assert [type(error) for error in callers.errors] == [kind] * 4
    assert len(set(map(id, callers.errors))) == 4
    assert stored(store, range(1, 5)) == [False] * 4
    store.add([row_of(1)])
    assert stored(store, [1]) == [True]


def test_what_is_wrong_with_one_call_is_its_own_error(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = commits(monkeypatch)
    wrong = [row_of(2), row_of(3)._replace(due_us=2**70)]
    callers = Callers(store, [row_of(1)], wrong, [row_of(4)])
    callers.run()
    assert [type(error) for error in callers.errors] == [type(None), OverflowError, type(None)]
    assert stored(store, range(1, 5)) == [True, False, False, True]
    assert count == [1]


def test_where_the_writer_is_struck_down_the_others_are_told_that_it_is_unknown(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def struck(_: SqliteConnection, database: Database) -> None:
        database.execute("COMMIT")
        raise JobTimeout

    with monkeypatch.context() as patched:
        commits(patched, struck)
        callers = Callers(store, *([row_of(n)] for n in range(1, 4)))
        callers.run()
    assert sorted(type(error).__name__ for error in callers.errors) == [
        "JobTimeout",
        "Unknown",
        "Unknown",
    ]
    assert stored(store, range(1, 4)) == [True] * 3


def test_a_call_whose_writer_vanished_is_unknown(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    # struck between taking it and writing it
    gathering = store._inserts
    take = gathering._take
    monkeypatch.setattr(gathering, "_take", lambda call: take(call)[:1])
    callers = Callers(store, [row_of(1)], [row_of(2)])
    callers.run()
    assert {type(error) for error in callers.errors} == {type(None), Unknown}
    assert sorted(stored(store, [1, 2])) == [False, True]


def test_a_thread_inside_its_own_transaction_writes_for_nobody(store: SqliteStore) -> None:
    waiting = threading.Thread(target=store.add, args=([row_of(1)],))
    with store.transaction():
        waiting.start()
        while not is_waiting(waiting):
            pass
        with pytest.raises(BadInput):
            store.add([row_of(2)])
        assert waiting.is_alive()
    waiting.join(WAIT_S)
    assert stored(store, [1, 2]) == [True, False]


def test_a_forked_child_writes_no_calls_of_its_parents_threads(store: SqliteStore) -> None:
    left = Call([row_of(1)])
    left.process = -1  # as the child sees a call that waited in its parent
    store._inserts._waiting.append(left)
    store.add([row_of(2)])
    assert stored(store, [1, 2]) == [False, True]
