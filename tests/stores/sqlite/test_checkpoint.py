"""The log of a queue file is copied into it beside its writers."""

import multiprocessing
import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import apsw
import pytest

from dueline.core.clock import SystemClock
from dueline.core.errors import StoreReplaced
from dueline.core.store import Put
from dueline.store_tests.calls import NOW_US, new_job
from dueline.stores.sqlite import wal_checkpointer
from dueline.stores.sqlite.store import SqliteStore
from tests.harness.clocks import HandClock

pytestmark = pytest.mark.sqlite

WAIT_S = 30.0
BYTES = 100_000
"""Written once they are more than a page or two."""

MEGABYTES = 300
"""That each of two processes writes."""


def wait_until(is_so: Callable[[], bool]) -> None:
    give_up_s = time.monotonic() + WAIT_S
    while not is_so():
        assert time.monotonic() < give_up_s
        time.sleep(0.005)


def threads_of_checkpoints() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "dueline-checkpoint"]


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SqliteStore:
    monkeypatch.setattr(wal_checkpointer, "PAGES", 20)
    return SqliteStore(tmp_path / "queue.db", clock=HandClock(), synchronous="NORMAL")


def put(store: SqliteStore, name: str) -> None:
    assert store.commit("p", (Put(name, b"v", b"x" * BYTES),))


def test_what_was_written_is_copied_while_its_writer_goes_on(
    store: SqliteStore, tmp_path: Path
) -> None:
    # C2: the commits themselves copy nothing before the log is PAGES_MAX long
    put(store, "first")
    wait_until(lambda: (tmp_path / "queue.db").stat().st_size > BYTES)
    put(store, "second")
    wait_until(lambda: (tmp_path / "queue.db").stat().st_size > 2 * BYTES)
    assert [record.key for record in store.read("p", after=None, limit=9)] == ["first", "second"]
    store.close()


def test_a_few_pages_are_left_to_the_log(store: SqliteStore, tmp_path: Path) -> None:
    store.add([new_job(1, at_us=NOW_US)])
    size = (tmp_path / "queue.db").stat().st_size
    for number in range(2, 4):
        store.add([new_job(number, at_us=NOW_US)])
    assert (tmp_path / "queue.db").stat().st_size == size
    store.close()


def test_closing_ends_the_thread_and_leaves_one_file(store: SqliteStore, tmp_path: Path) -> None:
    put(store, "first")
    assert threads_of_checkpoints()
    store.close()
    assert not threads_of_checkpoints()
    assert [path.name for path in tmp_path.iterdir()] == ["queue.db"]
    put(store, "second")  # it opens anew, and copies again
    wait_until(lambda: (tmp_path / "queue.db").stat().st_size > 2 * BYTES)
    store.close()


def test_an_idle_thread_ends_and_another_one_is_started(
    store: SqliteStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wal_checkpointer, "IDLE_S", 0.01)
    put(store, "first")
    wait_until(lambda: not threads_of_checkpoints())
    put(store, "second")
    wait_until(lambda: (tmp_path / "queue.db").stat().st_size > 2 * BYTES)
    store.close()


def test_a_file_that_was_put_in_the_place_of_the_queue_is_left_as_it_is(
    store: SqliteStore, tmp_path: Path
) -> None:
    store.add([new_job(1, at_us=NOW_US)])
    for name in ("queue.db", "queue.db-wal", "queue.db-shm"):
        (tmp_path / name).rename(tmp_path / f"away-{name}")
    theirs = apsw.Connection(str(tmp_path / "queue.db"))
    theirs.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
    list(theirs.execute("PRAGMA journal_mode = WAL; CREATE TABLE theirs (value)"))
    theirs.close()
    log = (tmp_path / "queue.db-wal").read_bytes()
    size = (tmp_path / "queue.db").stat().st_size
    checkpointer = store._file._checkpointer
    assert checkpointer is not None
    with pytest.raises(apsw.NotADBError):
        checkpointer._open()
    with pytest.raises(StoreReplaced):
        put(store, "first")
    assert (tmp_path / "queue.db").stat().st_size == size
    assert (tmp_path / "queue.db-wal").read_bytes() == log
    store.close()
    assert (tmp_path / "queue.db-wal").read_bytes() == log


def test_writers_go_on_where_the_file_cannot_be_copied(
    store: SqliteStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # as where another process copies it, or the disk is full
    tried = threading.Event()

    def fail(_self: object) -> apsw.Connection:
        tried.set()
        raise apsw.BusyError

    with monkeypatch.context() as patch:
        patch.setattr(wal_checkpointer.Checkpointer, "_open", fail)
        put(store, "first")
        assert tried.wait(WAIT_S)
    put(store, "second")
    wait_until(lambda: (tmp_path / "queue.db").stat().st_size > 2 * BYTES)
    store.close()


def write_without_a_pause(path: Path, name: str) -> None:
    """Write MEGABYTES, one at a time, to the same keys."""
    wal_checkpointer.PAGES_MAX = 200  # type: ignore[misc]  # of a process of its own
    wal_checkpointer.PAGES_LONG = 400  # type: ignore[misc]
    store = SqliteStore(path, clock=SystemClock(), synchronous="NORMAL")
    for number in range(MEGABYTES):
        body = os.urandom(50_000)
        store.commit(name, tuple(Put(f"{number % 4}-{place}", b"v", body) for place in range(20)))
    store.close()


@pytest.mark.long
def test_the_log_begins_anew_though_two_processes_write_without_a_pause(tmp_path: Path) -> None:
    path, log = tmp_path / "queue.db", tmp_path / "queue.db-wal"
    SqliteStore(path, clock=SystemClock(), synchronous="NORMAL").commit("p", (Put("k", b"v", b""),))
    spawn = multiprocessing.get_context("spawn")
    writers = [
        spawn.Process(target=write_without_a_pause, args=(path, name)) for name in ("one", "other")
    ]
    for writer in writers:
        writer.start()
    longest = 0
    while any(writer.is_alive() for writer in writers):
        with suppress(FileNotFoundError):  # the last one that closes the file takes it away
            longest = max(longest, log.stat().st_size)
        time.sleep(0.01)
    assert [writer.exitcode for writer in writers] == [0, 0]
    assert 0 < longest < MEGABYTES * 1_000_000  # half of all that was written


def log_of(tmp_path: Path) -> Path:
    return tmp_path / "queue.db-wal"


def add_one_by_one(store: SqliteStore, first: int, count: int) -> None:
    for number in range(first, first + count):
        store.add([new_job(number, at_us=NOW_US)])


@pytest.fixture
def flushing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SqliteStore:
    monkeypatch.setattr(wal_checkpointer, "PAGES", 400)
    return SqliteStore(tmp_path / "queue.db", clock=HandClock())


def test_single_calls_give_the_log_its_length_once(flushing: SqliteStore, tmp_path: Path) -> None:
    # a flush that makes the log longer takes twice as long
    add_one_by_one(flushing, 1, wal_checkpointer.SINGLE_COMMITS)
    length = 400 * 5 // 4 * wal_checkpointer._FRAME_BYTES
    wait_until(lambda: log_of(tmp_path).stat().st_size >= length)
    size = log_of(tmp_path).stat().st_size
    add_one_by_one(flushing, 100, 300)  # about 900 pages
    assert log_of(tmp_path).stat().st_size <= size + 100 * wal_checkpointer._FRAME_BYTES
    flushing.close()


def test_a_log_with_zeros_is_read_as_far_as_it_was_written(
    flushing: SqliteStore, tmp_path: Path
) -> None:
    add_one_by_one(flushing, 1, 60)
    wait_until(lambda: log_of(tmp_path).stat().st_size >= 400 * wal_checkpointer._FRAME_BYTES)
    after = tmp_path / "after the machine failed"
    after.mkdir()
    for name in ("queue.db", "queue.db-wal"):
        (after / name).write_bytes((tmp_path / name).read_bytes())
    flushing.close()
    copy = SqliteStore(after / "queue.db", clock=HandClock())
    assert copy.describe()["integrity"] == "ok"
    assert len([job for job in copy.find([new_job(n).id for n in range(1, 61)]) if job]) == 60
    copy.close()


@pytest.mark.parametrize("synchronous", ["FULL", "NORMAL"])
def test_a_few_calls_or_unflushed_ones_leave_the_log_short(
    tmp_path: Path, synchronous: str
) -> None:
    store = SqliteStore(tmp_path / "queue.db", clock=HandClock(), synchronous=synchronous)
    add_one_by_one(store, 1, wal_checkpointer.SINGLE_COMMITS - 5)
    if synchronous == "NORMAL":
        add_one_by_one(store, 1_000, 2 * wal_checkpointer.SINGLE_COMMITS)
    assert log_of(tmp_path).stat().st_size < 500 * wal_checkpointer._FRAME_BYTES
    assert not threads_of_checkpoints()
    store.close()
