"""Workers on PostgreSQL that start a job only because they were notified (O1)."""

import signal
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from dueline.api.connect import open_store
from dueline.core.lane import Lane
from dueline.core.store_capabilities import SendsWakeups
from dueline.core.wakeup import NoListener, Signal, Wakeup, WakeupListener, Wakeups
from dueline.stores.postgres.connection import Connections
from tests.harness.postgres import schemas, statement
from tests.harness.woken_workers import WORKER, app_on

pytestmark = pytest.mark.postgres

WAIT_S = 60.0
LANE = Lane("default", 0, 1, 0, "")


@pytest.fixture
def url() -> Iterator[str]:
    with schemas() as made:
        yield made.fresh()


@pytest.fixture
def wakeups(url: str) -> Iterator[Wakeups]:
    store = open_store(url)
    assert isinstance(store, SendsWakeups)
    yield store.wakeups()
    store.close()


@pytest.fixture
def signalled() -> Signal:
    return Signal()


@pytest.fixture
def listener(wakeups: Wakeups, signalled: Signal) -> Iterator[WakeupListener]:
    listener = wakeups.listen(["default", "w1"], signalled)
    yield listener
    listener.close()


def idle(url: str) -> set[str]:
    """Return the channels whose workers have said that they are idle."""
    schema = url.partition("schema=")[2]
    return {name for (name,) in statement(url, f"SELECT channel FROM {schema}.idle")}  # noqa: S608


def test_a_worker_that_becomes_idle_polls_once_more_and_then_waits(
    listener: WakeupListener, url: str
) -> None:
    assert list(listener.take()) == []
    listener.wait(WAIT_S)  # returns at once
    assert [one.lane for one in listener.take()] == [None]
    assert idle(url) == {"default", "w1"}
    listener.wait(0.01)
    assert list(listener.take()) == []


def test_one_producer_notifies_and_the_others_need_not(
    listener: WakeupListener, wakeups: Wakeups, url: str
) -> None:
    listener.wait(WAIT_S)
    listener.take()
    for _ in range(3):
        wakeups.wake([Wakeup("default", 5, LANE), Wakeup("elsewhere")])
    listener.wait(WAIT_S)
    assert listener.take() == [Wakeup("default", 5, LANE)]
    assert idle(url) == {"w1"}
    listener.wait(WAIT_S)  # says so again
    assert idle(url) == {"default", "w1"}


def test_an_insert_notifies_an_idle_worker_in_its_own_trip(
    listener: WakeupListener, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = app_on(url)
    echo = app.task_named("tests.echo")
    echo.enqueue("it lists the lane")
    app.queues.engine.store.clock_us()  # the notification of before is sent, and not waited for
    sent: list[object] = []
    monkeypatch.setattr(Connections, "send", lambda _, *words: sent.append(words))
    listener.wait(WAIT_S)
    listener.take()
    echo.using(after=600).enqueue("not soon")
    assert idle(url) == {"default", "w1"}
    echo.enqueue("one is idle")
    assert idle(url) == {"w1"}
    listener.wait(WAIT_S)
    (wakeup,) = listener.take()
    assert wakeup.lane is not None
    echo.enqueue("no worker is idle")
    assert sent == []
    app.close()


def test_a_lane_with_a_long_name_is_left_out(listener: WakeupListener, wakeups: Wakeups) -> None:
    listener.wait(WAIT_S)
    listener.take()
    wakeups.wake([Wakeup("default", 5, LANE._replace(tenant="x" * 9000))])
    listener.wait(WAIT_S)
    assert listener.take() == [Wakeup("default")]


def test_behind_a_pooler_workers_poll(wakeups: Wakeups, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dueline.stores.postgres.connection.ask_server", lambda _: (0, 0, 0))
    assert isinstance(wakeups.listen(["default"], Signal()), NoListener)


def test_a_listener_whose_connection_was_ended_is_notified_again(
    listener: WakeupListener, wakeups: Wakeups, url: str, signalled: Signal
) -> None:
    statement(
        url,
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE application_name = %s AND query LIKE 'LISTEN%%'",
        (url.partition("schema=")[2],),
    )
    listener.wait(WAIT_S)
    listener.take()
    heard: set[str] = set()
    while heard != {"default", "w1"}:  # it was lost: the worker polls its queues, one by one
        listener.wait(WAIT_S)
        heard |= {one.channel for one in listener.take()}
    for _ in range(100):
        signalled.clear()
        listener.wait(0.2)
        wakeups.wake([Wakeup("w1", 7)])
        listener.wait(0.2)
        if Wakeup("w1", 7) in listener.take():
            return
    raise AssertionError("it is not notified")


def test_the_thread_ends_with_the_last_listener(wakeups: Wakeups) -> None:
    before = set(threading.enumerate())
    listeners = [wakeups.listen(["default"], Signal()) for _ in range(2)]
    (thread,) = set(threading.enumerate()) - before
    for one in listeners:
        one.close()
    thread.join(WAIT_S)
    assert not thread.is_alive()


@pytest.mark.long
def test_another_process_wakes_a_worker(url: str) -> None:
    worker = subprocess.Popen([sys.executable, "-c", WORKER, url], stdout=subprocess.PIPE)
    try:
        app = app_on(url)
        echo, pass_on = app.task_named("tests.echo"), app.task_named("tests.pass_on")
        for text in ("one", "two", "three"):
            assert echo.enqueue(text).result(timeout=WAIT_S) == text
        inner = pass_on.enqueue("from a handler").result(timeout=WAIT_S)
        assert app.job(inner).result(timeout=WAIT_S) == "from a handler"
        with app.transaction() as tx:
            job = echo.using(tx=tx).enqueue("committed")
        assert job.result(timeout=WAIT_S) == "committed"
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(WAIT_S) == 0
        app.close()
    finally:
        worker.kill()
        worker.communicate()
