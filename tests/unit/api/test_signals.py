"""Signals that end what runs."""

import os
import signal
import threading
import time

import pytest

from dueline.api.signals import Requests, passed_on

ENDING = (signal.SIGTERM, signal.SIGINT)

WAIT_S = 60.0


@pytest.mark.parametrize("number", ENDING)
def test_a_signal_is_passed_on_while_this_thread_holds_the_lock_it_needs(number: int) -> None:
    """As `Event.set` needs the lock that `Event.clear` and `Event.wait` take."""
    lock, ended = threading.Lock(), threading.Event()

    def end(_count: int) -> None:
        with lock:
            ended.set()

    with passed_on(end) as received:
        with lock:
            signal.raise_signal(number)
        assert ended.wait(WAIT_S)
    assert received == [number]


@pytest.mark.parametrize(
    ("gaps_s", "counted"), [([0.501], 2), ([0.499], 1), ([0.3, 0.3], 2), ([0.0] * 9, 1)]
)
def test_signals_within_half_a_second_are_one_request(gaps_s: list[float], counted: int) -> None:
    """As those of a terminal and of a parent process that forwards its own."""
    requests, now_s = Requests(), 100.0
    new = [requests.is_new(now_s)]
    for gap_s in gaps_s:
        now_s += gap_s
        new.append(requests.is_new(now_s))
    assert new[0]
    assert sum(new) == counted


@pytest.mark.long
def test_a_forked_process_gets_what_handled_signals_before() -> None:
    """Also for a signal that is sent as soon as the process is there."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    try:
        with passed_on(lambda _: None) as received:
            for number in (signal.SIGTERM, signal.SIGHUP) * 20:
                pid = os.fork()
                if pid == 0:
                    time.sleep(WAIT_S)
                    os._exit(0)
                os.kill(pid, number)
                assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -number
    finally:
        signal.signal(signal.SIGHUP, before)
    assert not received


def test_a_handler_that_the_application_set_later_stays_in_a_forked_process() -> None:
    with passed_on(lambda _: None):
        worker_s = signal.signal(signal.SIGTERM, lambda *_: os._exit(7))
        pid = os.fork()
        if pid == 0:
            time.sleep(WAIT_S)
            os._exit(0)
        os.kill(pid, signal.SIGTERM)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
        signal.signal(signal.SIGTERM, worker_s)


def test_what_handled_signals_before_does_so_again() -> None:
    before = [signal.getsignal(number) for number in ENDING]
    with passed_on(lambda _: None):
        during = [signal.getsignal(number) for number in ENDING]
    assert not set(during) & set(before)
    assert [signal.getsignal(number) for number in ENDING] == before


def test_other_threads_catch_none() -> None:
    before = signal.getsignal(signal.SIGTERM)
    seen: list[object] = []

    def catch() -> None:
        with passed_on(lambda _: None):
            seen.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=catch)
    thread.start()
    thread.join()
    assert seen == [before]


@pytest.mark.parametrize("handler", [signal.SIG_DFL, signal.SIG_IGN])
def test_the_end_of_the_terminal_stops_what_runs_unless_it_is_ignored(
    handler: signal.Handlers,
) -> None:
    before = signal.signal(signal.SIGHUP, handler)
    try:
        with passed_on(lambda _: None) as received:
            during = signal.getsignal(signal.SIGHUP)
            if during is not signal.SIG_DFL:  # which would end this process
                signal.raise_signal(signal.SIGHUP)
        assert signal.getsignal(signal.SIGHUP) is handler
    finally:
        signal.signal(signal.SIGHUP, before)
    is_ignored = handler is signal.SIG_IGN
    assert list(received) == ([] if is_ignored else [signal.SIGHUP])


def test_a_system_without_hang_ups_has_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(signal, "SIGHUP")
    with passed_on(lambda _: None) as received:
        signal.raise_signal(signal.SIGTERM)
    assert received == [signal.SIGTERM]
