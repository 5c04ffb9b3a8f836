"""A handler's time limit strikes inside the store."""

import ctypes
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from dueline.core.errors import JobTimeout
from dueline.core.job import JobId
from dueline.stores.sqlite.connection import Database, SqliteConnection
from dueline.stores.sqlite.store import SqliteStore
from tests.harness.clocks import HandClock

pytestmark = pytest.mark.usefixtures("untraced")

ID = JobId(bytes(16))


def transact(store: SqliteStore) -> None:
    with store.transaction():
        pass


CALLS: list[Callable[[SqliteStore], object]] = [lambda store: store.find([ID]), transact]


@pytest.mark.parametrize("call", CALLS, ids=["a call", "a transaction"])
def test_a_call_that_is_struck_while_it_waits_leaves_no_lock_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: Callable[[SqliteStore], object]
) -> None:
    store = SqliteStore(tmp_path / "jobs.db", clock=HandClock(), synchronous="NORMAL")
    struck: list[bool] = []

    def wait_and_be_struck() -> None:
        try:
            call(store)
        except JobTimeout:
            struck.append(True)

    thread = threading.Thread(target=wait_and_be_struck)
    with store.transaction():
        thread.start()
        give_up = time.monotonic() + 60
        while not is_waiting(thread):
            assert time.monotonic() < give_up
        ctypes.pythonapi.PyThreadState_SetAsyncExc(
            ctypes.c_ulong(thread.ident or 0), ctypes.py_object(JobTimeout)
        )
    thread.join(60)
    assert struck == [True]
    monkeypatch.setattr("dueline.stores.sqlite.connection.LOCK_WAIT_S", 0.1)
    assert store.find([ID]) == [None]
    transact(store)
    store.close()


def is_waiting(thread: threading.Thread) -> bool:
    frame = sys._current_frames().get(thread.ident or 0)
    return frame is not None and frame.f_code.co_name == "_acquire"


STATEMENTS = ["BEGIN IMMEDIATE", "DELETE FROM jobs", "COMMIT"]


@pytest.mark.parametrize("statement", STATEMENTS)
@pytest.mark.parametrize("kind", ["write", "transaction"])
def test_a_write_that_is_struck_behind_a_statement_leaves_nothing_open(
    tmp_path: Path, statement: str, kind: str
) -> None:
    connection = SqliteConnection(tmp_path / "jobs.db", synchronous="NORMAL", clock=HandClock())

    def work(database: Database) -> None:
        database.execute("DELETE FROM jobs")

    def write() -> None:
        if kind == "write":
            connection.write(work)
        else:
            with connection.transaction() as database:
                work(database)

    write()
    database = connection._database
    assert database is not None

    def strike(_: object, event: str, what: object) -> None:
        if event == "c_return" and last == [statement]:
            sys.setprofile(None)
            raise JobTimeout

    last: list[str] = []

    def note(_cursor: object, sql: str, _bindings: object) -> bool:
        last[:] = [sql]
        return True

    database.exec_trace = note
    sys.setprofile(strike)
    try:
        with pytest.raises(JobTimeout):
            write()
    finally:
        sys.setprofile(None)
    database.exec_trace = None
    assert not database.in_transaction
    write()
    connection.close()
